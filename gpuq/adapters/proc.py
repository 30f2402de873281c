"""The one door to other programs: an argv list, a time limit, a typed result.

No other module imports subprocess; `tests/test_architecture.py` checks it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

DEBUG_ENV = "GPUQ_DEBUG"

_PIPE = 65536
"""Bytes that a pipe takes without anybody reading (pipe(7)); so much input is written at once, before anybody waits."""


_LOOK = 0.05
"""Seconds after which it is looked whether a program has ended while others hold its outputs open."""


class Result(NamedTuple):
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

    def drop(self) -> None:
        """End it, unless its result has been taken: it is not wanted any more."""
        if self._process.returncode is None:
            _kill(self._process, group=self._group)
            with self._process:
                pass  # waits for it, and closes its pipes

    def result(
        self, each: Callable[[str], None] | None = None, *, slow: tuple[float, Callable[[], None]] | None = None
    ) -> Result:
        """What it left. To be called once. Raises ProgramTimeout, and kills the program then.

        each: is handed standard output as it comes, and the result has none of it. What it raises ends the program.
        slow: called once when that has taken so many seconds, and the program has not ended (or, with `each`, said a word).
        Not where there is more input than a pipe takes.
        """
        with self._process as process:
            try:
                if each is None:
                    out, err = self._communicate(slow)
                else:
                    out, err = b"", self._feed(each, slow)
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

    def end_group(self) -> None:
        """Kill what a program with `own_session` has left running."""
        _kill(self._process, group=self._group)

    def last_words(self, most: int) -> Result:
        """As `result`, for a program of the user's own, which may do anything: standard output is thrown away, of standard
        error the last `most` bytes are kept, and what it leaves running with these open is not waited for."""
        errors, data, ended = b"", memoryview(self._data or b""), False
        until = self._started + self._timeout
        with self._process as process, selectors.DefaultSelector() as selector:
            assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - `start` makes them
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            if process.stdin is not None:
                os.set_blocking(process.stdin.fileno(), False)
                selector.register(process.stdin, selectors.EVENT_WRITE)
            try:
                while process.poll() is None or (selector.get_map() and not ended):
                    if time.monotonic() > until:
                        raise ProgramTimeout(self._argv, self._timeout)
                    ended = process.returncode is not None  # one look more, for what it wrote at its end
                    for key, _ in selector.select(0 if ended else _LOOK):
                        if key.fileobj is process.stdin:
                            with contextlib.suppress(BrokenPipeError):
                                data = data[os.write(key.fd, data[:_PIPE]) :] if data else data
                                if data:
                                    continue
                            selector.unregister(key.fileobj)
                            process.stdin.close()
                        elif not (piece := os.read(key.fd, _PIPE)):
                            selector.unregister(key.fileobj)
                        elif key.fileobj is process.stderr:
                            errors = (errors + piece)[-most:]
                    if not selector.get_map():
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(max(0.0, until - time.monotonic()))
            except BaseException:
                _kill(process, group=self._group)
                raise
        return Result(self._argv, process.returncode, "", errors.decode("utf-8", "surrogateescape"))

    def _communicate(self, slow: tuple[float, Callable[[], None]] | None) -> tuple[bytes, bytes]:
        if slow is None or slow[0] >= self._timeout or self._data is not None:  # asked again, it forgets the input
            return self._process.communicate(self._data, timeout=self._timeout)
        try:
            return self._process.communicate(timeout=slow[0])
        except subprocess.TimeoutExpired:  # asked again, it loses nothing of what it has read
            slow[1]()
            return self._process.communicate(timeout=self._timeout - slow[0])

    def _feed(self, each: Callable[[str], None], slow: tuple[float, Callable[[], None]] | None) -> bytes:
        """Hand standard output on until both outputs are closed and the program has ended; standard error."""
        process, until = self._process, time.monotonic() + self._timeout
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - `start` makes them
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        errors = b""
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdout, process.stderr):
                selector.register(pipe, selectors.EVENT_READ)
            if slow is not None and slow[0] < self._timeout and not selector.select(slow[0]):
                slow[1]()
            while selector.get_map():
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(list(self._argv), self._timeout)
                for key, _ in ready:
                    data = os.read(key.fd, _PIPE)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        each(decoder.decode(data))
                    else:
                        errors += data
        each(decoder.decode(b"", final=True))
        process.wait(max(0.0, until - time.monotonic()))
        return errors


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
    if process.stdin is not None and input_bytes is not None and len(input_bytes) <= _PIPE:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it reads no more than it needs
            pipe.write(input_bytes)
            pipe.flush()
        process.stdin = input_bytes = None
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
