#!/usr/bin/env bash
# test.sh [PYTEST-ARGUMENT...]: installs what the tests need and runs all of them. Exit status 0: all passed.
# With arguments, pytest gets them and the stages in chroots are left out. GPUQ_TEST_CHROOT=0 leaves them out, too;
# GPUQ_TEST_CHROOT="trixie sid" runs just these suites, and fails when one of their chroots cannot be built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

failed=()
stage() { # NAME COMMAND...: goes on after a failure, so that one run shows all there is to see
  local name=$1 started=$SECONDS
  shift
  say "$name"
  if "$@"; then
    say "$name: passed in $((SECONDS - started)) s"
  else
    failed+=("$name")
    say "$name: FAILED after $((SECONDS - started)) s"
  fi
}

# Everything that the tests start has this directory in its environment, its arguments or as its place, and is found
# by that at the end.
TMPDIR=$(mktemp -d /tmp/gpuq.XXXXXX) # short: the path of a socket has a limit
chmod 755 "$TMPDIR"                  # for tests with a second user
export TMPDIR
# shellcheck disable=SC2317,SC2329  # called by the trap, like clean_up
still_there() {
  local pid
  {
    grep -lzsF "$TMPDIR" /proc/[0-9]*/cmdline /proc/[0-9]*/environ
    find /proc/[0-9]*/cwd -maxdepth 0 -lname "$TMPDIR/*" 2>/dev/null
  } | cut -d/ -f3 | sort -un | while read -r pid; do # without grep itself, which is gone by now
    if kill -0 "$pid" 2>/dev/null; then echo "$pid"; fi
  done
}
cgroups_before=$(slurm_cgroups)
# shellcheck disable=SC2317,SC2329
clean_up() {
  local pids signal
  for signal in TERM KILL; do
    for _ in {1..50}; do
      mapfile -t pids < <(still_there)
      ((${#pids[@]})) || break 2
      kill "-$signal" "${pids[@]}" 2>/dev/null || true
      sleep 0.1
    done
  done
  sweep_cgroups "$cgroups_before"
  rm -rf --one-file-system "$TMPDIR"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

apt_install slurm-wlm munge python3-venv shellcheck gcc libc6-dev git procps
(apt_install nix-bin) || say "without nix the skeleton of a job for it is tried with a stand-in alone"
make_venv dev
PATH=$PWD/.venv/bin:$PATH

# Without the copies that attempts keep of their script.
mapfile -t scripts < <(find .ci benchmarks docs ops runs scripts \
  -type f \( -name '*.sh' -o -path .ci/run \) ! -path 'runs/*/slurm/*' 2>/dev/null | sort)
stage "ruff check" ruff check --quiet .
stage "ruff format" ruff format --check --quiet .
stage "mypy" mypy
stage "shellcheck" shellcheck -x "${scripts[@]}"
if [[ -e scripts/generate-readme.py ]]; then
  stage "generated parts of the README" python scripts/generate-readme.py --check
fi
# Debian 13 is what users run: without its chroot the tests are not complete. sid moves, and may not be installable on
# the day: then it is left out and said so; what fails in it is a failure. Suites that are named have to be there.
case ${GPUQ_TEST_CHROOT:-1} in
  0) suites=() needed='' ;;
  1) suites=(trixie sid) needed=trixie ;;
  *) read -ra suites <<<"$GPUQ_TEST_CHROOT" && needed=$GPUQ_TEST_CHROOT ;;
esac
# shellcheck disable=SC2317,SC2329  # called through stage
in_chroot() { # SUITE
  local status=0
  scripts/test-slurm.sh "$1" || status=$?
  if ((status == 75)) && [[ " $needed " != *" $1 "* ]]; then
    untested+=("$1")
    say "NOT TESTED on $1: its chroot could not be built"
    return 0
  fi
  return "$status"
}
untested=()
if (($#)); then
  say "other releases of Slurm: left out, because pytest arguments were given"
elif ((${#suites[@]} == 0)); then
  say "other releases of Slurm: left out, because GPUQ_TEST_CHROOT=0"
elif ((EUID != 0)); then
  say "other releases of Slurm: left out, because they need root (sudo scripts/test-slurm.sh trixie)"
elif ! unshare --mount --pid --fork true 2>/dev/null; then
  say "other releases of Slurm: left out, because no mounts can be made here (a container?)"
else
  for suite in "${suites[@]}"; do
    stage "live tests on the Slurm of Debian $suite" in_chroot "$suite"
  done
fi
if ((${#failed[@]})); then
  say "FAILED so far: $(printf '%s; ' "${failed[@]}")pytest still runs"
fi
# Last, so that its summary is the last thing to read.
say "pytest"
status=0
if (($#)); then
  pytest -n 3 --dist worksteal "$@" || status=$?
else
  scripts/run-pytest.sh || status=$?
fi
if ((${#untested[@]})); then say "NOT TESTED on ${untested[*]}: its chroot could not be built (see above)"; fi
if ((${#failed[@]})); then
  die "failed: $(printf '%s; ' "${failed[@]}")pytest exited with $status"
fi
exit "$status"
