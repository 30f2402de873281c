"""The embedded one-host Slurm: bring it up, take it down, say how it is. The fixture of the tests, too.

Nothing is lost between `up` and `down`, whatever ended the daemons: waiting jobs are in slurmctld's saved
state, running ones go back to the queue unless their processes still live.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.embedded import cgroups, daemons, host, state
from gpuq.adapters.embedded.control import RUNNING, Controller, names
from gpuq.adapters.embedded.layout import Layout
from gpuq.adapters.embedded.start import start
from gpuq.adapters.embedded.state import LocalState, Options
from gpuq.errors import HostError

SCHEMA = "gpuq.local/1"
Say = Callable[[str], None]


class Ports(msgspec.Struct, frozen=True):
    """TCP ports of the two Slurm daemons; 0 when none was chosen yet."""

    slurmctld: int
    slurmd: int


class GpuStatus(msgspec.Struct, frozen=True):
    """The device file behind --gres=gpu:1, and whether there is a GPU behind it."""

    real: bool
    file: str
    text: str


class ConfinementStatus(msgspec.Struct, frozen=True):
    """Whether jobs are held to what they asked for; `missing` says in sentences what is not."""

    on: bool
    missing: tuple[str, ...]


class JobCounts(msgspec.Struct, frozen=True):
    """Jobs that run and that wait; None when slurmctld does not answer."""

    running: int | None
    waiting: int | None


class LocalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `status` and `up`; its JSON form is an interface. state: up, down or broken."""

    schema: str = SCHEMA
    state: str
    problems: tuple[str, ...]
    dir: str
    slurm_conf: str
    slurm_version: str
    node: str
    node_state: str
    daemons: dict[str, int | None]
    ports: Ports
    gpu: GpuStatus
    confinement: ConfinementStatus
    jobs: JobCounts


def silent(_: str) -> None:
    """A `say` that says nothing."""


def environment(directory: Path) -> dict[str, str]:
    """The variables that point Slurm's commands at the embedded Slurm.

    Raises HostError when it is not up (slurm.conf exists from `up` to `down`).
    """
    layout = Layout(directory)
    if not layout.conf.exists():
        raise HostError(f"no embedded Slurm is up in {layout.dir}", hint=f"gpuq local up --dir {layout.dir}")
    return {"SLURM_CONF": str(layout.conf)}


