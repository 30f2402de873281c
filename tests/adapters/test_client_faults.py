"""Wrong, lost and strange answers of Slurm's commands: told as what they are, and never a job too many or too few."""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuq.adapters.embedded import layout
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import RUN_CONF, SYSTEM_CONF, Location, Source
from gpuq.core.ports import Accepted, InDoubt
from gpuq.errors import ChangeRefused, GpuqError, SlurmAnswerError, SlurmUnreachable, SubmissionRefused
from tests import DATA
from tests.fake_slurm import PROGRAMS, FakeSlurm
from tests.gpuq_cli import Project

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
MUNGE = 'sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory\n'
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "fake", (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text())


@pytest.fixture
def client(fake: FakeSlurm) -> SlurmCommands:
    return SlurmCommands(Location(Source.ENVIRONMENT, None), {**os.environ, "PATH": fake.path})


@pytest.fixture
def project(tmp_path: Path, fake: FakeSlurm) -> Project:
    made = Project(tmp_path / "project")
    conf = tmp_path / "slurm.conf"
    conf.touch()
    made.env = {"PATH": fake.path, "SLURM_CONF": str(conf)}
    made.run("a")
    return made


def submit(client: SlurmCommands, fake: FakeSlurm) -> Accepted:
    return client.submit(["--parsable", "x.sh"], {"PATH": fake.path})


def queries(client: SlurmCommands) -> list[tuple[str, Callable[[], object]]]:
    """Every question, and the program that answers it."""
    return [
        ("squeue", client.jobs),
        ("squeue", lambda: client.jobs(uid=0, ended=True)),
        ("squeue", lambda: client.job(1)),
        ("squeue", lambda: client.job(1, part="1_1")),
        ("scontrol", client.offer),
        ("scontrol", client.cluster),
        ("sinfo", client.offer),
        ("scontrol", lambda: client.finished(1, uid=0, name="a", since=NOW)),
    ]


# -- reading ---------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_empty(client: SlurmCommands) -> None:
    assert client.jobs() == []


@pytest.mark.parametrize(
    "garbage", ["garbage\n", "\n", "slurm: maintenance at noon\n", "\x1e\x1e\n", "caf\udce9\n", "<html>\n" * 100]
)
def test_a_queue_that_makes_no_sense_is_an_error_and_not_an_empty_one(
    client: SlurmCommands, fake: FakeSlurm, garbage: str
) -> None:
    fake.fault("squeue", stdout=garbage)
    for ask in (client.jobs, lambda: client.job(1)):
        with pytest.raises(SlurmAnswerError, match="gpuq does not understand"):
            ask()


@pytest.mark.parametrize("garbage", ["", "garbage\n", "JobCompType = jobcomp/none\n"])
def test_a_configuration_that_makes_no_sense_is_no_proof_that_nothing_was_written_down(
    client: SlurmCommands, fake: FakeSlurm, garbage: str
) -> None:
    assert client.finished(1, uid=0, name="a", since=NOW) is None
    fake.fault("scontrol", stdout=garbage)
    for ask in (lambda: client.finished(1, uid=0, name="a", since=NOW), client.cluster, client.config):
        with pytest.raises(SlurmAnswerError, match="gpuq does not understand"):
            ask()
    with pytest.raises(SlurmAnswerError, match="gpuq does not understand"):
        client.allocations([1])


@pytest.mark.parametrize("stdout", ["", "looks fine\n"])
@pytest.mark.parametrize(
    "stderr",
    [
        AWAY,
        MUNGE,
        "squeue: error: Socket timed out on send/recv operation\n",
        "squeue: fatal: Unable to process configuration file\n",
    ],
)
def test_a_controller_that_is_away_is_unreachable_whatever_is_asked(
    client: SlurmCommands, fake: FakeSlurm, stderr: str, stdout: str
) -> None:
    for program in PROGRAMS:
        fake.fault(program, stdout=stdout, stderr=stderr, code=1)
    for _, ask in queries(client):
        with pytest.raises(SlurmUnreachable):
            ask()


