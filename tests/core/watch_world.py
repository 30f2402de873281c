"""A small Slurm that tells the truth: jobs that come, run, are put back, end and are lost, and what is seen of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import msgspec

from gpuq.core.attempt import make_comment
from gpuq.core.job import Job, JobEnd
from gpuq.core.watch.facts import Answers, Completion, Completions, Over, Snapshot, State
from gpuq.core.watch.step import Found, step

UID = 1000
EPOCH = 1_790_000_000


def job(id_: str = "12", state: str = "PENDING", *, submit: int = EPOCH, name: str = "a", **fields: object) -> Job:
    """A row of the queue."""
    values: dict[str, object] = {
        "id": id_,
        "number": int(id_.split("_")[0].split("+")[0]),
        "name": name,
        "state": state,
        "reason": "",
        "partition": "gpu",
        "user": "ann",
        "uid": UID,
        "submit": moment(submit),
        "start": None,
        "end": None,
        "time_limit": 3600,
        "elapsed": 0,
        "dependency": "",
        "gres": "gres/gpu:1",
        "memory": 2**30,
        "cpus": 1,
        "nice": 0,
        "priority": 100,
        "node": "",
        "comment": "",
        "workdir": "/lab",
    }
    return Job(**(values | fields))  # type: ignore[arg-type]


def line(
    id_: str = "12", state: str = "COMPLETED", *, submit: int | tuple[int, ...] = EPOCH, name: str = "a"
) -> Completion:
    """A line of the completion file."""
    return Completion(
        id=id_,
        number=int(id_.split("_")[0]),
        uid=UID,
        user="ann",
        name=name,
        state=state,
        submits=(submit,) if isinstance(submit, int) else submit,
        end=JobEnd(state=state, source="jobcomp", end=moment(EPOCH + 60)),
        workdir="/lab",
    )


def moment(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


class Truth(msgspec.Struct, kw_only=True):
    """A job as it really is."""

    number: int
    name: str
    token: str
    submits: list[int]
    state: str = "PENDING"
    restarts: int = 0
    ended_at: int | None = None
    lost: bool = False

    @property
    def active(self) -> bool:
        return self.ended_at is None and not self.lost

    def row(self) -> Job:
        comment = make_comment(1, self.token) if self.token else ""
        return job(str(self.number), self.state, submit=self.submits[-1], name=self.name, comment=comment)


class World:
    """The truth, and a watcher that is told parts of it."""

    def __init__(self, min_job_age: int, jobcomp: bool, faithful: bool) -> None:
        # faithful: the file is read before each look at the queue is used, as the watcher does
        self.now = EPOCH
        self.min_job_age, self.jobcomp, self.faithful = min_job_age, jobcomp, faithful
        self.jobs: list[Truth] = []
        self.lines: list[Completion] = []
        self.read = 0
        self.next_id = 1
        self.serial = 0
        self.kept: list[Snapshot] = []
        self.state = State()
        self.over: list[Over] = []
        self.seen: set[int] = set()
        """Indices of jobs that the watcher can know of."""

    # -- what happens ------------------------------------------------------------------------------------------

    def submit(self, token: bool) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        name = f"job{len(self.jobs)}"
        self.jobs.append(
            Truth(number=number, name=name, token=f"{len(self.jobs):016x}" if token else "", submits=[self.now])
        )

    def active(self, choice: int) -> Truth | None:
        live = [one for one in self.jobs if one.active]
        return live[choice % len(live)] if live else None

    def start(self, choice: int) -> None:
        if (one := self.active(choice)) is not None:
            one.state = "RUNNING"

    def requeue(self, choice: int, state: str) -> None:
        one = self.active(choice)
        if one is None or one.state != "RUNNING":
            return
        if state != "PENDING" and self.jobcomp:  # JobState=PENDING lines are dropped where the file is read
            self.lines.append(line(str(one.number), state, submit=one.submits[-1], name=one.name))
        one.state, one.restarts = "PENDING", one.restarts + 1
        one.submits.append(self.now)

    def end(self, choice: int, state: str) -> None:
        one = self.active(choice)
        if one is None:
            return
        one.state, one.ended_at = state, self.now
        if self.jobcomp:
            self.lines.append(line(str(one.number), state, submit=one.submits[-1], name=one.name))

    def lose(self) -> None:
        """slurmctld's state is lost: nothing is known any more, and ids begin again."""
        for one in self.jobs:
            one.lost = one.lost or one.ended_at is None
            if one.ended_at is not None:
                one.ended_at = min(one.ended_at, self.now - self.min_job_age)
        self.next_id = 1

    # -- what is seen ------------------------------------------------------------------------------------------

    def known(self, one: Truth) -> bool:
        return one.active or (one.ended_at is not None and not one.lost and self.now - one.ended_at < self.min_job_age)

    def look(self, *, ended: bool) -> Snapshot:
        self.serial += 1
        shown = [one for one in self.jobs if one.active or (ended and self.known(one))]
        return Snapshot(
            serial=self.serial,
            at=float(self.now),
            jobs=tuple(one.row() for one in shown),
            ended=ended,
            restarted=frozenset(one.number for one in shown if one.restarts),
        )

    def snapshot(self, fact: Snapshot) -> None:
        if self.faithful:
            self.lines_in(self.lines[self.read :])
            self.read = len(self.lines)
        if fact.serial > self.state.serial:
            for row in fact.jobs:
                self._note(row.number, int(row.submit.timestamp()) if row.submit else 0)
        found = self._step(fact)
        if found.ask:
            ends: dict[str, JobEnd | None] = {}
            for key, asked in found.ask.items():
                one = next((j for j in self.jobs if j.number == asked.number and asked.submit in j.submits), None)
                assert one is not None
                if one.active:
                    continue
                ends[key] = JobEnd(state=one.state) if self.known(one) else None
            self._step(Answers(at=float(self.now), ends=ends))

    def lines_in(self, lines: Iterable[Completion]) -> None:
        found = tuple(lines)
        for one in found:
            self._note(one.number, one.submits[0])
        self._step(Completions(at=float(self.now), lines=found))

    def _note(self, number: int, submit: int) -> None:
        self.seen |= {i for i, one in enumerate(self.jobs) if one.number == number and submit in one.submits}

    def _step(self, fact: Snapshot | Completions | Answers) -> Found:
        # through the store and back, as after each kill -9
        state = msgspec.json.decode(msgspec.json.encode(self.state), type=State)
        self.state, found = step(state, fact)
        self.over += found.over
        return found

    def finish(self) -> None:
        """Everything ends, and is seen."""
        for one in self.jobs:
            if one.active:
                self.now += 1
                one.state = "RUNNING"
                self.end(0, "COMPLETED")
        self.lines_in(self.lines[self.read :])
        for _ in range(4):
            self.now += 1
            self.snapshot(self.look(ended=False))
