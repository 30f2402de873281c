"""The sbatch command line and its environment, and what sbatch's words mean."""

from __future__ import annotations

import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.attempt import Record, Request
from gpuq.core.batch import explain, job_environment, read_job_id, sbatch_argv, slurm_words
from gpuq.core.inherited import scrub
from gpuq.core.units import GIB, MIB
from tests import DATA

NOW = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.UTC)


def record(
    dependencies: tuple[str, ...] = (), log: str = "/p/runs/dino/lr3e-4/slurm/attempt2.out", **asks: object
) -> Record:
    request = msgspec.structs.replace(Request(cpus=8, memory=28 * GIB), **asks)
    return Record(
        tag="dino/lr3e-4",
        attempt=2,
        token="0123456789abcdef",
        request=request,
        argv=(),
        script="/p/runs/dino/lr3e-4/slurm/attempt2.sh",
        script_sha256="0" * 64,
        log=log,
        project="/p",
        user="ada",
        uid=1000,
        host="box",
        reserved=NOW,
        dependencies=dependencies,
    )


INHERITED = [
    "SLURM_CPU_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_JOB_ID",
    "SLURM_NTASKS",
    "SLURM_TIME_FORMAT",
    "SBATCH_PARTITION",
    "SBATCH_GRES",
    "SBATCH_TIMELIMIT",
    "SRUN_CPUS_PER_TASK",
    "SALLOC_PARTITION",
    "SQUEUE_FORMAT",
    "SQUEUE_USERS",
    "SINFO_FORMAT",
    "SCONTROL_ALL",
    "SCANCEL_INTERACTIVE",
    "PMI_RANK",
    "PMIX_NAMESPACE",
    "PMI2_RANK",
]


def test_nothing_of_an_outer_job_reaches_sbatch_or_the_job() -> None:
    outer = dict.fromkeys(INHERITED, "1") | {"PATH": "/bin", "HOME": "/h"}
    assert scrub(outer) == {"PATH": "/bin", "HOME": "/h"}
    inner = job_environment(outer, record(), "/p/runs/dino/lr3e-4")
    assert not [name for name in inner if name in INHERITED]


@given(
    st.dictionaries(st.one_of(st.text(), st.sampled_from(INHERITED), st.text().map(lambda t: "SLURM_" + t)), st.text())
)
def test_scrub_drops_every_variable_of_slurm_but_who_to_talk_to(environment: dict[str, str]) -> None:
    kept = scrub(environment)
    assert kept.items() <= environment.items()
    for name in kept:
        assert not name.startswith(
            ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SINFO_", "SCANCEL_", "PMI")
        ) or name in {
            "SLURM_CONF",
            "SLURM_CONF_SERVER",
            "SLURM_JWT",
        }
    for name in environment.keys() - kept.keys():
        assert name.startswith(("S", "PMI"))


def test_which_controller_to_talk_to_is_kept() -> None:
    assert scrub({"SLURM_CONF": "/x/slurm.conf", "SLURM_JWT": "t"}) == {"SLURM_CONF": "/x/slurm.conf", "SLURM_JWT": "t"}


def test_the_job_knows_its_tag_attempt_run_and_project() -> None:
    env = job_environment({"PATH": "/bin", "GPUQ_TAG": "outer", "GPUQ_ATTEMPT": "9"}, record(), "/p/runs/dino/lr3e-4")
    assert env == {
        "PATH": "/bin",
        "GPUQ_TAG": "dino/lr3e-4",
        "GPUQ_ATTEMPT": "2",
        "GPUQ_RUN_DIR": "/p/runs/dino/lr3e-4",
        "GPUQ_PROJECT": "/p",
        "PYTHONUNBUFFERED": "1",
    }


def test_python_is_unbuffered_unless_the_caller_says_otherwise() -> None:
    assert job_environment({"PYTHONUNBUFFERED": ""}, record(), "/r")["PYTHONUNBUFFERED"] == ""


def test_the_whole_command_line() -> None:
    assert sbatch_argv(record(time_limit=8 * 3600, partition="gpu", nice=5, signal_before=60, hold=True)) == (
        "--parsable",
        "--ignore-pbs",
        "--job-name=dino/lr3e-4",
        "--chdir=/p",
        "--output=/p/runs/dino/lr3e-4/slurm/attempt2.out",
        "--open-mode=append",
        "--export=ALL",
        "--comment=gpuq:1:2:0123456789abcdef",
        "--cpus-per-task=8",
        "--mem=28672M",
        "--gres=gpu:1",
        "--time=08:00:00",
        "--partition=gpu",
        "--nice=5",
        "--signal=B:TERM@60",
        "--hold",
        "/p/runs/dino/lr3e-4/slurm/attempt2.sh",
    )


def test_a_run_without_gpu_asks_for_none() -> None:
    assert not [word for word in sbatch_argv(record(gpu=False)) if "gpu:" in word.replace("gpuq:", "")]


def test_filler_may_be_put_back_and_is_told_before_it_is() -> None:
    argv = sbatch_argv(record(fill=True))
    assert "--requeue" in argv
    assert "--signal=B:TERM@60" in argv
    (own,) = [word for word in sbatch_argv(record(fill=True, signal_before=300)) if word.startswith("--signal")]
    assert own == "--signal=B:TERM@300"


