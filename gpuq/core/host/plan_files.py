"""The directory that is rendered for a host: which files, where they go, whose they are. Pure.

ops/slurm/README.md describes it for whoever installs it.
"""

from __future__ import annotations

import msgspec

from gpuq.core.host import epilog as conf_epilog
from gpuq.core.host import gres_conf as conf_gres
from gpuq.core.host import job_submit_lua as conf_lua
from gpuq.core.host import slurm_conf as conf
from gpuq.core.host import state as conf_state
from gpuq.core.host import units as conf_units
from gpuq.core.host.spec import HostSpec

FORMAT = 1


class PlannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the plan. path: absolute, on the host. purpose: one sentence for a person."""

    path: str
    text: str
    purpose: str
    mode: int = 0o644
    owner: str = "root:root"


def files(spec: HostSpec) -> list[PlannedFile]:
    """Everything that is installed on a host with systemd, in the order of installation."""
    system = "/etc/systemd/system"
    found = [
        PlannedFile(
            path="/etc/slurm/slurm.conf",
            text=conf.slurm_conf(spec),
            purpose="the node, its partitions, and the rules of the queue",
        ),
        PlannedFile(
            path="/etc/slurm/gres.conf", text=conf_gres.gres_conf(spec), purpose="the device file behind --gres=gpu:1"
        ),
        PlannedFile(
            path="/etc/slurm/cgroup.conf",
            text=conf_gres.cgroup_conf(spec),
            purpose="jobs are held to the cores, memory and devices that they asked for",
        ),
    ]
    if spec.gate:
        found.append(
            PlannedFile(
                path="/etc/slurm/job_submit.lua",
                text=conf_lua.job_submit(spec),
                purpose="refuses a job in a GPU partition that does not ask for exactly one GPU",
            )
        )
    return [
        *found,
        PlannedFile(
            path=str(spec.epilog),
            text=conf_epilog.epilog((gpu.file for gpu in spec.gpus), spec.log_dir / "epilog.log"),
            purpose="ends what a job left on the GPU, and lets the next one start at once",
            mode=0o755,
        ),
        PlannedFile(
            path=str(conf_state.PATH),
            text=conf_state.before_slurmctld(spec.state_dir),
            purpose="a job whose script a power cut emptied says so, and does not keep slurmctld from running",
            mode=0o755,
        ),
        PlannedFile(
            path=f"{system}/slurmctld.service.d/gpuq.conf",
            text=conf_units.service_dropin("slurmctld", spec),
            purpose="slurmctld is started again when it fails",
        ),
        PlannedFile(
            path=f"{system}/slurmd.service.d/gpuq.conf",
            text=conf_units.service_dropin("slurmd", spec),
            purpose="slurmd is started again when it fails, and after slurmctld",
        ),
        PlannedFile(
            path=f"{system}/{spec.node}_slurmstepd.scope.d/order.conf",
            text=conf_units.scope_dropin(),
            purpose="a reboot does not fail the job that runs",
        ),
        PlannedFile(
            path=f"{system}/{conf_units.RECHECK}",
            text=conf_units.recheck_unit(),
            purpose="a job that a reboot or a power cut interrupted goes back to the queue",
        ),
        PlannedFile(
            path=f"{system}/{conf_state.SYNC}.service",
            text=conf_state.sync_service(spec.state_dir),
            purpose="scripts of jobs are on the disk soon after the list of jobs is",
        ),
        PlannedFile(
            path=f"{system}/{conf_state.SYNC}.path",
            text=conf_state.sync_path(spec.state_dir),
            purpose="starts that each time when the list was saved",
        ),
        PlannedFile(
            path="/etc/logrotate.d/gpuq-slurm",
            text=conf_units.logrotate(spec),
            purpose="the history of jobs does not grow for ever",
        ),
    ]


def manifest(spec: HostSpec, planned: list[PlannedFile]) -> str:
    """The text of MANIFEST (format: ops/slurm/README.md)."""
    user = f"{spec.slurm_user}:{spec.slurm_user}"
    lines = [
        "# Written by gpuq host plan; the format is described in ops/slurm/README.md.",
        f"gpuq-host {FORMAT}",
        f"host {spec.hostname}",
        f"slurm {spec.version[0]}.{spec.version[1]:02d}",
        *(f"gpu {file}" for file in spec.devices),
        f"dir 0755 {user} {spec.log_dir}",
        f"dir 0700 {user} {spec.state_dir}",
        f"dir 0755 {user} {spec.spool_dir}",
        f"log 0644 {user} {spec.jobcomp_log}",
        *(f"file {one.mode:04o} {one.owner} {one.path}" for one in planned),
        f"unit {conf_units.RECHECK}",
        f"unit {conf_state.SYNC}.path",
    ]
    return "\n".join(lines) + "\n"
