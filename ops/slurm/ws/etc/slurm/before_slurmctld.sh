#!/bin/sh
# Written by gpuq. Runs each time before slurmctld starts, as its user.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}
state=/var/lib/slurm/slurmctld

# A job whose script is lost ends with words that say so. slurmctld would end itself ("fatal: ... Unable to load job batch
# script") whenever it is to start the job. Both files as slurmctld writes them: a script and a NUL; a number, and so many
# strings, each with a NUL.
find "$state" -path '*/hash.*/job.*/*' -type f -size 0 2>/dev/null | sed 's,/[^/]*$,,' | sort -u | while read -r job; do
  {
    printf '#!/bin/sh\necho "gpuq: Slurm lost the script of this job when the power went, before it was on the disk. '
    printf 'Submit it again." >&2\nexit 1\n\0'
  } >"$job/script"
  printf '\001\000\000\000GPUQ_SCRIPT_LOST=1\000' >"$job/environment" # the number as little-endian processors have it
done
exit 0
