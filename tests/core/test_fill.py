"""The line that makes a script give way: what it leaves alone. How it gives way is in tests/live/test_fill.py."""

from __future__ import annotations

import datetime
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gpuq.core.script import with_requeue_separator, without_requeue_separator

TEXT = '#!/bin/bash\n#SBATCH --mem=1G\n\nset -eu\necho "$0 $*"\nfoo_is_missing\n'

SHELLS = [name for name in ("sh", "bash", "dash", "ksh", "zsh") if shutil.which(name)]


def ran(tmp_path: Path, shell: str, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "slurm_script"
    script.write_text(with_requeue_separator(text, shutil.which(shell) or shell, fill=True))
    return subprocess.run(
        [shell, str(script), "one", "two words"],
        env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_runs_once_as_it_would_without(tmp_path: Path, shell: str) -> None:
    done = ran(tmp_path, shell, TEXT)
    assert done.stdout == f"{tmp_path}/slurm_script one two words\n"
    assert done.returncode == 127
    assert "foo_is_missing" in done.stderr
    assert ":6:" in done.stderr or "line 6" in done.stderr or ": 6:" in done.stderr  # its own number


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", [0, 1, 77])
def test_its_exit_code_is_the_jobs(tmp_path: Path, shell: str, code: int) -> None:
    assert ran(tmp_path, shell, f"#!/bin/sh\nexit {code}\n").returncode == code


@pytest.mark.parametrize("shell", SHELLS)
def test_the_line_is_good_shell(tmp_path: Path, shell: str) -> None:
    script = tmp_path / "job.sh"
    script.write_text(with_requeue_separator(TEXT, f"/bin/{shell}", fill=True))
    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


def test_what_was_put_in_is_taken_out_again() -> None:
    for fill in (True, False):
        assert without_requeue_separator(with_requeue_separator(TEXT, "/bin/bash", fill=fill)) == TEXT
    assert with_requeue_separator(TEXT, "/bin/bash", fill=True).count("\n") == TEXT.count("\n")
    assert without_requeue_separator(TEXT) == TEXT


def test_another_interpreter_is_given_none() -> None:
    text = "#!/usr/bin/python3\nprint(1)\n"
    assert with_requeue_separator(text, "python3", fill=True) == text


SCONTROL = """#!/bin/sh
case $* in
  *"show job"*) printf '%s\\n' "JobId=7 JobName=x $ANSWER" ;;
  -V) echo "slurm-wlm 22.05.8" ;;
  *) echo "$*" >>"$CALLS" ;;
esac
"""


def catches(pid: int, number: int) -> bool:
    """The process has a trap for the signal (proc(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("state", "code", "calls"),
    # For a moment after slurmctld has sent the signal it says SIGNALING: no test on a real one meets that each time.
    [("RUNNING", 0, "requeue 7\n"), ("SIGNALING", 0, "requeue 7\n"), ("COMPLETING", 3, "")],
)
def test_preempted_it_goes_back_to_the_queue_and_cancelled_it_does_not(
    tmp_path: Path, shell: str, state: str, code: int, calls: str
) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    called = tmp_path / "calls"
    called.touch()
    script = tmp_path / "slurm_script"
    text = "#!/bin/sh\ntrap 'exit 3' TERM\necho started\nwhile true; do sleep 0.1; done\n"
    script.write_text(with_requeue_separator(text, shutil.which(shell) or shell, fill=True))
    end = datetime.datetime.now() + datetime.timedelta(seconds=8)
    times = f"EndTime={end:%Y-%m-%dT%H:%M:%S} Deadline=N/A PreemptTime={end:%Y-%m-%dT%H:%M:%S} SuspendTime=None"
    process = subprocess.Popen(
        [shell, str(script)],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SLURM_JOB_ID": "7",
            "ANSWER": f"JobState={state} Reason=None {times}",
            "CALLS": str(called),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "started\n"
        while not catches(process.pid, signal.SIGTERM):  # by then the one who started it may not be so far
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == code
    assert called.read_text() == calls
