"""Who holds the GPU and what it does; which running job looks dead."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuq.adapters import gpu as nvml
from gpuq.adapters import jobproc, kernellog
from gpuq.adapters.embedded import state
from gpuq.adapters.embedded.layout import Layout
from gpuq.core.gpu import xid
from gpuq.core.gpu.owner import Kind, Knowledge, Owner, Seen, owner_of
from gpuq.core.gpu.readings import GpuProcess, GpuState, Reading, Trouble, judge, trouble_advice, trouble_words
from gpuq.core.gpu.xid import KernelLine, Xid
from gpuq.core.job import Job, Phase
from gpuq.errors import GpuqError
from gpuq.usecases.alive import HOST, Host, Roots, look_at_host, looks_dead, looks_stuck
from gpuq.usecases.context import Context
from gpuq.usecases.inside import vram


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU. memory in bytes; None: not told."""

    pid: int
    user: str | None
    memory: int | None
    command: str | None
    since: datetime.datetime | None
    kind: str
    """job, orphan, desktop, browser, other or unseen."""
    job_id: int | None
    """Also of a job that is over (kind orphan)."""
    what: str
    mig_instance: int | None


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU. Sizes in bytes, utilization in percent, temperature in degrees Celsius, power in watts; None: not told."""

    index: int
    name: str | None
    uuid: str | None
    device: str | None
    verdict: str
    """free, desktop (free for a job), job, orphan, other, unknown or trouble."""
    words: str
    trouble: str | None
    advice: str
    memory_total: int | None
    memory_used: int | None
    memory_free: int | None
    utilization: int | None
    temperature: int | None
    power: float | None
    mig: bool | None
    processes: list[ProcessRow] | None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job to which Slurm gave a GPU of this host."""

    job_id: str
    name: str
    user: str
    elapsed: int
    on_gpu: bool | None
    """True: a process of it is on a GPU. None: not told."""
    looks_dead: str
    """Why; empty: it does not, or that cannot be told."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `gpuq gpu`."""

    trouble: str | None
    """None: the driver answers. no-binding, no-library, no-driver, mismatch, no-device, no-permission, lacking, other."""
    found: str
    """A sentence or more; empty when all is well."""
    advice: list[str]
    driver: str | None
    devices: list[str]
    """Device files of GPUs."""
    simulated: bool
    """True: the GPU of this Slurm is a simulated one."""
    gpus: list[GpuRow]
    jobs: list[JobRow] | None
    """None: Slurm does not answer."""
    leftovers: list[ProcessRow]
    """Where the driver does not tell who uses the GPU: processes whose job is over."""
    errors: list[Xid] | None
    """None: the kernel log may not be read."""
    notes: list[str]


def report(ctx: Context, roots: Roots = HOST) -> Report:
    """All that can be told of the GPU of this host. Never fails for want of a GPU, a driver or Slurm."""
    reading = nvml.read()
    host = look_at_host(ctx, roots)
    notes: list[str] = []
    know, here = _ask_slurm(ctx, host, notes)
    host = _without_ended(host, know, roots)
    log = kernellog.lines(roots.kmsg, boot=jobproc.boot_time(roots.proc), dmesg=roots.dmesg)
    owners = {gpu.index: _owners(gpu, host, know) for gpu in reading.gpus}
    busy = {owner.job for pairs in owners.values() for _, owner in pairs if owner.kind is Kind.JOB}
    told = bool(reading.gpus) and all(gpu.processes is not None for gpu in reading.gpus)
    with_gpu = [job for job in here if job.has_gpu and job.phase is not Phase.ENDING]
    idle = [f"job {job.id}" for job in with_gpu if job.number not in busy]
    simulated = _simulated(ctx)
    devices = nvml.device_files(roots.dev)
    found, advice = _explain(reading, devices, simulated, with_gpu, log, roots)
    orphans = [(one, owner) for one, owner in _orphans(host, know) if not one.step_daemon]
    if len(reading.gpus) == 1:
        notes += vram.shortages(ctx, (know.jobs or {}).values(), reading.gpus[0], owners[reading.gpus[0].index])
    return Report(
        trouble=reading.trouble,
        found=found,
        advice=advice,
        driver=reading.driver or nvml.module_version(roots.proc),
        devices=devices,
        simulated=simulated,
        gpus=[_gpu_row(gpu, owners[gpu.index], host, idle, alone=len(reading.gpus) == 1) for gpu in reading.gpus],
        jobs=None if know.jobs is None else [_job_row(ctx, job, host, reading, roots, busy, told) for job in with_gpu],
        leftovers=[] if told else [_process_row(GpuProcess(one.pid, None, False), own, one) for one, own in orphans],
        errors=None if log is None else xid.errors(log),
        notes=notes,
    )


# Slurm ----------------------------------------------------------------------------------------------------------


def _ask_slurm(ctx: Context, host: Host, notes: list[str]) -> tuple[Knowledge, list[Job]]:
    """What Slurm knows of the jobs of all processes here, and the jobs that run here."""
    try:
        rows = ctx.slurm.jobs(ended=True)
        jobs = {job.number: job for job in rows if job.whole}
        ours = [one for one in host.processes if host.nodes is not None and (not one.node or one.node in host.nodes)]
        for number in {one.job for one in ours if one.job is not None} - set(jobs):
            # a task of an array, say, whose own number the queue does not show
            job = ctx.slurm.job(number)
            if job is not None:
                jobs[number] = job
    except GpuqError as error:
        hint = f" (to do: {error.hint})" if error.hint else ""
        notes.append(f"which job still runs is not known: {error.message}{hint}")
        return Knowledge(None, host.nodes, ctx.caller.uid), []
    if host.nodes is not None and not host.nodes:
        notes.append("this host is no node of this Slurm: what its jobs do on other hosts is not seen from here")
    here = [job for job in rows if job.phase in {Phase.RUNNING, Phase.ENDING} and job.node in (host.nodes or ())]
    return Knowledge(jobs, host.nodes, ctx.caller.uid), here


