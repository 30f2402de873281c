"""Why a job waits: one sentence, what proves it, and the command that helps.

Rules are tried in the order of `_RULES`; the first that speaks leads, and what never cures itself comes before what
does. Pure: the queue, the nodes and the partitions go in, an `Answer` comes out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuq.core.job import Phase
from gpuq.core.reason import reason_words
from gpuq.core.triage.diagnosis import Answer
from gpuq.core.units import format_size, slurm_time
from gpuq.core.waits.chain import draw, follow, is_dead, roots
from gpuq.core.waits.scene import (
    FAR,
    Scene,
    clock,
    clock_time,
    count_words,
    estimate_words,
    full_share,
    holder_end,
    holder_name,
    holders_of,
    jobs_ahead,
    node_words,
    reason_line,
    room_advice,
    share_advice,
    share_holders,
    share_words,
    short_words,
    shortages,
    until_words,
)

Rule = Callable[[Scene], Answer | None]


def explain(scene: Scene) -> Answer:
    """The answer of the first rule that speaks; what else would keep the job from starting is in `details`."""
    answers: list[Answer] = []
    for rule in _NEVER:
        answer = rule(scene)
        if answer is not None:
            answers.append(answer)
    for rule in _ORDINARY:
        if answers:
            break
        answer = rule(scene)
        if answer is not None:
            answers.append(answer)
    first = answers[0]
    also = tuple(f"also: {answer.headline}" for answer in answers[1:])
    chain = draw(scene.job, follow(scene.job, scene.rows))
    return msgspec.structs.replace(first, details=(*first.details, *also, *chain))


def wants_estimate(scene: Scene) -> bool:
    """True when the numbers do not tell what the job waits for, so that Slurm should be asked what it expects."""
    return (
        not any(rule(scene) for rule in _NEVER)
        and not scene.job.dependency
        and scene.job.reason.split(",")[0] in {"Resources", "Priority", "ReqNodeNotAvail", "", "None"}
        and full_share(scene) is None
        and (not shortages(scene) or (scene.job.start is None and jobs_ahead(scene) != ()))
    )


# -- what waiting does not cure ------------------------------------------------------------------------------------


def _launch_failed(scene: Scene) -> Answer | None:
    job = scene.job
    if not job.reason.startswith("launch failed requeued held") and job.state not in {"REQUEUE_HOLD", "SPECIAL_EXIT"}:
        return None
    log = scene.slurmd_log or "slurmd's log on the node"
    return _answer(
        "launch-failed-held",
        f"{scene.name} is held: Slurm could not start job {job.id} on its node and put it back; "
        "it stays held until somebody releases it",
        reason_line(job),
        advice=(f"find the cause: grep -n 'error' {log} | tail", f"then: gpuq release {scene.ref}"),
    )


def _dead_dependency(scene: Scene) -> Answer | None:
    job = scene.job
    links = follow(job, scene.rows)
    never = job.reason.startswith("DependencyNeverSatisfied")
    if not never and not is_dead(job, links):
        return None
    dead = [link for link in links if link.dead]
    root = dead[-1] if dead else None
    if root is None:
        what = "the job that it depends on did not end as it should"
    else:
        state = root.job.state if root.job is not None and root.job.phase is Phase.ENDED else "did not succeed"
        name = f" ({root.job.shown})" if root.job is not None else ""
        what = f"job {root.number}{name} {state if state == 'did not succeed' else 'is ' + state}"
        if root.depth > 1:
            what = f"it waits for job {dead[0].number}, which can never run either, because {what}"
    advice = [f"give it up: gpuq cancel {scene.ref}", f"or run it anyway: scontrol update JobId={job.id} Dependency="]
    if scene.cancels_orphans:
        advice = ["Slurm cancels it by itself at its next look; then: gpuq resubmit " + scene.ref]
    return _answer(
        "dependency-never",
        f"{scene.name} will never run: {what}",
        reason_line(job),
        f"Dependency={job.dependency}" if job.dependency else "",
        advice=tuple(advice),
    )


def _too_long(scene: Scene) -> Answer | None:
    job, partition = scene.job, scene.partition
    if partition is None or partition.max_time is None:
        return None
    if job.time_limit is not None and job.time_limit <= partition.max_time:
        return None
    if job.time_limit is None and not job.reason.startswith("PartitionTimeLimit"):
        return None
    asks = "no time limit" if job.time_limit is None else clock_time(job.time_limit)
    return _answer(
        "time-limit-too-long",
        f"{scene.name} will never run: asks {asks}, partition allows {clock_time(partition.max_time)} "
        f"({partition.name})",
        reason_line(job),
        advice=(f"gpuq set {scene.ref} --time {slurm_time(partition.max_time)}",),
    )


def _too_big(scene: Scene) -> Answer | None:
    job, asks = scene.job, scene.asks
    nodes = scene.places
    if not nodes:
        return None
    partition = scene.partition
    cpu_cap = partition.max_cpus_per_node if partition else None
    memory_cap = partition.max_memory_per_node if partition else None
    most_cpus = max(min(node.cpus, cpu_cap or node.cpus) for node in nodes)
    most_memory = max(min(node.memory, memory_cap or node.memory) for node in nodes)
    most_gpus = max(node.gpus for node in nodes)
    several = job.node == "" and asks.cpus > most_cpus and len(nodes) > 1
    parts, advice = [], []
    if asks.cpus > most_cpus and not several:
        parts.append(f"asks for {asks.cpus} CPUs, {_most(scene, cpu_cap == most_cpus)} {most_cpus}")
        advice.append(f"gpuq cancel {scene.ref}; then gpuq submit with at most --cpus {most_cpus}")
    if asks.memory is not None and asks.memory > most_memory and not several:
        most = _most(scene, memory_cap == most_memory)
        parts.append(f"asks for {format_size(asks.memory)} of memory, {most} {format_size(most_memory)}")
        advice.append(f"gpuq set {scene.ref} --mem {most_memory // 2**20}M")
    if asks.gpus > most_gpus and not several:
        parts.append(f"asks for {asks.gpus} GPUs, no node has more than {most_gpus}")
        advice.append(f"gpuq cancel {scene.ref}")
    stuck = job.reason.split(",")[0] in {"PartitionConfig", "BadConstraints", "PartitionNodeLimit"}
    if not parts and not stuck:
        return None
    what = "; ".join(parts) or "no node of the partition has what it asks for"
    return _answer(
        "never-fits",
        f"{scene.name} will never run: {what}",
        reason_line(job),
        advice=tuple(advice) or (f"see what it asks for: scontrol show job {job.number}", "sinfo -N -l"),
        confidence="certain" if parts else "likely",
    )


def _most(scene: Scene, capped: bool) -> str:
    """Who sets the limit."""
    return f"partition {scene.partition.name} gives at most" if capped and scene.partition else "the largest node has"


def _held(scene: Scene) -> Answer | None:
    job = scene.job
    if job.reason == "JobHeldAdmin":
        return _answer(
            "held-by-admin",
            f"{scene.name} is held by the administrator; only root or an operator can release it",
            reason_line(job),
            advice=(f"ask for: scontrol release {job.number}",),
        )
    if job.reason == "JobHeldUser" or (job.priority == 0 and not job.dependency and job.reason in {"", "None"}):
        return _answer(
            "held",
            f"{scene.name} is held; it waits for nothing but its release",
            reason_line(job),
            advice=(f"gpuq release {scene.ref}",),
        )
    return None


def _partition_down(scene: Scene) -> Answer | None:
    partition = scene.partition
    if partition is None or partition.state in {"UP", "DRAIN"}:  # a draining partition still starts what it has
        return None
    return _answer(
        "partition-down",
        f"{scene.name} waits because partition {partition.name} is {partition.state}; nothing starts there",
        reason_line(scene.job),
        advice=(f"as root: scontrol update PartitionName={partition.name} State=UP",),
    )


def _nodes_down(scene: Scene) -> Answer | None:
    places = scene.places
    fitting = [node for node in places if node.gpus >= scene.asks.gpus]
    bad = [node for node in fitting if not node.usable]
    if not bad or len(bad) < len(fitting):
        return None
    node = bad[0]
    more = f" (and {len(bad) - 1} more like it)" if len(bad) > 1 else ""
    why = node.reason or "Slurm gives no reason"
    silent = node.silent or ("NOT_RESPONDING" in node.flags and not node.reason)
    if silent:
        why = "its slurmd does not answer"
    return _answer(
        "node-down",
        f"{scene.name} waits because node {node.name}{more} is {node.state}: {why}",
        reason_line(scene.job),
        advice=(
            "see what is wrong with the host: gpuq doctor",
            "start slurmd there: systemctl restart slurmd"
            if silent
            else f"when it is mended, as root: scontrol update NodeName={node.name} State=RESUME",
        ),
    )


# -- what waiting cures --------------------------------------------------------------------------------------------


def _begin_time(scene: Scene) -> Answer | None:
    job = scene.job
    if not job.reason.startswith("BeginTime"):
        return None
    when = f" until {clock(job.start, scene.now)}" if job.start is not None else ""
    requeued = scene.asks.restarts > 0
    why = "Slurm put it back and lets a requeued job wait two minutes" if requeued else "that is its begin time"
    return _answer(
        "begin-time",
        f"{scene.name} may not start{when}: {why}",
        reason_line(job),
        f"Restarts={scene.asks.restarts}" if requeued else "",
        advice=(f"to let it start at once: gpuq release {scene.ref}",),
    )


def _dependency(scene: Scene) -> Answer | None:
    job = scene.job
    if not job.dependency:
        return None
    links = follow(job, scene.rows)
    if not links:
        return _answer(
            "dependency", f"{scene.name} waits for {job.dependency}", reason_line(job), advice=("gpuq queue",)
        )
    near = links[0]
    ends = roots(links)
    named = f"job {near.number}" + (f" ({near.job.name})" if near.job else "")
    manner = {"afterok": " to succeed", "afternotok": " to fail", "after": " to start"}.get(near.kind, " to end")
    more = len([link for link in links if link.depth == 1]) - 1
    head = f"{scene.name} waits for {named}{manner}" + (f" and for {more} more" if more else "")
    root = next((link.job for link in ends if link.job is not None and link.job.phase is Phase.RUNNING), None)
    first = root.number if root is not None else near.number
    evidence = [reason_line(job), f"Dependency={job.dependency}"]
    if root is not None:
        holder = next((one for one in scene.holders if one.job.number == root.number), None)
        if root.number != near.number:
            head += f"; at the root of the chain, job {root.id} ({root.name}) runs"
        head += f"; that one runs {until_words(holder, scene.now)}" if holder is not None else ", which runs"
    elif near.job is not None and near.job.phase is Phase.WAITING:
        head += f", which waits itself: {reason_words(near.job.reason) or 'Slurm has not looked at it yet'}"
    return _answer("dependency", head, *evidence, advice=(f"gpuq wait {first}", f"gpuq why {first}"))


def _share(scene: Scene) -> Answer | None:
    share = full_share(scene)
    if share is None:
        return None
    ahead = jobs_ahead(scene)
    behind = f"; {count_words(len(ahead))} before it in the queue" if ahead else ""
    holders, also = share_holders(share, scene), shortages(scene)
    return _answer(
        "share-busy",
        f"{scene.name} waits for its share of the node: {share_words(share, scene)}{behind}",
        reason_line(scene.job),
        *(node_words(node) for node in scene.places if node.usable),
        *estimate_words(scene),
        advice=share_advice(share, scene) or ("gpuq queue",),
        details=(
            *(
                f"{holder_name(one)} has {count_words(one.has.cpus, 'CPU')} {until_words(one, scene.now)}"
                for one in holders
            ),
            *(f"also short: {short_words(one, scene)}" for one in also),
        ),
    )


def _busy(scene: Scene) -> Answer | None:
    short = shortages(scene)
    if not short:
        return None
    job, asks = scene.job, scene.asks
    ahead = jobs_ahead(scene)
    behind = f"; {count_words(len(ahead))} before it in the queue" if ahead else ""
    evidence = [reason_line(job), *(node_words(node) for node in scene.places if node.usable), *estimate_words(scene)]
    if short[0] == "gpu":
        holders = sorted((h for h in scene.holders if h.has.gpus), key=lambda h: holder_end(h) or FAR)
        if not holders:
            return _answer(
                "gpu-busy", f"{scene.name} waits for the GPU, which Slurm counts as taken{behind}", *evidence,
                advice=("gpuq doctor",), confidence="likely",
            )  # fmt: skip
        first = holders[0]
        what = "the GPU is" if sum(node.gpus for node in scene.places) == 1 else "all GPUs are"
        head = f"{scene.name} waits: {what} held by {holder_name(first)} {until_words(first, scene.now)}{behind}"
        advice = [f"gpuq wait {first.job.number}"]
        if any(other.uid == job.uid for other in ahead):
            advice.append(f"to run it before your others: gpuq top {scene.ref}")
        details = [f"{holder_name(holder)} holds a GPU {until_words(holder, scene.now)}" for holder in holders[1:]]
        details += [f"also short: {short_words(one, scene)}" for one in short[1:]]
        return _answer("gpu-busy", head, *evidence, advice=tuple(advice), details=tuple(details))
    free = "the GPU is free; " if asks.gpus else ""
    head = (
        f"{scene.name} waits for {'memory' if short[0] == 'memory' else 'cores'}: {free}{short_words(short[0], scene)}"
    )
    holders = holders_of(short[0], scene)
    if holders:
        head += f", {until_words(holders[0], scene.now)}"
    return _answer(f"{short[0]}-busy", head + behind, *evidence, advice=room_advice(short[0], scene, holders))


def _behind(scene: Scene) -> Answer | None:
    job = scene.job
    ahead = jobs_ahead(scene)
    evidence = [reason_line(job), *(node_words(node) for node in scene.places if node.usable), *estimate_words(scene)]
    gpu_first = next((other for other in ahead if other.has_gpu), None)
    if ahead:
        first = ahead[0]
        head = f"{scene.name} is behind {count_words(len(ahead))}; the next to run is job {first.id} ({first.name})"
        if gpu_first is not None and not scene.asks.gpus:
            head += ", and Slurm keeps the node's room for the GPU job that is to start next"
        advice = [f"gpuq why {first.number}"]
        if any(other.uid == job.uid for other in ahead):
            advice.append(f"to run it before your others: gpuq top {scene.ref}")
        return _answer("behind", head, *evidence, advice=tuple(advice), confidence="likely")
    reason = job.reason.strip().rstrip(":")
    if reason in {"", "None", "Resources", "Priority", "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes"}:
        return _answer(
            "about-to-start",
            f"{scene.name} has all that it needs; Slurm has not started it yet (it looks again within seconds)",
            *evidence,
            advice=("gpuq queue", "if it still waits in a minute: gpuq doctor"),
            confidence="likely",
        )
    return None


def _other(scene: Scene) -> Answer | None:
    job = scene.job
    reason = job.reason or "no reason given"
    words = reason_words(job.reason)
    said = f": {words}" if words and words != reason else ""
    return _answer(
        "other-reason",
        f"{scene.name} waits; Slurm says {reason}{said}",
        reason_line(job),
        *estimate_words(scene),
        advice=(f"scontrol show job {job.number}",),
        confidence="possible",
    )


def _answer(
    id: str,
    headline: str,
    *evidence: str,
    advice: tuple[str, ...],
    confidence: str = "certain",
    details: tuple[str, ...] = (),
) -> Answer:
    said = tuple(text for text in evidence if text)
    return Answer(id=id, headline=headline, confidence=confidence, evidence=said, advice=advice, details=details)


_NEVER: tuple[Rule, ...] = (
    _launch_failed, _dead_dependency, _too_long, _too_big, _held, _partition_down, _nodes_down,
)  # fmt: skip
_ORDINARY: tuple[Rule, ...] = (_begin_time, _dependency, _share, _busy, _behind, _other)
