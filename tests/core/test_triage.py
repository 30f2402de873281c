"""Every log below tests/data/failures gets the right verdict, and so does what Slurm alone says."""

from __future__ import annotations

from typing import Any

import pytest

from gpuq.adapters.logscan import scan
from gpuq.core.attempt import Request
from gpuq.core.triage.diagnosis import Answer, diagnose
from gpuq.core.triage.evidence import Evidence, Log
from gpuq.core.triage.rules import ANYWHERE, RULES, anchors
from gpuq.core.triage.tracebacks import find_chains
from gpuq.core.triage.words import expand
from tests import DATA

LOGS = DATA / "failures"
REQUEST = Request(cpus=4, memory=8 * 1024**3, time_limit=8 * 3600)


def judged(name: str | None = None, outcome: str = "FAILED", **known: Any) -> Answer:
    """The verdict on an attempt with this log."""
    known.setdefault("state", {"SUCCEEDED": "COMPLETED", "INCOMPLETE": "COMPLETED"}.get(outcome, outcome))
    known.setdefault("exit_code", 1 if outcome == "FAILED" else 0)
    known.setdefault("request", REQUEST)
    log = None if name is None else scan(LOGS / name, anchors(), ANYWHERE)
    log = known.pop("log", log)
    return diagnose(
        Evidence(
            tag="a/b",
            attempt=2,
            outcome=outcome,
            project="/home/me/project",
            run_dir="/home/me/project/runs/a/b",
            log_path="/home/me/project/runs/a/b/slurm/attempt2.out",
            log=log,
            **known,
        )
    )


CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    # log, what Slurm says, verdict, confidence, what the answer has to say
    ("gpu-oom-new.txt", {}, "gpu_oom", "certain", "another process (20398) held 9.10 GiB"),
    ("gpu-oom-jax.txt", {}, "gpu_oom", "certain", "RESOURCE_EXHAUSTED"),
    ("host-oom-1.txt", {"exit_code": 137}, "host_oom", "certain", "--mem 12G"),
    ("host-oom-1.txt", {"outcome": "OUT_OF_MEMORY", "signal": 125}, "host_oom", "certain", "oom_kill event in StepId=7"),
    ("host-oom-2205.txt", {"outcome": "OUT_OF_MEMORY", "signal": 125}, "host_oom", "certain", "370626.batch"),
    ("host-oom-2205.txt", {}, "host_oom", "certain", "oom-kill event(s)"),
    ("host-oom-many.txt", {}, "host_oom", "certain", "4 oom_kill events"),
    ("host-oom-srun.txt", {}, "host_oom", "certain", "task 0: Out Of Memory"),
    ("host-oom-dataloader.txt", {}, "host_oom", "certain", "a consequence: RuntimeError: DataLoader worker"),
    ("killed.txt", {"exit_code": 137}, "killed", "possible", "8156 Killed"),
    ("killed-bare.txt", {"exit_code": 137}, "killed", "possible", "--mem 12G"),
    ("shm-dataloader.txt", {}, "shm", "likely", "df -h /dev/shm"),
    ("shm-errno.txt", {}, "shm", "likely", "train.py:20"),
    ("disk-full.txt", {}, "disk_full", "certain", "df -h /home/me/project/runs/a/b"),
    ("time-limit.txt", {"outcome": "TIMEOUT", "signal": 15}, "time_limit", "certain", "--time 16:00:00"),
    ("time-limit.txt", {}, "time_limit", "certain", "a consequence: Received SIGTERM: 15"),
    ("device-assert.txt", {}, "device_assert", "certain", "index out of bounds"),
    ("device-assert-cublas.txt", {}, "device_assert", "certain", "a consequence: RuntimeError: CUDA error: CUBLAS"),
    ("cublas.txt", {}, "cublas", "possible", "CUBLAS_STATUS_EXECUTION_FAILED"),
    ("rank0-import.txt", {}, "import_error", "certain", "a consequence: [E302"),
    ("nccl-alone.txt", {}, "nccl", "possible", "Watchdog caught"),
    ("nccl-interleaved.txt", {}, "python_error", "likely", "train.py:30 in step"),
    ("host-driver.txt", {}, "host_driver", "certain", "a consequence: RuntimeError: No CUDA GPUs"),
    ("no-gpu.txt", {"request": Request(cpus=1, memory=1, gpu=False)}, "no_gpu_requested", "certain", "gpuq submit a/b"),
    ("no-gpu.txt", {}, "driver_broken", "likely", "nvidia-smi"),
    ("no-gpu.txt", {"script": "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=2\n"}, "visible_devices", "likely", "DEVICES=2"),
    ("no-gpu.txt", {"script": "export CUDA_VISIBLE_DEVICES=0\n"}, "driver_broken", "likely", "nvidia_uvm"),
    ("driver-old.txt", {}, "driver_old", "certain", "too old"),
    ("cpu-wheel.txt", {}, "cpu_wheel", "certain", "pytorch.org"),
    ("wheel-arch.txt", {}, "wheel_arch", "certain", "sm_120"),
    ("shared-library.txt", {}, "shared_library", "likely", "unset LD_LIBRARY_PATH"),
    ("shared-library-cudnn.txt", {"exit_code": 134}, "shared_library", "likely", "libcudnn_cnn_infer.so.8"),
    ("env-activation.txt", {}, "env_activation", "likely", "a consequence: ModuleNotFoundError"),
    ("import-error.txt", {}, "import_error", "certain", "einops"),
    ("python-error.txt", {}, "python_error", "likely", "it began with: KeyError: 'lr'"),
    ("python-error.txt", {}, "python_error", "likely", "ValueError: no such setting: lr"),
    ("worker-error.txt", {}, "python_error", "likely", "data.py:17 in __getitem__"),
    ("shape.txt", {}, "shape", "likely", "num_attention_heads (32) must be divisible"),
    ("shape-matmul.txt", {}, "shape", "likely", "32x512"),
    ("dataloader-box.txt", {}, "dataloader_died", "likely", "exited unexpectedly"),
    ("alone", {"signal": 53, "exit_code": 0, "log_fault": "that directory does not exist"}, "log_not_creatable", "certain",
     "runs/a/b/slurm: that directory does not exist"),
    ("empty", {"signal": 53, "exit_code": 0}, "log_not_creatable", "certain", "mkdir -p"),
    ("caught-and-mentioned.txt", {"outcome": "SUCCEEDED"}, "no_failure", "certain", "succeeded"),
    ("memory-limit-at-some-point.txt", {"outcome": "SUCCEEDED"}, "no_failure", "certain", "succeeded"),
    ("memory-limit-at-some-point.txt", {"exit_code": 3}, "exit_code", "possible", "exit code 3"),
    ("host-oom-1.txt", {"outcome": "SUCCEEDED"}, "hidden_oom", "likely", "may be incomplete"),
    ("step-cancelled.txt", {"outcome": "SUCCEEDED"}, "hidden_cancel", "likely", "STEP 12.0"),
    ("tee.txt", {"outcome": "SUCCEEDED", "script": "python train.py 2>&1 | tee log\n"}, "hidden_failure", "likely",
     "job.sh has: python train.py 2>&1 | tee log"),
    ("tee.txt", {"outcome": "INCOMPLETE", "notes": ("promised result cv.json is missing",)}, "hidden_failure", "likely",
     "promised result cv.json is missing"),
    ("alone", {"outcome": "SUCCEEDED"}, "no_failure", "certain", ""),
    ("alone", {"outcome": "INCOMPLETE", "notes": ("promised result cv.json is missing",)}, "incomplete", "certain",
     "cv.json is missing"),
    ("alone", {"outcome": "INCOMPLETE", "notes": ("stopped early by SIGTERM (step 3/4)",)}, "stopped_early", "certain",
     "gpuq resubmit a/b"),
    ("alone", {"outcome": "LOST", "state": ""}, "lost", "certain", "MinJobAge"),
    ("import-error.txt", {"outcome": "LOST", "state": ""}, "lost", "certain", "the log suggests: A Python module"),
    ("alone", {"outcome": "NODE_FAIL"}, "node_fail", "certain", "scontrol show node"),
    ("cancelled.txt", {"outcome": "CANCELLED", "signal": 15}, "cancelled", "certain", "gpuq did not do it"),
    ("alone", {"outcome": "CANCELLED", "cancelled_by": "ann", "started": False}, "cancelled", "certain",
     "cancelled by ann before it had started."),
    ("alone", {"outcome": "CANCELLED", "state": "CANCELLED by 1000"}, "cancelled", "certain", "by user 1000"),
    ("alone", {"outcome": "CANCELLED", "state": "PREEMPTED"}, "preempted", "certain", "another job"),
    ("alone", {"outcome": "CANCELLED", "reason": "DependencyNeverSatisfied", "dependencies": ("afterok:12",)},
     "dependency_failed", "certain", "gpuq why 12"),
    ("segfault.txt", {"exit_code": 139}, "segfault", "likely", "PYTHONFAULTHANDLER"),
    ("alone", {"signal": 11, "exit_code": 0}, "segfault", "possible", "there is no log"),
    ("alone", {"signal": 9, "exit_code": 0}, "killed", "possible", "--mem"),
    ("alone", {"reason": "JobLaunchFailure", "exit_code": 0}, "launch_failed", "certain", "JobLaunchFailure"),
    ("empty", {"exit_code": 4}, "exit_code", "possible", "the log is empty"),
    ("empty", {"exit_code": 143}, "terminated", "possible", "SIGTERM"),
    ("command-not-found.txt", {"exit_code": 127}, "command_not_found", "certain", "pyhton"),
    ("command-not-found.txt", {"exit_code": 1}, "command_not_found", "likely", "pyhton"),
    ("unbound.txt", {}, "script_error", "likely", "DATA: unbound variable"),
    ("file-missing.txt", {}, "file_missing", "likely", "ls -ld data/train.csv"),
    ("gpu-fault.txt", {}, "gpu_fault", "likely", "uncorrectable ECC"),
    ("cuda-error.txt", {}, "cuda_error", "likely", "illegal memory access"),
    ("memory-error.txt", {}, "alloc_failed", "likely", "7.28 TiB"),
    ("port.txt", {}, "port_in_use", "likely", "--standalone"),
    ("run-no-gpu.txt", {"exit_code": 15}, "no_gpu_visible", "certain", "Slurm did not give it to this job"),
    ("run-gpu-busy.txt", {"exit_code": 15}, "gpu_busy", "certain", "held by process 4711 (python, 20.10GiB)."),
    ("run-failed.txt", {}, "python_error", "likely", "train.py:30 in step"),
    ("requeued.txt", {"restarts": 1}, "import_error", "certain", "Slurm started it 2 times"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "verdict", "confidence", "says"),
    CASES,
    ids=[f"{number}-{c[2]}" for number, c in enumerate(CASES)],
)
def test_the_verdict(name: str, known: dict[str, Any], verdict: str, confidence: str, says: str) -> None:
    logs: dict[str, Any] = {"log": Log()} if name == "empty" else {}
    answer = judged(None if name in {"alone", "empty"} else name, **known, **logs)
    text = "\n".join((answer.headline, *answer.evidence, *answer.details, *answer.advice))
    assert (answer.id, answer.confidence) == (verdict, confidence), text
    assert says in text
    assert "{" not in text
    assert answer.evidence[0].startswith("Slurm: ")