def test_an_unknown_failure_is_no_answer_and_keeps_slurms_words(client: SlurmCommands, fake: FakeSlurm) -> None:
    for program in PROGRAMS:
        fake.fault(program, stderr=f"{program}: error: Unspecified error\n", code=1)
    for _, ask in queries(client):
        with pytest.raises(SlurmAnswerError, match=r"failed \(exit 1\).*Unspecified error"):
            ask()


def test_a_warning_on_stderr_is_no_failure(client: SlurmCommands, fake: FakeSlurm) -> None:
    fake.fault("squeue", stderr="squeue: error: something odd, but it worked\n", code=0)
    assert client.jobs() == []


def test_a_job_that_slurm_does_not_know_is_none_in_both_of_its_ways_to_say_so(
    client: SlurmCommands, fake: FakeSlurm
) -> None:
    assert client.job(99) is None  # rc 1, Invalid job id specified
    fake.fault("squeue", stdout="", code=0)
    assert client.job(99) is None


def test_a_number_that_no_job_can_have_is_not_asked_for(client: SlurmCommands, fake: FakeSlurm) -> None:
    # squeue would cut it down to 32 bits and answer with another job
    assert [client.job(number) for number in (0, 2**32, 2**32 + 1, 10**30)] == [None] * 4
    assert fake.calls("squeue") == []


def test_a_program_that_is_missing_is_no_slurm_here(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    client = SlurmCommands(Location(Source.NONE, None), {"PATH": str(tmp_path / "empty")})
    actions: list[Callable[[], object]] = [ask for _, ask in queries(client)]
    actions += [lambda: client.cancel(1), lambda: client.submit(["x"], {"PATH": str(tmp_path / "empty")})]
    for act in actions:
        with pytest.raises(SlurmUnreachable, match="is not installed, so there is no Slurm here") as caught:
            act()
        assert "gpuq local up" in caught.value.hint


def test_a_program_that_cannot_be_run_is_told_and_no_defect(fake: FakeSlurm, client: SlurmCommands) -> None:
    for program in PROGRAMS:
        (fake.bin / program).write_text("#!/no/such/interpreter\n")
    with pytest.raises(GpuqError):
        client.jobs()


# -- submitting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdout", "accepted"),
    [
        ("123\n", Accepted(123, None)),
        (
            "Welcome to the cluster!\n*** maintenance on Friday ***\n123;cluster\nQuota: 40 %\n",
            Accepted(123, "cluster"),
        ),
    ],
)
def test_the_job_id_is_found_between_banner_lines(
    client: SlurmCommands, fake: FakeSlurm, stdout: str, accepted: Accepted
) -> None:
    fake.fault("sbatch", stdout=stdout)
    assert submit(client, fake) == accepted


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "killed"),
    [
        ("", TIMED_OUT, 1, 0),
        ("", "", 0, 0),
        ("welcome\n", "", 0, 0),
        ("", "", 0, signal.SIGKILL),
        ("", "sbatch: error: Batch job submission failed: Message receive failure\n", 1, 0),
    ],
)
def test_an_answer_that_may_mean_yes_is_doubt_and_neither_yes_nor_no(
    client: SlurmCommands, fake: FakeSlurm, stdout: str, stderr: str, code: int, killed: int
) -> None:
    fake.fault("sbatch", stdout=stdout, stderr=stderr, code=code, signal=killed)
    with pytest.raises(InDoubt):
        submit(client, fake)


@pytest.mark.parametrize(
    ("stderr", "error", "says", "hint"),
    [
        (MUNGE, SlurmUnreachable, "munge is not running", "munge"),
        (
            "sbatch: error: Invalid generic resource (gres) specification\n",
            SubmissionRefused,
            "this node offers no gres/gpu",
            "Gres=gpu:1",
        ),
        (
            "sbatch: error: Batch job submission failed: Job dependency problem\n",
            SubmissionRefused,
            "not known to Slurm",
            "",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
            SlurmUnreachable,
            "slurmctld",
            "",
        ),
        ("sbatch: error: your account is out of hours\n", SubmissionRefused, "your account is out of hours", ""),
        ("", SubmissionRefused, "gave no reason", ""),
    ],
)
def test_a_no_is_told_with_what_it_means(
    client: SlurmCommands, fake: FakeSlurm, stderr: str, error: type[GpuqError], says: str, hint: str
) -> None:
    fake.fault("sbatch", stderr=stderr, code=1)
    with pytest.raises(error) as caught:
        submit(client, fake)
    assert says in caught.value.message
    assert hint in caught.value.hint
    assert "--num-threads" not in caught.value.message + caught.value.hint


