"""Filler jobs (`gpuq submit --fill`): how a shell script hears that it must make way, and gives the GPU back in time.

Slurm tells a preempted job's batch shell (preempt_send_user_signal, --signal=B:TERM), and only that shell: it waits for
the program in the foreground, which hears nothing, and after GraceTime and KillWait both are killed. So the shell of a
filler starts the script once more, as a child in a process group of its own (setsid(1); not `set -m`, which
dash refuses without a terminal), and passes SIGTERM on to the group. When
the program has saved and ended, the job goes back to the queue at once; two seconds before GraceTime is over the
group is killed. docs/adr/0021.
"""

from __future__ import annotations

SIGNAL_BEFORE = 60
"""Seconds before the time limit at which a filler hears of it unless it says otherwise."""

_TOLD = (
    # The order matters: the program hears first, then Slurm is asked why.
    """kill -s TERM -- "-$gpuq_child" 2>/dev/null; """
    """gpuq_job=""; for gpuq_try in 1 2 3; do """
    """gpuq_job=$(scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null) && break; sleep 0.5; done; """
    # SIGNALING: slurmctld has not heard yet that the signal was delivered.
    """case $gpuq_job in """
    """*" JobState=RUNNING "*" PreemptTime="[0-9]* | *" JobState=SIGNALING "*" PreemptTime="[0-9]*) """
    """[ "$gpuq_why" = preempted ] || { gpuq_why=preempted; """
    """gpuq_end=$(printf %s "$gpuq_job" | sed -n "s/.* EndTime=\\([0-9][^ ]*\\) .*/\\1/p"); """
    """gpuq_left=$(($(date -d "$gpuq_end" +%s 2>/dev/null || echo 0) - $(date +%s) - 2)); """
    """[ "$gpuq_left" -gt 0 ] || gpuq_left=1; """
    """{ sleep "$gpuq_left"; kill -s KILL -- "-$gpuq_child"; } >/dev/null 2>&1 & gpuq_killer=$!; };; """
    """*" JobState=RUNNING "* | *" JobState=SIGNALING "*) gpuq_why=limit;; """
    """*) gpuq_why=ended;; esac; gpuq_again=1"""
)

_AFTER = (
    """trap "" TERM; case $gpuq_why in preempted) """
    # What the script left in the background may still be saving.
    """while kill -s 0 -- "-$gpuq_child" 2>/dev/null; do sleep 0.1; done; """
    """kill "$gpuq_killer" 2>/dev/null; """
    """printf "\\n=== gpuq: made way for another job (%s); back to the queue ===\\n" "$(date "+%F %T")"; """
    # From 24.11 on Slurm itself requeues a job that ends within its grace (and asked to do it as well, does it twice: the
    # next run would be requeued when it has ended well). 22.05 takes it for COMPLETED.
    """case $(scontrol -V) in *" 2"[0-3].*) """
    """for gpuq_try in 1 2 3 4 5; do scontrol requeue "$SLURM_JOB_ID" && exit 0; sleep 1; done; """
    """sleep 600;; esac; exit 0;; """
    # Slurm is to say TIMEOUT, and not what the program returned when it was told to stop.
    """limit) sleep 600;; esac; exit "$gpuq_code"; """
)

_END = """fi; trap "exit 143" TERM; """
"""The script itself ends when the program in its foreground has, and does not go on with what comes next."""


def prologue(interpreter: str) -> str:
    """What is put in front of the first command of a script for the shell `interpreter`: one line."""
    return (
        """if [ "${GPUQ_FILL_JOB:-}" != "${SLURM_JOB_ID:-}" ]; then export GPUQ_FILL_JOB="$SLURM_JOB_ID"; """
        f"""setsid "{interpreter}" "$0" "$@" & gpuq_child=$!; gpuq_why=""; """
        f"""trap '{_TOLD}' TERM; """
        """gpuq_again=1; while [ -n "$gpuq_again" ]; do gpuq_again=""; wait "$gpuq_child"; gpuq_code=$?; done; """
        f"""{_AFTER}{_END}"""
    )


def without(line: str) -> str:
    """A line without the prologue that it may begin with."""
    start, mark = 'if [ "${GPUQ_FILL_JOB:-}"', f"{_AFTER}{_END}"
    if not line.startswith(start) or mark not in line:
        return line
    return line.split(mark, 1)[1]
