"""The watcher on a real Slurm: what happened is what was told, whatever happens to the watcher meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.events import EventStore
from gpuq.core.event import Event, Kind
from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

KILLS = int(os.environ.get("GPUQ_TEST_KILLS", "12"))
"""kill -9s of the watcher in one run; 200 for a thorough one."""


def events(*kinds: Kind) -> list[Event]:
    """What the watcher of this test's user has written down."""
    path = state_dir(os.environ) / FILE
    if not path.exists():
        return []
    with contextlib.closing(open_store(path)) as connection:
        return EventStore(connection).latest_events(10_000, kinds or tuple(Kind))


def told() -> Counter[str]:
    """Job ids of all endings that were written down; of an array its number."""
    return Counter(e.ending.job_id for e in events(Kind.JOB_ENDED, Kind.ARRAY_ENDED) if e.ending is not None)


def happened(slurm: Embedded) -> Counter[str]:
    """Job ids of all endings by Slurm's own file; of an array its number."""
    found: dict[str, None] = {}
    for text in slurm.jobcomp.read_text(errors="replace").splitlines() if slurm.jobcomp.exists() else []:
        job = re.search(r"ArrayJobId=(\d+)", text) or re.match(r"JobId=(\d+)", text)
        if job and " JobState=PENDING " not in text:
            found[job[1]] = None
    return Counter(found.keys())


def write_config(text: str) -> Path:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "gpuq" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@contextlib.contextmanager
def watching(project: Project) -> Iterator[subprocess.Popen[str]]:
    process = project.start("watch")
    try:
        until(lambda: watcher_pid(project) == process.pid, lambda: project.gpuq("watch", "status"), timeout=20)
        yield process
    finally:
        process.kill()
        process.communicate()


def watcher_pid(project: Project) -> int | None:
    lock = state_dir(os.environ) / "watch.lock"
    if not lock.exists():
        return None
    status = project.gpuq("watch", "status", "--json").ok().json
    report = status["report"]
    return status["pid"] if report and report["pid"] == status["pid"] else None


@pytest.mark.one_release
def test_killed_at_any_instant_it_tells_every_ending_once(slurm: Embedded, project: Project) -> None:
    """kill -9 at random points of a busy queue; then told is held against happened."""
    out = state_dir(os.environ) / "told.jsonl"
    sink = Path(os.environ["HOME"]) / "sink"
    sink.write_text(f'#!/bin/bash\ncat >> "{out}"; echo >> "{out}"\n')
    sink.chmod(0o755)
    write_config(f'[notify.sinks.one]\ntype = "command"\nargv = ["{sink}"]\n')
    project.gpuq("watch", "--once").ok()
    rng = random.Random(KILLS)
    for n in range(max(20, KILLS // 2)):
        options = ["--mem=20", "--gres=gpu:1", "-n1", f"--job-name=job{n}"]
        if n % 10 == 3:
            options.append("--array=1-2")
        if n % 10 == 7:
            options += ["--hold"]
        job = slurm.sbatch(f"sleep 0.{rng.randrange(4)}; exit {n % 3 == 0:d}", *options, cwd=project.root)
        if n % 10 == 7:
            slurm.must("scancel", str(job))
    for _ in range(KILLS):
        process = project.start("watch")
        # from before it has read anything to well into its work
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.05, 0.9))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    slurm.wait(lambda: slurm.must("squeue", "-h", "-a", "-o", "%A").strip(), ("",), timeout=120)
    project.gpuq("watch", "--once").ok()
    project.gpuq("watch", "--once").ok()  # the second look finds no array unfinished
    assert told() == happened(slurm)
    notices = [json.loads(text) for text in out.read_text().splitlines() if text.strip()]
    keys = {one["notice"]["key"] if "notice" in one else one["key"] for one in notices}
    assert {e.key for e in events(Kind.JOB_ENDED, Kind.ARRAY_ENDED)} <= keys
    assert project.gpuq("notify", "status", "--json").ok().json["sinks"][0]["waiting"] == 0


