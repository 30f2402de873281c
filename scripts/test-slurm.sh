#!/usr/bin/env bash
# test-slurm.sh SUITE [PYTEST-ARGUMENT...]: the live tests against the Slurm of another Debian release
# (trixie: 24.11, sid: 26.05), in a throw-away chroot (scripts/chroot.sh says what is kept, and what its exit status is).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
suite=${1:?usage: test-slurm.sh SUITE [PYTEST-ARGUMENT...], SUITE being trixie or sid}
shift
echo "==> live tests in the $suite chroot"
if (($#)); then
  exec scripts/chroot.sh "$suite" python3 -m pytest -m "live and not one_release" -q -n 3 --dist worksteal "$@"
fi
exec scripts/chroot.sh "$suite" scripts/run-pytest.sh -m "live and not one_release" -q tests
