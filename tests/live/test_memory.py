"""What jobs hold, on real cgroups: cache told apart, a short peak seen, a hidden kill found, the next attempt sized."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.events import EventStore
from gpuq.cli.context import build
from gpuq.core.attempt import Outcome, Record
from gpuq.core.event import Event, Kind
from gpuq.core.memory.sizing import LEAST_MARGIN
from gpuq.usecases.context import Context
from gpuq.usecases.memory.retry import retry_oom
from gpuq.usecases.memory.sample import GLANCE, Sampler
from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import SOURCE, Project, said, until

MIB = 1024**2
MB = 10**6

MAPPED = """
import mmap, os, sys, time
path = os.environ["GPUQ_RUN_DIR"] + "/big"
with open(path, "wb") as handle:
    handle.truncate(1 << 30)  # holes take cache like any page, and no disk
with open(path, "rb") as handle:
    view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
    sum(view[at] for at in range(0, len(view), 4096))
    anon = bytearray(300_000_000)
    shared = mmap.mmap(-1, 200_000_000)
    for block in (anon, shared):
        for at in range(0, len(block), 4096):
            block[at] = 1
    print("ready", flush=True)
    while not os.path.exists(os.environ["GPUQ_PROJECT"] + "/go"):
        time.sleep(0.05)
"""

SPIKE = """
import time
time.sleep(3)
peak = bytearray(400_000_000)
for at in range(0, len(peak), 4096):
    peak[at] = 1