def watch_environment(directory: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of a watcher of this Slurm. Raises HostError as `environment` does."""
    from gpuq.core.inherited import scrub

    return scrub(caller) | environment(directory)


def status(directory: Path) -> LocalStatus:
    """How the embedded Slurm in `directory` is. Reads only; takes a few seconds at most when it is broken."""
    layout = Layout(directory)
    saved = state.load(layout) or LocalState(node=state.node_name(layout.dir))
    found = daemons.find(layout)
    pids = {name: found.daemons[name].pid if name in found.daemons else None for name in daemons.DAEMONS}
    alive = [name for name, pid in pids.items() if pid is not None]
    problems: list[str] = []
    node_state = ""
    jobs = JobCounts(None, None)
    if not alive and not found.steps:
        how = "down"
        if layout.conf.exists():
            how = "broken"
            problems.append("all daemons ended without `gpuq local down` (a crash or a reboot)")
    else:
        problems += [f"{name} does not run" for name, pid in pids.items() if pid is None]
        if layout.unfinished.exists():
            problems.append("an `up` or `down` has not finished (at work right now, or killed)")
        if not problems:
            node_state, jobs = _ask_controller(layout, saved, problems)
        how = "broken" if problems else "up"
    return LocalStatus(
        state=how,
        problems=tuple(problems),
        dir=str(layout.dir),
        slurm_conf=str(layout.conf),
        slurm_version=saved.slurm_version,
        node=saved.node,
        node_state=node_state,
        daemons=pids,
        ports=Ports(saved.slurmctld_port, saved.slurmd_port),
        gpu=GpuStatus(saved.gpu_real, saved.gpu_file, _gpu_text(saved)),
        confinement=ConfinementStatus(saved.confined, saved.missing),
        jobs=jobs,
    )


def up(directory: Path, options: Options | None = None, say: Say = silent) -> LocalStatus:
    """Start what does not run and return when the node takes jobs. A no-op when all is well.

    options: choices for this and later starts; those left None keep their last value.
    After a crash or a reboot the queue is taken up where it was: jobs whose processes are gone are requeued,
    jobs that still run go on. Raises HostError; then nothing that it started is left running.
    """
    layout = Layout(directory)
    layout.check_length()
    programs = host.find_programs()
    layout.make()
    with state.locked(layout, say):
        saved = state.load(layout) or LocalState(node=state.node_name(layout.dir))
        chosen = (options or Options()).over(saved.options)
        before = status(directory)
        if before.state == "up":
            say(f"is up already ({layout.dir})")
            if chosen != saved.options:
                say(f"the new options count after: gpuq local down --dir {layout.dir}")
            return before
        if before.state == "broken":
            say("not in order: " + "; ".join(before.problems) + "; recovering")
        saved.options = chosen
        layout.unfinished.touch()  # partitions are closed meanwhile; killed here, the next `up` must not stop short
        start(layout, programs, saved, say)
        layout.unfinished.unlink(missing_ok=True)
    return status(directory)


def watched(directory: Path, chosen: bool | None, say: Say = silent) -> bool:
    """Whether `up` also starts a watcher; `chosen` is remembered, None leaves it as it was. Raises HostError."""
    layout = Layout(directory)
    saved = state.load(layout)
    if saved is None or chosen is None or chosen == saved.watch:
        return saved.watch if saved is not None else bool(chosen)
    with state.locked(layout, say):
        saved = state.load(layout) or saved
        saved.watch = chosen
        state.save(layout, saved)
    return chosen


def would_start(directory: Path) -> str:
    """What `up` would do, in words. Changes nothing. Raises HostError where it could not."""
    layout = Layout(directory)
    layout.check_length()
    host.find_programs()
    now = status(directory)
    if now.state == "up":
        return f"up already ({directory}): nothing would be started"
    missing = [name for name, pid in now.daemons.items() if pid is None]
    return f"would start {', '.join(missing)} in {directory}"


def would_stop(directory: Path, *, cancel: bool = False) -> str:
    """What `down` would do, in words. Changes nothing."""
    now = status(directory)
    if now.state == "down":
        return f"down already ({directory}): nothing would be stopped"
    alive = [name for name, pid in now.daemons.items() if pid is not None]
    words = f"would stop {', '.join(alive)} in {directory}"
    if now.jobs.running is not None:
        kept = "cancelled" if cancel else "kept for the next start"
        words += f"; {now.jobs.running} running and {now.jobs.waiting} waiting jobs would be {kept}"
    return words


def down(directory: Path, *, cancel: bool = False, say: Say = silent) -> LocalStatus:
    """Stop everything and leave no process, cgroup or socket. A no-op when it is down.

    Running jobs go back to the queue and, like those that wait, are there again at the next `up`;
    with `cancel` all of them are cancelled instead. Raises HostError when something does not end.
    """
    layout = Layout(directory)
    if not layout.dir.is_dir():
        return status(directory)
    _refuse_inside_job(layout)
    with state.locked(layout, say):
        saved = state.load(layout) or LocalState(node=state.node_name(layout.dir))
        layout.unfinished.touch()
        found = daemons.find(layout)
        if "slurmctld" in found.daemons and "munged" in found.daemons:
            try:
                programs = host.find_programs()
                controller = Controller(layout, programs, saved.node)
                if controller.pings():
                    _empty(controller, saved, cancel=cancel, slurmd="slurmd" in found.daemons, say=say)
                else:
                    say("slurmctld does not answer; its last saved state keeps the queue")
            except HostError as error:
                say(f"{error.message}; going on, the last saved state keeps the queue")
        elif cancel and (layout.state_dir / "job_state").exists():
            say("slurmctld does not run, so its saved jobs could not be cancelled; up, then down --cancel")
        _clear(layout, saved.node, saved.options.kill_wait or state.DEFAULT_KILL_WAIT)
        layout.unfinished.unlink(missing_ok=True)
    return status(directory)


# down ---------------------------------------------------------------------------------------------


def _empty(controller: Controller, saved: LocalState, *, cancel: bool, slurmd: bool, say: Say) -> None:
    """No job runs any more; every one that waits, or ran, is in slurmctld's state (or cancelled)."""
    controller.partitions("DOWN")  # or each job that ends would make room for the next
    running, ending = controller.jobs(), controller.jobs("COMPLETING")
    patience = (saved.options.kill_wait or state.DEFAULT_KILL_WAIT) + 5 if slurmd else 1
    if cancel:
        everything = running + controller.jobs("PENDING")
        controller.cancel(everything)
        if everything:
            say(f"cancelled: {names(everything)}")
        controller.settle(patience=patience)
        # Those that were being requeued are waiting again only now.
        controller.cancel(job for job in controller.jobs("PENDING"))
        return
    refused = [job for job in running if controller.requeue(job)]
    requeued = [job for job in running if job not in refused]
    if requeued:
        say(f"back to the queue, to run again after the next `gpuq local up`: {names(requeued)}")
    if refused:
        controller.cancel(refused)
        say(f"cancelled, because they may not be requeued: {names(refused)}")
    if running or ending:
        controller.settle(patience=patience)
        controller.start_first(requeued + ending)
    waiting = len(controller.jobs("PENDING")) - len(requeued)
    if waiting > 0:
        say(f"{waiting} waiting job{'s' if waiting != 1 else ''} kept for the next `gpuq local up`")


def _clear(layout: Layout, node: str, kill_wait: int) -> None:
    """End every process, remove every cgroup, socket and pid file of this directory and node name."""
    found = daemons.find(layout)
    ordered = [found.daemons[name] for name in ("slurmctld", "slurmd") if name in found.daemons]
    daemons.stop(ordered)  # slurmctld first: it saves its state, and sees nothing of what follows
    # Jobs are left only where slurmctld could not end them.
    daemons.end_together(daemons.job_processes(layout), patience=kill_wait)
    daemons.kill(daemons.find(layout).steps)  # they would wait for slurmctld for ever
    left = [cgroup for cgroup in cgroups.of_node(node) if not cgroups.remove(cgroup)]
    daemons.stop(daemons.find(layout).all())
    daemons.sweep_files(layout, alive=())
    layout.device.unlink(missing_ok=True)
    layout.conf.unlink(missing_ok=True)  # else every client would wait 10 s for a controller that is not there
    proc.reap()
    if left:
        raise HostError(
            f"a job's processes do not end, cgroup still there: {', '.join(map(str, left))}",
            hint=f"cat {left[0]}/cgroup.procs; then: gpuq local down --dir {layout.dir}",
        )


def _refuse_inside_job(layout: Layout) -> None:
    if "SLURM_TASK_PID" in os.environ and os.environ.get("SLURM_CONF") == str(layout.conf):
        raise HostError(
            "this is a job of the embedded Slurm itself; taking Slurm down would end it half-way",
            hint=f"from a shell outside: gpuq local down --dir {layout.dir}",
        )


# both ---------------------------------------------------------------------------------------------


def _ask_controller(layout: Layout, saved: LocalState, problems: list[str]) -> tuple[str, JobCounts]:
    controller = Controller(layout, host.find_programs(), saved.node)
    fields = controller.node_fields()
    node_state = fields.get("State", "")
    if not node_state:
        problems.append("slurmctld does not answer")
        return "", JobCounts(None, None)
    if not host.port_listens(saved.slurmd_port):
        problems.append("slurmd does not answer")
    flags = set(node_state.split("+"))
    if flags & {"DOWN", "DOWN*", "DRAIN", "INVALID_REG", "NOT_RESPONDING"} or "*" in node_state:
        problems.append(f"node {saved.node} is {node_state} {fields.get('Reason', '')}".strip())
    elif controller.gpu_leaked():
        problems.append("slurmctld lost track of the GPU: taken, but no job runs")
    jobs = controller.jobs(f"{RUNNING},COMPLETING,PENDING")
    waiting = sum(job.state == "PENDING" for job in jobs)
    return node_state, JobCounts(len(jobs) - waiting, waiting)


def _gpu_text(saved: LocalState) -> str:
    if not saved.gpu_file:
        return "not chosen yet"
    if saved.gpu_real:
        return f"real: {saved.gpu_file}"
    return f"simulated: {saved.gpu_file} stands in; jobs queue for it as for a GPU, but there is none behind it"