def test_a_change_that_slurm_denies_is_refused_and_one_that_it_never_heard_of_is_unreachable(
    client: SlurmCommands, fake: FakeSlurm
) -> None:
    fake.fault("scancel", stderr="scancel: error: Kill job error on job id 8: Access/permission denied\n", code=210)
    with pytest.raises(ChangeRefused, match="Slurm will not cancel job 8") as caught:
        client.cancel(8)
    assert "operator" in caught.value.hint
    fake.fault("scontrol", stderr=AWAY, code=1)
    for change in (client.hold, client.release, client.top):
        with pytest.raises(SlurmUnreachable) as away:
            change(8)
        assert "not known" not in away.value.message
    for words in ("Socket timed out on send/recv operation", "Connection reset by peer"):
        fake.fault("scancel", stderr=f"scancel: error: Kill job error on job id 8: {words}\n", code=140)
        with pytest.raises(SlurmUnreachable, match=f"gave no answer.*{words}.*not known whether it did cancel job 8"):
            client.cancel(8)


# -- the whole way ---------------------------------------------------------------------------------------------


def attempts(project: Project) -> list[str]:
    return [path for path in project.listing() if not path.endswith("job.sh") and path not in {"a", "a/slurm"}]


def test_nothing_of_an_outer_job_reaches_any_command_of_slurm(project: Project, fake: FakeSlurm) -> None:
    outer = {
        name: "1"
        for name in "SLURM_CPU_BIND SLURM_MEM_PER_CPU SLURM_CPUS_PER_TASK SLURM_ARRAY_JOB_ID SBATCH_PARTITION SBATCH_GRES "
        "SRUN_X SQUEUE_FORMAT SQUEUE_STATES SINFO_FORMAT SCANCEL_INTERACTIVE PMI_RANK SLURM_CLUSTERS".split()
    }
    project.gpuq("submit", "a", env=outer).ok()
    project.gpuq("cancel", "a", env=outer).ok()
    for program in PROGRAMS:
        assert fake.calls(program), program
        for call in fake.calls(program):
            assert not outer.keys() & call.environment.keys()
            assert call.environment["SLURM_CONF"] == project.env["SLURM_CONF"]
    (sbatch,) = fake.calls("sbatch")
    assert {name for name in sbatch.environment if name.startswith("SLURM")} == {"SLURM_CONF"}
    assert sbatch.environment["GPUQ_TAG"] == "a"


def test_a_submission_that_timed_out_but_was_accepted_is_found_and_not_made_twice(
    project: Project, fake: FakeSlurm
) -> None:
    fake.fault("sbatch", stderr=TIMED_OUT, code=1, works=True)
    ran = project.gpuq("submit", "a").ok()
    assert "asking Slurm whether it has the job" in ran.stderr
    assert "as job 1 " in ran.stdout
    assert len(fake.calls("sbatch")) == 1
    assert project.record("a").job_id == 1


def test_a_submission_that_timed_out_and_was_not_accepted_leaves_nothing_and_is_not_repeated(
    project: Project, fake: FakeSlurm
) -> None:
    fake.fault("sbatch", stderr=TIMED_OUT, code=1)
    ran = project.gpuq("submit", "a", patience=0.5).exits(4)
    assert "does not have the job" in ran.stderr
    assert len(fake.calls("sbatch")) == 1
    assert attempts(project) == []
    fake.mend("sbatch")
    assert project.submit("a") == 1