time.sleep(2)
"""

HUNGRY = "python3 -c 'x = bytearray(400 * 2**20)'"


@pytest.fixture
def confined(slurm_shared: Embedded) -> Embedded:
    if not CAN_CONFINE or not slurm_shared.status().confinement.on:
        pytest.skip("memory is accounted for by root, where cgroups can be made")
    return slurm_shared


@pytest.fixture
def ctx(project: Project, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.chdir(project.root)
    return build()


def python(project: Project, tag: str, program: str, before: str = "", after: str = "") -> None:
    run = project.run(tag, f'{before}{project.python} "$GPUQ_RUN_DIR/job.py"\n{after}')
    (run / "job.py").write_text(program)


def watch(ctx: Context, sampler: Sampler, done: Callable[[], bool], timeout: float = 60) -> list[Event]:
    """Do what the watcher does until `done`, and once more."""
    events, clock = [], SystemClock()
    deadline = time.monotonic() + timeout
    while True:
        last = done()
        events += sampler.tick(ctx.slurm.jobs(), clock.now())
        if last:
            return events
        assert time.monotonic() < deadline, ctx.slurm.jobs(ended=True)
        clock.sleep(sampler.pause() or GLANCE)


def store() -> sqlite3.Connection:
    return open_store(state_dir(os.environ) / FILE)


def seen(project: Project, tag: str, attempt: int = 1) -> Record:
    record = project.record(tag, attempt)
    assert record.memory is not None, record
    return record


@pytest.mark.one_release
def test_what_a_job_holds_is_told_apart_from_its_page_cache(
    confined: Embedded, project: Project, ctx: Context, tmp_path: Path
) -> None:
    python(project, "a", MAPPED)
    python(project, "spike", SPIKE)
    ask = ("--cpu-only", "--mem", "2500M")
    job = project.submit("a", *ask)
    project.submit("spike", "--cpu-only", "--mem", "600M")
    connection = store()
    sampler = Sampler(ctx, connection)
    watch(ctx, sampler, lambda: "ready" in project.log("a"))

    live = project.gpuq("mem", "a", "--json").ok().json["jobs"][0]
    assert live["held"] == pytest.approx(500 * MB, rel=0.12)
    assert live["now"]["anon"] == pytest.approx(300 * MB, rel=0.1)
    assert live["now"]["shmem"] == pytest.approx(200 * MB, rel=0.3)
    assert live["cache"] > 1000 * MB
    assert live["now"]["limit"] == 2500 * MIB
    assert live["processes"] >= 2
    assert live["watched"]
    text = project.gpuq("mem").ok().stdout
    assert "cannot be given back" in text
    assert f"(job {job})" in text
    follower = project.start("mem", "a", "-f")
    assert follower.stdout
    assert follower.stdout.readline().startswith("a: holds ")
    (project.root / "go").touch()
    watch(ctx, sampler, lambda: not ctx.slurm.jobs())
    sampler.tick([], SystemClock().now())
    followed = project.finish(follower, "mem", "a", "-f").ok().stdout
    assert "held most" in followed

    project.gpuq("status").ok()
    record = seen(project, "a")
    assert record.ended
    assert record.memory
    assert record.memory.peak
    assert record.memory.peak > 1400 * MB, "what the cgroup itself calls its peak"
    assert record.memory.held == pytest.approx(500 * MB, rel=0.12)
    few = project.gpuq("mem", "a", "--advise").ok().stdout
    assert "too little evidence: 1 of 3 attempts" in few
    advised = project.gpuq("mem", "a", "--advise", "--anyway", "--json").ok().json
    assert advised["recommended"] == pytest.approx(500 * MB + LEAST_MARGIN, rel=0.15)

    spike = seen(project, "spike").memory
    assert spike
    assert spike.held
    assert spike.held > 380 * MB, "the peak of its last two seconds"

    drawn = project.gpuq("mem", "spike", "--plot").ok().stdout
    assert "anon + shmem over" in drawn
    picture = tmp_path / "spike.svg"
    project.gpuq("mem", "spike", "--plot", str(picture)).ok()
    assert "No such file or directory" in project.gpuq("mem", "spike", "--plot", "no/such/place.svg").exits(2).stderr
    assert picture.read_text().lstrip().startswith("<?xml")
    connection.close()

    for _ in range(2):  # what is known of one attempt, as if it were of three
        number = len(project.numbers("a")) + 1
        directory = project.runs / "a" / "slurm"
        text = (directory / "attempt1.json").read_text().replace('"attempt": 1,', f'"attempt": {number},')
        text = text.replace('"gpu": false', '"gpu": true')
        (directory / f"attempt{number}.json").write_text(text)
    advice = project.gpuq("mem", "a", "--advise").ok().stdout
    size = advised["recommended"] // MIB
    assert advice.startswith(f"a: --mem {size}M   (its latest attempt asked for 2500M)")
    assert "CPU-ONLY JOBS OF" in advice
    ran = project.gpuq("submit", "a", "--mem", "auto", "--cpu-only", "--dry-run", "--json").ok()
    assert ran.json["request"]["memory"] == advised["recommended"]
    assert "--mem auto: " in ran.stderr
    project.submit("a", "--hold", "--cpu-only", "--mem", "100M")
    assert f"memory is {size}M" in project.gpuq("set", "a", "--mem", "auto").ok().stdout
    ran = project.gpuq("submit", "spike", "--mem", "auto", "--cpu-only", "--dry-run", "--json").ok()
    assert "too little evidence" in ran.stderr
    assert ran.json["request"]["memory"] == 100 * MIB, "what gpuq.toml says"


def test_a_kill_that_slurm_calls_completed_and_the_next_attempt(
    confined: Embedded, project: Project, ctx: Context
) -> None:
    project.run("step", f"srun {HUNGRY}; echo on; exit 0", config="[retry]\noom = 2\n")
    project.run(
        "child", f"{HUNGRY}; echo on; while [ ! -e go ]; do sleep 0.05; done; exit 0", config="[retry]\noom = 1\n"
    )
    project.submit("step", "--mem", "60M", "--cpu-only")
    project.submit("child", "--mem", "60M", "--cpu-only")
    step = project.ended("step")
    assert (step.state, step.exit_code, step.signal) == ("COMPLETED", 0, 0)
    assert step.outcome == "SUCCEEDED"
    assert any("killed for memory; its output may be incomplete" in note for note in step.notes), step
    assert "killed for memory" in project.gpuq("wait", "step").ok().stdout
    assert "killed for host memory" in project.gpuq("why", "step").ok().stdout

    sampler = Sampler(ctx)
    watch(ctx, sampler, lambda: "on" in project.log("child"))
    assert "1 for memory" in project.gpuq("mem", "child").ok().stdout
    (project.root / "go").touch()
    watch(ctx, sampler, lambda: not ctx.slurm.jobs())
    child = project.ended("child")
    assert child.outcome == "OUT_OF_MEMORY", child
    record = seen(project, "child")
    assert record.memory
    assert record.memory.oom_kill == 1
    assert any(note.startswith("it held ") and " of 60M" in note for note in child.notes), child
    assert "its cgroup counted 1 killed" in project.gpuq("why", "child").ok().stdout
    assert "gpuq resubmit child --mem 128M" in project.gpuq("mem", "child").ok().stdout

    said = project.gpuq("wait", "child").exits(21).stdout
    assert "gpuq watch, where it runs, tries it again as attempt 2 with 128M" in said
    again = retry_oom(ctx, record)
    assert again
    assert (again.record.attempt, again.record.request.memory, again.repeated) == (2, 128 * MIB, False)
    assert "; tried again as attempt 2 with 128M" in project.gpuq("wait", str(record.job_id)).exits(21).stdout
    twice = retry_oom(ctx, record)
    assert twice
    assert (twice.record.attempt, twice.repeated) == (2, True)
    assert project.ended("child", 2).outcome == "OUT_OF_MEMORY"
    assert retry_oom(ctx, project.record("child", 2)) is None, "oom = 1 is one more attempt, and no third"
    assert retry_oom(ctx, project.record("step")) is None, "it succeeded"
    _, nodes = ctx.slurm.offer()
    whole = msgspec.structs.replace(
        project.record("step"),
        ended=msgspec.structs.replace(step, outcome=Outcome.OUT_OF_MEMORY),
        request=msgspec.structs.replace(record.request, memory=max(node.memory for node in nodes)),
    )
    assert retry_oom(ctx, whole) is None, "there is no more on this node"
    assert project.numbers("step") == [1]


def test_a_job_that_looks_at_itself(confined: Embedded, project: Project) -> None:
    program = """
