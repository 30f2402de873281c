#!/usr/bin/env bash
# gpu_submit.sh TAG [JOBID to run after, however it ends] [MEM]: prints the job id only, like sbatch --parsable.
if [[ -z ${1:-} ]]; then
  echo 'usage: gpu_submit.sh TAG [JOBID-TO-RUN-AFTER] [MEM]' >&2
  exit 2
fi
exec gpuq submit "$1" ${2:+--after "$2"} ${3:+--mem "$3"} --parsable