def test_a_submission_in_doubt_with_no_answer_after_it_stays_reserved_until_slurm_answers(
    project: Project, fake: FakeSlurm
) -> None:
    fake.fault("sbatch", stderr=TIMED_OUT, code=1, works=True)
    # only the questions after sbatch go unanswered: what is asked before uses other programs
    fake.fault("squeue", stderr=AWAY, code=1)
    ran = project.gpuq("submit", "a", patience=0.5).exits(4)
    assert "not known yet" in ran.stderr
    assert project.numbers("a") == [1]
    assert project.record("a").job_id is None
    fake.mend("squeue")
    ran = project.gpuq("status", "a").ok()
    assert "had been accepted as job 1" in ran.stderr
    assert project.record("a").job_id == 1
    assert len(fake.calls("sbatch")) == 1


def test_a_key_that_was_used_before_tells_what_is_not_as_asked_for(project: Project, fake: FakeSlurm) -> None:
    project.run("b")
    asked = ("submit", "a", "--key", "k", "--mem", "1G", "--time", "8:00:00", "--hold")
    project.gpuq(*asked).ok()
    for same in (asked, ("submit", "a", "--key", "k")):
        assert "as asked for" not in project.gpuq(*same).ok().stderr
    ran = project.gpuq("submit", "a", "--key", "k", "--mem", "2G", "--cpu-only").ok()
    assert "note: not as asked for here: --mem 2G (it has 1G), --cpu-only (it has one GPU);" in ran.stderr
    assert "nothing is submitted" in ran.stdout
    project.gpuq("chain", "a", "b", "--key", "k").ok()  # a chain's keys are its own
    ran = project.gpuq("chain", "a", "b", "--key", "k", "--mem", "2G", "--json").ok()
    assert [len(one["notes"]) for one in ran.json["attempts"]] == [1, 1]
    assert len(fake.calls("sbatch")) == 3


def test_a_dry_run_with_a_key_that_was_used_before_would_submit_nothing(project: Project, fake: FakeSlurm) -> None:
    project.submit("a", "--key", "k")
    before = project.listing()
    ran = project.gpuq("submit", "a", "--key", "k", "--mem", "2G", "--dry-run").ok()
    assert ran.stdout == ""
    assert "would submit nothing: a attempt 1 was submitted with this key before, as job 1" in ran.stderr
    assert "--mem 2G" in ran.stderr
    shown = project.gpuq("submit", "a", "--key", "k", "--dry-run", "--json").ok().json
    assert (shown["dry_run"], shown["repeated"], shown["attempt"], shown["job_id"]) == (True, True, 1, 1)
    assert "attempt2.sh" in project.gpuq("submit", "a", "--key", "other", "--dry-run").ok().stdout
    assert project.listing() == before
    project.gpuq("chain", "a", "--key", "night").ok()
    shown = project.gpuq("chain", "a", "a", "a", "--key", "night", "--dry-run", "--json").ok().json
    assert [(one.get("repeated", False), one["attempt"]) for one in shown["attempts"]] == [
        (True, 2), (False, 3), (False, 4),
    ]  # fmt: skip
    assert len(fake.calls("sbatch")) == 2


def test_a_dry_run_does_not_find_out_what_became_of_a_submission_in_doubt(project: Project, fake: FakeSlurm) -> None:
    fake.fault("sbatch", stderr=TIMED_OUT, code=1, works=True)
    fake.fault("squeue", stderr=AWAY, code=1)
    project.gpuq("submit", "a", "--key", "k", patience=0.5).exits(4)
    ran = project.gpuq("submit", "a", "--key", "k", "--dry-run").ok()
    assert "whether Slurm took a attempt 1 is not known yet" in ran.stderr
    assert project.record("a").job_id is None


def test_a_garbled_queue_after_a_submission_in_doubt_is_no_proof_of_absence(project: Project, fake: FakeSlurm) -> None:
    fake.fault("sbatch", stderr=TIMED_OUT, code=1, works=True)
    fake.fault("squeue", stdout="garbage\n")
    ran = project.gpuq("submit", "a", patience=0.5)
    assert ran.code in {4, 7}, ran
    assert "Traceback" not in ran.stderr
    assert project.numbers("a") == [1]
    fake.mend("squeue")
    project.gpuq("status", "a").ok()
    assert project.record("a").job_id == 1


