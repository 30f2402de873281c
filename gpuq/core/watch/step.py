"""The watcher's judgement: from facts to what has ended. A pure function, so that it can be tried with every order of facts.

    state, found = step(state, fact)

Facts come from two sources that know nothing of each other: snapshots of the queue, and lines of the job completion file.
Both may repeat themselves, come late or leave things out. These are the rules by which every ending is told once:

- A submission is its id and its submit time (whole seconds, the same in every source). A requeue keeps the job and
  changes the submit time; an id that comes back after a lost state belongs to another job. What tells them apart is gpuq's
  token in the comment, and, without one, whether Slurm says that the job was restarted.
- What has been told stays in `told`. A row or a line of that submission, or of an earlier one of the same id, says nothing.
- A job that is missing in a whole answer of the controller is asked for (`Found.ask`); it is LOST when nobody
  knows of it, twice. A failed query is no fact.
- NODE_FAIL and the like in the completion file may be the end of one try: slurmctld writes it and puts the job back.
  The next snapshot decides.
"""

from __future__ import annotations

import msgspec

from gpuq.core.job import Job, JobEnd, Phase
from gpuq.core.watch.facts import (
    Answers,
    Array,
    Completion,
    Completions,
    Fact,
    Over,
    Snapshot,
    State,
    Watched,
)
from gpuq.core.watch.rows import end_key, end_of, from_line, from_row, mark_of, plain_id, same_job, task_of

DOUBTFUL = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
"""States after which slurmctld puts a job back that may be requeued."""

REMEMBERED = 512
"""How many endings are remembered by their submission, besides those still shown. The store knows the keys of all."""

LOST_AFTER = 2
"""In how many snapshots on end a job must be missing, with nobody knowing of it."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact brought to light."""

    over: tuple[Over, ...] = ()
    ask: dict[str, Watched] = {}
    """Jobs that are missing, by their key: find out what became of them, and hand in `Answers`."""
    left: int | None = None
    """The jobs that are left, where their number has just fallen to one or none."""


def step(state: State, fact: Fact) -> tuple[State, Found]:
    """The state after `fact`, and what it showed. Never raises."""
    work = _Work(state)
    if isinstance(fact, Snapshot):
        if fact.serial <= state.serial:
            return state, Found()
        work.snapshot(fact)
    elif isinstance(fact, Completions):
        for line in fact.lines:
            work.completion(line)
    else:
        work.answers(fact)
    return work.result()


def unsure(state: State, jobs: tuple[Job, ...]) -> set[int]:
    """Jobs with a new submit time and no token: Slurm must say whether they were restarted (`Snapshot.restarted`)."""
    found = set()
    for row in jobs:
        before = state.jobs.get(plain_id(row))
        if before and row.submit and row.submit.timestamp() > before.submit and not mark_of(row.comment):
            found.add(row.number)
    return found


