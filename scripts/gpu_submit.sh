#!/usr/bin/env bash
# gpu_submit.sh TAG [JOBID to run after, however it ends] [MEM]: prints the job id only, like sbatch --parsable.
exec gpuq submit "${1:?usage: gpu_submit.sh TAG [AFTERANY-JOBID] [MEM]}" ${2:+--after "$2"} ${3:+--mem "$3"} --parsable