def test_every_log_is_used_and_every_row_has_a_case() -> None:
    assert {path.name for path in LOGS.iterdir()} == {case[0] for case in CASES} - {"alone", "empty"}
    seen = {case[2] for case in CASES} | {path.stem for path in (DATA / "wordings").iterdir()}
    assert {rule.id for rule in RULES} <= seen


@pytest.mark.parametrize(
    ("line", "code", "verdict"),
    [
        ("/x/slurm_script: line 3:  81 Illegal instruction     (core dumped) ./a", 132, "illegal_instruction"),
        ("/x/slurm_script: line 3:  81 Aborted                 (core dumped) ./a", 134, "abort"),
        ("KeyboardInterrupt", 130, "interrupted"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", 1, "child_failed"),
        ("/x/slurm_script: line 3: ./a: Permission denied", 126, "not_executable"),
    ],
)
def test_a_single_line(line: str, code: int, verdict: str) -> None:
    assert judged(log=Log(parts=((line,),)), exit_code=code).id == verdict


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        ("uv: command not found", 127, "A command in job.sh does not exist in the job: uv."),
        ("bin/a: No such file or directory", 127, "A command in job.sh does not exist in the job: bin/a."),
        ("./a: Permission denied", 126, "A file that job.sh runs is not executable: ./a."),
    ],
)
def test_what_gpuq_run_could_not_start_is_named(error: str, code: int, says: str) -> None:
    line = f"FAILED cause=command exit={code} oom_kill=0 error={error} elapsed=0.0s at=2026-01-01T00:00:00Z"
    found = judged(log=Log(parts=((line,),)), exit_code=code)
    assert found.headline == says


def test_an_assertion_of_a_thousand_threads_is_quoted_once() -> None:
    quoted = [line for line in judged("device-assert.txt").evidence if "Assertion" in line]
    assert len(quoted) == 1
    assert "(300 times)" in quoted[0]


def test_the_blame_is_on_the_users_own_code() -> None:
    evidence = judged("python-error.txt").evidence
    assert "in your code: /home/me/project/conf.py:12 in read" in evidence


