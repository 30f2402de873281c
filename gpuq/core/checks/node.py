"""The node as slurmctld has it, held against what slurmd sees of the hardware."""

from __future__ import annotations

import re

from gpuq.core.checks.check import Check, Verdict, failure, ok, unknown, warning
from gpuq.core.checks.hostfacts import Entry, HostFacts
from gpuq.core.host.spec import memory_with_margin
from gpuq.core.job import gpu_count
from gpuq.core.units import MIB


def _memory(facts: HostFacts) -> list[Check]:
    entry, machine = facts.node_entry, facts.machine
    configured = _configured_memory(facts)
    seen = machine.memory if machine else _reported(facts)
    if configured is None or seen is None or _overridden(facts):
        return []
    line = f"slurm.conf has RealMemory={configured}, slurmd sees {seen}"
    if configured > seen:
        better = memory_with_margin(seen)
        return failure(
            "real-memory",
            f"slurm.conf promises {configured}M of memory and the host has {seen}M, so Slurm takes the node away",
            line,
            _reason(facts),
            repair=(*_change(facts, entry, f"RealMemory={better}"), *_take_back(facts)),
        )
    if configured > seen * 99 // 100:
        return warning(
            "real-memory",
            "RealMemory leaves no margin: a kernel that sees a few megabytes less at the next boot takes the node away",
            line,
            repair=_change(facts, entry, f"RealMemory={memory_with_margin(seen)}"),
        )
    return ok("real-memory", line)


def _configured_memory(facts: HostFacts) -> int | None:
    entry = facts.node_entry
    if facts.node is not None:
        return facts.node.memory // MIB
    value = entry.fields.get("realmemory", "") if entry else ""
    return int(value) if value.isdigit() else None


_LOW = (
    re.compile(r"low real_memory size \((\d+) [</] (\d+)\)", re.IGNORECASE),
    re.compile(r"Low RealMemory \(reported:(\d+) < [\d.]+% of configured:(\d+)\)", re.IGNORECASE),
)


def _reported(facts: HostFacts) -> int | None:
    """What slurmd was seen to report, from slurmctld's words."""
    for text in (_reason(facts), *(line for log in facts.logs.values() for line in reversed(log.lines))):
        for pattern in _LOW:
            match = pattern.search(text)
            if match:
                return int(match[1])
    return None


def _overridden(facts: HostFacts) -> bool:
    return "config_overrides" in facts.setting("SlurmdParameters")


def _cpus(facts: HostFacts) -> list[Check]:
    entry, machine = facts.node_entry, facts.machine
    if entry is None or machine is None or _overridden(facts):
        return []
    fields = entry.fields
    sockets = fields.get("sockets") or fields.get("socketsperboard") or ""
    shape = [sockets, fields.get("corespersocket", ""), fields.get("threadspercore", ""), fields.get("boards", "")]
    if not any(value.isdigit() for value in shape) and not fields.get("cpus", fields.get("procs", "")).isdigit():
        return []
    product = 1
    for value in shape:
        product *= int(value) if value.isdigit() else 1
    cpus = fields.get("cpus", fields.get("procs", ""))
    wanted = product if any(value.isdigit() for value in shape) else int(cpus)
    real = machine.boards * machine.sockets * machine.cores * machine.threads
    if wanted <= max(real, machine.cpus) and not (cpus.isdigit() and int(cpus) > machine.cpus):
        return ok("cpu-shape", f"slurm.conf and slurmd agree on the processors ({machine.cpus})")
    better = _cpu_words(machine.line)
    return failure(
        "cpu-shape",
        f"slurm.conf promises {max(wanted, int(cpus) if cpus.isdigit() else 0)} processors and slurmd sees {machine.cpus}",
        f"slurm.conf: {_cpu_words(entry.text)}",
        f"slurmd -C: {better}",
        _reason(facts),
        repair=(*_change(facts, entry, better), *_take_back(facts)),
    )


def _cpu_words(line: str) -> str:
    names = ("CPUs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore")
    return " ".join(re.findall(rf"\b(?:{'|'.join(names)})=\d+", line, re.IGNORECASE))


