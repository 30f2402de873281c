"""For training code: a log that tells how the run goes, and a flag that says when to save and stop.

::

    from gpuq import runlog

    with runlog.start(config, total=1000) as log:
        for batch in batches:
            loss = train(batch)
            log.step(loss=loss)          # writes a line in 30 seconds, not more
            if log.stopping:             # SIGTERM: the time limit is near, or somebody cancelled the job
                save("resume.pt")
                break
        log.result(score=evaluate())

Needs neither Slurm nor a GPU, and nothing but the standard library. Under `gpuq run`, which writes START and the last
line itself, `start` writes CONFIG and the end RESULT; so it is with a log inside another, also in a process that was
started from there. Of several ranks (torchrun, srun) only the first writes.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any

from gpuq.core.inside import runlines

EVERY = 30.0
"""Seconds between two lines."""

_MARK = "GPUQ_RUN"
"""Set: somebody writes START and the last line."""

_Handler = Callable[[int, FrameType | None], Any] | int | None


def start(config: Any = None, *, total: float | None = None, every: float = EVERY) -> Log:
    """A log for a `with` block.

    config: a mapping, or anything with attributes (argparse.Namespace, a dataclass): the settings to write down. total:
    how many steps there will be, for `eta`; None or 0: not known. every: seconds between two lines.
    """
    return Log(config, total=total, every=every)


class Log:
    """The log of one run; made by `start`."""

    def __init__(self, config: Any = None, *, total: float | None = None, every: float = EVERY) -> None:
        self._config = _pairs(config)
        self._total = total if total is not None and 0 < total < math.inf else None
        self._every = every
        self._wrapped = False
        self._silent = _rank() > 0
        self._results: dict[str, Any] = {}
        self._count = 0.0
        self._values: dict[str, Any] = {}
        self._began = self._told = time.monotonic()
        self._told_count = 0.0
        self._stopping = False
        self._before: _Handler = None
        self._caught = False

    @property
    def stopping(self) -> bool:
        """SIGTERM has come: save what is needed to go on later, and leave the loop."""
        return self._stopping

    def step(self, step: float | None = None, /, **values: Any) -> None:
        """One step is done (or: it is at `step` now). A line is written when one is due, with `values` as they are then.

        Cheap in between: a tensor is not read before its line is written, so a GPU is not waited for.
        """
        if step is None and "step" in values:  # log.step(step=7): the same
            step = values.pop("step")
        self._count = self._count + 1 if step is None else float(step)
        now = time.monotonic()
        if now - self._told >= self._every:
            self._tell(values, now)
            self._values = {}
        else:
            self._values = values

    def result(self, **values: Any) -> None:
        """What came out (`score=0.97`): for the last line."""
        self._results.update({f"{key}_" if key in runlines.RESERVED else key: value for key, value in values.items()})

    def __enter__(self) -> Log:
        """Write the settings, and begin to listen for SIGTERM."""
        global _failure
        _failure = ""  # a block that failed before was a try
        self._began = self._told = time.monotonic()
        self._count = self._told_count = 0.0
        self._values, self._results = {}, {}
        self._wrapped = bool(os.environ.get(_MARK))
        self._listen()
        if self._wrapped:
            if self._config:
                self._write(runlines.CONFIG, self._config)
        else:
            os.environ[_MARK] = "1"
            job = {"tag": "GPUQ_TAG", "attempt": "GPUQ_ATTEMPT", "job": "SLURM_JOB_ID"}
            about = {key: os.environ[name] for key, name in job.items() if os.environ.get(name)}
            self._write(runlines.START, {**about, "device": _device(), "at": _now(), **self._config})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write how it ended, and give SIGTERM back."""
        self._listen_no_more()
        if not self._wrapped:
            os.environ.pop(_MARK, None)
        code = _code(error)
        if self._values:
            self._tell(self._values, time.monotonic())
        if code == 0:
            fields = {**_readable(self._results), **_vram(), **({"stopped": "true"} if self._stopping else {})}
            if not self._wrapped:
                self._write(runlines.FINISHED, {"exit": 0, **fields, **self._when()})
            elif fields:
                self._write(runlines.RESULT, fields)
        elif not self._wrapped:
            # the traceback comes after this, and the last line of the log is to be FAILED
            fields = {"cause": _cause(error), "exit": code, "oom_kill": "unknown"}
            if error is not None and not isinstance(error, SystemExit):
                words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
                fields["error"] = f"{type(error).__name__}: {words}"[:300] if words else type(error).__name__
            if not self._silent:
                _fail_at_exit(runlines.write(runlines.FAILED, {**fields, **self._when()}))

    def _when(self) -> dict[str, Any]:
        return {"elapsed": runlines.clock(time.monotonic() - self._began), "at": _now()}

    def _tell(self, values: Mapping[str, Any], now: float) -> None:
        total = self._total if self._total is not None and self._count <= self._total else None  # it may go on beyond
        done = _plain(self._count) if total is None else f"{_plain(self._count)}/{_plain(total)}"
        fields: dict[str, Any] = {"step": done, **_readable(values)}
        passed, steps = now - self._told, self._count - self._told_count
        if passed > 0 and steps > 0:
            speed = steps / passed
            fields["speed"] = f"{speed:.3g}/s"
            if total is not None:
                fields["eta"] = runlines.clock((total - self._count) / speed)
        self._told, self._told_count = now, self._count
        self._write(runlines.STEP, {**fields, **_vram(), "elapsed": runlines.clock(now - self._began)})

    def _write(self, kind: str, fields: Mapping[str, Any]) -> None:
        if not self._silent:
            _say(runlines.write(kind, fields))

    # SIGTERM --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only there may a handler be set; `stopping` stays false
        self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._caught = True
        _listening.append(self)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        if callable(self._before):
            self._before(number, frame)

    def _listen_no_more(self) -> None:
        if self in _listening:
            _listening.remove(self)
        if self._caught and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        self._caught = False


