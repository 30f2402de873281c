"""The command sink: a program of the user's own gets each notice as a JSON object on its standard input.

Exit status 0: delivered. 64 (EX_USAGE), 65 (EX_DATAERR), 77 (EX_NOPERM) and 78 (EX_CONFIG) of sysexits.h: never, it becomes
a dead letter. Everything else, 75 (EX_TEMPFAIL) first of all: later. The program may be called twice for one notice (when
gpuq is killed between its end and the note of it), with the same `id`: it can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuq.adapters import proc
from gpuq.core.notice import Notice
from gpuq.core.notify.delivery import Answer, Delivered, Refused, Retry

SCHEMA = "gpuq.notice/1"
_KEPT = 4096
"""Bytes of standard error that are kept: whatever the program prints must not fill the watcher's memory."""
_NEVER = {64: "EX_USAGE", 65: "EX_DATAERR", 77: "EX_NOPERM", 78: "EX_CONFIG"}


class CommandSink:
    """One program. environment: of the program, without the variables that hold other sinks' secrets."""

    def __init__(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], timeout: float) -> None:
        self._name = name
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._timeout = timeout

    def send(self, notice: Notice, key: str) -> Answer:
        """See gpuq.core.notify.delivery.Sink. After the time limit the program and its children are killed."""
        program = self._argv[0]
        try:
            running = proc.start(
                self._argv,
                timeout=self._timeout,
                env=self._environment,
                input_bytes=payload(notice, key, self._name),
                own_session=True,  # Ctrl-C at the watcher must not cut a delivery in two
            )
            result = running.last_words(_KEPT)
        except proc.ProgramMissing as error:
            return Retry(str(error))  # it may be on a disk that is not mounted yet
        except proc.ProgramTimeout:
            return Retry(f"{program}: not done within {self._timeout:g} s")
        except BrokenPipeError:
            return Retry(f"{program}: does not read its standard input")
        except OSError as error:
            return Retry(f"{program}: {error.strerror}")
        if result.ok:
            return Delivered()
        said = result.stderr.strip().splitlines()
        words = "".join(c if c.isprintable() else "�" for c in said[-1][:160]) if said else ""
        if result.returncode < 0:
            return Retry(f"{program}: ended by signal {-result.returncode}")
        why = f"{program}: exit status {result.returncode}" + (f", {words}" if words else "")
        return Refused(f"{why} ({_NEVER[result.returncode]})") if result.returncode in _NEVER else Retry(why)

    def close(self) -> None:
        """Nothing is held between deliveries."""


def payload(notice: Notice, key: str, sink: str) -> bytes:
    """The JSON object that the program reads."""
    fields = msgspec.to_builtins(notice)
    fields.pop("merge")
    fields["fields"] = dict(notice.fields)
    return msgspec.json.encode({"schema": SCHEMA, "id": key, "sink": sink, **fields}) + b"\n"