def test_an_sbatch_that_says_yes_without_an_id_is_looked_up(project: Project, fake: FakeSlurm) -> None:
    fake.fault("sbatch", stdout="OK\n", works=True)
    assert "as job 1 " in project.gpuq("submit", "a").ok().stdout


@pytest.mark.parametrize(
    ("stderr", "code", "says"),
    [
        (MUNGE, 4, "munge is not running"),
        ("sbatch: error: Invalid generic resource (gres) specification\n", 5, "this node offers no gres/gpu"),
        ("sbatch: error: your account is out of hours\n", 5, "your account is out of hours"),
    ],
)
def test_a_refused_submission_leaves_nothing_behind(
    project: Project, fake: FakeSlurm, stderr: str, code: int, says: str
) -> None:
    before = project.listing()
    fake.fault("sbatch", stderr=stderr, code=1)
    ran = project.gpuq("submit", "a").exits(code)
    assert says in ran.stderr
    assert ran.stdout == ""
    assert project.listing() == before


def test_a_wrapper_that_takes_the_gpu_away_is_noticed_and_the_job_cancelled(project: Project, fake: FakeSlurm) -> None:
    (fake.bin / "real-sbatch").write_bytes(
        (fake.bin / "sbatch").read_bytes().replace(b"os.path.basename(sys.argv[0])", b"'sbatch'")
    )
    (fake.bin / "real-sbatch").chmod(0o755)
    (fake.bin / "sbatch").write_text(
        f'#!/bin/bash\nfor a; do shift; [[ $a == --gres=* ]] || set -- "$@" "$a"; done\nexec {fake.bin}/real-sbatch "$@"\n'
    )
    ran = project.gpuq("submit", "a").exits(5)
    assert "without its one GPU" in ran.stderr
    assert [job["state"] for job in fake.jobs().values()] == ["CANCELLED"]
    assert attempts(project) == []


@pytest.mark.parametrize("program", ["scontrol", "sinfo"])
def test_garbage_before_the_submission_submits_nothing(project: Project, fake: FakeSlurm, program: str) -> None:
    fake.fault(program, stdout="garbage\n")
    assert "does not understand" in project.gpuq("submit", "a").exits(7).stderr
    assert fake.calls("sbatch") == []
    assert attempts(project) == []


def test_a_garbled_queue_is_an_error_with_its_own_code(project: Project, fake: FakeSlurm) -> None:
    fake.fault("squeue", stdout="garbage\n")
    ran = project.gpuq("queue").exits(7)
    assert ran.stdout == ""
    fake.fault("squeue", stderr=AWAY, code=1)
    ran = project.gpuq("queue").exits(4)
    assert ran.stdout == ""
    assert "does not answer" in ran.stderr


