"""Rows of the table of causes: shared memory, open files and disk, and the environment that a program is run in."""

from __future__ import annotations

from gpuq.core.triage.rule import AGAIN, DIED, MORE_MEMORY, Rule, died_of

ENVIRONMENT: tuple[Rule, ...] = (
    # -- shared memory, open files and disk ------------------------------------------------------------------------
    Rule(
        id="open_files",
        headline="It has more files open than it may; DataLoader workers hand their batches over in open files.",
        advice=(
            "in job.sh: ulimit -n 65536 (`ulimit -Hn` tells how far it can go)",
            "use fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        anchors=("Too many open files", "items of ancdata"),
        explains=("dataloader_died", "child_failed"),
    ),
    Rule(
        id="shm",
        headline="Shared memory (/dev/shm) ran out; DataLoader workers hand their batches over in it.",
        advice=(
            "df -h /dev/shm",
            "use fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
            "what lies in /dev/shm counts as the job's memory, too: " + MORE_MEMORY,
        ),
        anchors=("shared memory", "Bus error", "/dev/shm", "</torch_", "No space left on device: '/", *DIED),  # noqa: S108 - a text to look for
        pattern=r"out of shared memory|signal: Bus error|(?:unable to|while) .*shared memory|</torch_\w+"
        r"|/dev/shm.*No space left|No space left.*/dev/shm"
        r"|No space left on device: '/(?:psm|torch|sem|mp)[-_.]|line \d+:\s+\d+ Bus error|" + died_of(7, "SIGBUS"),
        explains=("dataloader_died", "child_failed", "python_error"),
        exits=(135, 249),
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
        anchors=("No space left on device", "Disk quota exceeded", "unexpected pos ", "PytorchStreamWriter failed"),
        pattern=r"(?:No space left on device|Disk quota exceeded)(?:: '(?P<path>[^']+)')?|unexpected pos \d+ vs \d+"
        r"|PytorchStreamWriter failed writing",
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
            "onda: not found",
            "mamba: command not found",
            "mamba: not found",
            "source: not found",
            "module: command not found",
            "module: not found",
            "can't modify the parent shell",
            "activate: No such file",
            "Unable to locate a modulefile",
            "following module(s) are unknown",
            "conda.sh: No such file",
            "before 'conda activate'",
        ),
        pattern=r"CommandNotFoundError: Your shell|EnvironmentNameNotFound|EnvironmentLocationNotFound"
        r"|(?:micromamba|mamba|conda|source|module): (?:command )?not found|\bactivate: No such file|conda\.sh: No such file"
        r"|is running as a subprocess and can't modify the parent shell|Unable to locate a modulefile"
        r"|following module\(s\) are unknown"
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
        anchors=(
            "cannot open shared object file",
            "undefined symbol",
            "Could not load library",
            "(required by ",
            "Unable to load any of {lib",
            "Cannot load symbol",
            "operator torchvision::",
            "bitsandbytes native library",
            "CUDA Setup failed despite",
            "Native code method attempted to call",
            "compiled with different CUDA",
            "mismatches the version that was used to compile",
            "libcuda.so cannot found",
            "VERSION_MISMATCH",
            "cuDNN version incompatibility",
            "is not found or cannot be loaded",
        ),
        pattern=r"(?P<library>[\w./+-]+\.so[\w.]*): (?:cannot open shared object|undefined symbol)|Could not load library"
        r"|undefined symbol|version `[^']+' not found \(required by|Unable to load any of \{(?P<library2>lib[\w.]+)"
        r"|Cannot load symbol \w+|operator torchvision::\w+ does not exist|bitsandbytes native library"
        r"|CUDA Setup failed despite"
        r"|Native code method attempted to call|compiled with different CUDA|mismatches the version that was used to compile"
        r"|libcuda\.so cannot found|CUDNN_STATUS_\w*VERSION_MISMATCH|cuDNN version incompatibility"
        r"|Library (?P<library3>\S+) is not found or cannot be loaded",
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
        pattern=r"(?:ModuleNotFoundError|ImportError):(?: No module named '?(?P<module>[\w.]+)'?"
        r"| cannot import name '(?P<module3>\w+)')?|: No module named (?P<module2>[\w.]+)",
        explains=("nccl", "child_failed"),
    ),
)