def _gres(facts: HostFacts) -> list[Check]:
    texts = (_reason(facts), *(line for log in facts.logs.values() for line in log.lines))
    match = next(
        (
            m
            for text in texts
            if (m := re.search(r"gres/gpu count reported lower than configured \((\d+) < (\d+)\)", text))
        ),
        None,
    )
    if match is None or (facts.node is not None and facts.node.usable):
        return []
    if any(file.missing for file in facts.gres_files):
        return []  # that is the cause, and told
    seen, wanted = int(match[1]), int(match[2])
    if seen == 0:
        return failure(
            "gpu-count",
            f"slurmd finds no GPU where slurm.conf has {wanted}: the driver or its device files are missing",
            _reason(facts) or match[0],
            repair=("ls -l /dev/nvidia*; nvidia-smi", "modprobe nvidia && nvidia-modprobe -c 0 -u", *_take_back(facts)),
        )
    return failure(
        "gpu-count",
        f"slurmd finds {seen} of {wanted} GPUs: one was lost",
        _reason(facts) or match[0],
        repair=(
            "dmesg | grep -iE 'Xid|fallen off the bus'",
            "reset or replace it: nvidia-smi; power the host off and on again",
            f"or go on with {seen}: Gres=gpu:{seen} in slurm.conf and as many File= in gres.conf",
            *_take_back(facts),
        ),
    )


def _no_gpu(facts: HostFacts) -> list[Check]:
    entry = facts.node_entry
    if entry is None or gpu_count(entry.fields.get("gres", "")) or not facts.gpu.devices:
        return []
    if not any(re.fullmatch(r"/dev/nvidia\d+", name) for name in facts.gpu.devices):
        return []
    return warning(
        "gpu-not-offered",
        "the host has a GPU and slurm.conf does not offer it",
        f"{entry.text} has no Gres=",
        repair=(
            f"in {facts.slurm_conf.path}: GresTypes=gpu, and Gres=gpu:1 on the line NodeName={entry.fields['nodename']}",
            f"in {facts.gres_conf.path}: NodeName={entry.fields['nodename']} Name=gpu File=/dev/nvidia0",
            facts.restart("slurmctld", "slurmd"),
        ),
    )


def _state(facts: HostFacts) -> list[Check]:
    node = facts.node
    if node is None:
        if facts.config is not None and facts.compute:
            return unknown("node", "slurmctld does not say how this node is")
        return []
    if node.usable:
        if facts.compute and "slurmd" not in facts.processes:
            return []  # slurmctld has not noticed yet; told by the check of slurmd
        return ok("node", f"node {node.name} is {node.state}")
    reason = node.reason
    if facts.compute and "slurmd" not in facts.processes and (node.silent or not reason):
        return []  # it is silent because its slurmd does not run; told
    if any(check.verdict is Verdict.FAILURE for rule in (_memory, _cpus, _gres) for check in rule(facts)):
        return []  # told with its cause, and with the command that takes it back
    evidence = f"State={node.state}" + (f" Reason={reason}" if reason else "")
    if "unexpectedly rebooted" in reason:
        return failure(
            "node-rebooted",
            f"node {node.name} was set down because it rebooted unexpectedly; Slurm waits for somebody to take it back",
            evidence,
            repair=(
                f"scontrol update NodeName={node.name} State=RESUME",
                f"for the next time, in {facts.slurm_conf.path}: ReturnToService=2; then: scontrol reconfigure",
            ),
        )
    if node.silent or ("NOT_RESPONDING" in node.flags and not reason):
        return failure(
            "node",
            f"node {node.name} is {node.state}: its slurmd does not answer",
            evidence,
            repair=(facts.restart("slurmd"), *_take_back(facts)),
        )
    who = "somebody drained it" if "DRAIN" in node.flags and "INVALID_REG" not in node.flags else "nothing starts there"
    return failure(
        "node",
        f"node {node.name} is {node.state}: {reason or 'Slurm gives no reason'} ({who})",
        evidence,
        repair=_take_back(facts),
    )


def _reason(facts: HostFacts) -> str:
    return facts.node.reason if facts.node is not None else ""


def _take_back(facts: HostFacts) -> tuple[str, ...]:
    name = facts.node.name if facts.node is not None else facts.hostname
    return (f"scontrol update NodeName={name} State=RESUME",)


def _change(facts: HostFacts, entry: Entry | None, words: str) -> tuple[str, ...]:
    """The exact line to write, and how it comes into force."""
    if facts.embedded:
        memory = re.search(r"RealMemory=(\d+)", words)
        option = f" --memory {memory[1]}" if memory else ""
        return (f"gpuq local down --dir {facts.embedded} && gpuq local up --dir {facts.embedded}{option}",)
    if entry is None:
        return (f"on the node's line in {facts.slurm_conf.path}: {words}", facts.restart("slurmctld", "slurmd"))
    line = entry.text
    for word in words.split():
        key = word.split("=", 1)[0]
        line, count = re.subn(rf"\b{key}=\S+", word, line, flags=re.IGNORECASE)
        if not count:
            line = f"{line} {word}"
    return (f"{facts.slurm_conf.path}:{entry.line}: {line}", facts.restart("slurmctld", "slurmd"))


RULES = (_memory, _cpus, _gres, _no_gpu, _state)
