"""The one door to other programs: an argv list, a time limit, a typed result.

No other module imports subprocess; `tests/test_architecture.py` checks it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

DEBUG_ENV = "GPUQ_DEBUG"


class Result(msgspec.Struct, frozen=True):
    """What a finished program left: its exit status (negative: ended by that signal) and its output.

    Output is decoded as UTF-8 with `surrogateescape`, so that any bytes survive a round trip.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """True when the exit status is 0. The status decides; stderr only explains."""
        return self.returncode == 0


class ProgramMissing(Exception):
    """The program is not installed (or not on PATH), or may not be run."""

    def __init__(self, program: str, why: str = "command not found") -> None:
        super().__init__(f"{program}: {why}")
        self.program = program


class ProgramTimeout(Exception):
    """The program did not end within its time limit and was killed."""

    def __init__(self, argv: Sequence[str], seconds: float) -> None:
        super().__init__(f"{shlex.join(argv)}: no answer within {seconds:g} s")
        self.argv = tuple(argv)
        self.seconds = seconds


def debug(text: str) -> None:
    """Write `text` to stderr when GPUQ_DEBUG is set (the global option --debug sets it)."""
    if os.environ.get(DEBUG_ENV):
        print(f"gpuq: debug: {text}", file=sys.stderr)  # noqa: T201


class Running:
    """A program that was started; `result` waits for it. Several can be under way at once."""

    def __init__(
        self, argv: Sequence[str], process: subprocess.Popen[bytes], *, timeout: float, group: bool, data: bytes | None
    ) -> None:
        self._argv = tuple(argv)
        self._process = process
        self._timeout = timeout
        self._group = group
        self._data = data
        self._started = time.monotonic()

    def result(self) -> Result:
        """What it left. To be called once. Raises ProgramTimeout, and kills the program then."""
        with self._process as process:
            try:
                out, err = process.communicate(self._data, timeout=self._timeout)
            except BaseException as error:
                _kill(process, group=self._group)
                if isinstance(error, subprocess.TimeoutExpired):
                    debug(f"{shlex.join(self._argv)} -> killed after {self._timeout:g} s")
                    raise ProgramTimeout(self._argv, self._timeout) from None
                raise
        result = Result(
            self._argv,
            process.returncode,
            out.decode("utf-8", "surrogateescape"),
            err.decode("utf-8", "surrogateescape"),
        )
        milliseconds = (time.monotonic() - self._started) * 1e3
        debug(f"{shlex.join(self._argv)} -> {result.returncode} in {milliseconds:.1f} ms")
        return result


def start(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input_bytes: bytes | None = None,
    pass_fds: Iterable[int] = (),
    own_session: bool = False,
) -> Running:
    """Start `argv` (no shell); its `result()` is to be asked for.

    timeout: seconds; the process (with `own_session`, its whole process group) is killed after it.
    pass_fds: descriptors that the child inherits, so that a lock outlives this process.
    own_session: start the child in a new session, so that a Ctrl-C meant for gpuq does not reach it.
    Raises ProgramMissing.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if input_bytes is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=own_session,
        )
    except FileNotFoundError:
        if cwd is not None and not cwd.is_dir():
            raise
        raise ProgramMissing(argv[0]) from None
    except PermissionError as error:
        raise ProgramMissing(argv[0], error.strerror or "permission denied") from None
    return Running(argv, process, timeout=timeout, group=own_session, data=input_bytes)


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input_bytes: bytes | None = None,
    pass_fds: Iterable[int] = (),
    own_session: bool = False,
) -> Result:
    """Run `argv` and return what it left; arguments as for `start`.

    Raises ProgramMissing, ProgramTimeout. A non-zero exit status is not an error here.
    """
    return start(
        argv,
        timeout=timeout,
        env=env,
        cwd=cwd,
        input_bytes=input_bytes,
        pass_fds=pass_fds,
        own_session=own_session,
    ).result()


def _kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def spawn_daemon(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> int:
    """Start `argv` detached (own session, no terminal, output appended to `log`) and return its process id.

    Raises ProgramMissing. Whether it stays alive is for the caller to watch.
    """
    with log.open("ab") as sink:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                close_fds=True,
            )
        except FileNotFoundError:
            raise ProgramMissing(argv[0]) from None
    debug(f"{shlex.join(argv)} -> started as process {process.pid}")
    _background.append(process)
    return process.pid


_background: list[subprocess.Popen[bytes]] = []
"""Daemons started here: kept so that Popen does not warn about (or reap late) a child that is meant to stay."""


def reap() -> None:
    """Collect the exit status of daemons that have ended, so that none of them stays a zombie of ours."""
    for process in list(_background):
        if process.poll() is not None:
            _background.remove(process)


def open_text(path: Path) -> IO[str]:
    """Open a text file of unknown making: bytes that are not UTF-8 survive as surrogates."""
    return path.open(encoding="utf-8", errors="surrogateescape")