import os, time
from pathlib import Path
from gpuq.core.memory.values import summary_path
from gpuq.usecases.memory.own import OwnSampler, write
log = os.environ["GPUQ_RUN_DIR"] + f"/slurm/attempt{os.environ['GPUQ_ATTEMPT']}.out"
sampler = OwnSampler(pace=0.05, keep=Path(summary_path(log)))
sampler.start()
held = bytearray(150_000_000)
deadline = time.monotonic() + 20
while not (os.path.exists(summary_path(log)) and os.path.exists("go")) and time.monotonic() < deadline:
    time.sleep(0.05)
del held
write(Path(summary_path(log)), sampler.stop())
"""
    python(project, "own", program, before=f"export PYTHONPATH={SOURCE}\n")
    project.submit("own", "--cpu-only", "--mem", "500M")
    until((project.runs / "own/slurm/attempt1.mem.json").exists, lambda: project.log("own"))
    assert "nobody keeps" not in project.gpuq("mem", "own").ok().stdout
    assert "gpuq mem own shows its height" in project.gpuq("mem", "own", "--plot").exits(6).stderr
    (project.root / "go").touch()
    assert project.ended("own").outcome == "SUCCEEDED", project.log("own")
    memory = seen(project, "own").memory
    assert memory
    assert memory.source == "job"
    assert memory.held
    assert memory.held > 150_000_000
    assert "gpuq run in the job" in project.gpuq("mem", "own").ok().stdout


@pytest.mark.one_release
def test_following_begins_before_the_job_does(confined: Embedded, project: Project) -> None:
    project.run("late", "while [ ! -e go ]; do sleep 0.05; done")
    job = project.submit("late", "--hold")
    following = project.start("mem", "late", "-f")
    assert "PENDING; it is looked at when it runs" in said(following)
    project.gpuq("release", "late").ok()
    assert following.stdout is not None
    assert following.stdout.readline().startswith("late: holds ")
    (project.root / "go").touch()
    ran = project.finish(following, "mem").ok()
    assert "looks by this command" in ran.stdout or "look by this command" in ran.stdout, "nobody else looked"
    assert f"late attempt 1 (job {job}): SUCCEEDED" in ran.stdout


@pytest.mark.one_release
def test_the_watcher_looks_and_tries_again(confined: Embedded, project: Project) -> None:
    """All of it together: the watcher samples, settles, and submits what was killed once more."""
    (project.root / "gpuq.toml").write_text('[submit]\nmem = "60M"\ncpus = 1\ntime = "10"\n[retry]\noom = 1\n')
    # the watcher asks Slurm every 30 s, and sees the cgroup at once
    project.run("big", f"while [ ! -e go$GPUQ_ATTEMPT ]; do sleep 0.1; done; {HUNGRY}")

    def watched(attempt: int) -> bool:
        now = project.gpuq("mem", "big", "--json").ok().json["jobs"][0]
        return (now["attempt"], now["running"], now["watched"]) == (attempt, True, True)

    watcher = project.start("watch")
    try:
        until(lambda: (state_dir(os.environ) / FILE).exists(), lambda: "no store")
        project.submit("big")
        until(lambda: watched(1), lambda: project.listing(), timeout=60)
        (project.root / "go1").touch()
        until(lambda: project.numbers("big") == [1, 2], lambda: project.listing(), timeout=90)
        until(lambda: watched(2), lambda: project.listing(), timeout=60)
        (project.root / "go2").touch()

        def over() -> bool:
            last = project.record("big", 2)
            return last.ended is not None and last.memory is not None

        until(over, lambda: project.record("big", 2), timeout=60)
    finally:
        watcher.terminate()
        ran = project.finish(watcher, "watch")
    first, second = project.record("big"), project.record("big", 2)
    assert first.memory, ran
    assert (first.memory.source, first.request.memory) == ("watcher", 60 * MIB)
    assert second.request.memory == 128 * MIB
    assert second.ended
    assert second.ended.outcome == "OUT_OF_MEMORY"
    assert project.numbers("big") == [1, 2]
    assert "tried again as big attempt 2 with 128M" in ran.stderr
    with contextlib.closing(open_store(state_dir(os.environ) / FILE)) as connection:
        events = EventStore(connection).after(0)
    told = [event.ending.retry for event in events if event.ending is not None]
    assert told == ["as attempt 2 with 128M", ""]
    assert [event.kind for event in events].count(Kind.QUEUE_EMPTY) <= 1, "not before the second has ended"