def test_what_began_and_ended_while_it_was_away_is_told_once(slurm: Embedded, project: Project) -> None:
    """Also where slurmctld has forgotten it (MinJobAge), and the record of the attempt is written too."""
    conf = slurm.layout.conf
    conf.write_text(conf.read_text().replace("MinJobAge=86400", "MinJobAge=2"))
    slurm.must("scontrol", "reconfigure")
    project.gpuq("watch", "--once").ok()
    project.run("dino/a", "echo fold 1; exit 3")
    first = project.submit("dino/a")
    slurm.wait_state(first, "FAILED")
    foreign = slurm.sbatch("true", "--job-name=not ours=\udcff", "--mem=20", "--gres=gpu:1", cwd=project.root)
    slurm.sbatch("true", "--hold", "--job-name=\udcfe", "--mem=20", "--gres=gpu:1", cwd=project.root)  # no text at all
    until(lambda: str(foreign) in happened(slurm), lambda: slurm.must("squeue", "-a", "-t", "all"))
    until(lambda: not slurm.run("scontrol", "show", "job", str(first)).ok, lambda: "still known")
    slurm.jobcomp.rename(f"{slurm.jobcomp}.1")  # and logrotate was at work
    slurm.jobcomp.touch()
    new = project.gpuq("watch", "--once", "--json").ok().json["events"]
    endings = {e["ending"]["job_id"]: e["ending"] for e in new if e["kind"] == "job_ended"}
    assert set(endings) == {str(first), str(foreign)}
    mine, other = endings[str(first)], endings[str(foreign)]
    assert (mine["name"], mine["attempt"], mine["outcome"], mine["exit_code"]) == ("dino/a", 1, "FAILED", 3)
    assert mine["log_tail"] == "fold 1"
    assert "3" in mine["cause"]
    assert mine["start"] is not None
    assert mine["elapsed"] is not None
    assert (other["name"], other["attempt"], other["outcome"]) == ("not ours=\ufffd", None, "SUCCEEDED")
    ended = project.record("dino/a").ended
    assert ended is not None
    assert ended.outcome == "FAILED"
    assert project.gpuq("watch", "--once", "--json").ok().json["events"] == []


def test_the_day_of_a_watcher(slurm: Embedded, project: Project) -> None:
    """Ends with outcome, score and cause; one left, none left; arrays; a requeue is no end; one instance; signals."""
    config = write_config("[watch]\npoll = 1\n[notify.kinds.job_started]\ntell = true\n")
    project.run("good", "echo '{\"mean\": 0.5}' > $GPUQ_RUN_DIR/cv.json", config='[results]\nscore = "cv.json:mean"\n')
    project.run("long", "trap 'exit 0' TERM; sleep 60 & wait")
    with watching(project) as process:
        assert "runs already" in project.gpuq("watch").exits(9).stderr
        long = project.submit("long")
        good = project.submit("good")
        until(lambda: f"long (job {long})" in {e.subject for e in events(Kind.JOB_STARTED)}, lambda: events())
        slurm.must("scontrol", "requeue", str(long))
        until(lambda: told()[str(good)] == 1, lambda: events())
        # Slurm lets a requeued job wait two minutes; meanwhile it is the one that is left
        until(lambda: bool(events(Kind.ONE_LEFT)), lambda: events())
        assert told()[str(long)] == 0, "a requeue was told as an end"
        array = slurm.sbatch(
            "exit $((SLURM_ARRAY_TASK_ID == 2))", "--array=1-3", "--mem=20", "--gres=gpu:1", cwd=project.root
        )
        until(lambda: told()[str(array)] == 1, lambda: events())
        project.gpuq("cancel", "long").ok()
        until(lambda: bool(events(Kind.QUEUE_EMPTY)), lambda: events())

        status = project.gpuq("watch", "status", "--json").ok().json
        assert status["running"]
        assert status["rss"] > 1e7
        assert str(slurm.jobcomp) in status["report"]["sources"]["completions"]
        assert status["outbox"]["log"]["waiting"] == 0
        assert status["last_event"]["kind"] == "queue_empty"
        assert "watched by the kernel" in project.gpuq("watch", "status").ok().stdout

        config.write_text("[watch]\npoll = 'never'\n")
        # nobody says so: the change is seen
        until(lambda: any(e.problem and e.problem.rule == "config-broken" for e in events()), lambda: events())
        process.send_signal(signal.SIGHUP)  # and this says so
        broken = "config-broken"
        until(lambda: [e.problem.rule for e in events() if e.problem].count(broken) == 2, lambda: events())
        write_config("[watch]\npoll = 1\n")
        until(lambda: [e.problem.rule for e in events(Kind.RECOVERED) if e.problem] == [broken], lambda: events())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "the old one stays" in err
    by = {e.ending.job_id: e for e in events(Kind.JOB_ENDED, Kind.ARRAY_ENDED) if e.ending is not None}
    ending = by[str(good)].ending
    assert ending is not None
    assert (ending.name, ending.attempt, ending.outcome, ending.score) == ("good", 1, "SUCCEEDED", 0.5)
    queue = by[str(good)].queue
    assert queue is not None
    assert queue.next_name == "long"
    gone = by[str(long)].ending
    assert gone is not None
    assert (gone.outcome, gone.cause.startswith("cancelled by")) == ("CANCELLED", True)
    whole = by[str(array)]
    assert whole.kind is Kind.ARRAY_ENDED
    assert whole.task_outcomes == {"SUCCEEDED": 2, "FAILED": 1}
    assert [task.job_id for task in whole.tasks] == [f"{array}_2"]
    for tag in ("good", "long"):
        assert project.record(tag).ended is not None, "told, and its record was not written"


