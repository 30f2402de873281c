#!/usr/bin/env bash
# A run of gpuq. A new experiment is a copy of one that has succeeded, with one value changed:
#   gpuq new lr3e-4 --from baseline LR=3e-4
set -euo pipefail

LR=1e-3

cd "${GPUQ_PROJECT:?is not set: submit this run with gpuq}"
if [[ -n ${GPUQ_CHECK:-} ]]; then # gpuq submit --check: takes seconds, sees no GPU, trains nothing
  uv run --frozen python train.py --help >/dev/null # its imports and its command line
  exit
fi
# exec: SIGTERM then reaches gpuq run, which gives it to the program and writes the last line of the log.
# --frozen: what uv.lock says, and nothing is resolved anew on the way. gpuq keeps the hash of uv.lock.
exec gpuq run -- uv run --frozen python train.py --lr "$LR" --out "$GPUQ_RUN_DIR"
