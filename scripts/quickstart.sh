#!/usr/bin/env bash
# From a fresh Debian machine to two finished jobs in a Slurm queue, with one command and no questions:
# installs what is missing (Slurm, munge, Python's venv), makes .venv, starts a private Slurm when none answers,
# and runs the example in runs/digits as a chain of two. Safe to repeat: a second run only adds new attempts.
# Root, or a user with sudo (for apt alone). A GPU is not needed; without one it is simulated, and this says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

tags=(digits/baseline digits/wide)

apt_install slurm-wlm munge python3-venv
make_venv example
PATH=$PWD/.venv/bin:$PATH

# field JSON KEY...: one value out of a JSON object
field() {
  python -c 'import functools, json, sys
print(functools.reduce(lambda found, key: found[key], sys.argv[2:], json.loads(sys.argv[1])))' "$@"
}

private=$(gpuq local status --json)
embedded=1
if [[ ${SLURM_CONF:-} != "$(field "$private" slurm_conf)" ]] &&
  ping=$(timeout 20 scontrol ping 2>/dev/null) && [[ $ping == *" is UP"* ]]; then
  embedded=0
fi
if ((!embedded)); then
  say "using the Slurm that is set up here: ${ping%%$'\n'*}"
elif [[ $(field "$private" state) == up ]]; then
  say "the private Slurm in $(field "$private" dir) is up already"
else
  say "no Slurm answers here: starting a private one, in its own directory and nowhere else"
  gpuq local up
  private=$(gpuq local status --json)
fi
if ((embedded)) && [[ $(field "$private" gpu real) == False ]]; then
  say "the GPU of this queue is SIMULATED (no NVIDIA GPU is used); Slurm, the queue and the jobs are real"
fi

say "submitting ${tags[*]}: each starts when the one before has ended, however it ended"
gpuq chain "${tags[@]}"
for _ in {1..20}; do # Slurm starts a job within a second or two; a busy queue just shows what it is
  queue=$(gpuq queue)
  [[ $queue != *RUNNING* ]] || break
  sleep 0.5
done
echo "$queue"
say "waiting for both: about 15 seconds once they run"
status=0
gpuq wait "${tags[@]}" || status=$?
for tag in "${tags[@]}"; do
  say "the end of $(gpuq log "$tag" --path)"
  gpuq log "$tag" --tail 3
done
if ((embedded)); then
  say "the private Slurm stays up; to stop it: .venv/bin/gpuq local down"
fi
((status == 0)) || die "not every run succeeded (gpuq wait: exit code $status)"
say "done: both runs succeeded"
