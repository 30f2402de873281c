"""Rows of the table of causes: the program, its symptoms, the script, and what is left."""

from __future__ import annotations

from gpuq.core.triage.rule import AGAIN, DIED, LOOK, MORE_MEMORY, Rule, died_of

PROGRAM: tuple[Rule, ...] = (
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
            "channels, but got",
            "incompatible shapes",
            "to have the same shape",
            "incompatible with the layer",
            "is invalid for input of size",
            "mismatch in its core dimension",
            "train_batch_size is not equal",
            "to generate shape",
            "Shape mismatch",
            "Incompatible shapes",
        ),
        pattern=r"(?P<what>[^:]{0,200}(?:not |be )divisible by.*|size mismatch.*|mat1 and mat2 shapes cannot be multiplied.*"
        r"|The size of tensor a .* must match.*|shapes .* not aligned.*|Expected input batch_size .* to match target.*"
        r"|operands could not be broadcast.*|could not broadcast.*|stack expects each tensor to be equal size.*"
        r"|Sizes of tensors must match.*|expected input.* channels, but got.*|.{0,200}incompatible shapes.*"
        r"|.{0,200}to have the same shape.*"
        r"|Input \d+ of layer .* is incompatible with the layer.*|shape '\[.*\]' is invalid for input of size.*"
        r"|Input operand \d+ has a mismatch in its core dimension.*|train_batch_size is not equal.*"
        r"|.{0,200}to generate shape .* but got shape.*|Shape mismatch.*|Incompatible shapes.*)",
    ),
    Rule(
        id="dataloader_died",
        headline="A worker process (of a DataLoader, or a pool) died[ ({signal_name})]; mostly it was killed for memory.",
        advice=(
            MORE_MEMORY + ", or use fewer workers",
            "run it once with num_workers=0: an exception in the worker's code then shows itself",
        ),
        anchors=("DataLoader worker", "BrokenProcessPool", "has abruptly died", "TerminatedWorkerError"),
        pattern=r"DataLoader worker \(pid.* (?:exited unexpectedly|killed by signal: (?P<signal_name>\w+))"
        r"|BrokenProcessPool|One of the subprocesses has abruptly died|TerminatedWorkerError",
        explains=("nccl", "child_failed"),
    ),
    Rule(
        id="alloc_failed",
        headline="Host memory could not be allocated[: {what}].",
        advice=("it may have asked for far too much at once; the message has the number", MORE_MEMORY),
        anchors=("MemoryError", "bad_alloc", "Cannot allocate memory", "can't allocate memory", "OOM when allocating"),
        pattern=r"(?:\bMemoryError|\b_ArrayMemoryError|java\.lang\.OutOfMemoryError)(?:: (?P<what>.+))?|std::bad_alloc"
        r"|Cannot allocate memory|can't allocate memory|OOM when allocating",
    ),
    Rule(
        id="file_missing",
        headline="A file that it reads does not exist[: {path}].",
        advice=("[ls -ld {path}]", "a job starts in {project}; paths are relative to that"),
        anchors=("FileNotFoundError", "can't open file", "o such file or directory"),
        pattern=r"FileNotFoundError(?:.*?[\s:(](?P<quote>['\"])(?P<path>(?:(?!(?P=quote)).)+)(?P=quote))?"
        r"|can't open file '(?P<path2>[^']+)'|could not open image (?P<path3>[^\s:]+): .*no such file"
        r"|line \d+: (?:cd: )?(?P<path4>(?!.*/bin/)\S+): No such file or directory$",
    ),
    Rule(
        id="port_in_use",
        headline="A network port that it wants is taken, mostly by an earlier process of the same kind.",
        advice=(
            "torchrun --standalone (or --rdzv-endpoint localhost:0) takes a free port",
            "ss -ltnp shows who has it",
        ),
        anchors=("ddress already in use", "EADDRINUSE"),
        explains=("nccl", "child_failed"),
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
        anchors=(
            "NCCL",
            "DistBackendError",
            "TCPStore",
            "Watchdog caught",
            "ncclUnhandled",
            "ncclSystemError",
            "ncclInternalError",
            "ncclRemoteError",
            "DistNetworkError",
            "DistStoreError",
            "gloo/transport",
        ),
        pattern=r"Watchdog caught collective|NCCL (?:error|communicator was aborted|watchdog)|nccl\w+Error|DistBackendError"
        r"|DistNetworkError|DistStoreError|gloo/transport|ProcessGroupNCCL|Some NCCL operations"
        r"|TCPStore.*(?:[Bb]roken pipe|failed|reset)|Broken pipe.*TCPStore",
        symptom=True,
        explains=("child_failed", "abort"),
    ),
    Rule(
        id="killed",
        headline="A process was killed (SIGKILL) and nothing says by whom; mostly it is for want of host memory.",
        advice=("sudo dmesg | grep -i -E 'out of memory|oom'", MORE_MEMORY),
        confidence="possible",
        anchors=("Killed", *DIED),
        pattern=r"line \d+:\s+\d+ Killed\b|^(?:\[?\w+\]?:\s*)?Killed\s*$|: tasks? [\d,-]+: Killed|"
        + died_of(9, "SIGKILL"),
        exits=(137, 247),
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
        anchors=("egmentation fault", *DIED),
        pattern=r"line \d+:\s+\d+ Segmentation fault|^Fatal Python error: Segmentation fault|^Segmentation fault"
        r"|: tasks? [\d,-]+: Segmentation fault|" + died_of(11, "SIGSEGV"),
        exits=(139, 245),
        explains=("child_failed", "nccl"),
    ),
    Rule(
        id="illegal_instruction",
        headline="A library was built for a newer CPU than this host has (illegal instruction).",
        advice=("install a build of it for this CPU, or build it from source",),
        exits=(132, 252),
        anchors=("llegal instruction", *DIED),
        pattern=r"line \d+:\s+\d+ Illegal instruction|^Illegal instruction|" + died_of(4, "SIGILL"),
    ),
    Rule(
        id="abort",
        headline="It ended itself in native code (abort)[: {what}].",
        advice=(LOOK,),
        anchors=("terminate called", "what():", "Aborted", *DIED),
        pattern=r"terminate called after throwing an instance of '(?P<what>[^']+)'|what\(\):|line \d+:\s+\d+ Aborted"
        r"|: tasks? [\d,-]+: Aborted|" + died_of(6, "SIGABRT"),
        exits=(134, 250),
        symptom=True,
        explains=("child_failed",),
    ),
    Rule(
        id="interrupted",
        headline="It was told to stop by a signal from outside[ ({what})].",
        advice=(AGAIN,),
        confidence="possible",
        anchors=("KeyboardInterrupt", "SIGTERM", "got signal: "),
        pattern=r"^(?:\S+:\s*)?(?P<what>KeyboardInterrupt)\s*$|[Rr]eceived (?P<what2>SIGTERM)|got signal: \d+",
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
        pattern=r"^(?:\w+\.)*(?:ChildFailedError|ChildProcessError|CalledProcessError)(?::|\s*$)",
        symptom=True,
    ),
    # -- the script ------------------------------------------------------------------------------------------------
    Rule(
        id="command_not_found",
        headline="A command in job.sh does not exist in the job[: {what}].",
        advice=("call it by path, or set PATH in job.sh: a job reads no ~/.bashrc", AGAIN),
        confidence="certain",
        anchors=(
            "FAILED cause=command ",
            "ommand not found",
            ": not found",
            "Failed to spawn: ",
            "file not found in $PATH",
            "fork/exec ",
            "execve(): ",
            "/usr/bin/env: ",
            "bad interpreter: ",
            "cannot execute: required file",
            "bin/",
        ),
        pattern=r"(?:line \d+|sh: \d+|slurm_script: \d+|^\w*sh): (?P<what>[\w./+-]+): (?:command )?not found\s*$"
        r"|Failed to spawn: `(?P<what2>[^`]+)`|\"(?P<what3>[^\"]+)\": executable file not found in \$PATH"
        r"|fork/exec (?P<what9>\S+): no such file"
        r"|execve\(\): (?P<what4>\S+): No such file|/usr/bin/env: .(?P<what5>[\w.+-]+).: No such file"
        r"|line \d+: (?P<what7>\S+): (?:(?P<what6>\S+): bad interpreter: No such file|cannot execute: required file)"
        r"|line \d+: (?P<what8>\S*bin/\S+): No such file or directory$"
        r"|^FAILED cause=command .*?error=\"?(?P<what10>[^\s:\"]+): (?:command not found|No such file or directory)\b",
        exits=(127,),
    ),
    Rule(
        id="not_executable",
        headline="A file that job.sh runs is not executable[: {what}].",
        advice=("chmod +x on that file",),
        anchors=("Permission denied",),
        pattern=r"(?:line \d+|execve\(\)|^FAILED cause=command .*?error=\"?)(?:: )?(?P<what>[^\s\"]+): Permission denied",
        exits=(126,),
    ),
    Rule(
        id="script_error",
        headline="job.sh itself is at fault: {what}.",
        advice=("bash -n {script}", "mend it, then " + AGAIN),
        anchors=("unbound variable", "syntax error", "bad substitution", "unexpected EOF"),
        pattern=r"line \d+: (?P<what>.*(?:unbound variable|syntax error(?: near|:).*|bad substitution"
        r"|unexpected EOF while.*))",
    ),
    Rule(
        id="usage",
        headline="The program does not take the arguments that job.sh gives it: {what}.",
        advice=("gpuq status {tag} shows the command; mend it in job.sh, then " + AGAIN,),
        anchors=(": error: ", "rror: ", "Unknown command line flag", "Could not consume arg"),
        pattern=r"^\S+(?: \w+)?: error: (?P<what>(?:unrecognized arguments|the following arguments are required"
        r"|argument \S+:|ambiguous option|one of the arguments|unexpected argument).*)"
        r"|^[Ee]rror: (?P<what2>(?:No such option|Invalid value for|Missing (?:option|argument|parameter)"
        r"|Got unexpected extra argument|unexpected argument).*)"
        r"|Flags parsing error: (?P<what3>Unknown command line flag .*)|^ERROR: (?P<what4>Could not consume arg: .*)",
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
