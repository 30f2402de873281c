"""What keeps the scripts of jobs through a power cut: two units, and a shell script before slurmctld starts. Pure text.

docs/adr/0030 has the causes.
"""

from __future__ import annotations

import shlex
from pathlib import Path

PATH = Path("/etc/slurm/before_slurmctld.sh")
SYNC = "gpuq-slurm-scripts"
"""A service and a path unit are called so."""


def before_slurmctld(state_dir: Path) -> str:
    """The text of before_slurmctld.sh. state_dir: StateSaveLocation."""
    return f"{_HEAD}{mend(state_dir)}exit 0\n"


def sync_service(state_dir: Path) -> str:
    """The unit that writes the scripts of new jobs to the disk. Two minutes: what is older the kernel has written."""
    return (
        "# Written by gpuq. slurmctld sees to it that its list of jobs is on the disk, but not that their scripts are: for\n"
        "# half a minute after a submission a power cut would leave a job with an empty script.\n"
        "[Unit]\n"
        "Description=Write the scripts of new jobs to the disk\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart=-/usr/bin/find {state_dir} -path */hash.*/job.*/* -type f -mmin -2 -exec sync {{}} +\n"
        "# It runs every few seconds while jobs come and go: not a line in the journal for each time.\n"
        "LogLevelMax=notice\n"
    )


def sync_path(state_dir: Path) -> str:
    """The unit that starts `sync_service` each time when slurmctld has saved its list of jobs."""
    return (
        "# Written by gpuq; see the service of the same name.\n"
        "[Unit]\n"
        "Description=Notice that slurmctld has saved its list of jobs\n"
        "\n"
        "[Path]\n"
        f"PathChanged={state_dir}/job_state\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )


def mend(state_dir: Path) -> str:
    """The part that gives jobs with an empty script one that says so, for `sh -c`; slurmctld must not run."""
    return _PLACE.format(state=shlex.quote(str(state_dir))) + _MEND


_HEAD = """\
#!/bin/sh
# Written by gpuq. Runs each time before slurmctld starts, as its user.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}
"""

_PLACE = "state={state}\n"

_MEND = """
# A job whose script is lost ends with words that say so. slurmctld would end itself ("fatal: ... Unable to load job batch
# script") whenever it is to start the job. Both files as slurmctld writes them: a script and a NUL; a number, and so many
# strings, each with a NUL.
find "$state" -path '*/hash.*/job.*/*' -type f -size 0 2>/dev/null | sed 's,/[^/]*$,,' | sort -u | while read -r job; do
  {
    printf '#!/bin/sh\\necho "gpuq: Slurm lost the script of this job when the power went, before it was on the disk. '
    printf 'Submit it again." >&2\\nexit 1\\n\\0'
  } >"$job/script"
  printf '\\001\\000\\000\\000GPUQ_SCRIPT_LOST=1\\000' >"$job/environment" # the number as little-endian processors have it
done
"""