def test_the_gate_of_a_host_explains_itself() -> None:
    said = explain(
        "sbatch: error: partition gpu: this job asks for no GPU; add --gres=gpu:1 to the command\n"
        "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification\n"
    )
    assert said.kind == "refused"
    assert "that partition is for other jobs" in said.message
    assert "add --gres=gpu:1" in said.message


def test_a_percent_sign_in_the_path_of_a_log_is_no_pattern() -> None:
    assert "--output=/p/50%%j/attempt2.out" in sbatch_argv(record(log="/p/50%j/attempt2.out"))


def test_memory_is_asked_for_in_megabytes_rounded_up() -> None:
    assert "--mem=2M" in sbatch_argv(record(memory=MIB + 1))


def test_only_afterok_is_killed_when_it_can_never_be_satisfied() -> None:
    assert "--kill-on-invalid-dep=yes" not in sbatch_argv(record(("afterany:12",)))
    argv = sbatch_argv(record(("afterany:12", "afterok:13")))
    assert "--dependency=afterany:12,afterok:13" in argv
    assert "--kill-on-invalid-dep=yes" in argv


@pytest.mark.parametrize(
    ("stdout", "answer"),
    [
        ("123\n", (123, None)),
        ("123;cluster\n", (123, "cluster")),
        ("Welcome to the cluster\n123;cluster\nYour quota is 40 %\n", (123, "cluster")),
        ("sbatch: note: 2 files\n7\n", (7, None)),
        ("\r\n123\r\n", (123, None)),
        ("", None),
        ("no id\n", None),
        ("Submitted batch job 12\n", None),
        ("12 jobs are waiting\n", None),
        ("12;a;b\n", None),
        ("-12\n", None),
    ],
)
def test_the_job_id_is_found_between_the_banner_lines_of_a_site(
    stdout: str, answer: tuple[int, str | None] | None
) -> None:
    assert read_job_id(stdout) == answer


@given(
    st.integers(min_value=1, max_value=2**32),
    st.lists(st.text(alphabet="abc ;:#-", max_size=12), max_size=5),
    st.integers(0, 5),
)
def test_banner_lines_never_hide_or_change_the_id(job: int, banner: list[str], place: int) -> None:
    lines = [*banner[:place], str(job), *banner[place:]]
    assert read_job_id("\n".join(lines) + "\n") == (job, None)


@pytest.mark.parametrize(
    ("stderr", "kind", "says"),
    [
        (
            "sbatch: error: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed: Failed to "
            'access "/run/munge/munge.socket.2": No such file or directory\n',
            "unreachable",
            "munge is not running",
        ),
        ("sbatch: error: Invalid generic resource (gres) specification\n", "refused", "this node offers no gres/gpu"),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
            "doubt",
            "gave no answer",
        ),
        ("sbatch: error: Batch job submission failed: Job dependency problem\n", "refused", "not known to Slurm"),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
            "unreachable",
            "slurmctld",
        ),
        ("sbatch: fatal: Unable to process configuration file\n", "unreachable", "slurmctld"),
        ("sbatch: error: slurm_receive_msg: Zero Bytes were transmitted or received\n", "doubt", "gave no answer"),
        (
            "sbatch: error: invalid partition specified: nope\n… Invalid partition name specified\n",
            "refused",
            "partition",
        ),
        ("sbatch: error: partition gpu: this job asks for no GPU\n", "refused", "this job asks for no GPU"),
        ("", "refused", "gave no reason"),
    ],
)
def test_what_the_words_of_a_failed_sbatch_mean(stderr: str, kind: str, says: str) -> None:
    refusal = explain(stderr)
    assert refusal.kind == kind
    assert says in refusal.message


@pytest.mark.parametrize("what", ["send", "receive", "shutdown"])
def test_a_lost_answer_is_doubt_but_a_lost_connection_is_a_no(what: str) -> None:
    failed = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
    assert explain(f"{failed} ({what} failure)\n").kind == "doubt"
    assert explain(f"{failed} (connect failure)\n").kind == "unreachable"


def test_munge_is_named_and_not_its_misleading_advice_first() -> None:
    refusal = explain(
        "sbatch: error: If munged is up, restart with --num-threads=10\n"
        'sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2"\n'
    )
    assert refusal.message.startswith("munge is not running")
    assert "munged" in refusal.hint
    assert "--num-threads" not in refusal.hint
    assert "--num-threads" not in refusal.message


def test_too_much_memory_as_recorded_is_explained_with_slurms_own_words() -> None:
    stderr = (DATA / "slurm/25.11/sbatch-mem-too-large.txt").read_text().removesuffix("rc 1\n")
    refusal = explain(stderr)
    assert refusal.kind == "refused"
    assert refusal.message == (
        "no node of the partition has that much memory (Slurm: Memory specification can not be satisfied; "
        "Batch job submission failed: Requested node configuration is not available)"
    )


def test_slurms_search_in_the_dns_is_no_news() -> None:
    words = "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsqueue: fatal: Could not establish\n"
    assert slurm_words(words) == "Could not establish"
    assert slurm_words(words.split("\n")[0]).startswith("resolve_ctls")


def test_slurms_words_lose_their_prefix_and_repetitions() -> None:
    assert slurm_words("sbatch: error: A\nsbatch: error: A\nsbatch: fatal: B\n\nerror: C\nplain\n") == "A; B; C; plain"
    assert slurm_words("slurm_load_jobs error: D\nE: an error: F\n") == "D; E: an error: F"