class _Work:
    """One step: copies of what changes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.jobs = dict(state.jobs)
        self.arrays = dict(state.arrays)
        self.told = dict(state.told)
        self.doubts = dict(state.doubts)
        self.serial = state.serial
        self.left = state.left
        self.passed = state.passed
        self.emptied = state.emptied
        self.shown: set[str] = set()
        """Ended jobs that slurmctld still shows. Without a snapshot in this step: all may be."""
        self.over: list[Over] = []
        self.ask: dict[str, Watched] = {}
        self.few: int | None = None

    def result(self) -> tuple[State, Found]:
        if self.serial == self.state.serial:
            self.shown = set(self.told)
        surplus = len(self.told) - REMEMBERED - len(self.shown)
        if surplus > 0:
            for id_ in [id_ for id_ in self.told if id_ not in self.shown][:surplus]:
                del self.told[id_]
        state = State(
            serial=self.serial,
            jobs=self.jobs,
            arrays=self.arrays,
            told=self.told,
            doubts=self.doubts,
            left=self.left,
            passed=self.passed,
            emptied=self.emptied,
        )
        return state, Found(over=tuple(self.over), ask=self.ask, left=self.few)

    # -- what has been told ------------------------------------------------------------------------------------

    def _known(self, id_: str, submits: tuple[int, ...]) -> bool:
        """True for a submission that has been told, or one before it."""
        told = self.told.get(id_)
        return told is not None and (max(submits) <= max(told) or bool(set(told) & set(submits)))

    def _tell(self, watched: Watched, end: JobEnd | None, submits: tuple[int, ...] = ()) -> None:
        readings = submits or (watched.submit,)
        self.over.append(
            Over(
                key=end_key(watched.id, readings[0]),
                id=watched.id,
                number=watched.number,
                uid=watched.uid,
                name=watched.name,
                user=watched.user,
                submits=readings,
                workdir=watched.workdir,
                gpu=watched.gpu,
                comment=watched.comment,
                end=end,
            )
        )
        before = self.told.pop(watched.id, ())
        self.told[watched.id] = readings if not before or max(readings) >= max(before) else before

    # -- the completion file -----------------------------------------------------------------------------------

    def completion(self, line: Completion) -> None:
        if self._known(line.id, line.submits):
            return
        doubt = self.doubts.get(line.id)
        if doubt is not None and (doubt.uid, doubt.name) != (line.uid, line.name):
            self._believe(self.doubts.pop(line.id))  # the id has been given out again: that was its end
        array = self.arrays.get(line.number)
        if array is not None or "_" in line.id:
            self._task(line, array)
            return
        if line.state in DOUBTFUL:
            self.doubts[line.id] = line
            return
        self._believe(line)

    def _match(self, line: Completion) -> Watched | None:
        """The job that the line is about; None: one that was never seen in the queue."""
        watched = self.jobs.get(line.id)
        if watched is None or watched.uid != line.uid or max(line.submits) < watched.submit:
            return None
        # a name can be changed while a job waits; a later submit time with another name is another job
        if watched.name == line.name or watched.submit in line.submits:
            return watched
        self._displace(line.id)
        return None

    def _displace(self, id_: str) -> None:
        """The id has been given out again: who had it before is looked for under a key of its own."""
        before = self.jobs.pop(id_)
        self.jobs[f"{id_}@{before.submit}"] = before

    def _read(self, line: Completion, watched: Watched | None) -> tuple[Watched, JobEnd, tuple[int, ...]]:
        if watched is None:
            watched = from_line(line)
        # the reading that the queue has confirmed comes first: it makes the key
        first = watched.submit if watched.submit in line.submits else line.submits[0]
        readings = (first, *(one for one in line.submits if one != first))
        return watched, line.end, readings

    def _task(self, line: Completion, array: Array | None) -> None:
        if array is None:
            if self._known(str(line.number), line.submits):
                return
            self.passed += 1
            array = Array(
                number=line.number,
                uid=line.uid,
                name=line.name,
                user=line.user,
                submit=line.submits[0],
                workdir=line.workdir,
            )
        # cancelled before any task started, the array has one line, under its own number
        name = line.id if "_" in line.id else next((one for one in array.open if "[" in one), line.id)
        self._task_end(array, name, line.end)

    def _task_end(self, array: Array, name: str, end: JobEnd) -> None:
        if name not in array.ends:
            array = msgspec.structs.replace(array, ends=array.ends | {name: end})
        self.arrays[array.number] = msgspec.structs.replace(array, open=tuple(one for one in array.open if one != name))

    # -- the queue ---------------------------------------------------------------------------------------------

    def snapshot(self, fact: Snapshot) -> None:
        first = self.serial == 0
        self.serial = fact.serial
        seen: set[str] = set()
        active: dict[int, list[Job]] = {}
        for row in fact.jobs:
            if row.submit is None:
                continue
            if "_" in row.id:
                active.setdefault(row.number, [])
                if row.phase is not Phase.ENDED:
                    active[row.number].append(row)
                self._array_row(row, first)
                continue
            id_ = plain_id(row)
            if self._row(id_, row, fact, first):
                seen.add(id_)
        self._settle_doubts(seen, fact)
        for key, watched in list(self.jobs.items()):
            if key not in seen:
                self.jobs[key] = gone = msgspec.structs.replace(watched, missing=watched.missing + 1)
                self.ask[key] = gone
            elif watched.missing:
                self.jobs[key] = msgspec.structs.replace(watched, missing=0)
        for array in list(self.arrays.values()):
            self._settle_array(array, active.get(array.number, []))
        self._count(first)

    def _row(self, id_: str, row: Job, fact: Snapshot, first: bool) -> bool:
        """Take in one row. True: the job that is watched under this id was seen."""
        assert row.submit is not None  # noqa: S101 - the caller looked
        submit = int(row.submit.timestamp())
        if self._known(id_, (submit,)):
            self.shown.add(id_)
            return False
        before = self.jobs.get(id_)
        if before is not None and submit < before.submit:
            return True  # an answer from before the requeue
        if before is not None and submit > before.submit and not same_job(before, row, fact):
            self._displace(id_)
            before = None
        now = from_row(id_, row, submit)
        if row.phase is not Phase.ENDED:
            if before != now:
                self.jobs[id_] = now
            return True
        self.jobs.pop(id_, None)
        self.doubts.pop(id_, None)
        self.shown.add(id_)
        if first and before is None:
            self.told[id_] = (submit,)  # ended before the watcher ever looked: no news
        else:
            self.passed += before is None
            self._tell(now, end_of(row))
        return False

    def _settle_doubts(self, seen: set[str], fact: Snapshot) -> None:
        ending = {plain_id(row) for row in fact.jobs if row.phase is Phase.ENDING}
        for id_, line in list(self.doubts.items()):
            if id_ in ending:
                continue
            del self.doubts[id_]
            now = self.jobs.get(id_) if id_ in seen else None
            if now is not None and now.name == line.name and now.submit >= max(line.submits):
                continue  # put back: it goes on
            self._believe(line)

    def _believe(self, line: Completion) -> None:
        if self._known(line.id, line.submits):
            return
        watched = self._match(line)
        if watched is not None:
            del self.jobs[line.id]
        else:
            self.passed += 1
        self._tell(*self._read(line, watched))

    # -- arrays ------------------------------------------------------------------------------------------------

    def _array_row(self, row: Job, first: bool) -> None:
        assert row.submit is not None  # noqa: S101 - the caller looked
        submit = int(row.submit.timestamp())
        name = str(row.number)
        if self._known(name, (submit,)):
            return
        array = self.arrays.get(row.number)
        if array is None:
            if first and row.phase is Phase.ENDED:
                return
            array = Array(
                number=row.number,
                uid=row.uid,
                name=row.name,
                user=row.user,
                submit=submit,
                workdir=row.workdir,
                gpu=row.has_gpu,
            )
            self.arrays[row.number] = array
            self.passed += row.phase is Phase.ENDED
        if row.phase is Phase.ENDED:
            self._task_end(array, row.id, end_of(row))
        elif row.id not in array.open and row.id not in array.ends:
            # `12_[3-5]` becomes `12_[4-5]` when a task of it starts: one row stands for all that have not
            kept = tuple(one for one in array.open if "[" not in one or "[" not in row.id)
            self.arrays[row.number] = msgspec.structs.replace(array, open=(*kept, row.id))

    def _settle_array(self, array: Array, active: list[Job]) -> None:
        rows = {row.id for row in active}
        if any(row.phase is not Phase.ENDING or row.id not in array.ends for row in active):
            if array.missing:
                self.arrays[array.number] = msgspec.structs.replace(array, missing=0)
            return
        # A row for tasks that had not started ends when they have all become rows of their own.
        unknown = tuple(one for one in array.open if one not in rows and "[" not in one)
        missing = array.missing + 1
        if unknown and missing < LOST_AFTER:
            self.arrays[array.number] = msgspec.structs.replace(array, missing=missing)
            self.ask |= {one: task_of(array, one) for one in unknown}
            return
        del self.arrays[array.number]
        name = str(array.number)
        self.over.append(
            Over(
                key=f"array:{name}:{array.submit}",
                id=name,
                number=array.number,
                uid=array.uid,
                name=array.name,
                user=array.user,
                submits=(array.submit,),
                workdir=array.workdir,
                gpu=array.gpu,
                end=None,
                tasks=array.ends,
                lost_tasks=unknown,
            )
        )
        self.told.pop(name, None)
        self.told[name] = (array.submit,)

    # -- answers and counts ------------------------------------------------------------------------------------

    def answers(self, fact: Answers) -> None:
        for key, end in fact.ends.items():
            if "_" in key and (array := self.arrays.get(int(key.split("_", 1)[0]))) is not None:
                if end is not None and key in array.open:
                    self._task_end(array, key, end)
                continue
            watched = self.jobs.get(key)
            if watched is None or watched.missing == 0 or (end is None and watched.missing < LOST_AFTER):
                continue
            del self.jobs[key]
            if not self._known(watched.id, (watched.submit,)):
                self._tell(watched, end)
            elif "@" in key:
                self._tell_displaced(watched, end)

    def _tell_displaced(self, watched: Watched, end: JobEnd | None) -> None:
        """A job whose id has been given out again, and whose successor has been told meanwhile."""
        later = self.told.pop(watched.id)
        if watched.submit not in later:
            self._tell(watched, end)
        self.told[watched.id] = later

    def _count(self, first: bool) -> None:
        if any(job.missing for job in self.jobs.values()):
            return  # it may be over, or not
        left = len({job.number for job in self.jobs.values()}) + len(self.arrays)
        if not first and left < self.left + self.passed and left <= 1:
            self.few = left
            self.emptied += 1
        self.left, self.passed = left, 0
