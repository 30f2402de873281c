"""Try a run before it is submitted: its arguments are read, nothing is trained, and no GPU is seen."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpuq.adapters import codestate, proc
from gpuq.core.config import Settings
from gpuq.core.experiment.shellwords import constant, read_script
from gpuq.core.inherited import scrub
from gpuq.errors import SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.experiment.origin import vanished

VARIABLE = "GPUQ_CHECK"
"""Set to 1 while job.sh is tried. A job.sh that heeds it stops before anything is trained."""
SECONDS = 60
"""How long a check may take unless [check] seconds says otherwise."""
_SHOWN = 12
"""Lines of a failed check's output that are shown."""
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
_LEAVES_NOTHING = {"PYTHONDONTWRITEBYTECODE": "1"}
"""No __pycache__ in the project; what is cached of the libraries is still read (Python's manual, "Command line")."""


def check(ctx: Context, tag: str, script: str, settings: Settings) -> str:
    """Run the project's `[check] command`, or job.sh with GPUQ_CHECK=1 where it heeds that; a note that it passed.

    Raises SubmissionRefused: it failed, took too long, or there is nothing to run.
    """
    root = ctx.project.root
    lost = vanished(ctx, tag, script)
    if lost:
        raise SubmissionRefused(lost, hint=f"gpuq diff {tag}")
    seconds = settings.check_seconds or SECONDS
    environment = scrub(ctx.environment) | _HIDDEN | _LEAVES_NOTHING
    environment |= {
        VARIABLE: "1",
        "GPUQ_TAG": tag,
        "GPUQ_ATTEMPT": str(ctx.ledger.next_number(tag)),
        "GPUQ_RUN_DIR": str(ctx.ledger.run_dir(tag)),
        "GPUQ_PROJECT": str(root),
    }
    if settings.check_command:
        return _run(ctx, ["bash", "-c", settings.check_command], settings.check_command, seconds, environment)
    if not _heeds(root, script):
        raise SubmissionRefused(
            f"there is nothing to check {tag} with: neither its job.sh nor a file that it names heeds {VARIABLE}",
            hint=f'let job.sh stop early where {VARIABLE} is set, or write [check] command = "…" into gpuq.toml',
        )
    import tempfile

    # a copy, so that it is the script that is submitted even when somebody is just writing to job.sh
    with tempfile.TemporaryDirectory(prefix="gpuq-check-") as place:
        path = Path(place, "job.sh")
        path.write_bytes(script.encode("utf-8", "surrogateescape"))
        path.chmod(0o700)
        words = script.split("\n", 1)[0].removeprefix("#!").split() or ["bash"]
        return _run(ctx, [*words, str(path)], f"{VARIABLE}=1 job.sh", seconds, environment)


def _heeds(root: Path, script: str) -> bool:
    if VARIABLE in script:
        return True
    for name in codestate.named_files(root, script):
        try:
            if VARIABLE in (root / name).read_text(errors="replace"):
                return True
        except OSError:
            continue
    words = (constant(word.raw) for word in read_script(script).words)
    packages = [word for word in words if word and re.fullmatch(r"[A-Za-z_][\w.]*", word)]  # python -m package.train
    for package in packages:
        path = root / (package.replace(".", os.sep) + ".py")
        try:
            if path.is_file() and VARIABLE in path.read_text(errors="replace"):
                return True
        except OSError:
            continue
    return False


def _run(ctx: Context, argv: list[str], shown: str, seconds: int, environment: dict[str, str]) -> str:
    started = ctx.clock.monotonic()
    ctx.say(f"note: checking with `{shown}` (at most {seconds} s)")
    try:
        running = proc.start(argv, timeout=seconds, env=environment, cwd=ctx.project.root, own_session=True)
        try:
            result = running.result()
        finally:
            running.end_group()
    except proc.ProgramTimeout:
        raise SubmissionRefused(
            f"the check `{shown}` was not done after {seconds} s and was ended; nothing was submitted",
            hint=f"it must stop before anything is trained where {VARIABLE} is set, and leave nothing running; "
            "[check] seconds = 300 gives it longer",
        ) from None
    except proc.ProgramMissing as error:
        raise SubmissionRefused(f"the check `{shown}` could not be run: {error}") from None
    took = ctx.clock.monotonic() - started
    if not result.ok:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()][-_SHOWN:]
        how = f"exit code {result.returncode}" if result.returncode > 0 else f"signal {-result.returncode}"
        raise SubmissionRefused(
            "\n".join([f"the check `{shown}` failed ({how}); nothing was submitted", *(f"  {line}" for line in lines)]),
            hint="mend it, then submit again",
        )
    return f"checked in {took:.1f} s"
