#!/usr/bin/env bash
# chroot.sh SUITE COMMAND [ARGUMENT...]: runs a command in a copy of this tree, with the Slurm of another Debian release
# (trixie: 24.11, sid: 26.05), in a throw-away chroot. Root only. The copy is in /src with an editable install, whose
# python3 is first on PATH; what the command writes below /out is in $GPUQ_CHROOT_OUT afterwards, when that is set.
# Exit status: the command's; 75 when the chroot is not there and could not be built.
#
# The chroot with all packages (0.7 GB) is kept in $GPUQ_CHROOT_CACHE, by default /var/cache/gpuq-chroots; remove it to
# get a newer one. Python packages come from the same release, so a second run needs no network. A run works on an
# overlay in memory, in its own mount and process namespaces: when it ends, however it ends, these are gone with all
# that was in them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

packages=(
  slurm-wlm munge gcc libc6-dev git procps iproute2 ca-certificates
  python3 python3-venv python3-pip python3-hatchling python3-editables
  python3-click python3-msgspec python3-psutil python3-rich python3-watchdog python3-jsonschema
  python3-pytest python3-pytest-timeout python3-pytest-xdist python3-hypothesis
)

# The rest of this file's functions run in their own namespaces, where /proc must be the one of that namespace.
build() { # SUITE TARGET MIRROR LOG PACKAGE...
  local suite=$1 target=$2 mirror=$3 log=$4 proxy http_proxy=${http_proxy:-} https_proxy=${https_proxy:-}
  shift 4
  proxy=$(apt-config shell p Acquire::http::Proxy) && eval "$proxy" && http_proxy=${p:-$http_proxy}
  proxy=$(apt-config shell q Acquire::https::Proxy) && eval "$proxy" && https_proxy=${q:-$https_proxy}
  export http_proxy https_proxy DEBIAN_FRONTEND=noninteractive
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$target" "$mirror" >"$log" 2>&1
  cp /etc/resolv.conf /etc/hosts "$target/etc/"
  cp /etc/ssl/certs/ca-certificates.crt "$target/etc/ssl/certs/" 2>/dev/null || true # the host's own authorities
  printf '#!/bin/sh\nexit 101\n' >"$target/usr/sbin/policy-rc.d"
  chmod 755 "$target/usr/sbin/policy-rc.d"
  mount -t proc proc "$target/proc"
  mount --rbind /dev "$target/dev"
  chroot "$target" apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends "$@" >>"$log" 2>&1
  chroot "$target" apt-get clean
  echo "$*" >"$target/gpuq-packages"
}

run_inside() { # CHROOT SCRATCH COMMAND...
  local lower=$1 scratch=$2 root
  shift 2
  mount -t tmpfs -o size=75% gpuq "$scratch"
  mkdir "$scratch"/{upper,work,root}
  root=$scratch/root
  mount -t overlay -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys" # with the control groups in it
  mount --rbind /dev "$root/dev"
  cp /etc/hosts "$root/etc/hosts"
  grep -qw "$(hostname)" "$root/etc/hosts" || echo "127.0.0.1 $(hostname)" >>"$root/etc/hosts"
  mkdir "$root/src" "$root/out"
  if [[ ${GPUQ_CHROOT_OUT:-} ]]; then mount --bind "$GPUQ_CHROOT_OUT" "$root/out"; fi
  if git rev-parse --git-dir >/dev/null 2>&1; then
    # The tree as it is, without what git ignores; a deleted file is still listed, hence the test.
    git ls-files -z --cached --others --exclude-standard |
      while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done
  else
    find . -name .venv -prune -o -type f -print0
  fi | tar --null --files-from=- -c | tar -x --no-same-owner -C "$root/src"
  # The NVML binding is one Python file, which Debian does not package; the environment of the tests has it.
  local python binding
  for python in .venv/bin/python python3; do
    if binding=$("$python" -c 'import pynvml; print(pynvml.__file__)' 2>/dev/null); then
      cp "$binding" "$root/usr/lib/python3/dist-packages/"
      break
    fi
  done
  # shellcheck disable=SC2016
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb \
    chroot "$root" bash -euo pipefail -c '
      cd /src
      python3 -m venv --system-site-packages .venv
      # Without an index: a dependency that is not among the packages above must be added there.
      .venv/bin/python -m pip install -q --no-index --no-build-isolation --root-user-action=ignore -e .
      PATH=/src/.venv/bin:$PATH
      echo "==> $(slurmd -V), $(python3 -V)"
      exec "$@"' chroot "$@"
}

# in_namespace FUNCTION ARGUMENT...: runs it where neither a mount nor a process can outlive it.
in_namespace() {
  unshare --mount --pid --fork --kill-child \
    bash -euo pipefail -c "$(declare -f "$1"); \"\$@\"" "chroot" "$@" &
  child=$!
  wait "$child" && child=''
}

clean_up() {
  # unshare's child, and everything in its namespace, die with it. (Quiet: bash would report the kill as a fault.)
  { if [[ $child ]]; then kill -KILL "$child"; fi; wait; } 2>/dev/null || true
  sweep_cgroups "$cgroups_before"
  rmdir "$scratch"
}

suite=${1:?usage: chroot.sh SUITE COMMAND [ARGUMENT...], SUITE being trixie or sid}
shift
(($#)) || die "no command given"
((EUID == 0)) || die "only root can make a chroot"
unshare --mount --pid --fork true 2>/dev/null || die "no mounts can be made here (a container without CAP_SYS_ADMIN?)"
cache=${GPUQ_CHROOT_CACHE:-/var/cache/gpuq-chroots} child=''
mkdir -p "$cache"
scratch=$(mktemp -d)
cgroups_before=$(slurm_cgroups)
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

prepare() { # builds the chroot unless it is there
  local mirror log=$cache/$suite.log started=$SECONDS
  [[ $(cat "$cache/$suite/gpuq-packages" 2>/dev/null) != "${packages[*]}" ]] || return 0
  (apt_install debootstrap) || return
  mirror=$(mirror)
  if [[ ! $mirror ]]; then
    say "apt's sources name no archive for this release of Debian; debootstrap needs one"
    return 1
  fi
  say "making a $suite chroot in $cache (once; about a minute)"
  rm -rf --one-file-system "$cache/$suite".new.*
  # Built aside, so that a half-built one is never used.
  if ! in_namespace build "$suite" "$cache/$suite.new.$$" "$mirror" "$log" "${packages[@]}"; then
    tail -n 15 "$log" >&2
    say "could not build the $suite chroot (its last lines are above, all of them in $log)"
    return 1
  fi
  rm -rf --one-file-system "${cache:?}/$suite"
  mv "$cache/$suite.new.$$" "$cache/$suite"
  say "made in $((SECONDS - started)) s"
}

exec 8>"$cache/$suite.lock"
flock 8 # one builds, the others then find it built
prepare || exit 75
flock -s 8 # nobody replaces it while it is in use
in_namespace run_inside "$cache/$suite" "$scratch" "$@"
