#!/usr/bin/env bash
# prove_slurm.sh: shows with three small jobs that the Slurm of this host does what it is there for: a job with the GPU
# may open the device, one without it may not, and one that takes more memory than it asked for ends as OUT_OF_MEMORY.
# As root the jobs are those of the user who called sudo, else of nobody.
#
# Usage: sudo scripts/prove_slurm.sh [--help]
#
# Exit status: 0 proved; 1 not; 2 usage; 75 a user's job has the node, so only the daemons were looked at.
set -euo pipefail
if (($#)); then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

conf=${SLURM_CONF:-/etc/slurm/slurm.conf}
fail() { say "NOT PROVED: $*" && exit 1; }
value() { sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*\([^[:space:]#]*\).*/\1/Ip" "$conf" | tail -n 1; }
who=$(id -un)
((EUID != 0)) || who=${SUDO_USER:-nobody}
work=$(mktemp -d /tmp/gpuq-proof.XXXXXX) jobs=()
if ((EUID == 0)); then chown "$who" "$work"; fi
trap 'if ((${#jobs[@]})); then scancel "${jobs[@]}" 2>/dev/null || true; fi; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# "idle" alone proves nothing: slurmctld believes its saved state until slurmd has been silent for minutes.
say "waiting for slurmctld and for the node"
node=$(value NodeName) state=
for ((end = SECONDS + 90; SECONDS < end; )); do
  if state=$(timeout 5 sinfo -h -N -n "$node" -o %T 2>/dev/null | head -n 1) && [[ $state =~ ^(idle|mixed|allocated|completing)$ ]] &&
    timeout 5 scontrol ping >/dev/null; then break; fi
  sleep 0.5
done
timeout 5 scontrol ping || fail "slurmctld does not answer: journalctl -u slurmctld"
[[ $state =~ ^(idle|mixed|allocated|completing)$ ]] || fail "node $node is ${state:-unknown}: $(timeout 5 sinfo -h -R -o %E)"
say "node $node is $state"
[[ ! -d /run/systemd/system || ${SLURM_CONF:-} ]] || for unit in munge slurmctld slurmd; do
  systemctl -q is-active "$unit" || fail "$unit does not run: journalctl -u $unit"
done
if others=$(squeue -h -a -t R,CG,S -o %i) && [[ $others ]]; then
  say "the daemons are well; the rest is not proved while job ${others//$'\n'/, } runs. Later: sudo scripts/prove_slurm.sh"
  exit 75
fi

partitions=$(grep -i '^PartitionName=' "$conf")
gpu=$(grep -i 'Default=YES' <<<"$partitions" | sed 's/^[^=]*=\([^[:space:]]*\).*/\1/')
files() { sed -n "/^#/d; /\bName=$1\b/Is/.*[[:space:]]File=\([^[:space:]#]*\).*/\1/Ip" "$(dirname "$conf")/gres.conf"; }
mapfile -t devices < <(files gpu)
mapfile -t kept < <(files nic) # GPUs that are not for jobs
with=(-p "$gpu" --gres=gpu:1) without=(-p "$gpu")
if grep -qi '^PartitionName=cpu[[:space:]]' <<<"$partitions"; then without=(-p cpu); fi

run() { # NAME SBATCH-OPTION... COMMAND: runs it as a job; $state and $output are its end
  local name=$1 id
  shift
  local argv=(sbatch --parsable -J "gpuq-proof-$name" -n 1 -c 1 -t 2 -D / -o "$work/$name" "${@:1:$#-1}" --wrap "${*: -1}")
  if ((EUID == 0)); then argv=(runuser -u "$who" -- "${argv[@]}"); fi
  id=$("${argv[@]}") || fail "the job $name was not taken"
  jobs+=("$id")
  for ((end = SECONDS + 90; SECONDS < end; )); do
    state=$(squeue -h -a -t all -j "$id" -o %T)
    [[ ! $state =~ ^(PENDING|CONFIGURING|RUNNING|COMPLETING)$ ]] || { sleep 0.3; continue; }
    output=$(cat "$work/$name") && return
  done
  fail "job $id ($name) is still $state: $(squeue -h -a -t all -j "$id" -o %r)"
}
# For reading: to open for writing would make a file where a device is missing.
open() { echo "for f in $*; do LC_ALL=C bash -c 'exec 3<\$0 && echo opened' \$f 2>&1; done; true"; }
if ((${#devices[@]})); then
  run gpu "${with[@]}" --mem=50 "$(open "${devices[@]}")"
  # A node without a driver behind it answers "No such device or address"; the cgroup has let the job through then.
  [[ $state == COMPLETED && $output =~ opened|"No such device or address" ]] || fail "a job with the GPU may not open it: $state, $output"
  say "a job with the GPU may open it (${output##*: })"
  run nogpu "${without[@]}" --mem=50 "$(open "${devices[@]}" "${kept[@]}")"
  [[ $state == COMPLETED && $output == *"Operation not permitted"* && ! $output =~ opened|"No such device or address" ]] ||
    fail "a job without the GPU is not kept from it: $state, $output"
  say "a job without the GPU may not (${output##*: })"
  if ((${#kept[@]})); then
    run kept "${with[@]}" --mem=50 "$(open "${kept[@]}")"
    [[ $state == COMPLETED && $output == *"Operation not permitted"* && ! $output =~ opened|"No such device or address" ]] ||
      fail "a job with the GPU is not kept from ${kept[*]}: $state, $output"
    say "nor may anybody's job open ${kept[*]}"
  fi
else
  say "no GPU is configured: nothing to open"
  with=(-p "$gpu")
fi
run oom "${without[@]}" --mem=64 'head -c 400m /dev/zero | tail'
[[ $state == OUT_OF_MEMORY && $output == *oom*kill* ]] || fail "a job over its memory ended as $state: $output"
say "a job over its memory is OUT_OF_MEMORY, and its log says so"
say "proved"
