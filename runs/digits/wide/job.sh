#!/usr/bin/env bash
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=00:10:00
# Handwritten digits. The variants differ in one line: diff runs/digits/{baseline,wide}/job.sh
set -euo pipefail

HIDDEN=256

cd "${GPUQ_PROJECT:?is not set: submit this run with gpuq}"
python=${GPUQ_PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=python3
# NumPy would otherwise start one thread per core of the host, whatever the job was given.
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OPENBLAS_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# exec: Slurm's SIGTERM then reaches gpuq, which gives it to Python, and not a shell that waits.
exec "$python" -m gpuq run -- "$python" runs/digits/train.py --hidden "$HIDDEN"
