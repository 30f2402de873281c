"""What surrounds Slurm on a host with systemd: drop-ins, a unit, logrotate. Pure text; docs/adr/0030 has causes."""

from __future__ import annotations

from gpuq.core.host import state as conf_state
from gpuq.core.host.spec import HostSpec

RECHECK = "gpuq-slurmd-recheck.service"


def service_dropin(daemon: str, spec: HostSpec) -> str:
    """The drop-in of slurmctld.service or slurmd.service."""
    unit = ["# Written by gpuq.", "[Unit]"]
    service = ["[Service]"]
    if daemon == "slurmd":
        unit += [
            "# slurmd registers with slurmctld when it starts; at boot both start at the same time.",
            "After=slurmctld.service",
        ]
        minors = [name.removeprefix("nvidia") for name in (file.name for file in spec.devices)]
        service += [
            "# On a host without a display nothing makes /dev/nvidia0 before somebody uses the GPU, and slurmd does not",
            "# start without it. Not an error where the program is missing: then the driver makes the files itself.",
            *(f"ExecStartPre=-/usr/bin/nvidia-modprobe -c {minor}" for minor in minors if minor.isdigit()),
        ]
    else:
        service += [
            "# A job whose script was lost in a power cut does not keep slurmctld from running.",
            f"ExecStartPre=-{conf_state.PATH}",
        ]
    unit += [
        "# The distribution's unit has no Restart=: a GPU device file, or a network, that comes late at boot would leave",
        "# the daemon failed until somebody starts it by hand.",
        "StartLimitIntervalSec=0",
    ]
    service += ["Restart=on-failure", "RestartSec=5"]
    return "\n".join([*unit, "", *service]) + "\n"


def scope_dropin() -> str:
    """The drop-in of the scope in which all jobs run (slurmd makes it; drop-ins do apply to it)."""
    return (
        "# Written by gpuq. At a reboot systemd would stop the jobs while slurmctld runs, which records them as FAILED.\n"
        "# Stopped after slurmctld, they are still its running jobs at the next boot, and go back to the queue.\n"
        "[Unit]\n"
        "Before=slurmctld.service\n"
        "\n"
        "[Scope]\n"
        "# slurmstepd would try for 90 s to reach the slurmctld that is gone.\n"
        "TimeoutStopSec=5\n"
    )


def recheck_unit() -> str:
    """The unit that makes slurmd register again after each start of slurmctld."""
    return (
        "# Written by gpuq. A job that ran when the machine, or slurmctld, went down comes back as RUNNING. When it has no\n"
        "# process any more it holds the GPU all the same: slurmctld requeues it only when the node registers 20 s or more\n"
        "# after slurmctld's start, and the next registration by itself may be half an hour away.\n"
        "[Unit]\n"
        "Description=Let slurmd register again after a start of slurmctld, so that jobs without a process are requeued\n"
        "After=slurmctld.service slurmd.service\n"
        "# With each start of slurmctld, and from the beginning when that is started again meanwhile.\n"
        "PartOf=slurmctld.service\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        "# Nothing is to be done where slurmd does not run: it registers when it starts.\n"
        "ExecStart=/bin/sh -c 'sleep 30; exec systemctl try-reload-or-restart slurmd.service'\n"
        "\n"
        "[Install]\n"
        "WantedBy=slurmctld.service\n"
    )


def logrotate(spec: HostSpec) -> str:
    """logrotate's file for the logs that no package rotates: the history of jobs (kept for years) and the epilog's."""
    return (
        "# Written by gpuq. slurmctld.log and slurmd.log are rotated by the packages.\n"
        f"{spec.jobcomp_log} {{\n"
        "  # The history of all jobs: kept, and the last part uncompressed, for whoever looks up a job that ended.\n"
        "  size 20M\n"
        "  rotate 100\n"
        "  missingok\n"
        "  notifempty\n"
        "  compress\n"
        "  delaycompress\n"
        f"  create 0644 {spec.slurm_user} {spec.slurm_user}\n"
        "  postrotate\n"
        "    # slurmctld opens its logs, this one too, again\n"
        "    /bin/systemctl kill --kill-who=main --signal=USR2 slurmctld.service 2>/dev/null || true\n"
        "  endscript\n"
        "}\n"
        f"{spec.log_dir}/epilog.log {{\n"
        "  size 1M\n"
        "  rotate 4\n"
        "  missingok\n"
        "  notifempty\n"
        "  compress\n"
        "  create 0644 root root\n"
        "}\n"
    )