_listening: list[Log] = []
_failure = ""


def _in_a_fork() -> None:
    """A worker that was forked (DataLoader) is ended by SIGTERM, as it always is."""
    while _listening:
        _listening.pop()._listen_no_more()


os.register_at_fork(after_in_child=_in_a_fork)


def _fail_at_exit(line: str) -> None:
    global _failure
    if not _failure:
        atexit.register(_write_failure, os.getpid())
    _failure = line


def _write_failure(pid: int) -> None:
    if _failure and pid == os.getpid():
        _say(_failure)


def _say(line: str) -> None:
    try:
        sys.stderr.flush()
        sys.stdout.write(line.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass  # a full disk, a closed stream: training goes on


def _pairs(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return {str(key): value for key, value in config.items()}
    try:
        found = vars(config)
    except TypeError:  # __slots__
        names = getattr(config, "__dataclass_fields__", None) or getattr(config, "__slots__", None) or ()
        found = {name: getattr(config, name) for name in names if hasattr(config, name)} or {"config": config}
    return {key: value for key, value in found.items() if not key.startswith("_")}


def _readable(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _number(value) for key, value in values.items()}


def _plain(count: float) -> str:
    """1234567, and not 1.23457e+06."""
    return str(int(count)) if math.isfinite(count) and count == int(count) else f"{count:.9g}"


def _number(value: Any) -> Any:
    """A tensor of one element as a number; what is no number as it is."""
    if isinstance(value, str | int | float):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def _vram() -> dict[str, str]:
    """The most GPU memory that PyTorch has held here, where it is in use already."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return {}
        return {"vram": runlines.gib(cuda.max_memory_reserved())}
    except Exception:
        return {}


def _device() -> str:
    """Asks PyTorch only where it has begun with the GPU: asking would begin it, and a fork after that fails."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is not None and cuda.is_initialized():
            return str(cuda.get_device_name())
        return "unknown" if any(name.startswith("nvidia") for name in os.listdir("/dev")) else "none"
    except Exception:
        return "unknown"


def _rank() -> int:
    for name in ("RANK", "SLURM_PROCID"):
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 0


def _code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)  # as exit(3) gives it
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _cause(error: BaseException | None) -> str:
    if isinstance(error, SystemExit):
        return "exit_code"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return "gpu_oom" if type(error).__name__ == "OutOfMemoryError" else "python_error"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
