#!/usr/bin/env bash
# record-slurm.sh [SUITE...]: records what Slurm answers to gpuq into tests/data/slurm/<version>/answers, which the tests read.
# SUITE: trixie or sid (in a chroot, see chroot.sh), or host: the Slurm that is installed here. Default: all three.
# To be run again when gpuq asks Slurm something new, or a release changed; the differences are then worth reading.
# Root only; each takes about two minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

((EUID == 0)) || die "only root can record jobs of several users"
(($#)) || set -- host trixie sid
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for suite; do
  say "recording the Slurm of $suite"
  if [[ $suite == host ]]; then
    apt_install slurm-wlm munge python3-venv
    make_venv dev
    .venv/bin/python -m tests.record_slurm "$made"
  else
    GPUQ_CHROOT_OUT=$made scripts/chroot.sh "$suite" python3 -m tests.record_slurm /out
  fi
done
for place in "$made"/*/answers; do
  target=tests/data/slurm/$(basename "$(dirname "$place")")/answers
  rm -rf "$target"
  mkdir -p "$target"
  cp "$place"/* "$target/"
  say "$target: $(du -sb "$target" | cut -f1) bytes"
done