def _orphans(host: Host, know: Knowledge) -> list[tuple[Seen, Owner]]:
    return [(one, owner) for one in host.processes if (owner := owner_of(one, know)).kind is Kind.ORPHAN]


def _without_ended(host: Host, know: Knowledge, roots: Roots) -> Host:
    """The processes, without those that ended with their job before Slurm was asked: they would look like orphans."""
    suspects = {one.pid for one, _ in _orphans(host, know)}
    if not suspects:
        return host
    gone = suspects - {one.pid for one in jobproc.processes(roots.proc)}
    return msgspec.structs.replace(host, processes=[one for one in host.processes if one.pid not in gone])


def _simulated(ctx: Context) -> bool:
    if ctx.system_wide:
        return False
    try:
        saved = state.load(Layout(Path(ctx.controller).parent))
    except (GpuqError, OSError):
        return False
    return saved is not None and bool(saved.gpu_file) and not saved.gpu_real


# rows -----------------------------------------------------------------------------------------------------------


def _owners(gpu: GpuState, host: Host, know: Knowledge) -> list[tuple[GpuProcess, Owner]]:
    table = {one.pid: one for one in host.processes}
    return [(process, owner_of(table.get(process.pid), know)) for process in gpu.processes or ()]


def _gpu_row(
    gpu: GpuState, owners: Sequence[tuple[GpuProcess, Owner]], host: Host, idle: Sequence[str], *, alone: bool
) -> GpuRow:
    verdict, words = judge(gpu, owners, idle, alone=alone)
    table = {one.pid: one for one in host.processes}
    return GpuRow(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        device=None if gpu.minor is None else f"/dev/nvidia{gpu.minor}",
        verdict=verdict,
        words=words,
        trouble=gpu.trouble,
        advice="" if gpu.trouble is None else trouble_advice(gpu.trouble),
        memory_total=gpu.memory_total,
        memory_used=gpu.memory_used,
        memory_free=gpu.memory_free,
        utilization=gpu.utilization,
        temperature=gpu.temperature,
        power=gpu.power,
        mig=gpu.mig,
        processes=None
        if gpu.processes is None
        else [_process_row(process, owner, table.get(process.pid)) for process, owner in owners],
    )


def _process_row(process: GpuProcess, owner: Owner, seen: Seen | None) -> ProcessRow:
    return ProcessRow(
        pid=process.pid,
        user=None if seen is None else seen.user,
        memory=process.memory,
        command=None if seen is None else seen.command,
        since=None if seen is None else seen.started,
        kind=owner.kind,
        job_id=owner.job,
        what=owner.words,
        mig_instance=process.instance,
    )


def _job_row(
    ctx: Context, job: Job, host: Host, reading: Reading, roots: Roots, busy: set[int | None], told: bool
) -> JobRow:
    on_gpu = (job.number in busy) if told else None
    try:
        dead = "" if on_gpu else looks_dead(ctx, job, host, roots=roots)
    except GpuqError:
        dead = ""  # Slurm went away meanwhile: then nothing is known
    return JobRow(
        job_id=job.id,
        name=job.name,
        user=job.user,
        elapsed=job.elapsed,
        on_gpu=on_gpu,
        looks_dead=dead or looks_stuck(ctx, job, reading),
    )


# what is wrong --------------------------------------------------------------------------------------------------


def _explain(
    reading: Reading,
    devices: Sequence[str],
    simulated: bool,
    jobs: Sequence[Job],
    log: Sequence[KernelLine] | None,
    roots: Roots,
) -> tuple[str, list[str]]:
    """Sentences for a driver that does not answer, and what to do."""
    trouble = reading.trouble
    if trouble is None:
        return "", []
    found = [trouble_words(trouble, reading.detail)]
    advice = [trouble_advice(trouble)]
    if trouble in {Trouble.NO_BINDING, Trouble.NO_LIBRARY, Trouble.NO_DRIVER, Trouble.NO_DEVICE}:
        module = nvml.module_version(roots.proc)
        found.append(f"{', '.join(devices)}: there." if devices else f"There is no {roots.dev}/nvidia0 either.")
        if module is not None:
            found.append(f"The kernel module is loaded, version {module}.")
        if trouble is Trouble.NO_LIBRARY and (devices or module):
            advice = ["the driver is there without its library: in a container, start it with --gpus all"]
        if simulated:
            found.append("The embedded Slurm simulates the GPU: jobs queue for it as for a real one.")
            if not devices and module is None:
                advice = [f"nothing, if this host has no NVIDIA GPU; else: {advice[0]}"]
    if trouble is Trouble.MISMATCH:
        versions = xid.mismatch(log or ())
        module = nvml.module_version(roots.proc) or (versions.module if versions else None)
        if module is not None:
            library = f", the library {versions.library}" if versions else ""
            found.append(f"The loaded kernel module is {module}{library}.")
        if jobs:
            names = ", ".join(f"{job.id} ({job.shown})" for job in jobs)
            found.append(f"What runs already goes on: job{'s' if len(jobs) > 1 else ''} {names}.")
            advice = [
                f"reboot after {'these have' if len(jobs) > 1 else 'it has'} ended; nothing new can start until then"
            ]
    return " ".join(found), advice
