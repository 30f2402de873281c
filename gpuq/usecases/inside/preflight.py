"""Before the program of a job is started: wait until enough of the GPU's memory is free, say so, and give up in time.

`[preflight] min_free_vram = "20G"` in gpuq.toml or run.toml. Also, without being asked to wait: say when less is free than
the run's last attempt has used.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Mapping

from gpuq.adapters import askgpu, injob
from gpuq.adapters.child import Signals, read_file
from gpuq.core.inside.runlines import NOTE, WAITING, clock, gib, write

PACE = 5.0
"""Seconds between two questions to the driver."""
TELL = 60.0
"""Seconds between two lines about the same wait."""
DEFAULT_WAIT = 600
"""Seconds after which a job gives up, where the configuration does not say."""
PATIENCE = 10.0
"""Seconds that the driver has to answer, once there is something to wait for."""


class GaveUp(Exception):
    """The program is not started."""

    def __init__(self, cause: str, words: str, advice: str, code: int) -> None:
        super().__init__(words)
        self.cause = cause
        self.words = words
        self.advice = advice
        self.code = code


def hold(
    environment: Mapping[str, str], answer: askgpu.Answer | None, signals: Signals, say: Callable[[str], None]
) -> None:
    """Return when the program may start: enough is free, nothing is asked for, or it cannot be told what is free.

    answer: what the driver said just now. say: writes a line of the log. Raises GaveUp.
    """
    need, patience = asked(environment)
    if need is None:
        _compare(environment, answer, say)
        return
    began = time.monotonic()
    told: float | None = None
    while True:
        free = _free(answer)
        if free is None:
            say(write(WAITING, {"for": "nothing", "need": gib(need), "why": "the driver does not tell what is free"}))
            return
        waited = time.monotonic() - began
        if free >= need:
            _compare(environment, answer, say)
            return
        holders = _holders(answer)
        if waited >= patience:
            from gpuq.errors import GpuNotUsable

            raise GaveUp(
                "preflight",
                f"{gib(need)} of the GPU's memory did not become free within {clock(patience)}: {gib(free)} are"
                + (f"; held by {holders}" if holders else ""),
                "gpuq gpu tells who holds it; [preflight] min_free_vram asks for this",
                GpuNotUsable.exit_code,
            )
        if told is None or waited - told >= TELL:
            told = waited
            fields = {"for": "vram", "free": gib(free), "need": gib(need), "at_most": clock(patience - waited)}
            say(write(WAITING, {**fields, **({"held_by": holders} if holders else {})}))
        _rest(signals, min(PACE, patience - waited))
        answer = askgpu.heard(askgpu.begin().answer(PATIENCE))


def _compare(environment: Mapping[str, str], answer: askgpu.Answer | None, say: Callable[[str], None]) -> None:
    """Say when less is free than the run has used before."""
    free = _free(answer)
    run_dir, attempt = environment.get("GPUQ_RUN_DIR", ""), environment.get("GPUQ_ATTEMPT", "")
    before = injob.vram_before(run_dir, int(attempt)) if free is not None and run_dir and attempt.isdecimal() else None
    if free is not None and before is not None and free < before[0]:
        fields = {"free": gib(free), "used_before": gib(before[0]), "attempt": before[1]}
        holders = _holders(answer)
        say(
            write(
                NOTE, {**fields, "means": "it may run out of GPU memory", **({"held_by": holders} if holders else {})}
            )
        )


def asked(environment: Mapping[str, str]) -> tuple[int | None, float]:
    """(bytes that must be free, seconds to wait for them) of this run; (None, …): nothing is asked for.

    The configuration is decoded only where one of its files speaks of it. Raises GaveUp where it is wrong.
    """
    project, run_dir = environment.get("GPUQ_PROJECT", ""), environment.get("GPUQ_RUN_DIR", "")
    user = environment.get("XDG_CONFIG_HOME", "") or f"{environment.get('HOME', '')}/.config"
    files = [f"{user}/gpuq/config.toml"]
    files += [f"{directory}/{name}" for directory, name in ((project, "gpuq.toml"), (run_dir, "run.toml")) if directory]
    if not any(_speaks(path) for path in files):
        return None, DEFAULT_WAIT
    from pathlib import Path

    from gpuq.adapters.configfiles import find_project, run_settings
    from gpuq.core.config import Settings, merge
    from gpuq.errors import ConfigError

    try:
        found = find_project(Path(project or ".").absolute(), environment)
        settings = merge([found.below, run_settings(Path(run_dir)) if run_dir else Settings()])
    except ConfigError as error:
        raise GaveUp("config", error.message, error.hint, ConfigError.exit_code) from None
    wait = settings.preflight_wait
    return settings.min_free_vram, float(DEFAULT_WAIT if wait is None else wait)


def _speaks(path: str) -> bool:
    return b"preflight" in (read_file(path) or b"")


def _free(answer: askgpu.Answer | None) -> int | None:
    """On the GPU that has the most, as `gpuq gpu` counts."""
    known = [gpu.free for gpu in (answer.gpus if answer else ()) if gpu.free is not None]
    return max(known, default=None)


def _holders(answer: askgpu.Answer | None) -> str:
    words = []
    for gpu in answer.gpus if answer else ():
        for pid, memory in gpu.holders:
            size = "" if memory is None else f", {gib(memory)}"
            words.append(f"process {pid} ({_name(pid)}{size})")
    return "; ".join(words)


def _name(pid: int) -> str:
    name = read_file(f"/proc/{pid}/comm")
    return "not to be seen from here" if name is None else name.decode("utf-8", "replace").strip()


def _rest(signals: Signals, seconds: float) -> None:
    """Sleep. Raises GaveUp when a signal asks for an end."""
    end = time.monotonic() + seconds
    while True:
        for number in signals.read():
            if number in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
                name = signal.Signals(number).name
                raise GaveUp("cancelled", f"{name} came before the program was started", "", 128 + number)
        left = end - time.monotonic()
        if left <= 0:
            return
        select.select([signals.wake], [], [], left)
