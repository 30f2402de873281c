"""The Epilog: ends what a job left behind on the GPU. A shell script, run by slurmd (as root on a host). Pure text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path


def epilog(devices: Iterable[Path], log: Path) -> str:
    """The text of epilog.sh. devices: files that nobody but the GPU's users has open; without any it ends nothing.

    log: where it writes what it ended.
    """
    names = "".join(f" {shlex.quote(str(device))}" for device in devices)
    return _TEXT.replace(" @DEVICES@", names).replace("@LOG@", shlex.quote(str(log)))


_TEXT = """\
#!/bin/sh
# Written by gpuq. slurmd runs it when a job has ended: what is left of the job on the GPU is ended, so that the next job
# has the GPU for itself. A process is the job's when the kernel says so (its cgroup) or when its environment names the job
# and this cluster; it is never told by its name. What is not on the GPU is left alone.
# Always exit 0: any other status drains the node. It must be quick, because the next job waits for it.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}
export LC_ALL=C
job=${SLURM_JOB_ID:-} uid=${SLURM_JOB_UID:-} cluster=${SLURM_CLUSTER_NAME:-} sluid=${SLURM_JOB_SLUID:-}
node=${SLURMD_NODENAME:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac

on_gpu() { # PID: it has a file of the GPU open
  for file in /proc/"$1"/fd/*; do
    open=$(readlink "$file" 2>/dev/null) || continue
    for device in "" @DEVICES@; do
      [ "$open" != "$device" ] || return 0
    done
  done
  return 1
}

candidates() { # one look at all processes: milliseconds
  # cgroup v1: /slurm_NODE/uid_U/job_N/..., or /slurm/uid_U/job_N; v2: /NODE_slurmstepd.scope/job_N/..., from 26.05 on a
  # folder named by the job's SLUID
  job_cgroup="/slurm(_$node)?/uid_[0-9]+/job_$job|/${node}_slurmstepd\\.scope/(job_$job${sluid:+|$sluid})"
  grep -lszE "($job_cgroup)(/|[[:space:]]|\\$)|^SLURM_JOB_ID=$job\\$" /proc/[0-9]*/cgroup /proc/[0-9]*/environ |
    while read -r file; do
      case $file in
        */cgroup) echo "$file" ;;
        *) if [ -n "$cluster" ] && grep -qszxF "SLURM_CLUSTER_NAME=$cluster" "$file"; then echo "$file"; fi ;;
      esac
    done
}

killed=''
for file in $(candidates); do
  pid=${file#/proc/} pid=${pid%%/*}
  if [ "$pid" = "$$" ] || [ "$pid" = 1 ] || [ "$(stat -c %u "/proc/$pid" 2>/dev/null)" != "$uid" ]; then continue; fi
  case " $killed " in *" $pid "*) continue ;; esac
  if on_gpu "$pid" && kill -KILL "$pid" 2>/dev/null; then killed="$killed $pid"; fi
done
[ -n "$killed" ] || exit 0

# The driver gives the memory back when the process is gone: the next job waits for that, two seconds at most.
left=20
for pid in $killed; do
  while [ "$left" -gt 0 ] && [ -e "/proc/$pid" ] && ! grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; do
    sleep 0.1
    left=$((left - 1))
  done
done
text="job $job of user $uid left processes on the GPU; ended:$killed"
echo "$(date '+%Y-%m-%dT%H:%M:%S') $text" >>@LOG@ 2>/dev/null
if command -v logger >/dev/null; then logger -t gpuq-epilog -- "$text" 2>/dev/null; fi
exit 0
"""
