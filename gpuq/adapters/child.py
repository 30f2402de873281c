"""The program inside a job: started, listened to, signalled, and seen to its end. Used by `gpuq run` alone.

Beside `adapters/proc.py` the one other door to processes. It stays beside a program for hours, so it is made of what
costs nothing: posix_spawn(3), one poll(2), no thread, no subprocess module (7 ms and 2 MB more).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuq.core.inside.thinning import Thinner

FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "CONT")
LINGER = 2.0
"""Seconds at most for output that is still on its way when the program has ended: something that it left behind may
hold the pipe open for ever."""
_QUIET = 0.2
"""Seconds of silence after the end that are taken for all of it."""
_PIECE = 1 << 16
TAIL = 1 << 14
"""Bytes of the last output that are kept, to say why it ended."""
_FIRST_TO_DIE = 300
"""Added to the program's oom_score_adj (proc(5)), so that the kernel takes it and not its supervisor."""


_OOM_SCORE = "/proc/self/oom_score_adj"


class CannotStart(Exception):
    """There is no such program, or it may not be run. `code`: what a shell exits with then (127 or 126)."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Signals:
    """The signals that ask something of the program, caught from now on; what came before it began is kept."""

    def __init__(self, *, terminal: bool) -> None:
        self.pid: int | None = None
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.wake = reader
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for name in FORWARDED:
            number = getattr(signal, f"SIG{name}")
            # a terminal gives Ctrl-C to the program itself; what nohup(1) ignores stays ignored, for both
            if signal.getsignal(number) is not signal.SIG_IGN:
                passed = not (terminal and name in {"INT", "QUIT"})
                # in the handler, not in the loop: this also works while a write to a slow reader blocks
                signal.signal(number, (lambda got, _: self.forward(got)) if passed else lambda *_: None)

    def forward(self, number: int) -> None:
        """Give it to the program, where there is one."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def read(self) -> list[int]:
        """Those that came since the last call."""
        try:
            return [number for number in os.read(self.wake, 512) if number != signal.SIGCHLD]
        except BlockingIOError:
            return []


class _Stream:
    """One pipe (or terminal) of the program, and where it goes."""

    def __init__(self, source: int, sink: int, every: float) -> None:
        self.source = source
        self.sink = sink
        self.thin = Thinner(every)


class Child:
    """A program under way. Call `run` once; `status`, `tail` and `lost` tell afterwards what became of it."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], signals: Signals, *, pty: bool, every: float) -> None:
        """Start it. Raises CannotStart."""
        self.tail = b""
        self.lost = 0
        """Bytes of output that could not be written."""
        self._fresh = {1: True, 2: True}
        """Which outputs stand at the beginning of a line."""
        self.status: int | None = None
        """As os.waitpid gives it."""
        self.largest: int | None = None
        """Bytes: the resident memory of the largest process that it consisted of (getrusage(2), children)."""
        self.at: list[tuple[float, Callable[[], None]]] = []
        """What is to be called at which time of time.monotonic, while it runs."""
        self.on_signal: Callable[[int], None] = lambda _: None
        self._signals = signals
        self._streams: dict[int, _Stream] = {}
        self._start(argv, env, pty=pty, every=every)

    def _start(self, argv: Sequence[str], env: dict[str, str], *, pty: bool, every: float) -> None:
        pairs = _terminal() if pty else _pipes()
        setup = [(os.POSIX_SPAWN_DUP2, writer, sink) for _, writer, sinks in pairs for sink in sinks]
        # In a batch job a group of its own: who signals a whole group (timeout(1)) would reach it twice otherwise.
        # At a terminal the same group: another one could not read from it.
        group: Any = {} if os.isatty(0) else {"setpgroup": 0}
        # A signal that comes while it is started waits until there is somebody to give it to
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, f"SIG{name}") for name in FORWARDED])
        score = _oom_score()
        if score is not None:  # inherited, so that there is no instant without it
            _oom_score(min(1000, score + _FIRST_TO_DIE))
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                env,
                file_actions=setup,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them, and a program inherits that
                setsigmask=before,
                **group,
            )
        except OSError as error:
            for reader, _, _ in pairs:
                os.close(reader)
            raise _cannot(argv[0], error) from None
        else:
            self._early = self._signals.read()
            self._signals.pid = self.pid
            for number in self._early:
                self._signals.forward(number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if score is not None:
                _oom_score(score)
            for writer in {writer for _, writer, _ in pairs}:
                os.close(writer)
        for reader, _, sinks in pairs:
            self._streams[reader] = _Stream(reader, sinks[0], every)

    def run(self) -> int:
        """Pass its output on until it has ended and all of that has come; how it ended, as os.waitpid gives it."""
        poller = select.poll()
        for fd in [*self._streams, self._signals.wake]:
            poller.register(fd, select.POLLIN)
        for number in self._early:
            self.on_signal(number)
        self._reap()  # the word that it has ended may have been among what was read when it was started
        ended = time.monotonic()
        while self.status is None or self._streams:
            ready = poller.poll(self._patience())
            now = time.monotonic()
            for fd, _ in ready:
                if fd == self._signals.wake:
                    for number in self._signals.read():
                        self.on_signal(number)
                elif not self._pump(self._streams[fd], now):
                    poller.unregister(fd)
                    os.close(fd)
                    del self._streams[fd]
            self._tick(now)
            if self.status is None:
                if self._reap():
                    ended = now
            elif now - ended > LINGER or (not ready and now - ended > _QUIET):
                break
        for stream in self._streams.values():
            self._write(stream.sink, stream.thin.close())
            os.close(stream.source)
        self._streams.clear()
        return self.status

    def _patience(self) -> int | None:
        """Milliseconds until something is due without any output; None: nothing is."""
        if self.status is not None:
            return int(_QUIET * 500)
        times = [stream.thin.due() for stream in self._streams.values()] + [when for when, _ in self.at]
        known = [when for when in times if when is not None]
        return max(0, int((min(known) - time.monotonic()) * 1000) + 1) if known else None

    def _pump(self, stream: _Stream, now: float) -> bool:
        """Pass on what is there; False: there will be no more."""
        try:
            data = os.read(stream.source, _PIECE)
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that nobody has open any more
                raise
            data = b""
        if not data:
            self._write(stream.sink, stream.thin.close())
            return False
        self.tail = data[-TAIL:] if len(data) >= TAIL else self.tail[len(data) - TAIL :] + data
        return self._write(stream.sink, stream.thin.feed(data, now))

    def _tick(self, now: float) -> None:
        for stream in self._streams.values():
            self._write(stream.sink, stream.thin.tick(now))
        if self.at:
            due = [one for one in self.at if one[0] <= now]
            self.at = [one for one in self.at if one[0] > now]
            for _, call in due:
                call()

    def _write(self, sink: int, data: bytes) -> bool:
        """False: nobody reads it any more, and the program is to learn that."""
        if not data:
            return True
        try:
            write_all(sink, data)
        except BrokenPipeError:
            return False
        except OSError:
            # A full disk: the program may still save what it has. It is told in the last line.
            self.lost += len(data)
            return True
        self._fresh[sink] = data.endswith(b"\n")
        return True

    def say(self, line: str) -> None:
        """Write a line of gpuq's own between its output, never into the middle of a line."""
        text = line.encode("utf-8", "surrogateescape") + b"\n"
        self._write(1, text if self._fresh[1] else b"\n" + text)

    def _reap(self) -> bool:
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._signals.pid = None
        self.status, self.largest = status, usage.ru_maxrss * 1024
        return True


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, also where the descriptor does not block. Raises OSError."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])