def test_a_project_that_is_called_like_a_library_is_the_users_own() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/torch/train.py", line 3, in step',
        '  File "/home/me/torch/.venv/lib/python3.12/site-packages/nice.py", line 3, in f',
        "KeyError: 'x'",
    ]
    (chain,) = find_chains(lines)
    assert str(chain.blame("/home/me/torch")) == "/home/me/torch/train.py:3 in step"
    assert chain.blame("/home/me/other") is None


def test_nccl_is_told_as_a_consequence_of_the_first_ranks_error() -> None:
    answer = judged("rank0-import.txt")
    assert "written by: [rank0]:" in answer.evidence
    assert any("Watchdog" in line for line in answer.details)


def test_an_error_that_was_overcome_long_ago_is_less_certain() -> None:
    lines = ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", *("step" for _ in range(500)))
    assert judged(log=Log(parts=(lines,))).confidence == "likely"


def test_what_ended_it_after_a_traceback_that_was_overcome() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/me/project/a.py", line 1, in f',
        "ValueError: caught",
        *("step" for _ in range(100)),
        "/x/slurm_script: line 3:  81 Killed    python3 a.py",
    )
    assert judged(log=Log(parts=(lines,)), exit_code=137).id == "killed"


def test_ignored_exceptions_and_shown_commands_are_no_cause() -> None:
    lines = (
        "+ echo CUDA out of memory",
        "Exception ignored in: <function _f at 0x7f>",
        "Traceback (most recent call last):",
        '  File "/home/me/project/a.py", line 1, in f',
        "ValueError: ignored",
    )
    assert judged(log=Log(parts=(lines,)), exit_code=3).id == "exit_code"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("export CUDA_VISIBLE_DEVICES=2", "2"),
        ("OMP_NUM_THREADS=4 CUDA_VISIBLE_DEVICES='1' python train.py", "'1'"),
        ("set -eu; export CUDA_VISIBLE_DEVICES=-1 && python train.py", "-1"),
        ("srun env CUDA_VISIBLE_DEVICES=0,1 python train.py", "0,1"),
        ("CUDA_VISIBLE_DEVICES= python train.py", ""),
        ("export CUDA_VISIBLE_DEVICES=0", None),
        ('CUDA_VISIBLE_DEVICES="0" python train.py', None),
        ("export CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS", None),
        ("# export CUDA_VISIBLE_DEVICES=2", None),
        ("python train.py  # not with CUDA_VISIBLE_DEVICES=2", None),
        ('echo "CUDA_VISIBLE_DEVICES=2"', None),
    ],
)
def test_who_hid_the_gpu(line: str, value: str | None) -> None:
    answer = judged("no-gpu.txt", script=f"#!/bin/bash\n{line}\n")
    assert answer.id == ("driver_broken" if value is None else "visible_devices")
    assert value is None or f"job.sh sets CUDA_VISIBLE_DEVICES={value}" in answer.evidence


def test_a_checkpoint_is_told_where_it_matters() -> None:
    assert "no checkpoint" in judged(None, "TIMEOUT", checkpoint="").details[0]
    assert judged(None, "TIMEOUT", checkpoint="the newest checkpoint is x").details == ("the newest checkpoint is x",)
    assert judged(None, "TIMEOUT").details == ()


def test_a_traceback_behind_a_progress_bar_and_one_that_was_cut() -> None:
    chains = find_chains(
        [
            "Epoch 3:  12%|#2 | 120/1000Traceback (most recent call last):",
            '  File "a.py", line 3, in f',
            "    g()",
            "  [Previous line repeated 3 more times]",
            "mine.Stop: enough",
            "Traceback (most recent call last):",
            '  File "a.py", line 3, in f',
        ]
    )
    assert [chain.error for chain in chains] == ["mine.Stop: enough"]
    assert str(chains[0].blame()) == "a.py:3 in f"


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("full[ at {size}]", {}, "full"),
        ("full[ at {size}]", {"size": "2G [a] {b}"}, "full at 2G [a] {b}"),
        ("[results] of {tag}", {"tag": "a"}, "[results] of a"),
    ],
)
def test_templates(template: str, values: dict[str, str], text: str) -> None:
    assert expand(template, values) == text


def test_rows_are_whole() -> None:
    for rule in RULES:
        assert rule.confidence in {"certain", "likely", "possible"}, rule.id
        assert rule.headline, rule.id
        assert not rule.pattern or rule.anchors, rule.id
        assert set(rule.explains) <= {other.id for other in RULES}, rule.id
