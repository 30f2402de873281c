"""What is wrong with a job.sh, told from its text alone."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuq.core.script import OWNED, check_script, first_command, is_shell, with_requeue_separator

NAME = "runs/a/job.sh"
SHELL_LINES = st.sampled_from(
    [
        "",
        "# a comment",
        "#SBATCH --mem=2G",
        "    ",
        "\t# indented",
        "set -eu",
        "python train.py",
        "if true; then",
        "  echo yes",
        "fi",
        "cat <<EOF",
        "EOF",
        "for i in 1 2; do",
        "done",
        "x=1",
        "x=1 \\",
        "echo 'a",
        "b'",
        "f() {",
        "}",
        "{ true; }",
        "(",
        ")",
        "&& true",
        "case x in",
        "esac",
        "! false",
        "exec python x.py",
    ]
)
PIECES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(
            ["#SBATCH", " --", "-", "--mem", "=", "'", '"', "\\", "\n", "\r\n", "\0", "hetjob", "#!", "-o"]
        ),
        st.sampled_from(sorted(OWNED)),
    ),
    max_size=40,
).map("".join)


def faults(text: str) -> str:
    return "\n".join(check_script(text, NAME).faults)


def warnings(text: str) -> str:
    return "\n".join(check_script(text, NAME).warnings)


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, "python train.py", ""])


def test_an_ordinary_script_has_no_fault() -> None:
    check = check_script(script("#SBATCH --mem=28G", "", "set -eu"), NAME)
    assert (check.interpreter, check.faults, check.warnings) == ("/bin/bash", (), ())
    assert [(d.name, d.value, d.line) for d in check.directives] == [("mem", "28G", 2)]


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        ("#!/bin/bash", "/bin/bash"),
        ("#! /bin/sh -eu", "/bin/sh"),
        ("#!/usr/bin/env bash", "bash"),
        ("#!/usr/bin/env -S python3 -u", "python3"),
        ("#!/usr/bin/env -S A=1 python3", "python3"),
        ("#!/usr/bin/env", ""),
        ("#!", ""),
        ("#!/bin/bash\r", "/bin/bash"),
    ],
)
def test_the_interpreter_is_the_program_that_runs(first: str, interpreter: str) -> None:
    assert check_script(f"{first}\ntrue\n", NAME).interpreter == interpreter


@pytest.mark.parametrize(
    "text", ["python train.py\n", "", "\n#!/bin/bash\ntrue\n", "# hi\ntrue\n", "\ufeff#!/bin/bash\ntrue\n"]
)
def test_a_script_without_a_first_line_that_says_what_runs_it_is_refused(text: str) -> None:
    assert f"{NAME}:1: the first line must say what runs the script" in faults(text)


@pytest.mark.parametrize("text", ["#!\ntrue\n", "#!/usr/bin/env\ntrue\n"])
def test_a_first_line_that_names_no_program_is_refused(text: str) -> None:
    assert f"{NAME}:1:" in faults(text)


def test_windows_line_ends_are_refused_with_the_first_line_and_the_cure() -> None:
    found = faults("#!/bin/bash\ntrue\r\nfalse\r\n")
    assert f"{NAME}:2: lines end in CR LF" in found
    assert "sed -i 's/\\r$//' runs/a/job.sh" in found


def test_the_cure_for_windows_line_ends_can_be_pasted_whatever_the_name() -> None:
    assert "'runs/it'\"'\"'s/job.sh'" in check_script("#!/bin/sh\r\ntrue\r\n", "runs/it's/job.sh").faults[0]


def test_a_nul_byte_and_a_script_in_which_nothing_runs_are_refused() -> None:
    assert f"{NAME}:3: there is a NUL byte" in faults("#!/bin/bash\ntrue\n\0\n")
    assert "nothing in it runs" in faults("#!/bin/bash\n\n# later\n")


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("#SBATCH --mem-per-cpu=4G", "mem-per-cpu"),
        ("#SBATCH --mem-per-cpu 4G", "mem-per-cpu"),
        ("#SBATCH --gres=gpu:2", "gres"),
        ("#SBATCH -G 2", "gpus"),
        ("#SBATCH -G2", "gpus"),
        ("#SBATCH --array=1-5", "array"),
        ("#SBATCH -a 1-5", "array"),
        ("#SBATCH -o /tmp/x", "output"),
        ("#SBATCH --outp=/tmp/x", "output"),
        ("#SBATCH -J name", "job-name"),
        ("#SBATCH --export=NONE", "export"),
        ("#SBATCH\t--gres=gpu:1", "gres"),
        ("#SBATCH --nice=5 --gres=gpu:1", "gres"),
        ("#SBATCH -c 4 -e err", "error"),
        ("#SBATCH hetjob", "hetjob"),
        ("#SBATCH -W", "wait"),
        ("#SBATCH -HG2", "gpus"),
        ("#SBATCH--gres=gpu:1", "gres"),
    ],
)
def test_an_option_that_gpuq_owns_is_refused_naming_the_line(line: str, option: str) -> None:
    found = faults(script("", line))
    assert f"{NAME}:3:" in found
    assert f"`{line}` sets --{option}" in found


def test_every_owned_option_is_refused_in_its_long_form() -> None:
    for option in OWNED:
        assert f"sets --{option}: " in faults(script(f"#SBATCH --{option}=1")), option


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("#SBATCH --mem=2G", "mem", "2G"),
        ("#SBATCH --mem 2G", "mem", "2G"),
        ("#SBATCH -c 4", "cpus-per-task", "4"),
        ("#SBATCH -c4", "cpus-per-task", "4"),
        ("#SBATCH -t 8:00:00 # long", "time", "8:00:00"),
        ("#SBATCH --partition='gpu'", "partition", "gpu"),
        ("#SBATCH --constraint=a100", "constraint", "a100"),
    ],
)
def test_other_options_are_read_and_left_to_slurm(line: str, name: str, value: str) -> None:
    check = check_script(script(line), NAME)
    assert check.faults == ()
    assert [(d.name, d.value) for d in check.directives] == [(name, value)]


def test_several_options_of_one_line_are_all_read() -> None:
    check = check_script(script("#SBATCH -c 4 --mem=2G -t 60"), NAME)
    assert [(d.name, d.value) for d in check.directives] == [("cpus-per-task", "4"), ("mem", "2G"), ("time", "60")]


def test_a_directive_after_the_first_command_is_warned_about_because_slurm_ignores_it() -> None:
    check = check_script("#!/bin/bash\nset -eu\n#SBATCH --mem=2G\n", NAME)
    assert check.directives == ()
    assert f"{NAME}:3: Slurm ignores this #SBATCH line" in check.warnings[0]
    assert faults("#!/bin/bash\ntrue\n#SBATCH --gres=gpu:2\n") == ""


def test_a_commented_out_directive_is_none() -> None:
    assert check_script(script("##SBATCH --gres=gpu:2", "# SBATCH --mem=2G"), NAME).directives == ()
    assert faults(script("##SBATCH --gres=gpu:2", " #SBATCH --gres=gpu:2")) == ""


def test_a_directive_that_cannot_be_read_is_a_fault_of_its_line() -> None:
    assert f"{NAME}:2: `#SBATCH --comment='x` cannot be read" in faults(script("#SBATCH --comment='x"))


@pytest.mark.parametrize(
    "line",
    [
        "export CUDA_VISIBLE_DEVICES=2",
        "CUDA_VISIBLE_DEVICES=1 python x.py",
        "  CUDA_VISIBLE_DEVICES='3'",
        "env CUDA_VISIBLE_DEVICES=2 python x.py",
        "export A=1 CUDA_VISIBLE_DEVICES=2",
        "A=1; export CUDA_VISIBLE_DEVICES=2",
        "srun env CUDA_VISIBLE_DEVICES=2 python x.py",
        "cd x && CUDA_VISIBLE_DEVICES=2 python x.py",
        "CUDA_VISIBLE_DEVICES=0,1 x",
    ],
)
def test_a_cuda_device_set_by_hand_is_warned_about_with_its_line(line: str) -> None:
    assert f"{NAME}:2: CUDA_VISIBLE_DEVICES is set by hand" in warnings(script(line))


@pytest.mark.parametrize(
    "line",
    [
        "export CUDA_VISIBLE_DEVICES=0",
        "# CUDA_VISIBLE_DEVICES=2",
        "CUDA_VISIBLE_DEVICES=0; python x.py",
        'CUDA_VISIBLE_DEVICES="0" x',
        "echo $CUDA_VISIBLE_DEVICES",
    ],
)
def test_a_cuda_device_that_is_the_only_one_is_no_warning(line: str) -> None:
    assert warnings(script(line)) == ""


@given(st.one_of(st.text(), PIECES, PIECES.map(lambda text: "#!/bin/bash\n#SBATCH" + text)))
def test_no_text_whatever_makes_the_check_raise(text: str) -> None:
    check = check_script(text, NAME)
    assert all(fault.startswith(NAME) for fault in (*check.faults, *check.warnings))
    for directive in check.directives:
        assert text.split("\n")[directive.line - 1].startswith("#SBATCH")
    separated = with_requeue_separator(text, check.interpreter)
    assert separated.count("\n") == text.count("\n")


def _accepted(text: str, shell: str) -> bool:
    return subprocess.run([shell, "-n"], input=text.encode(), capture_output=True, check=False).returncode == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(SHELL_LINES, max_size=12))
def test_a_script_that_bash_accepts_is_still_accepted_with_the_requeue_separator(lines: list[str]) -> None:
    text = "\n".join(["#!/bin/bash", *lines, ""])
    separated = with_requeue_separator(text, "/bin/bash")
    assert separated.count("\n") == text.count("\n")
    if _accepted(text, "bash"):
        assert _accepted(separated, "bash")
        assert _accepted(separated, "sh") == _accepted(text, "sh")


def test_the_separator_is_printed_after_a_requeue_only_and_says_which_restart() -> None:
    text = with_requeue_separator("#!/bin/sh\n# c\nset -eu\necho here\n", "/bin/sh")
    for count, shown in (("", False), ("2", True)):
        env = {"PATH": "/usr/bin:/bin"} | ({"SLURM_RESTART_COUNT": count} if count else {})
        run = subprocess.run(["sh"], input=text.encode(), capture_output=True, env=env, check=True)
        assert (b"started again after a requeue (restart 2," in run.stdout) is shown
        assert run.stdout.endswith(b"here\n")
        assert run.stderr == b""


def test_errors_of_the_script_keep_their_line_numbers() -> None:
    text = with_requeue_separator("#!/bin/bash\n\nfoo_is_missing\nbar_is_missing\n", "bash")
    run = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=False)
    assert b"line 3: foo_is_missing" in run.stderr
    assert b"line 4: bar_is_missing" in run.stderr


def test_scripts_that_are_no_shell_are_left_as_they_are() -> None:
    text = "#!/usr/bin/env python3\nprint(1)\n"
    assert with_requeue_separator(text, "python3") == text
    assert not is_shell("python3")
    assert is_shell("/usr/local/bin/bash")


def test_a_line_that_only_looks_blank_is_a_command_as_it_is_to_slurm() -> None:
    check = check_script("#!/bin/bash\n\u00a0\n#SBATCH --mem=2G\n", NAME)
    assert check.directives == ()


def test_the_first_command_is_neither_blank_nor_a_comment() -> None:
    assert first_command(["#!/bin/sh", "", "  # x", "true"]) == 3
    assert first_command(["#!/bin/sh", ""]) is None