def read_file(path: str, most: int = 1 << 20, *, end: bool = False) -> bytes | None:
    """The first `most` bytes of a file (`end`: the last); None: it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if end:
            os.lseek(descriptor, max(0, os.fstat(descriptor).st_size - most), os.SEEK_SET)
        found = b""
        while len(found) < most and (piece := os.read(descriptor, most - len(found))):
            found += piece
        return found
    except OSError:
        return None
    finally:
        os.close(descriptor)


def exit_code(status: int) -> int:
    """As a shell gives it: 128 + the signal for a program that one has killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _pipes() -> list[tuple[int, int, tuple[int, ...]]]:
    """(what is read here, what the program writes to, as which descriptors). One pipe where both go to one file: order."""
    one = os.fstat(1), os.fstat(2)
    if (one[0].st_dev, one[0].st_ino) == (one[1].st_dev, one[1].st_ino):
        return [(*os.pipe(), (1, 2))]
    return [(*os.pipe(), (1,)), (*os.pipe(), (2,))]


def _terminal() -> list[tuple[int, int, tuple[int, ...]]]:
    import fcntl
    import struct
    import termios

    reader, writer = os.openpty()
    mode = termios.tcgetattr(writer)
    mode[1] &= ~termios.OPOST  # \n stays \n
    termios.tcsetattr(writer, termios.TCSANOW, mode)
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    return [(reader, writer, (1, 2))]


def _oom_score(value: int | None = None) -> int | None:
    """This process's oom_score_adj, or (`value`) set it. None: it cannot be told. A process may take back what it added."""
    try:
        if value is None:
            return int(read_file(_OOM_SCORE) or b"")
        descriptor = os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError):
        os.write(descriptor, str(value).encode())
    os.close(descriptor)
    return value


def replace(argv: Sequence[str], env: dict[str, str]) -> None:
    """Become the program (execve(2)). Raises CannotStart."""
    try:
        os.execvpe(argv[0], list(argv), env)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise _cannot(argv[0], error) from None


def _cannot(program: str, error: OSError) -> CannotStart:
    missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
    why = "command not found" if missing and "/" not in program else os.strerror(error.errno or 0)
    return CannotStart(f"{program}: {why}", 127 if missing else 126)


class Aside:
    """A question that may take long, hang or cost much memory, put in a forked copy of this process.

    The copy's memory goes with it. To be used before anything here runs in a thread.
    """

    def __init__(self, ask: Callable[[], bytes]) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(writer)
            return
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            write_all(writer, ask())
        finally:
            os._exit(0)

    def answer(self, timeout: float) -> bytes | None:
        """What was found; None: nothing within `timeout` seconds (it is killed then), or it failed."""
        deadline = time.monotonic() + timeout
        data = b""
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if not poller.poll(left * 1000):
                continue
            piece = os.read(self._reader, _PIECE)
            if not piece:
                break
            data += piece
        else:
            data = b""
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._reader)
        # one that hangs in the driver cannot be killed, and is not waited for
        os.waitpid(self._pid, os.WNOHANG if not data else 0)
        return data or None
