"""A job.sh on disk: each fault has its own message, with file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuq.adapters import jobscript
from gpuq.core.script import ScriptCheck
from gpuq.errors import ScriptRefused, SubmissionRefused, exit_code_of

SHOWN = "runs/a/job.sh"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job.sh"


def write(job: Path, content: str | bytes, mode: int = 0o755) -> Path:
    job.write_bytes(content if isinstance(content, bytes) else content.encode())
    job.chmod(mode)
    return job


def read(job: Path) -> tuple[str, ScriptCheck]:
    """The text and its check, once the shell has accepted it."""
    script = jobscript.read(job, SHOWN, "a")
    script.accepted()
    script.drop()  # as after every use
    return script.text, script.check


def refused(job: Path) -> ScriptRefused:
    with pytest.raises(ScriptRefused) as caught:
        read(job)
    assert isinstance(caught.value, SubmissionRefused)
    assert exit_code_of(caught.value) == 5
    return caught.value


def test_a_good_script_is_read_as_it_is(job: Path) -> None:
    text, check = read(write(job, "#!/bin/bash\n#SBATCH --mem=2G\necho é\n"))
    assert text == "#!/bin/bash\n#SBATCH --mem=2G\necho é\n"
    assert check.interpreter == "/bin/bash"
    assert check.directives[0].value == "2G"


def test_a_missing_script_is_told_where_to_write_it(job: Path) -> None:
    error = refused(job)
    assert error.faults == ["runs/a/job.sh does not exist"]
    assert "write runs/a/job.sh" in error.hint
    assert refused(job / "deeper").faults == ["runs/a/job.sh does not exist"]


def test_a_directory_is_told_to_be_one(job: Path) -> None:
    job.mkdir()
    assert refused(job).faults == ["runs/a/job.sh is a directory; it must be the script that the job runs"]


def test_a_pipe_is_not_waited_on(job: Path) -> None:
    os.mkfifo(job)
    assert refused(job).faults == ["runs/a/job.sh is not a regular file"]


def test_a_link_that_leads_nowhere_does_not_exist(job: Path) -> None:
    job.symlink_to("nowhere")
    assert "does not exist" in refused(job).faults[0]


def test_a_script_that_is_not_executable_is_told_the_command(job: Path) -> None:
    error = refused(write(job, "#!/bin/bash\ntrue\n", 0o644))
    assert error.faults == ["runs/a/job.sh is not executable; make it so with: chmod +x runs/a/job.sh"]
    assert error.hint == "mend it, then: gpuq submit a"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "runs/a/job.sh:1: the first line must say what runs the script"),
        ("python train.py\n", "runs/a/job.sh:1: the first line must say what runs the script"),
        ("#!/bin/bash\n", "nothing in it runs"),
        ("#!/bin/bash\r\ntrue\r\n", "runs/a/job.sh:1: lines end in CR LF"),
        (b"#!/bin/bash\ntrue\0\n", "runs/a/job.sh:2: there is a NUL byte"),
        ("#!/no/such/bash\ntrue\n", "runs/a/job.sh:1: there is no /no/such/bash on this host"),
        (
            "#!/bin/bash\n#SBATCH --mem-per-cpu=4G\ntrue\n",
            "runs/a/job.sh:2: `#SBATCH --mem-per-cpu=4G` sets --mem-per-cpu",
        ),
    ],
)
def test_each_fault_has_its_own_message(job: Path, content: str | bytes, says: str) -> None:
    assert says in "\n".join(refused(write(job, content)).faults)


def test_all_faults_are_told_at_once(job: Path) -> None:
    faults = refused(write(job, "true\r\n", 0o644)).faults
    assert len(faults) == 3


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("if true; then\n  echo yes\n", 4),
        ("echo a\nfi\n", 3),
        ("echo 'a\n\n\n", 2),
        ("f() {\ntrue\n\n", 5),
        ("true\n\n\n&& true\n", 5),
    ],
)
def test_a_syntax_error_is_told_with_its_line(job: Path, body: str, line: int) -> None:
    faults = refused(write(job, "#!/bin/bash\n" + body)).faults
    assert any(fault.startswith(f"{SHOWN}:{line}: ") for fault in faults), faults
    assert not any("bash:" in fault for fault in faults)


def test_a_script_of_sh_is_checked_as_sh(job: Path) -> None:
    arrays = "a=(1 2)\necho ${a[0]}\n"
    read(write(job, "#!/bin/bash\n" + arrays))
    if os.path.realpath("/bin/sh").endswith("dash"):
        fault = refused(write(job, "#!/bin/sh\n" + arrays)).faults[0]
        assert fault.startswith(f"{SHOWN}:2: ")
        assert "unexpected" in fault


def test_env_and_options_in_the_first_line_are_understood(job: Path) -> None:
    for first in ("#!/usr/bin/env bash", "#!/bin/bash -eu", "#! /bin/bash"):
        assert "syntax error" in refused(write(job, f"{first}\nif\n")).faults[0]
        read(write(job, f"{first}\ntrue\n"))


def test_a_python_script_is_left_to_python(job: Path) -> None:
    text, check = read(write(job, "#!/usr/bin/env python3\nif True:\n    print(1)\n"))
    assert check.interpreter == "python3"
    assert text.startswith("#!/usr/bin/env python3")


def test_checking_does_not_run_it(job: Path, tmp_path: Path) -> None:
    read(write(job, f"#!/bin/bash\ntouch {tmp_path}/ran\n"))
    assert not (tmp_path / "ran").exists()


def test_bytes_that_are_no_text_go_through_to_the_attempts_own_copy(job: Path) -> None:
    raw = b"#!/bin/bash\n# caf\xe9\ntrue\n"
    text, _ = read(write(job, raw))
    assert text.encode("utf-8", "surrogateescape") == raw


def test_a_script_larger_than_slurm_takes_is_refused_before_it_is_sent(job: Path) -> None:
    assert "larger than the 4 megabytes" in refused(write(job, "#!/bin/bash\n" + "true\n" * 900_000)).faults[0]
    read(write(job, "#!/usr/bin/env python3\n" + "x = 1\n" * 100_000))


@pytest.mark.parametrize("filler", ["", "# a comment\n" * 10_000])
def test_the_shell_reads_while_others_work_and_need_not_be_heard(job: Path, filler: str) -> None:
    script = jobscript.read(write(job, f"#!/bin/bash\n{filler}if\n"), SHOWN, "a")
    script.drop()
    script = jobscript.read(job, SHOWN, "a")
    with pytest.raises(ScriptRefused, match="syntax error"):
        script.accepted()
    script.drop()
