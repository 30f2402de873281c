#!/usr/bin/env bash
# install-pyslurm.sh: installs PySlurm for the Slurm that is here, into .venv or the Python named by $PYTHON, or says in
# one line why it cannot. PySlurm is optional: gpuq does everything with Slurm's own commands.
#
# Exit status: 0 installed (or already there) · 1 unexpected · 3 no Slurm, or no Python environment · 4 PyPI has no
# PySlurm for this Slurm, or does not answer · 5 Slurm's headers or library are missing, or of another release ·
# 6 it could not be built · 7 it was built, but cannot be imported
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

cannot() { # STATUS REASON
  printf 'PySlurm cannot be installed: %s\n' "$2" >&2
  exit "$1"
}

# The commands ask for a slurm.conf even to say their version; the daemons do not.
slurm_version() {
  local program version
  for program in slurmd slurmctld squeue scontrol; do
    version=$(PATH=$PATH:/usr/sbin:/sbin "$program" -V 2>/dev/null | sed -n 's/^slurm[^ ]* \([0-9][0-9.]*\).*/\1/p') || true
    if [[ $version ]]; then
      echo "$version"
      return
    fi
  done
}

python=${PYTHON:-.venv/bin/python}
"$python" -m pip --version >/dev/null 2>&1 || cannot 3 "$python has no pip; scripts/quickstart.sh makes .venv"
version=$(slurm_version)
[[ $version ]] || cannot 3 "there is no Slurm here (apt-get install slurm-wlm)"
release=$(cut -d. -f1,2 <<<"$version")

installed=$("$python" -c 'from importlib.metadata import version; print(version("pyslurm"))' 2>/dev/null) || installed=''
if [[ $installed == "$release".* ]]; then
  say "PySlurm $installed is installed, and this is Slurm $version"
  exit 0
fi

listed=$("$python" -m pip index versions pyslurm 2>/dev/null | sed -n 's/^Available versions: //p') || listed=''
[[ $listed ]] || cannot 4 "PyPI does not say which releases of PySlurm there are (no network?)"
wanted=$(tr -d ' ' <<<"$listed" | tr , '\n' | grep -m1 "^${release//./\\.}\.") ||
  cannot 4 "this is Slurm $version, and PyPI has no PySlurm for it (its newest is ${listed%%,*})"

# Where they are: Debian and Ubuntu put the library beside Slurm's plugins, where PySlurm does not look.
include=${SLURM_INCLUDE_DIR:-/usr/include} lib=${SLURM_LIB_DIR:-}
if [[ ! -e $include/slurm/slurm_version.h && ! ${SLURM_INCLUDE_DIR:-} ]] && command -v apt-get >/dev/null; then
  apt_install libslurm-dev || cannot 5 "libslurm-dev could not be installed"
fi
[[ -e $include/slurm/slurm_version.h ]] ||
  cannot 5 "there is no $include/slurm/slurm_version.h (apt-get install libslurm-dev, or set SLURM_INCLUDE_DIR)"
number=$(sed -n 's/^#define SLURM_VERSION_NUMBER *0x\([0-9a-fA-F]*\).*/\1/p' "$include/slurm/slurm_version.h")
headers=$(printf '%d.%02d' $((16#${number:-0} >> 16 & 255)) $((16#${number:-0} >> 8 & 255)))
[[ $headers == "$release" ]] || cannot 5 "the headers in $include/slurm are of Slurm $headers, and this is $version"
if [[ ! $lib ]]; then
  for lib in /usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib64/slurm /usr/lib/slurm-wlm /usr/lib/slurm ''; do
    [[ ! -e $lib/libslurmfull.so ]] || break
  done
fi
[[ $lib && -e $lib/libslurmfull.so ]] ||
  cannot 5 "there is no libslurmfull.so (apt-get install slurm-wlm-basic-plugins, or set SLURM_LIB_DIR)"
if command -v apt-get >/dev/null; then
  python_version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  packages=(gcc libc6-dev)
  if [[ $("$python" -c 'import sys; print(sys.base_prefix)') == /usr ]]; then packages+=("python$python_version-dev"); fi
  apt_install "${packages[@]}" || cannot 5 "${packages[*]} could not be installed"
fi

say "building PySlurm $wanted for Slurm $version (some minutes)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
SLURM_INCLUDE_DIR=$include SLURM_LIB_DIR=$lib PYSLURM_BUILD_JOBS=$(nproc) \
  "$python" -m pip install --no-binary pyslurm "pyslurm==$wanted" >"$log" 2>&1 || {
  tail -n 15 "$log" >&2
  cannot 6 "pip could not build PySlurm $wanted (its last lines are above)"
}
# Without its own initialization, which would end the process where there is no slurm.conf.
PYSLURM_DISABLE_AUTO_INIT=1 "$python" -c 'import pyslurm' 2>"$log" ||
  cannot 7 "PySlurm $wanted was built, but its import fails: $(tail -n 1 "$log")"
say "PySlurm $wanted is installed; gpuq --debug queue says whether it is used"
