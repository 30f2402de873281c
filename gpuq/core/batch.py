"""From a request to the argv and the environment of sbatch, and from sbatch's words to what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gpuq.core.attempt import Record
from gpuq.core.fill import SIGNAL_BEFORE
from gpuq.core.inherited import scrub
from gpuq.core.units import slurm_megabytes, slurm_time

GRES = "gpu:1"
"""What every attempt asks for unless it is --cpu-only."""


def job_environment(environment: Mapping[str, str], record: Record, run_dir: str) -> dict[str, str]:
    """The environment that sbatch, and so the job, gets."""
    env = scrub(environment)
    env.update(
        GPUQ_TAG=record.tag,
        GPUQ_ATTEMPT=str(record.attempt),
        GPUQ_RUN_DIR=run_dir,
        GPUQ_PROJECT=record.place,
    )
    env.pop("GPUQ_CHECK", None)  # set in a shell, it would let every job stop before it has done anything
    env.pop("GPUQ_RUN", None)  # of the job from which this one is submitted: `gpuq run` sets it anew
    # Python would keep its output for minutes when it is not a terminal, and a killed job would lose it.
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def sbatch_argv(record: Record) -> tuple[str, ...]:
    """The sbatch command line for `record`, without the program's own name."""
    request = record.request
    argv = [
        "--parsable",
        "--ignore-pbs",  # a stray #PBS line would otherwise count as an option
        f"--job-name={record.tag}",
        f"--chdir={record.place}",
        # `%` starts a pattern (sbatch(1), "filename pattern"); so would a backslash switch them off, but the path has none
        f"--output={record.log.replace('%', '%%')}",
        "--open-mode=append",
        "--export=ALL",
        f"--comment={record.comment}",
        f"--cpus-per-task={request.cpus}",
        f"--mem={slurm_megabytes(request.memory)}M",
    ]
    if request.gpu:
        argv.append(f"--gres={GRES}")
    if request.time_limit is not None:
        argv.append(f"--time={slurm_time(request.time_limit)}")
    if request.partition:
        argv.append(f"--partition={request.partition}")
    if request.nice:
        argv.append(f"--nice={request.nice}")
    if request.fill:
        argv.append("--requeue")
        if request.signal_before is None:  # it is also the signal with which Slurm tells it to make way
            argv.append(f"--signal=B:TERM@{SIGNAL_BEFORE}")
    if request.signal_before is not None:
        # B: only the batch shell is signalled; without it Slurm signals job steps, and there are none
        argv.append(f"--signal=B:TERM@{request.signal_before}")
    if request.hold:
        argv.append("--hold")
    if record.dependencies:
        argv.append(f"--dependency={','.join(record.dependencies)}")
        if any(dependency.startswith("afterok:") for dependency in record.dependencies):
            argv.append("--kill-on-invalid-dep=yes")
    argv.append(record.script)
    return tuple(argv)


_PARSABLE = re.compile(r"^(\d+)(?:;([^\s;]+))?$")


def read_job_id(stdout: str) -> tuple[int, str | None] | None:
    """(job id, cluster) from `sbatch --parsable`, past banner lines of a site's wrapper; None: there is none."""
    for line in reversed(stdout.splitlines()):
        match = _PARSABLE.fullmatch(line.strip())
        if match:
            return int(match[1]), match[2]
    return None


class Refusal(msgspec.Struct, frozen=True):
    """What an sbatch that failed means."""

    kind: str
    """`unreachable`: no submission reached the controller; `doubt`: it may have; `refused`: it said no."""
    message: str
    hint: str = ""


_RULES: tuple[tuple[str, Refusal], ...] = (
    (
        # the request was on its way, and only the answer is missing; so this comes first
        r"timed out on send/recv|Message receive failure|\((?:send|receive|shutdown) failure\)|"
        r"Message send failure|Communication shutdown failure|Zero Bytes were transmitted|"
        r"Transport endpoint is not connected|Connection reset by peer|Broken pipe",
        Refusal("doubt", "the Slurm controller gave no answer", "gpuq status"),
    ),
    (
        r"Munge encode failed|munge\.socket|Invalid authentication credential|Protocol authentication error",
        Refusal("unreachable", "munge is not running or its key differs", "start munged (systemctl start munge)"),
    ),
    (
        r"Unable to contact slurm controller|Connection refused|Unable to establish controller|"
        r"Unable to establish configuration source|Could not establish a configuration source|"
        r"Unable to process configuration file|"
        r"Incompatible versions of client and server",
        Refusal(
            "unreachable", "the Slurm controller (slurmctld) does not answer", "gpuq local status, or scontrol ping"
        ),
    ),
    (
        # job_submit.lua (core/host/job_submit_lua) gives Slurm's word for its refusals, and says more before it
        r"this job asks for no GPU|is for work without a GPU|has exactly one GPU|the gate of this host",
        Refusal(
            "refused",
            "that partition is for other jobs",
            "leave out --partition (gpuq asks for one GPU, or --cpu-only)",
        ),
    ),
    (
        r"Invalid generic resource",
        Refusal(
            "refused",
            "this node offers no gres/gpu",
            "add GresTypes=gpu and Gres=gpu:1 to slurm.conf, or use --cpu-only",
        ),
    ),
    (
        r"Memory specification can not be satisfied",
        Refusal("refused", "no node of the partition has that much memory", "ask for less with --mem"),
    ),
    (
        r"Job dependency problem",
        Refusal("refused", "a job that this one should wait for is not known to Slurm", "gpuq queue"),
    ),
    (r"Invalid partition name", Refusal("refused", "there is no such partition", "sinfo")),
    (
        r"Requested time limit is invalid|time limit exceeds|PartitionTimeLimit",
        Refusal("refused", "the time limit is above what the partition allows", "ask for less with --time"),
    ),
    (
        r"Requested node configuration is not available",
        Refusal("refused", "no node of the partition has what is asked for", "ask for less with --mem or --cpus"),
    ),
)


def explain(stderr: str) -> Refusal:
    """What the stderr of a failed Slurm command means; Slurm's own words are kept in the message."""
    words = slurm_words(stderr)
    for pattern, refusal in _RULES:
        if re.search(pattern, stderr, re.IGNORECASE):
            return Refusal(refusal.kind, f"{refusal.message} (Slurm: {words})", refusal.hint)
    return Refusal("refused", f"Slurm refused it: {words}" if words else "Slurm refused it and gave no reason")


_DNS = re.compile(r"resolve_ctls_from_dns_srv|DNS SRV lookup|_establish_config_source")


def slurm_words(stderr: str) -> str:
    """The lines of a Slurm command's stderr in one, without `sbatch: error:`, `slurm_load_jobs error:` and the like."""
    lines = []
    for line in stderr.splitlines():
        text = re.sub(r"^(?:[a-z_]+:? )?(?:error|fatal): ", "", line.strip())
        if text.startswith("If munged is up, restart with --num-threads"):
            continue  # said whenever munge fails, and hardly ever the cure
        if text and text not in lines:
            lines.append(text)
    # Without a slurm.conf Slurm looks for one in the DNS, step by step; what it comes to is in the last line.
    return "; ".join([text for text in lines if not _DNS.search(text)] or lines[-1:])
