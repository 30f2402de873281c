"""gpuq as a person uses it: a project on disk, and `python -m gpuq` run in it as a process of its own."""

from __future__ import annotations

import functools
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpuq.cli import schema
from gpuq.core.attempt import Ended, Record
from tests.embedded import Embedded

ROOT = os.geteuid() == 0

SOURCE = Path(__file__).resolve().parent.parent

SMALL = '[submit]\nmem = "100M"\ncpus = 1\ntime = "10"\n'
"""A gpuq.toml with which jobs ask for little."""

PATIENT = """
import datetime, sys
from gpuq.usecases import settle
settle.PATIENCE = datetime.timedelta(seconds={seconds})
from gpuq.cli.main import main
main()
"""


@functools.cache
def validator_of(name: str) -> Any:
    """The published schema of `gpuq.NAME/1`, ready to hold an object against."""
    document = schema.document(schema.shapes()[name.removeprefix("gpuq.").removesuffix("/1")])
    kind = jsonschema.validators.validator_for(document)
    kind.check_schema(document)
    return kind(closed(document), format_checker=kind.FORMAT_CHECKER)


def closed(document: Any) -> Any:
    """The same schema, in which an object has no field but those listed: all that is printed is published."""
    if isinstance(document, list):
        return [closed(part) for part in document]
    if not isinstance(document, dict):
        return document
    parts = {key: closed(part) for key, part in document.items()}
    return {**parts, "additionalProperties": False} if isinstance(parts.get("properties"), dict) else parts


class Ran(msgspec.Struct, frozen=True):
    """What one call of gpuq left."""

    args: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output as JSON; nothing else may be there, and it has the shape that `gpuq schema` prints."""
        value = json.loads(self.stdout)
        validator_of(value["schema"]).validate(value)
        return value

    def ok(self) -> Ran:
        """Itself; fails the test unless the exit code is 0."""
        return self.exits(0)

    def exits(self, code: int) -> Ran:
        """Itself; fails the test unless the exit code is `code`."""
        assert self.code == code, f"gpuq {' '.join(self.args)}: exit {self.code}, not {code}\n{self}"
        assert "Traceback" not in self.stderr, self.stderr
        return self

    def __str__(self) -> str:
        return f"stdout: {self.stdout}\nstderr: {self.stderr}"


class Started(subprocess.Popen[str]):
    """A gpuq that does not outlive the test: a failure would otherwise wait for it at the end of its `with`."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        """Wait for its end; after a failure, kill it first."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


class Project:
    """A project in `root`: its runs, and gpuq run inside it. `env` is added to the environment of every call."""

    def __init__(self, root: Path, config: str | None = SMALL) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.runs = root / "runs"
        self.env: dict[str, str] = {}
        self.python = sys.executable
        if config is not None:
            (root / "gpuq.toml").write_text(config)

    # -- what is in it -----------------------------------------------------------------------------------------

    def run(self, tag: str, body: str = "true", *, shebang: str = "#!/bin/bash", config: str = "") -> Path:
        """Make (or change) a run; its directory."""
        directory = self.runs / tag
        directory.mkdir(parents=True, exist_ok=True)
        script = directory / "job.sh"
        script.write_text(f"{shebang}\n{body}\n")
        script.chmod(0o755)
        if config:
            (directory / "run.toml").write_text(config)
        return directory

    def record(self, tag: str, attempt: int = 1) -> Record:
        """One attemptN.json."""
        return msgspec.json.decode((self.runs / tag / "slurm" / f"attempt{attempt}.json").read_bytes(), type=Record)

    def numbers(self, tag: str) -> list[int]:
        """Numbers of the recorded attempts."""
        return sorted(int(path.stem.removeprefix("attempt")) for path in (self.runs / tag / "slurm").glob("*.json"))

    def log(self, tag: str, attempt: int = 1) -> str:
        """The text of a log; "" while there is none."""
        path = self.runs / tag / "slurm" / f"attempt{attempt}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def listing(self) -> list[str]:
        """Every file and directory below the runs root."""
        return sorted(str(path.relative_to(self.runs)) for path in self.runs.rglob("*"))

    # -- gpuq in it --------------------------------------------------------------------------------------------

    def start(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float | None = None,
        prefix: tuple[str, ...] = (),
    ) -> subprocess.Popen[str]:
        """Start gpuq. patience: seconds in place of the product's, for a submission that Slurm does not know."""
        python = [self.python, "-m", "gpuq"]
        if patience is not None:
            python = [self.python, "-c", PATIENT.format(seconds=patience)]
        # Whoever runs the tests in the background may have switched Ctrl-C off for everything below, and nohup a hangup.
        heeded = [shutil.which("env") or "env", "--default-signal=INT,HUP"]
        return Started(
            [*heeded, *prefix, *python, *args],
            cwd=cwd or self.root,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def finish(self, process: subprocess.Popen[str], *args: str, timeout: float = 90) -> Ran:
        """Wait for a started gpuq."""
        with process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"gpuq {' '.join(args)} ran for {timeout} s\n{out}\n{err}") from None
        return Ran(args, process.returncode, out, err)

    def gpuq(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float | None = None,
        prefix: tuple[str, ...] = (),
        timeout: float = 90,
    ) -> Ran:
        """Run gpuq to its end."""
        return self.finish(
            self.start(*args, env=env, cwd=cwd, patience=patience, prefix=prefix), *args, timeout=timeout
        )

    def submit(self, tag: str, *args: str) -> int:
        """Submit a run; the job id."""
        return int(self.gpuq("submit", tag, "--parsable", *args).ok().stdout)

    def ended(self, tag: str, attempt: int = 1) -> Ended:
        """Wait for the attempt's end; what its record says of it."""
        job = self.record(tag, attempt).job_id
        ran = self.gpuq("wait", str(job), "--timeout", "60")
        assert ran.code != 27, ran
        ended = self.record(tag, attempt).ended
        assert ended is not None, ran
        return ended

    def wrap(self, program: str, script: str) -> None:
        """Put a shell script in front of a Slurm command; in it `$REAL` is the real one."""
        place = self.root.parent / "wrappers"
        place.mkdir(exist_ok=True)
        wrapper = place / program
        wrapper.write_text(f'#!/bin/bash\nREAL="$(PATH="${{PATH#*:}}" type -P {program})"\n{script}\n')
        wrapper.chmod(0o755)
        if not self.env.get("PATH", "").startswith(f"{place}:"):
            self.env["PATH"] = f"{place}:{os.environ['PATH']}"

    def unwrap(self) -> None:
        """Take the wrappers away."""
        self.env.pop("PATH", None)


def foreign_job(slurm: Embedded, *options: str) -> int:
    """A job of another user."""
    if not ROOT:
        pytest.skip("only root can submit for somebody else")
    return slurm.sbatch("true", f"--uid={pwd.getpwnam('nobody').pw_uid}", *options, cwd=Path("/tmp"))


def wipe(slurm: Embedded) -> None:
    """Take from Slurm everything that it knows; the job completion log stays. Ids begin at 1 again."""
    slurm.down(cancel=True)
    shutil.rmtree(slurm.layout.state_dir)
    slurm.up()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a running gpuq says on stderr, but for the one that it says where Slurm is slow to answer."""
    assert process.stderr is not None
    while (line := process.stderr.readline()) == "note: waiting for slurmctld to answer\n":
        pass
    return line


def until(ask: Callable[[], bool], what: Callable[[], object], *, timeout: float = 60) -> None:
    """Poll `ask` until it is true; fails with `what()` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not ask():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what()}"
        time.sleep(0.05)