def test_a_configuration_that_is_gone_is_told_at_once(project: Project, fake: FakeSlurm, tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "slurm.conf"
    for args in (("queue",), ("submit", "a"), ("cancel", "7")):
        ran = project.gpuq(*args, env={"SLURM_CONF": str(gone)}).exits(4)
        assert f"{gone} does not exist" in ran.stderr
        assert "unset SLURM_CONF" in ran.stderr
    gone.parent.mkdir()
    (gone.parent / "local.json").touch()  # an embedded Slurm that is down
    ran = project.gpuq("queue", env={"SLURM_CONF": str(gone)}).exits(4)
    assert f"gpuq local up --dir {gone.parent}" in ran.stderr
    assert not any(fake.calls(program) for program in PROGRAMS)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """slurm.conf of an embedded Slurm that `gpuq local down` stopped, in its default place."""
    conf = layout.conf_path(layout.default_dir())
    conf.parent.mkdir(parents=True)
    (conf.parent / layout.STATE_FILE).touch()
    return conf


def test_an_embedded_slurm_that_is_down_is_told_as_such(fake: FakeSlurm, stopped: Path) -> None:
    nowhere = SlurmCommands(Location(Source.NONE, None), {**os.environ, "PATH": fake.path})
    words = "error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nerror: fetch_config: DNS SRV lookup failed\n"
    for program in PROGRAMS:
        fake.fault(program, stderr=f"{words}{program}: fatal: Could not establish a configuration source\n", code=1)
    for ask in (nowhere.jobs, nowhere.offer, lambda: submit(nowhere, fake), lambda: nowhere.cancel(1)):
        with pytest.raises(SlurmUnreachable) as caught:
            ask()
        assert caught.value.message == f"the embedded Slurm in {stopped.parent} is down; its jobs are kept"
        assert caught.value.hint == "gpuq local up"
    (stopped.parent / layout.STATE_FILE).unlink()
    with pytest.raises(SlurmUnreachable, match="Could not establish") as caught:
        nowhere.jobs()
    assert "no Slurm is configured here" in caught.value.hint
    assert "DNS" not in caught.value.message


def test_of_an_attempt_whose_embedded_slurm_is_down_nothing_is_concluded(
    project: Project, fake: FakeSlurm, stopped: Path
) -> None:
    project.submit("a")
    path = project.runs / "a/slurm/attempt1.json"
    path.write_text(path.read_text().replace(project.record("a").controller, str(stopped)))
    fake.has({})
    for args in (("why", "a"), ("wait", "a"), ("status", "a"), ("status",), ("cancel", "a")):
        ran = project.gpuq(*args).exits(4)
        assert "is down; its jobs are kept" in ran.stderr
        assert "hint: gpuq local up\n" in ran.stderr
        assert ("UNKNOWN" in ran.stdout) == (args[0] == "status")
    assert project.record("a").ended is None


@pytest.mark.skipif(SYSTEM_CONF.exists() or RUN_CONF.exists(), reason="a Slurm is configured here")
def test_slurms_own_commands_are_advised_with_what_makes_them_find_the_embedded_slurm(
    fake: FakeSlurm, tmp_path: Path, stopped: Path
) -> None:
    stopped.touch()  # it is up
    project = Project(tmp_path / "project")
    project.env = {"PATH": fake.path, "SLURM_CONF": ""}
    fake.has({"1": {"comment": "", "name": "byhand", "gres": "", "state": "FAILED"}})
    assert 'eval "$(gpuq local env)" && scontrol show job 1' in project.gpuq("why", "1").ok().stdout
    shown = project.gpuq("why", "1", env={"SLURM_CONF": str(stopped)}).ok().stdout
    assert "scontrol show job 1" in shown
    assert "eval" not in shown


def test_who_waits_for_an_answer_is_told_so(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuq.adapters.slurm.client.SLOW", 0.0)
    said: list[str] = []
    slow = SlurmCommands(Location(Source.ENVIRONMENT, None), {**os.environ, "PATH": fake.path}, say=said.append)
    assert slow.jobs() == []
    assert slow.job(7) is None
    assert said == ["note: waiting for slurmctld to answer"]


# -- what Slurm has forgotten ------------------------------------------------------------------------------------


def end(project: Project, fake: FakeSlurm, state: str) -> None:
    """The job of run `a` ends, its end is recorded, and Slurm forgets it."""
    project.submit("a")
    jobs = fake.jobs()
    jobs["1"]["state"] = state
    fake.has(jobs)
    project.gpuq("status", "a").ok()
    fake.has({})


@pytest.mark.parametrize("ref", ["a", "1"])
def test_a_parent_that_succeeded_and_is_forgotten_is_no_dependency(project: Project, fake: FakeSlurm, ref: str) -> None:
    end(project, fake, "COMPLETED")
    project.run("b")
    ran = project.gpuq("submit", "b", "--after-ok", ref).ok()
    assert "has succeeded already" in ran.stderr
    assert not [word for word in fake.calls("sbatch")[-1].args if word.startswith("--dependency")]


def test_a_parent_that_failed_and_is_forgotten_is_refused(project: Project, fake: FakeSlurm) -> None:
    end(project, fake, "FAILED")
    project.run("b")
    for ref in ("a", "1"):
        assert "ended as FAILED" in project.gpuq("submit", "b", "--after-ok", ref).exits(5).stderr
    assert "has ended already" in project.gpuq("submit", "b", "--after", "a").ok().stderr
    assert len(fake.calls("sbatch")) == 2


def test_a_parent_that_nobody_knows_is_refused_and_nothing_is_left(project: Project, fake: FakeSlurm) -> None:
    before = project.listing()
    assert "nobody knows any more how that job ended" in project.gpuq("submit", "a", "--after-ok", "77").exits(5).stderr
    assert fake.calls("sbatch") == []
    assert project.listing() == before


def test_another_job_under_our_id_is_never_taken_for_ours(project: Project, fake: FakeSlurm) -> None:
    project.submit("a")
    stranger = fake.jobs()["1"] | {"comment": "gpuq:1:1:ffffffffffffffff", "state": "COMPLETED"}
    fake.has({"1": stranger})
    project.gpuq("status", "a").ok()
    ended = project.record("a").ended
    assert ended is not None
    assert ended.outcome == "LOST"


def test_an_end_that_slurm_has_forgotten_is_read_from_its_jobcomp_file(
    project: Project, fake: FakeSlurm, tmp_path: Path
) -> None:
    project.submit("a")
    jobcomp = tmp_path / "jobcomp"
    submitted = project.record("a").submitted
    assert submitted is not None
    line = (
        "JobId=1 UserId=me({uid}) GroupId=me(1) Name=a JobState={state} Partition=gpu TimeLimit=480 "
        "StartTime={t} EndTime={t} NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/ ReservationName= Tres=cpu=1 "
        "Account= QOS= WcKey= Cluster=c SubmitTime={t} EligibleTime={t} DerivedExitCode=0:0 ExitCode={code} \n"
    )
    now = submitted.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    jobcomp.write_text(
        line.format(uid=os.getuid() + 1, state="COMPLETED", code="0:0", t=now)
        + line.format(uid=os.getuid(), state="COMPLETED", code="0:0", t="2020-01-01T00:00:00")
        + line.format(uid=os.getuid(), state="FAILED", code="3:0", t=now)
    )
    fake.keeps(jobcomp)
    for answer in ("unknown id", "nothing"):
        if answer == "nothing":
            fake.fault("squeue", stdout="")
        else:
            fake.has({})
        ran = project.gpuq("wait", "a").exits(20)
        assert "exit code 3" in ran.stdout
    ended = project.record("a").ended
    assert ended is not None
    assert (ended.source, ended.exit_code) == ("jobcomp", 3)


@pytest.mark.parametrize("program", ["squeue", "scontrol"])
def test_while_slurm_does_not_answer_nothing_is_recorded_as_ended(
    project: Project, fake: FakeSlurm, program: str
) -> None:
    project.submit("a")
    fake.has({})
    fake.fault(program, stderr=AWAY, code=1)
    project.gpuq("status", "a").exits(4)
    assert project.record("a").ended is None
    fake.fault(program, stdout="garbage\n", code=1)
    project.gpuq("status", "a").exits(7)
    assert project.record("a").ended is None


@pytest.mark.parametrize("banner", ["2026\n", "1\n"])
def test_a_number_in_a_banner_is_not_taken_for_the_job_and_no_other_job_is_touched(
    project: Project, fake: FakeSlurm, banner: str
) -> None:
    project.run("other")
    assert project.submit("other", "--cpu-only") == 1
    fake.fault("sbatch", stdout=f"2\n{banner}", works=True)
    ran = project.gpuq("submit", "a").ok()
    assert "as job 2 " in ran.stdout
    assert project.record("a").job_id == 2
    assert [job["state"] for job in fake.jobs().values()] == ["PENDING", "PENDING"]


def test_what_is_on_disk_is_shown_while_slurm_does_not_answer(project: Project, fake: FakeSlurm) -> None:
    project.submit("a")
    for program in PROGRAMS:
        fake.fault(program, stderr=f"{program}: error: Unable to contact slurm controller (connect failure)\n", code=1)
    for args in (("status",), ("status", "a")):
        ran = project.gpuq(*args).exits(4)
        assert "UNKNOWN" in ran.stdout
        assert "does not answer" in ran.stderr
    shown = project.gpuq("status", "--json").exits(4).json
    assert [one["state"] for run in shown["runs"] for one in run["attempts"]] == ["UNKNOWN"]