@pytest.mark.one_release
def test_a_job_that_ends_while_slurm_answers_is_not_what_runs_next(slurm: Embedded, project: Project) -> None:
    """The queue was seen with it running, and when the answer is read the completion file has its end."""
    project.gpuq("watch", "--once").ok()
    project.run("good", "while [ ! -e go ]; do sleep 0.05; done")
    project.run("later", "sleep 600")
    good = project.submit("good")
    slurm.wait_state(good, "RUNNING")
    project.submit("later")
    project.wrap(
        "squeue",
        f'[ -e go ] && exec "$REAL" "$@"; "$REAL" "$@" >seen; code=$?; touch go\n'
        f'until grep -q "^JobId={good} " "{slurm.jobcomp}"; do sleep 0.02; done; cat seen; exit $code',
    )
    new = project.gpuq("watch", "--once", "--json").ok().json["events"]
    project.unwrap()
    (ended,) = [e for e in new if e["kind"] == "job_ended"]
    assert ended["ending"]["job_id"] == str(good)
    queue = ended["queue"]
    assert (queue["next_name"], queue["running"] + queue["waiting"]) == ("later", 1)
    assert "RUNNING" in (project.root / "seen").read_text()


@pytest.mark.one_release
def test_a_controller_that_is_away_ends_no_job(slurm: Embedded, project: Project) -> None:
    write_config("[watch]\npoll = 1\n")
    job = slurm.sbatch("sleep 300", "--mem=20", "--gres=gpu:1", "--time=10", cwd=project.root)
    slurm.wait_state(job, "RUNNING")
    with slurm.layout.conf.open("a") as conf:
        conf.write("MessageTimeout=1\n")  # else each question takes Slurm's commands ten seconds
    with watching(project):
        slurm.kill_daemons("slurmctld")
        until(lambda: bool(events(Kind.PROBLEM)), lambda: events(), timeout=90)
        slurm.up()
        until(lambda: bool(events(Kind.RECOVERED)), lambda: events(), timeout=90)
        assert told() == {}
        slurm.must("scancel", str(job))
        until(lambda: told()[str(job)] == 1, lambda: events())
    problems = [e.problem.rule for e in events(Kind.PROBLEM) if e.problem]
    assert problems == ["controller-away"]


@pytest.mark.one_release
def test_where_there_is_no_systemd_the_embedded_slurm_brings_its_watcher(slurm: Embedded, project: Project) -> None:
    env = {"GPUQ_LOCAL_DIR": str(slurm.dir)}
    project.gpuq("local", "up", "--watch", env=env).ok()
    pid = project.gpuq("watch", "status", "--json").ok().json["pid"]
    assert pid == int((slurm.dir / "watcher").read_text())
    ran = project.gpuq("local", "up", env=env).ok()
    assert "is up already" in ran.stderr
    assert "runs already" in ran.stderr, "--watch is remembered"
    assert f"process {pid}\n" in ran.stdout
    assert project.gpuq("local", "up", "--no-watch", env=env).ok().stderr.count("\n") == 1
    project.gpuq("local", "down", "--cancel", env=env).ok()
    assert project.gpuq("watch", "status", "--json").ok().json["running"] is False
    assert project.gpuq("watch", "--once").exits(4)
    shown = project.gpuq("watch", "install", "--dry-run").ok().stdout
    assert f'Environment="SLURM_CONF={slurm.layout.conf}"' in shown
    assert "systemctl --user enable gpuq-watch.service" in shown
