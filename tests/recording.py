"""Recorded answers of the Slurm commands: taken from a real Slurm (record_slurm.py), and given again to the client.

One directory for each release: tests/data/slurm/<version>/answers. `index.json` has an entry for each call that gpuq's
own client made: the scene (`all is well`, `as nobody`, `controller down`), argv, exit status, stderr, and stdout or the
name of the file that has it; and what was known of each job of the recorded world (`Fact`). A mark that the client
would draw at random is fixed. Names of host and node, paths, ports and moments are replaced: a recording made again is
the same but for what Slurm itself says differently.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.slurm import ahead, client
from gpuq.adapters.slurm.locate import Location, Source

INDEX = "index.json"
ENDED = "jobcomp.txt"
MARK = "\x1e0f1e2d3c"
PLACE = "/srv/slurm"
"""Stands for the directory of the Slurm that was recorded."""
BEGIN = 1_800_000_000
"""Seconds since 1970 at which every recorded world began. 2027-01-15 08:00 UTC."""
_COARSE = 1200
"""Seconds. What took less since the beginning is recorded as taking no time, so that no recording differs by it."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a job, from how it was made."""

    what: str
    id: str
    name: str
    phase: str
    state: str
    gpus: int = 0
    user: str = "root"
    reason: tuple[str, ...] = ()
    """One of these, where it is certain; the order of Slurm's checks differs."""
    dependency: str = ""
    comment: str = ""
    exit_code: int | None = None
    """None: it has not ended."""
    signal: int = 0
    restarts: int = 0


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a Slurm command."""

    scene: str
    argv: tuple[str, ...]
    code: int = 0
    stderr: str = ""
    stdout: str = ""
    file: str = ""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """index.json."""

    version: str
    facts: tuple[Fact, ...]
    calls: tuple[Call, ...]


def commands(conf: Path) -> client.SlurmCommands:
    """gpuq's client for the Slurm of `conf`."""
    return client.SlurmCommands(
        Location(Source.ENVIRONMENT, conf), {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    )


@contextmanager
def _same_mark() -> Iterator[None]:
    """Every question about the queue is put with the same mark."""
    with (
        mock.patch.object(ahead, "new_mark", return_value=MARK),
        mock.patch.object(client, "new_mark", return_value=MARK),
    ):
        yield


# -- taking --------------------------------------------------------------------------------------------------------


class Recorder:
    """Notes what `proc.start` runs while `scene` is open."""

    def __init__(self, replacements: Mapping[str, str], place: str, begin: float) -> None:
        self._replacements = sorted(replacements.items(), key=lambda pair: -len(pair[0]))
        self._place = place
        self._begin = int(begin)
        self.calls: dict[tuple[str, tuple[str, ...]], Call] = {}

    @contextmanager
    def scene(self, name: str, prefix: Sequence[str] = ()) -> Iterator[None]:
        """Record; prefix: put before every argv, and not recorded (to become another user)."""
        start = proc.start

        def noting(argv: Sequence[str], **options: Any) -> _Noted:
            return _Noted(self, name, tuple(argv), start([*prefix, *argv], **options))

        with mock.patch.object(proc, "start", noting), _same_mark():
            yield

    def note(self, scene: str, argv: tuple[str, ...], result: proc.Result) -> None:
        """Keep the answer, made neutral. The first one to a question counts: the world was whole then."""
        shown = tuple(self.neutral(word) for word in argv)
        call = Call(
            scene=scene,
            argv=shown,
            code=result.returncode,
            stderr=self.neutral(result.stderr),
            stdout=self.neutral(result.stdout),
        )
        self.calls.setdefault((scene, shown), call)

    def neutral(self, text: str) -> str:
        """`text` without what belongs to this host, this directory or this moment."""
        text = text.replace(self._place, PLACE)
        for old, new in self._replacements:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(old)}(?![A-Za-z0-9])", new.replace("\\", r"\\"), text)
        text = re.sub(r"(?<![\w.])1[789]\d{8}(?![\w.])", lambda match: str(self._moment(int(match[0]))), text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", self._iso, text)
        text = re.sub(r"(?<=\x1f)(?:\d+:)?\d?\d:\d\d(?=\x1f\d+[MG]\x1f)", "0:05", text)  # %M, before %m
        # sackd and friends date their complaints: [2026-11-29T15:04:05.123]
        return re.sub(r"(?<=T\d\d:\d\d:\d\d)\.\d{3}", ".000", text)

    def _moment(self, seconds: int) -> int:
        return BEGIN + (seconds - self._begin) // _COARSE * _COARSE

    def _iso(self, match: re.Match[str]) -> str:
        moment = datetime.datetime.fromisoformat(match[0]).replace(tzinfo=datetime.UTC)  # recorded with TZ=UTC
        return datetime.datetime.fromtimestamp(self._moment(int(moment.timestamp())), datetime.UTC).strftime("%FT%T")

    def write(self, place: Path, version: str, facts: Sequence[Fact], files: Mapping[str, str]) -> None:
        """Write `place`: index.json, long outputs and `files` in files of their own."""
        place.mkdir(parents=True, exist_ok=True)
        calls = []
        texts = dict(files)
        for call in self.calls.values():
            if len(call.stdout) > 600:
                stem = "-".join(word for word in call.argv[:4] if re.fullmatch(r"[a-z]+", word))
                name = next(name for n in range(1, 99) if (name := f"{stem}-{n}.txt") not in texts)
                texts[name] = call.stdout
                call = msgspec.structs.replace(call, stdout="", file=name)
            calls.append(call)
        for name, text in texts.items():
            (place / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        index = {
            "version": version,
            "facts": [msgspec.to_builtins(fact) for fact in facts],
            "calls": [msgspec.to_builtins(call) for call in calls],
        }
        # Not msgspec: it writes no lone surrogates, which stand for bytes that are no text.
        (place / INDEX).write_text(json.dumps(index, indent=1) + "\n")


class _Noted:
    """proc.Running, noted when it has ended."""

    def __init__(self, recorder: Recorder, scene: str, argv: tuple[str, ...], running: proc.Running) -> None:
        self._recorder, self._scene, self._argv, self._running = recorder, scene, argv, running

    def result(self, each: Callable[[str], None] | None = None, *, slow: object = None) -> proc.Result:
        result = self._running.result()
        self._recorder.note(self._scene, self._argv, result)
        return _handed(result._replace(argv=self._argv), each)

    def drop(self) -> None:
        self._running.drop()


# -- giving again --------------------------------------------------------------------------------------------------


class Recorded:
    """A recording, and gpuq's client over it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        raw = json.loads((place / INDEX).read_text())
        self.index = msgspec.convert(raw, Index)
        self._calls = {(call.scene, call.argv): call for call in self.index.calls}

    def answer(self, scene: str, argv: Sequence[str]) -> proc.Result:
        """What the command printed. KeyError: it was never asked; record again."""
        try:
            call = self._calls[scene, tuple(argv)]
        except KeyError:
            raise KeyError(f"{scene}: {argv} was not recorded: scripts/record-slurm.sh") from None
        out = call.stdout
        if call.file:
            out = (self.place / call.file).read_bytes().decode("utf-8", "surrogateescape")
        return proc.Result(
            tuple(argv), call.code, out.replace(f"{PLACE}/jobcomp.log", f"{self.place}/{ENDED}"), call.stderr
        )

    @contextmanager
    def client(self, scene: str) -> Iterator[client.SlurmCommands]:
        """gpuq's client, whose every question gets the recorded answer."""

        def answering(argv: Sequence[str], **_: Any) -> _Answer:
            return _Answer(self.answer(scene, argv))

        with mock.patch.object(proc, "start", answering), _same_mark():
            yield commands(self.place / INDEX)  # any file that is there


class _Answer:
    def __init__(self, result: proc.Result) -> None:
        self._result = result

    def result(self, each: Callable[[str], None] | None = None, *, slow: object = None) -> proc.Result:
        return _handed(self._result, each)

    def drop(self) -> None:
        pass


def _handed(result: proc.Result, each: Callable[[str], None] | None) -> proc.Result:
    """`result`, or what is left of it when its output is handed on."""
    if each is None:
        return result
    for start in range(0, len(result.stdout), 50):
        each(result.stdout[start : start + 50])
    return result._replace(stdout="")
