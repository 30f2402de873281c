"""Rows of the table of causes: shared memory and disk, the environment, the program, the script, and what is left."""

from __future__ import annotations

from gpuq.core.triage.rule import AGAIN, LOOK, MORE_MEMORY, Rule

PROGRAM: tuple[Rule, ...] = (
    # -- shared memory and disk ------------------------------------------------------------------------------------
    Rule(
        id="shm",
        headline="Shared memory (/dev/shm) ran out; DataLoader workers hand their batches over in it.",
        advice=(
            "df -h /dev/shm",
            "use fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
            "what lies in /dev/shm counts as the job's memory, too: " + MORE_MEMORY,
        ),
        anchors=("shared memory", "Bus error", "/dev/shm", "</torch_"),  # noqa: S108 - a text to look for
        pattern=r"out of shared memory|signal: Bus error|(?:unable to|while) .*shared memory|</torch_\w+"
        r"|/dev/shm.*No space left|No space left.*/dev/shm",
        explains=("dataloader_died", "child_failed", "python_error"),
        exits=(135,),
    ),
    Rule(
        id="shm",
        headline="Shared memory (/dev/shm) is full: Python could not make a lock or a buffer for its processes there.",
        advice=("df -h /dev/shm", "rm what is left there of jobs that have ended: ls -l /dev/shm", "use fewer workers"),
        anchors=("No space left on device",),
        frames=r"multiprocessing/(?:synchronize|heap|shared_memory|queues|context|popen\w*|reductions)\.py$",
    ),
    Rule(
        id="disk_full",
        headline="The disk it writes to is full[ ({path})].",
        advice=("df -h {run_dir} /tmp", "du -xsh {run_dir}/* | sort -h | tail"),
        confidence="certain",
        anchors=("No space left on device", "Disk quota exceeded", "unexpected pos "),
        pattern=r"(?:No space left on device|Disk quota exceeded)(?:: '(?P<path>[^']+)')?|unexpected pos \d+ vs \d+",
        explains=("python_error", "child_failed", "nccl"),
    ),
    # -- the environment -------------------------------------------------------------------------------------------
    Rule(
        id="env_activation",
        headline="The environment was never activated in the job, so the Python that ran is not the one you meant.",
        advice=(
            "in job.sh: source ~/miniconda3/etc/profile.d/conda.sh && conda activate NAME (a job reads no ~/.bashrc)",
            "or call its Python by path, and begin job.sh with: set -euo pipefail",
        ),
        anchors=(
            "CommandNotFoundError",
            "EnvironmentNameNotFound",
            "EnvironmentLocationNotFound",
            "onda: command not found",
            "mamba: command not found",
            "/activate: No such file",
            "conda.sh: No such file",
            "before 'conda activate'",
        ),
        pattern=r"CommandNotFoundError: Your shell|EnvironmentNameNotFound|EnvironmentLocationNotFound"
        r"|(?:micromamba|mamba|conda): command not found|/activate: No such file|conda\.sh: No such file"
        r"|before 'conda activate'",
        explains=("import_error", "command_not_found", "shared_library", "exit_code"),
    ),
    Rule(
        id="shared_library",
        headline="A shared library does not fit or is missing[: {library}].",
        advice=(
            "in job.sh: unset LD_LIBRARY_PATH (PyTorch brings its own CUDA libraries; others found first break it)",
            "ldd on the file that the message names shows which one is taken",
        ),
        anchors=("cannot open shared object file", "undefined symbol", "Could not load library", "required by /"),
        pattern=r"(?P<library>[\w./+-]+\.so[\w.]*): (?:cannot open shared object|undefined symbol)|Could not load library"
        r"|undefined symbol|version `[^']+' not found \(required by",
        explains=("abort", "import_error"),
    ),
    Rule(
        id="import_error",
        headline="A Python module could not be imported[: {module}].",
        advice=(
            "install it into the environment of the job; job.sh uses this Python: "
            "add `which python; python -m pip list` to it",
            AGAIN,
        ),
        confidence="certain",
        anchors=("ModuleNotFoundError", "ImportError", "No module named"),
        pattern=r"(?:ModuleNotFoundError|ImportError): (?:No module named '?(?P<module>[\w.]+)'?"
        r"|cannot import name '(?P<name>\w+)')?|: No module named (?P<main>[\w.]+)",
        explains=("nccl", "child_failed"),
    ),
    # -- the program -----------------------------------------------------------------------------------------------
    Rule(
        id="shape",
        headline="Sizes do not fit together: {what}.",
        advice=("change the setting that the message names, then " + AGAIN,),
        anchors=(
            "divisible by",
            "size mismatch",
            "shapes cannot be multiplied",
            "must match the size",
            "not aligned",
            "to match target",
            "could not be broadcast",
            "could not broadcast",
            "equal size",
            "Sizes of tensors must match",
        ),
        pattern=r"(?P<what>[^:]*(?:not |be )divisible by.*|size mismatch.*|mat1 and mat2 shapes cannot be multiplied.*"
        r"|The size of tensor a .* must match.*|shapes .* not aligned.*|Expected input batch_size .* to match target.*"
        r"|operands could not be broadcast.*|could not broadcast.*|stack expects each tensor to be equal size.*"
        r"|Sizes of tensors must match.*)",
    ),
    Rule(
        id="dataloader_died",
        headline="A DataLoader worker process died[ ({signal_name})]; mostly it was killed for memory.",
        advice=(
            MORE_MEMORY + ", or use fewer workers",
            "run it once with num_workers=0: an exception in the worker's code then shows itself",
        ),
        anchors=("DataLoader worker", "BrokenProcessPool"),
        pattern=r"DataLoader worker \(pid.* (?:exited unexpectedly|killed by signal: (?P<signal_name>\w+))"
        r"|BrokenProcessPool",
        explains=("nccl", "child_failed"),
    ),
    Rule(
        id="alloc_failed",
        headline="Host memory could not be allocated[: {what}].",
        advice=("it may have asked for far too much at once; the message has the number", MORE_MEMORY),
        anchors=("MemoryError", "bad_alloc", "Cannot allocate memory", "can't allocate memory"),
        pattern=r"MemoryError(?:: (?P<what>.+))?|std::bad_alloc|Cannot allocate memory|can't allocate memory",
    ),
    Rule(
        id="file_missing",
        headline="A file that it reads does not exist: {path}.",
        advice=("ls -ld {path}", "a job starts in {project}; paths are relative to that"),
        anchors=("FileNotFoundError", "can't open file"),
        pattern=r"FileNotFoundError: .*'(?P<path>[^']+)'|can't open file '(?P<file>[^']+)'",
    ),
    Rule(
        id="port_in_use",
        headline="A network port that it wants is taken, mostly by an earlier process of the same kind.",
        advice=(
            "torchrun --standalone (or --rdzv-endpoint localhost:0) takes a free port",
            "ss -ltnp shows who has it",
        ),
        anchors=("ddress already in use", "EADDRINUSE"),
        explains=("nccl", "child_failed", "python_error"),
    ),
    # -- symptoms --------------------------------------------------------------------------------------------------
    Rule(
        id="nccl",
        headline="Communication between its processes broke off (NCCL), and no other error of any rank is in the log.",
        advice=(
            "look for a rank that stopped earlier or died without a word (killed, host memory): " + LOOK,
            "run it once with NCCL_DEBUG=INFO and TORCH_DISTRIBUTED_DEBUG=DETAIL in job.sh",
        ),
        confidence="possible",
        anchors=("NCCL", "DistBackendError", "TCPStore", "ncclSystemError", "ncclInternalError", "ncclRemoteError"),
        pattern=r"Watchdog caught collective|NCCL (?:error|communicator was aborted|watchdog)|nccl\w+Error|DistBackendError"
        r"|ProcessGroupNCCL|Some NCCL operations|TCPStore.*(?:[Bb]roken pipe|failed|reset)|Broken pipe.*TCPStore",
        symptom=True,
        explains=("child_failed", "abort"),
    ),
    Rule(
        id="killed",
        headline="A process was killed (SIGKILL) and nothing says by whom; mostly it is for want of host memory.",
        advice=("sudo dmesg | grep -i -E 'out of memory|oom'", MORE_MEMORY),
        confidence="possible",
        anchors=("Killed", "exitcode  : -9", "SIGKILL"),
        pattern=r"line \d+:\s+\d+ Killed\b|^(?:\[?\w+\]?:\s*)?Killed\s*$|exitcode\s+: -9|: task [\d,-]+: Killed",
        exits=(137,),
        symptom=True,
        explains=("child_failed", "nccl"),
    ),
    Rule(
        id="segfault",
        headline="It crashed in native code (segmentation fault).",
        advice=(
            "run it once with PYTHONFAULTHANDLER=1 in job.sh: it shows the Python line",
            "mostly libraries that do not fit together: look at what was installed or updated last",
        ),
        anchors=("egmentation fault", "SIGSEGV"),
        pattern=r"line \d+:\s+\d+ Segmentation fault|^Fatal Python error: Segmentation fault|^Segmentation fault"
        r"|task [\d,-]+: Segmentation fault|exitcode\s+: -11",
        exits=(139,),
        explains=("child_failed", "nccl"),
    ),
    Rule(
        id="illegal_instruction",
        headline="A library was built for a newer CPU than this host has (illegal instruction).",
        advice=("install a build of it for this CPU, or build it from source",),
        exits=(132,),
        anchors=("llegal instruction",),
        pattern=r"line \d+:\s+\d+ Illegal instruction|^Illegal instruction",
    ),
    Rule(
        id="abort",
        headline="It ended itself in native code (abort)[: {what}].",
        advice=(LOOK,),
        anchors=("terminate called", "what():", "Aborted"),
        pattern=r"terminate called after throwing an instance of '(?P<what>[^']+)'|what\(\):|line \d+:\s+\d+ Aborted",
        exits=(134,),
        symptom=True,
        explains=("child_failed",),
    ),
    Rule(
        id="interrupted",
        headline="It was told to stop by a signal from outside ({what}).",
        advice=(AGAIN,),
        confidence="possible",
        anchors=("KeyboardInterrupt", "SIGTERM", "got signal: 15", "SignalException"),
        pattern=r"^(?:\S+:\s*)?(?P<what>KeyboardInterrupt)\s*$|[Rr]eceived (?P<signal>SIGTERM)|got signal: 15",
        exits=(130,),
        symptom=True,
        explains=("child_failed",),
    ),
    Rule(
        id="child_failed",
        headline="A process that it had started (a rank of torchrun, say) failed, and its own error is not in the log.",
        advice=(
            "decorate main() with torch.distributed.elastic.multiprocessing.errors.record: the traceback is then shown",
            "torchrun --log-dir DIR --tee 3 keeps what every rank writes",
        ),
        confidence="possible",
        anchors=("ChildFailedError", "ChildProcessError", "CalledProcessError"),
        symptom=True,
    ),
    # -- the script ------------------------------------------------------------------------------------------------
    Rule(
        id="command_not_found",
        headline="A command in job.sh does not exist in the job[: {what}].",
        advice=("call it by path, or set PATH in job.sh: a job reads no ~/.bashrc", AGAIN),
        confidence="certain",
        anchors=("ommand not found", ": not found"),
        pattern=r"(?:line \d+|sh: \d+|^\w*sh): (?P<what>[\w./+-]+): (?:command )?not found\s*$",
        exits=(127,),
    ),
    Rule(
        id="not_executable",
        headline="A file that job.sh runs is not executable[: {what}].",
        advice=("chmod +x on that file",),
        anchors=("Permission denied",),
        pattern=r"line \d+: (?P<what>\S+): Permission denied",
        exits=(126,),
    ),
    Rule(
        id="script_error",
        headline="job.sh itself is at fault: {what}.",
        advice=("bash -n {script}", "mend it, then " + AGAIN),
        anchors=("unbound variable", "syntax error near", "bad substitution"),
        pattern=r"line \d+: (?P<what>.*(?:unbound variable|syntax error near.*|bad substitution))",
    ),
    Rule(
        id="terminated",
        headline="It was ended by SIGTERM; neither Slurm nor gpuq says who sent it.",
        advice=("sudo journalctl --since '1 hour ago' may tell", AGAIN),
        confidence="possible",
        exits=(143,),
    ),
    # -- what is left ----------------------------------------------------------------------------------------------
    Rule(
        id="python_error",
        headline="Python ended with {error}",
        advice=(LOOK, "mend it, then " + AGAIN),
    ),
    Rule(
        id="exit_code",
        headline="It ended with exit code {exit_code}, and the log does not say why.",
        advice=(LOOK, "begin job.sh with `set -euxo pipefail`, and the log shows the command that failed"),
        confidence="possible",
    ),
    Rule(
        id="hidden_failure",
        headline="It ended with exit code 0, but its log ends in an error[: {error}]",
        advice=(
            "begin job.sh with `set -euo pipefail`: a pipe such as `| tee` hides the exit code of what stands before it",
            "promise a result in run.toml ([results] files), so that such an end is no success",
        ),
    ),
    Rule(
        id="hidden_oom",
        headline="It ended with exit code 0, but a process in it was killed for host memory: its output may be incomplete.",
        advice=(MORE_MEMORY,),
    ),
    Rule(
        id="hidden_cancel",
        headline="It ended with exit code 0, but a step in it was cancelled: its output may be incomplete.",
        advice=(LOOK,),
        anchors=("*** STEP",),
        pattern=r"\*\*\* STEP \S+ ON \S+ (?:CANCELLED|FAILED)",
        symptom=True,
    ),
)
