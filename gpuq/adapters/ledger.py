"""The run directories: what was tried and how it ended, as plain files.

::

    runs/<TAG>/job.sh                    the run
    runs/<TAG>/slurm/attemptN.json       the record          (gpuq.core.attempt.Record)
    runs/<TAG>/slurm/attemptN.sh         the exact script given to Slurm
    runs/<TAG>/slurm/attemptN.out        the log
    runs/.gpuq/open/<token>              one small file for each attempt that has not ended

The file under `open/` is an index (losing it loses nothing that a look at the run does not restore) and a lock:
who submits an attempt holds flock(2) on it, and sbatch inherits the descriptor. While it is held a submission is
under way; once it is free and the record has no job id, whoever submitted has died, and Slurm must be asked.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gpuq.adapters.files import write_atomic
from gpuq.core.attempt import RECORD_VERSION, Record
from gpuq.core.printable import json_bytes
from gpuq.core.tag import ATTEMPTS_DIR
from gpuq.errors import LedgerError

_ATTEMPT = re.compile(r"attempt([1-9][0-9]{0,8})\.(?:json|sh|out)")  # more digits are not ours
INDEX_DIR = ".gpuq"


class Entry(msgspec.Struct, frozen=True):
    """An attempt in the index of those that have not ended."""

    token: str
    tag: str
    attempt: int
    submitted: bool = False
    """True: its record has a job id. False: nobody has noted that."""


class Claim:
    """The lock on one attempt. `descriptor` may be inherited by sbatch, which then holds the lock too."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self._path = path

    def missed_since(self, now: datetime.datetime) -> datetime.datetime:
        """When Slurm was first seen, under this lock, not to have the attempt; the first to ask notes `now`.

        Raises LedgerError.
        """
        try:
            tag, attempt, *rest = os.pread(self.descriptor, 4096, 0).decode().split("\n")
            with contextlib.suppress(IndexError, ValueError, OverflowError, OSError):
                first = datetime.datetime.fromtimestamp(float(rest[0]), datetime.UTC)
                if first <= now:  # else the clock was set back
                    return first
            os.pwrite(self.descriptor, f"{tag}\n{attempt}\n{now.timestamp():.6f}\n".encode(), 0)
        except OSError as error:
            raise LedgerError(f"{self._path}: {error.strerror}") from None
        except ValueError:
            raise LedgerError(f"{self._path} is not an entry that gpuq wrote", hint=f"rm {self._path}") from None
        return now

    def note_submitted(self) -> None:
        """The record has its job id now. Only spares others a look at it; so no error is told."""
        with contextlib.suppress(OSError):
            os.pwrite(self.descriptor, b"\nsubmitted\n", os.fstat(self.descriptor).st_size)

    def forget(self) -> None:
        """Take the attempt out of the index: it has ended, or never was."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """Let go of the lock (it is free when nobody that inherited it is left)."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Ledger:
    """All runs below one runs root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open_dir = root / INDEX_DIR / "open"

    # -- where things are --------------------------------------------------------------------------------------

    def run_dir(self, tag: str) -> Path:
        """The directory of a run."""
        return self.root / tag

    def job_script(self, tag: str) -> Path:
        """The run's job.sh."""
        return self.root / tag / "job.sh"

    def attempts_dir(self, tag: str) -> Path:
        """Where the run's attempts are kept."""
        return self.root / tag / ATTEMPTS_DIR

    def path(self, tag: str, attempt: int, suffix: str) -> Path:
        """`attemptN.<suffix>` of a run."""
        return self.attempts_dir(tag) / f"attempt{attempt}.{suffix}"

    def tags(self) -> list[str]:
        """Every run below the root: a directory with a job.sh, or with attempts. Sorted."""
        found = []
        seen = set()  # a run directory may be a symlink, and links may lead round in a circle
        for directory, subdirs, files in os.walk(self.root, followlinks=True):
            try:
                there = Path(directory).stat()
            except OSError:
                continue  # removed while we walk
            if (there.st_dev, there.st_ino) in seen:
                subdirs.clear()
                continue
            seen.add((there.st_dev, there.st_ino))
            if ATTEMPTS_DIR in subdirs or "job.sh" in files:
                tag = os.path.relpath(directory, self.root)
                if tag != ".":
                    found.append(tag)
            subdirs[:] = sorted(name for name in subdirs if name != ATTEMPTS_DIR and not name.startswith("."))
        return sorted(found)

    # -- reading -----------------------------------------------------------------------------------------------

    def attempts(self, tag: str) -> list[int]:
        """Numbers of the attempts that have a record, ascending."""
        return sorted(
            int(match[1]) for name in self._names(tag) if name.endswith(".json") and (match := _ATTEMPT.fullmatch(name))
        )

    def read(self, tag: str, attempt: int) -> Record:
        """One record. Raises LedgerError when it cannot be read."""
        path = self.path(tag, attempt, "json")
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
            if not record.is_sane:
                raise msgspec.ValidationError("a time in it cannot be one")
        except OSError as error:
            raise LedgerError(f"{path}: {error.strerror}") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            _refuse_newer(path, path.read_bytes())
            raise LedgerError(
                f"{path} is not a record that gpuq understands: {error}", hint=f"look at it: cat {path}"
            ) from None
        _refuse_version(path, record.version)
        return record

    def records(self, tag: str, *, sound: bool = False) -> list[Record]:
        """All records of a run, ascending. One that was dropped meanwhile is passed over.

        sound: so is one that cannot be read, which raises LedgerError otherwise.
        """
        found = []
        for number in self.attempts(tag):
            try:
                found.append(self.read(tag, number))
            except LedgerError:
                if not sound and self.path(tag, number, "json").exists():
                    raise
        return found

    def latest(self, tag: str) -> Record | None:
        """The record with the highest number, or None."""
        for number in reversed(self.attempts(tag)):
            try:
                return self.read(tag, number)
            except LedgerError:
                if self.path(tag, number, "json").exists():
                    raise
        return None

    def by_job(self, job_id: int) -> Record | None:
        """The newest record with this job id. Reads every record: for when Slurm no longer knows the job."""
        found = [record for tag in self.tags() for record in self.records(tag) if record.job_id == job_id]
        return max(found, key=lambda record: record.reserved, default=None)

    def open_entries(self) -> list[Entry]:
        """The attempts that are not known to have ended, oldest number first."""
        try:
            names = os.listdir(self._open_dir)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise LedgerError(f"{self._open_dir}: {error.strerror}") from None
        found = []
        for token in names:
            try:
                tag, number, *more = (self._open_dir / token).read_text().split("\n")
                found.append(Entry(token, tag, int(number), "submitted" in more))
            except (OSError, ValueError):
                continue  # being made or being forgotten at this moment
        return sorted(found, key=lambda entry: (entry.tag, entry.attempt))

    def next_number(self, tag: str) -> int:
        """The number that the next attempt gets: above every number that any file of an attempt bears, so that no
        log is ever overwritten."""
        numbers = [int(match[1]) for name in self._names(tag) if (match := _ATTEMPT.fullmatch(name))]
        return max(numbers, default=0) + 1

    # -- writing -----------------------------------------------------------------------------------------------

    def reserve(
        self, tag: str, token: str, make: Callable[[int], tuple[Record, str]], *, find: Callable[[], Record | None]
    ) -> tuple[Record, Claim | None]:
        """Take the next number of a run, atomically.

        make: the record and the script for a number. find: asked first, under the same lock; a record that it
        returns is returned instead, with no claim (an earlier submission with the same key).
        Raises LedgerError.
        """
        try:
            with self._run_lock(tag):
                earlier = find()
                if earlier is not None:
                    return earlier, None
                number = self.next_number(tag)
                record, script = make(number)
                claim: Claim | None = None
                try:
                    claim = self._new_claim(token, tag, number)
                    write_atomic(self.path(tag, number, "sh"), script, mode=0o755, durable=False)
                    write_atomic(self.path(tag, number, "json"), _encode(record), durable=False)
                except BaseException:
                    self._unlink(tag, number)
                    if claim is not None:
                        claim.forget()
                        claim.close()
                    self._clear_index()
                    raise
                return record, claim
        except OSError as error:
            raise LedgerError(
                f"{self.attempts_dir(tag)}: {error.strerror or error}", hint=f"df -h {self.root}; ls -ld {self.root}"
            ) from None

    def claim(self, token: str, tag: str, attempt: int, *, wait: bool) -> Claim | None:
        """Lock an attempt. None when somebody else holds it and `wait` is false."""
        path = self._open_dir / token
        while True:
            try:
                self._make_index()
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # the index was removed between the two lines, by a refused submission
            except OSError as error:
                raise LedgerError(f"{path}: {error.strerror}") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            if _same_file(descriptor, path):
                claim = Claim(descriptor, path)
                try:
                    if os.fstat(descriptor).st_size == 0:
                        os.write(descriptor, f"{tag}\n{attempt}\n".encode())
                except OSError as error:
                    claim.forget()
                    claim.close()
                    raise LedgerError(f"{path}: {error.strerror}") from None
                return claim
            os.close(descriptor)  # forgotten by whoever held it before us; look again

    @contextlib.contextmanager
    def changing(self, record: Record) -> Iterator[Record]:
        """Hold the attempt's lock and yield the record as it is now, to be changed and saved."""
        claim = self.claim(record.token, record.tag, record.attempt, wait=True)
        assert claim is not None  # noqa: S101 - wait=True never gives up
        try:
            current = self.read(record.tag, record.attempt)
            yield current
            if self.read(record.tag, record.attempt).ended is not None:
                claim.forget()
        finally:
            claim.close()

    def save(self, record: Record) -> None:
        """Replace a record, durably. The caller holds the claim. Raises LedgerError."""
        path = self.path(record.tag, record.attempt, "json")
        try:
            write_atomic(path, _encode(record))
        except OSError as error:
            raise LedgerError(f"{path}: {error.strerror or error}") from None

    def drop(self, record: Record, claim: Claim) -> None:
        """Remove an attempt that Slurm never had; a log that Slurm wrote all the same is kept."""
        with self._run_lock(record.tag):
            self._unlink(record.tag, record.attempt)
        claim.forget()
        self._clear_index()
        self._clear_index()

    # -- inside ------------------------------------------------------------------------------------------------

    def _names(self, tag: str) -> list[str]:
        try:
            return os.listdir(self.attempts_dir(tag))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise LedgerError(f"{self.attempts_dir(tag)}: {error.strerror}") from None

    def _unlink(self, tag: str, attempt: int) -> None:
        """Remove an attempt's files. The caller holds the run's lock, or another could lock a file that is gone."""
        for suffix in ("json", "sh", "diff"):
            with contextlib.suppress(FileNotFoundError):
                self.path(tag, attempt, suffix).unlink()
        if self._names(tag) == [".lock"]:  # nothing is left behind
            with contextlib.suppress(OSError):
                (self.attempts_dir(tag) / ".lock").unlink()
                self.attempts_dir(tag).rmdir()

    @contextlib.contextmanager
    def _run_lock(self, tag: str) -> Iterator[None]:
        directory = self.attempts_dir(tag)
        path = directory / ".lock"
        while True:
            directory.mkdir(exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # the directory was removed between the two lines, by a refused submission
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _same_file(descriptor, path):
                break
            os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)

    def _make_index(self) -> None:
        self._open_dir.mkdir(parents=True, exist_ok=True)
        ignore = self._open_dir.parent / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, "*\n", durable=False)

    def _clear_index(self) -> None:
        """Remove the index when nothing is open and it was the only thing there: nothing is left behind."""
        with contextlib.suppress(OSError):
            if self._attempted():
                return
            self._open_dir.rmdir()  # fails while something is open
            (self._open_dir.parent / ".gitignore").unlink(missing_ok=True)
            self._open_dir.parent.rmdir()

    def _attempted(self) -> bool:
        """True when some run below the root has an attempt."""
        return any(self._names(tag) for tag in self.tags())

    def _new_claim(self, token: str, tag: str, attempt: int) -> Claim:
        claim = self.claim(token, tag, attempt, wait=True)
        assert claim is not None  # noqa: S101 - nobody else knows the token
        return claim


class _Versioned(msgspec.Struct):
    version: int = 1


def _refuse_newer(path: Path, raw: bytes) -> None:
    """A newer format may have changed any field but the version."""
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        _refuse_version(path, msgspec.json.decode(raw, type=_Versioned).version)


def _refuse_version(path: Path, version: int) -> None:
    if version > RECORD_VERSION:
        raise LedgerError(
            f"{path} was written by a newer gpuq (format {version}, this one knows {RECORD_VERSION})",
            hint="upgrade gpuq",
        )


def _encode(record: Record) -> bytes:
    return msgspec.json.format(json_bytes(record), indent=2) + b"\n"


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
