"""Bringing the embedded Slurm up: daemons, readiness, and jobs that a crash or a reboot left behind."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpuq.adapters import files, proc
from gpuq.adapters.embedded import cgroups, daemons, host, state
from gpuq.adapters.embedded.control import READY, Controller, names
from gpuq.adapters.embedded.layout import Layout
from gpuq.adapters.embedded.state import LocalState
from gpuq.core.host import epilog as conf_epilog
from gpuq.core.host import gres_conf as conf_gres
from gpuq.core.host import job_submit_lua as conf_lua
from gpuq.core.host import partitions as conf_partitions
from gpuq.core.host import slurm_conf as conf
from gpuq.core.host import state as conf_state
from gpuq.core.host.spec import WEEK, Confinement, Gpu, HostSpec, memory_with_margin
from gpuq.errors import HostError

READY_PATIENCE = 30.0
"""Seconds for the node to register."""

START_ATTEMPTS = 5

Say = Callable[[str], None]


def start(layout: Layout, programs: host.Programs, saved: LocalState, say: Say) -> None:
    """Start the three daemons and take up a queue that is there; `saved` is updated and written.

    Raises HostError; then nothing that it started is left running.
    """
    seen = host.hardware(programs)
    saved.slurm_version = seen.version_text
    gpu = host.gpu(layout, simulate=saved.options.simulate_gpu)
    confinement, missing = cgroups.survey(swap=host.has_swap(), devices=gpu.isolated)
    if saved.options.confine is False:
        confinement, missing = Confinement(), ["switched off by --no-confine"]
    saved.gpu_real, saved.gpu_file = gpu.real, str(gpu.file)
    avoid: set[int] = set()
    _stop_survivors(layout)
    for attempt in range(1, START_ATTEMPTS + 1):
        saved.confined, saved.missing = confinement.any, tuple(missing)
        kept = (saved.slurmctld_port, saved.slurmd_port)
        saved.slurmctld_port, saved.slurmd_port = host.choose_ports(kept, avoid=avoid)
        spec = _spec(layout, saved, seen, gpu, confinement)
        state.save(layout, saved)
        try:
            _start_once(layout, programs, saved, spec, say)
            return
        except daemons.DaemonFailed as failure:
            _stop_survivors(layout)
            taken = {port for port in kept + (saved.slurmctld_port, saved.slurmd_port) if port}
            taken = {port for port in taken if not host.port_is_free(port)}
            if taken or "bind" in failure.line or "listen" in failure.line:
                say("a port was taken in the meantime; choosing others")
                avoid |= {saved.slurmctld_port, saved.slurmd_port}
            elif failure.daemon == "slurmd" and confinement.any and "cgroup" in failure.line.lower():
                say(f"slurmd cannot use cgroups here ({failure.line}); starting without confinement")
                confinement, missing = Confinement(), [f"cgroups do not work here: {failure.line}"]
            else:
                attempt = START_ATTEMPTS
            if attempt == START_ATTEMPTS:
                _give_up(layout, saved.node)
                hint = f"gpuq local status --dir {layout.dir}"
                if "getaddrinfo" in failure.line and not spec.ipv6:
                    hint = "Slurm needs an address besides 127.0.0.1, or IPv6 on the loopback interface: ip address"
                raise HostError(f"{failure} (log: {failure.log})", hint=hint) from None
        except BaseException:
            _give_up(layout, saved.node)
            raise


def _start_once(layout: Layout, programs: host.Programs, saved: LocalState, spec: HostSpec, say: Say) -> None:
    """One attempt. Raises DaemonFailed or HostError with the daemons possibly still running."""
    alive = daemons.step_jobs(daemons.find(layout), layout, saved.node)
    if alive is not None:
        _bury(layout, saved.node, alive)
    daemons.sweep_files(layout, alive=alive)
    recovering = any(layout.state_dir.glob("job_state*"))
    if recovering:
        proc.run(["sh", "-c", conf_state.mend(layout.state_dir)], timeout=60)
    # Nothing may start before the jobs without a process are found, or a job just launched looks like one.
    _write_conf(layout, spec, partitions_up=not recovering)
    started = time.monotonic()
    told = False
    daemons.start_munged(programs, layout)
    _start_slurmctld(layout, programs, spec)
    slurmd_started = time.time()
    daemons.start_slurm("slurmd", [programs.slurmd, "-f", str(layout.conf), "-N", saved.node], layout, spec.slurmd_port)
    controller = Controller(layout, programs, saved.node)
    while not _registered(controller, slurmd_started):
        if "slurmd" not in daemons.find(layout).daemons or "slurmctld" not in daemons.find(layout).daemons:
            dead = "slurmd" if "slurmd" not in daemons.find(layout).daemons else "slurmctld"
            log = layout.log_dir / f"{dead}.log"
            raise daemons.DaemonFailed(dead, daemons.last_reason(log) or "it ended at once", log)
        if time.monotonic() - started > READY_PATIENCE:
            fields = controller.node_fields()
            text = f"node {saved.node} is {fields.get('State') or 'unknown'} {fields.get('Reason', '')}".strip()
            raise daemons.DaemonFailed("slurmd", text, layout.log_dir / "slurmd.log")
        if time.monotonic() - started > 1:
            controller.take_back(controller.node_fields())
        if not told and time.monotonic() - started > 2:
            say("waiting for the node to register")
            told = True
        time.sleep(0.02)
    if recovering:
        if alive is None:
            say("a running job's process does not say which job it serves; leaving all jobs as they are")
        else:
            _requeue_ghosts(controller, alive, spec.kill_wait, say)
            if controller.gpu_leaked():
                say("slurmctld lost track of the GPU; starting it again")
                daemons.stop([daemons.find(layout).daemons["slurmctld"]])
                _start_slurmctld(layout, programs, spec)
                daemons.wait_for(lambda: _registered(controller, slurmd_started), READY_PATIENCE)
        controller.partitions("UP")
        _write_conf(layout, spec, partitions_up=True)


def _start_slurmctld(layout: Layout, programs: host.Programs, spec: HostSpec) -> None:
    daemons.start_slurm("slurmctld", [programs.slurmctld, "-f", str(layout.conf)], layout, spec.slurmctld_port)


def _registered(controller: Controller, since: float) -> bool:
    """The controller has heard from a slurmd started at or after `since`, and takes jobs for it.

    `idle` alone proves nothing: slurmctld believes its saved state until slurmd has been silent for minutes.
    """
    fields = controller.node_fields()
    flags = fields.get("State", "").split("+")
    if flags[0].rstrip("*~#!%$@^-") not in READY or "*" in fields.get("State", ""):
        return False
    if {"DOWN", "DRAIN", "NOT_RESPONDING", "INVALID_REG"} & set(flags):
        return False
    try:
        when = datetime.datetime.fromisoformat(fields.get("SlurmdStartTime", ""))
    except ValueError:
        return False
    return when.timestamp() >= int(since)  # whole seconds, local time, as slurmctld prints them


def _requeue_ghosts(controller: Controller, alive: set[int], kill_wait: int, say: Say) -> None:
    """Jobs that slurmctld believes RUNNING although no process of theirs is left.

    Slurm itself notices at a registration of the node at least 20 s after slurmctld's start, the next of which
    may be half an hour away; until then the GPU stays taken.
    """
    ending = controller.jobs("COMPLETING")  # being requeued, or just over, when Slurm stopped
    ghosts = [job for job in controller.jobs() if job.id not in alive]
    refused = [job for job in ghosts if controller.requeue(job)]
    requeued = [job for job in ghosts if job not in refused]
    if refused:
        # Not requeueable (--no-requeue, srun, salloc): NODE_FAIL is the truth, but ends all jobs of the node.
        if alive:
            controller.cancel(refused)
        else:
            controller.fail_node()
        say(f"lost when Slurm stopped, and not to be requeued: {names(refused)}")
    if not ghosts and not ending:
        return
    controller.settle(patience=kill_wait + 5)
    controller.start_first(requeued + ending)
    if requeued:
        say(f"interrupted when Slurm stopped, requeued: {names(requeued)}")


def _bury(layout: Layout, node: str, alive: set[int]) -> None:
    """End the processes of jobs whose slurmstepd is dead: the job will run again, and must not run twice."""
    ours = {process.pid for process in daemons.find(layout).steps}
    for cgroup in cgroups.jobs_of(node):
        if not cgroups.pids_in(cgroup) & ours:
            cgroups.remove(cgroup, patience=5)
    daemons.kill(daemons.job_processes(layout, but=alive))


def _stop_survivors(layout: Layout) -> None:
    """Stop daemons that are left of an earlier life; running jobs (slurmstepd) stay."""
    found = daemons.find(layout)
    daemons.stop([process for process in found.all() if process not in found.steps and not _is_infinity(process)])


def _is_infinity(process: object) -> bool:
    """`slurmstepd infinity` holds the cgroup v2 scope open; it must outlive slurmd while steps live."""
    with contextlib.suppress(Exception):
        return "infinity" in process.cmdline()  # type: ignore[attr-defined]
    return False


def _give_up(layout: Layout, node: str) -> None:
    """After a failed start: nothing of ours stays, and no slurm.conf that would make clients wait."""
    _stop_survivors(layout)
    found = daemons.find(layout)
    if not found.steps:
        daemons.stop(found.all())
        for cgroup in cgroups.of_node(node):  # made by a slurmd that did start
            cgroups.remove(cgroup, patience=5)
        daemons.sweep_files(layout, alive=())
        layout.conf.unlink(missing_ok=True)


def _spec(layout: Layout, saved: LocalState, seen: host.Hardware, gpu: host.Gpu, confinement: Confinement) -> HostSpec:
    options = saved.options
    cpus = seen.cpus if options.cpus in (None, seen.cpus.cpus) else seen.cpus.limited(options.cpus or 1)
    memory = options.memory or memory_with_margin(seen.memory)
    user = _user_name()
    return HostSpec(
        version=seen.version,
        cluster=saved.node,
        node=saved.node,
        hostname=host.hostname(),
        address="127.0.0.1",
        cpus=cpus,
        real_memory=memory,
        gpus=(Gpu(gpu.file),),
        partitions=conf_partitions.partitions(
            cpus,
            memory,
            max_time=options.max_time or WEEK,
            default_time=options.default_time,
            grace=options.grace or conf_partitions.GRACE,
            version=seen.version,
        ),
        slurm_user=user,
        slurmd_user=user,
        slurmctld_port=saved.slurmctld_port,
        slurmd_port=saved.slurmd_port,
        munge_socket=layout.munge_socket,
        state_dir=layout.state_dir,
        spool_dir=layout.spool_dir,
        log_dir=layout.log_dir,
        run_dir=layout.run_dir,
        jobcomp_log=layout.jobcomp,
        confinement=confinement,
        epilog=_epilog(layout, gpu),
        gate=options.gate is not False,
        mail_program=_true_program(),
        ipv6=host.has_ipv6(),
        kill_wait=options.kill_wait or state.DEFAULT_KILL_WAIT,
        sched_interval=1,
        config_overrides=cpus.cpus > seen.cpus.cpus or memory > seen.memory,
        extra=options.extra or (),
    )


def _write_conf(layout: Layout, spec: HostSpec, *, partitions_up: bool) -> None:
    shown = tuple(msgspec.structs.replace(part, up=partitions_up) for part in spec.partitions)
    files.write_atomic(layout.gres_conf, conf_gres.gres_conf(spec))
    files.write_atomic(layout.cgroup_conf, conf_gres.cgroup_conf(spec))
    files.write_atomic(layout.job_submit, conf_lua.job_submit(spec))
    files.write_atomic(layout.conf, conf.slurm_conf(msgspec.structs.replace(spec, partitions=shown)))


def _epilog(layout: Layout, gpu: host.Gpu) -> Path:
    """Write the epilog. Where nothing in this directory may be executed, one that does nothing still closes the idle gap."""
    devices = (gpu.file,) if gpu.isolated else ()
    files.write_atomic(layout.epilog, conf_epilog.epilog(devices, layout.log_dir / "epilog.log"), mode=0o755)
    return layout.epilog if os.access(layout.epilog, os.X_OK) else _true_program()


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())  # a container without a passwd entry; Slurm takes a number


def _true_program() -> Path:
    """An executable that does nothing. NixOS and Guix have no /bin/true."""
    for path in (Path("/bin/true"), Path("/usr/bin/true")):
        if os.access(path, os.X_OK):
            return path
    import shutil

    return Path(shutil.which("true") or "/bin/true")
