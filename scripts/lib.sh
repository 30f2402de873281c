# shellcheck shell=bash
# What quickstart.sh and test.sh share; sourced with the repository root as working directory.

say() { printf '==> %s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    command -v sudo >/dev/null || die "needs root for: $* (and there is no sudo here)"
    sudo "$@"
  fi
}

# apt_missing PACKAGE...: prints those that are not installed.
apt_missing() {
  local package
  for package; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# apt_install PACKAGE...: installs what is missing; no network and no sudo when nothing is.
apt_install() {
  command -v dpkg-query >/dev/null || die "this is not a Debian system; install by hand: $*"
  local missing
  mapfile -t missing < <(apt_missing "$@")
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || command -v sudo >/dev/null ||
    die "these packages are missing, and only root can install them (there is no sudo here): apt-get install ${missing[*]}"
  say "installing with apt: ${missing[*]}"
  (
    # Nothing may be started during the installation: without a slurm.conf slurmd's start fails, on systemd only
    # after 90 seconds, and takes the installation with it. policy-rc.d is Debian's way to say so.
    policy=/usr/sbin/policy-rc.d saved=/usr/sbin/policy-rc.d.before-gpuq
    # shellcheck disable=SC2317,SC2329  # called by the trap
    restore() {
      as_root rm -f "$policy"
      if [[ -e $saved ]]; then as_root mv "$saved" "$policy"; fi
    }
    trap restore EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # One with our mark was left by a run that was killed: not the host's own, so nothing to keep.
    if [[ -e $policy ]] && ! grep -qs 'gpuq: while installing' "$policy"; then as_root mv "$policy" "$saved"; fi
    printf '#!/bin/sh\n# gpuq: while installing\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    log=$(mktemp)
    if ! as_root apt-get -q update >"$log" 2>&1 || ! as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
      tail -n 15 "$log" >&2
      die "apt could not install ${missing[*]} (its last lines are above, all of them in $log)"
    fi
    rm -f "$log"
  )
}

# mirror: the archive that the host's apt uses for its own release, whatever the format of its sources.
mirror() {
  # shellcheck disable=SC1091,SC2016  # $(...) here is of apt-get
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$(. /etc/os-release && echo "$VERSION_CODENAME")" \
      '$2 == release && $3 == "main" { print $1; exit }'
}

# make_venv EXTRA: .venv with this project and its EXTRA; done again only when pyproject.toml or the place changed.
make_venv() {
  local extra=$1 python=${PYTHON:-python3} stamp
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "$python is not Python 3.11 or newer; name one: PYTHON=python3.12 $0"
  # The path is in the stamp because an editable install, and every script in a venv, names it.
  stamp=$({
    pwd
    cat pyproject.toml
  } | sha256sum)
  (
    flock 9 # two scripts at once must not build one venv
    # `dev` includes `example`.
    for done in "$extra" dev; do
      if [[ -r .venv/gpuq-$done && $(<".venv/gpuq-$done") == "$stamp" ]] && .venv/bin/python -c '' 2>/dev/null; then
        exit 0
      fi
    done
    say "making .venv with gpuq and its '$extra' extra (about half a minute)"
    # A venv that was moved, half-built or lost its Python is made anew; a good one only gets what is missing.
    if ! grep -qsF "$PWD/.venv/" .venv/bin/pip || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
      "$python" -m venv --clear .venv || die "could not make .venv (on Debian: apt install python3-venv)"
    fi
    .venv/bin/python -m pip install -qq --disable-pip-version-check -e ".[$extra]" ||
      die "pip could not install gpuq and its '$extra' extra (its message is above)"
    echo "$stamp" >".venv/gpuq-$extra"
  ) 9<.
}

# The control groups of embedded Slurms: named after their nodes, and those begin with gpuq.
slurm_cgroups() {
  # find fails when one goes away under it
  { find /sys/fs/cgroup -maxdepth 3 -type d \( -name 'slurm_gpuq*' -o -name 'gpuq*_slurmstepd.scope' \) 2>/dev/null || true; } | sort
}

# sweep_cgroups BEFORE: removes those that are not in BEFORE. Groups outlive their processes, a killed test leaves
# some. Only empty ones go: rmdir refuses one in use.
sweep_cgroups() {
  local group
  comm -13 <(echo "$1") <(slurm_cgroups) | while IFS= read -r group; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}
