"""Why an attempt ended as it did: evidence in, verdict out. The causes are data (gpuq.core.triage.rules)."""

from __future__ import annotations

import re

import msgspec

from gpuq.core.memory import oom
from gpuq.core.triage.events import last_start, pick, read_events
from gpuq.core.triage.evidence import Event, Evidence
from gpuq.core.triage.rule import Rule
from gpuq.core.triage.rules import BY_ID, RULES
from gpuq.core.triage.tracebacks import GAP, without_rank
from gpuq.core.triage.words import code_of, cut, expand, fill, memory_says, quotes, slurm_says


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Why something waits, or why it ended as it did."""

    id: str
    headline: str
    """One sentence."""
    confidence: str
    """certain, likely or possible."""
    evidence: tuple[str, ...]
    """What it was concluded from: numbers, and lines of the log as they stand."""
    advice: tuple[str, ...]
    """Commands or sentences; the first helps most."""
    details: tuple[str, ...] = ()
    """What else is worth knowing."""


FAR = 200
"""Lines. What stands further from the end than this may have been overcome."""
_END = 3
"""Lines that count as the very end of a log."""
_CONSEQUENCES = 3
_LOWER = {"certain": "likely", "likely": "possible", "possible": "possible"}
_AFTERWARDS = re.compile(
    r"^(?:wandb: |srun: |slurmstepd: |Set the environment variable HYDRA_FULL_ERROR|[WEI]\d{4} [\d:.]+ |\[rank\d+\]:\[[WEI]"
    r"|[=-]{10,}$|\s*(?:time|host|rank|exitcode|error_file|traceback)\s*: |Failures:$|\s*<NO_OTHER_FAILURES>|Root Cause "
    r"|\[\d+\]:$|\S+ FAILED$|CUDA kernel errors might|For debugging consider|Compile with `TORCH|Search for `cuda)"
)
"""What is still written when a program has ended: by trackers, launchers and Slurm."""
_SHELLS = frozenset(
    {"command_not_found", "not_executable", "script_error", "killed", "segfault", "abort", "illegal_instruction"}
)
_BY_SHELL = re.compile(r"line \d+: |slurm_script: \d+: ")
"""What the shell says when a command has failed; a script without `set -e` goes on."""
_KILLS = re.compile(r"\b(?:p?kill|killall|timeout)\b")
_TEE = re.compile(r"[^|]\|\s*tee\b")


def diagnose(evidence: Evidence) -> Answer:
    """The verdict on an attempt that has ended. Never raises, whatever the log holds."""
    lines = last_start(evidence.log)
    found = read_events(lines, evidence)
    event = pick(found, code_of(evidence))
    rule = _by_outcome(evidence)
    if rule is not None and rule.id in {"no_failure", "incomplete"}:
        return _ended_well(evidence, rule, found, lines)
    if rule is not None:
        return _by_slurm(evidence, rule, event, found)
    if event is None:
        return _by_exit(evidence, lines)
    return _by_log(evidence, event, found, lines)


def _by_outcome(evidence: Evidence) -> Rule | None:
    code = f"ExitCode {evidence.exit_code}:{evidence.signal}"
    said = " ".join((code, evidence.state, evidence.reason, *evidence.notes))
    return next((r for r in RULES if evidence.outcome in r.outcomes and (not r.said or re.search(r.said, said))), None)


def _by_slurm(evidence: Evidence, rule: Rule, event: Event | None, found: list[Event]) -> Answer:
    quoted = [one for one in found if one.rule.id == rule.id]
    details = []
    if event is not None and event.rule.id != rule.id and not event.rule.symptom and rule.id != "lost":
        details.append(f"before that the log has: {cut(event.text)} ({fill(event.rule.headline, evidence, event)})")
    elif event is not None and rule.id == "lost":
        details.append(f"the log suggests: {fill(event.rule.headline, evidence, event)}")
    return _answer(evidence, rule, quoted[-1] if quoted else None, quoted, details, "certain")


def _by_exit(evidence: Evidence, lines: list[str]) -> Answer:
    rule = next((rule for rule in RULES if code_of(evidence) in rule.exits), BY_ID["exit_code"])
    last = [line for line in lines if line.strip() and line != GAP][-1:]
    answer = _answer(evidence, rule, None, [], [], "possible")
    if evidence.log is None:
        ends = (f"there is no log at {evidence.log_path}" if evidence.log_path else "its log is not known to gpuq",)
    else:
        ends = (f"the log ends with: {cut(last[0])}",) if last else ("the log is empty",)
    return msgspec.structs.replace(answer, evidence=(*answer.evidence, *ends))


def _by_log(evidence: Evidence, event: Event, found: list[Event], lines: list[str]) -> Answer:
    confidence = event.rule.confidence
    if len(lines) - event.at > FAR and not any(one.at > event.at and one.rule.symptom for one in found):
        confidence = _LOWER[confidence]
    if event.rule.exits and event.chain is None and code_of(evidence) not in event.rule.exits:
        confidence = _LOWER[confidence]
    same = [one for one in found if one.rule.id == event.rule.id]
    others = {one.rule.id: one for one in reversed(found) if one.rule.id in event.rule.explains}
    details = [f"a consequence: {cut(one.text)}" for one in list(others.values())[:_CONSEQUENCES]]
    return _answer(evidence, event.rule, event, same, details, confidence)


def _ended_well(evidence: Evidence, rule: Rule, found: list[Event], lines: list[str]) -> Answer:
    """Success is Slurm's word and the results'; the log may know better. What it merely mentions is no failure."""
    end, last = _last_lines(lines, found)
    hidden = [event for event in found if event.at >= end and _is_error(event)]
    killed = [event for event in found if event.rule.id == "host_oom" and oom.SLURMS.search(event.text)]
    if not (hidden or killed or (evidence.memory is not None and evidence.memory.oom_kill)):
        hidden = [e for e in found if e.at >= last and e.rule.id in _SHELLS and _BY_SHELL.search(e.text)]
        if _KILLS.search(evidence.script):  # the helper that it had started in the background, say
            hidden = [event for event in hidden if event.rule.id != "killed"]
    stopped = [event for event in found if event.rule.id == "hidden_cancel"]
    details = [] if rule.id == "no_failure" else [fill(rule.headline, evidence, None)]
    if hidden:
        cause = pick([event for event in found if event.chain or event.at >= end], 0) or hidden[-1]
        details += [f"taken by itself, that is: {fill(cause.rule.headline, evidence, cause)}"]
        details += [f"job.sh has: {line.strip()}" for line in evidence.script.splitlines() if _TEE.search(line)][:1]
        event = msgspec.structs.replace(hidden[-1], values={"error": hidden[-1].text}, rule=BY_ID["hidden_failure"])
        return _answer(evidence, event.rule, event, [event], details, "likely")
    if not killed and evidence.memory is not None and evidence.memory.oom_kill:
        return _answer(evidence, BY_ID["hidden_oom"], None, [], details, "certain")
    for id_, events in (("hidden_oom", killed), ("hidden_cancel", stopped)):
        if events:
            return _answer(evidence, BY_ID[id_], events[-1], events, details, "likely")
    return _answer(evidence, rule, None, [], [], rule.confidence)


def _last_lines(lines: list[str], found: list[Event]) -> tuple[int, int]:
    """Where the last lines of a program begin, and the very last one. What an exception says in lines that are set in does
    not count, nor what others write when the program has ended."""
    said = {number for event in found if event.chain for trace in event.chain.traces for number, _ in trace.said}
    filled = [
        index
        for index, line in ((index, without_rank(line)) for index, line in enumerate(lines))
        if line.strip() and line != GAP and not _AFTERWARDS.match(line) and not (index in said and line[0].isspace())
    ]
    return (filled[-_END] if len(filled) >= _END else 0), (filled[-1] if filled else 0)


def _is_error(event: Event) -> bool:
    return event.rule.id == "child_failed" or (event.chain is not None and not event.chain.aside)


def _answer(
    evidence: Evidence, rule: Rule, event: Event | None, same: list[Event], details: list[str], confidence: str
) -> Answer:
    proof = [slurm_says(evidence)]
    proof += quotes(same)
    if rule.id in {"host_oom", "hidden_oom", "killed", "exit_code"}:
        proof += memory_says(evidence)
    if rule.id == "killed" and evidence.memory is not None and oom.close(evidence.memory):
        confidence = "likely"
    more = []
    if event is not None and event.chain is not None:
        chain = event.chain
        if chain.error not in {one.text for one in same}:
            proof.append(cut(chain.error))
        if chain.first_error not in {event.text, chain.error}:
            proof.append(f"it began with: {cut(chain.first_error)}")
        if (frame := chain.blame(evidence.project)) is not None:
            proof.append(f"in your code: {frame}")
        if chain.rank:
            proof.append(f"written by: {chain.rank.strip()}")
    for pattern, text in rule.details if event is not None else ():
        texts = [match.groupdict() for one in same[-1:] for match in re.finditer(pattern, one.text)]
        more += [expand(text, values) for values in texts]
    if rule.id == "visible_devices":
        proof.append(f"job.sh sets CUDA_VISIBLE_DEVICES={event.values.get('value', '') if event else ''}")
    if rule.checkpoint and evidence.started and evidence.checkpoint is not None:
        more.append(evidence.checkpoint or "no checkpoint that it wrote was found in the run's directory")
    if evidence.restarts:
        more.append(f"Slurm started it {evidence.restarts + 1} times; only what the last start wrote was read")
    advice = tuple(dict.fromkeys(filter(None, (fill(one, evidence, event) for one in rule.advice))))
    return Answer(
        id=rule.id,
        headline=fill(rule.headline, evidence, event),
        confidence=confidence,
        evidence=tuple(proof),
        advice=advice,
        details=tuple(dict.fromkeys((*more, *details))),
    )
