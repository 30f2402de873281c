"""Rows of the table of causes: what Slurm says, the host, the driver and the GPU."""

from __future__ import annotations

import re

from gpuq.core.memory import oom
from gpuq.core.triage.rule import AGAIN, ENDS, LOOK, MORE_MEMORY, Rule

_NO_GPU = ("no_gpu_requested", "driver_broken", "visible_devices")
_NO_GPU_ANCHORS = (
    "No CUDA GPUs are available",
    "no CUDA-capable device",
    "Found no NVIDIA driver",
    "CUDA_ERROR_NO_DEVICE",
    "CUDA unknown error",
    "invalid device ordinal",
    "NVIDIA-SMI has failed",
    "No devices were found",
    "Failed to initialize NVML",
    "cudaGetDeviceCount()",
    "CUDA driver initialization failed",
    "torch.cuda.is_available() is False",
    "No visible GPU devices",
    "no supported devices found for platform CUDA",
    "no platforms that are instances of gpu",
    "No supported gpu backend found",
    "your machine only has: []",
    "setup doesn't support bf16/gpu",
    "no GPUs found",
    "Failed to infer device type",
)
_NO_GPU_PATTERN = "|".join(
    re.escape(text) + (r"(?!.*out of memory)" if text.startswith("cudaGet") else "") for text in _NO_GPU_ANCHORS
)

HOST: tuple[Rule, ...] = (
    # -- what Slurm itself says ------------------------------------------------------------------------------------
    Rule(
        id="host_oom",
        headline="It needed more host memory than the {memory} it had asked for[ (it held {held})], and was killed for it.",
        advice=(MORE_MEMORY, "or make it need less: fewer DataLoader workers, less data held in memory at once"),
        outcomes=("OUT_OF_MEMORY",),
        confidence="certain",
        anchors=(*oom.TEXTS, "Memory cgroup out of memory"),
        pattern=oom.PATTERN + r"|Memory cgroup out of memory: Killed process",
        explains=(*ENDS, "exit_code", "segfault", "alloc_failed", "shm", "file_missing"),
        checkpoint=True,
    ),
    Rule(
        id="time_limit",
        headline="It was stopped at its time limit[ of {time_limit}].",
        advice=("gpuq resubmit {tag} --time {more_time}", "gpuq resubmit {tag} --signal-before 300"),
        outcomes=("TIMEOUT",),
        confidence="certain",
        anchors=("DUE TO TIME LIMIT",),
        explains=(*ENDS, "cancelled", "exit_code", "segfault"),
        checkpoint=True,
    ),
    Rule(
        id="dependency_failed",
        headline="It never ran: what it was to start after[ ({dependencies})] did not succeed.",
        advice=("gpuq why {parent} says why that one failed", AGAIN),
        outcomes=("CANCELLED",),
        said="DependencyNeverSatisfied|depended on",
        confidence="certain",
    ),
    Rule(
        id="preempted",
        headline="Slurm stopped it to make room for another job.",
        advice=(AGAIN,),
        outcomes=("CANCELLED",),
        said="(?i:preempted)",
        confidence="certain",
        anchors=("DUE TO PREEMPTION",),
        explains=(*ENDS, "cancelled", "exit_code"),
        checkpoint=True,
    ),
    Rule(
        id="node_fail",
        headline="The node failed or was rebooted while it ran; the program is not to blame.",
        advice=("scontrol show node gives the node's state and reason", AGAIN),
        outcomes=("NODE_FAIL",),
        confidence="certain",
        anchors=("DUE TO NODE FAILURE",),
        explains=(*ENDS, "cancelled", "exit_code"),
        checkpoint=True,
    ),
    Rule(
        id="cancelled",
        headline="It was cancelled[ by {cancelled_by}][ {before_start}]{cancelled_else}.",
        advice=(AGAIN,),
        outcomes=("CANCELLED",),
        confidence="certain",
        anchors=("CANCELLED AT",),
        pattern=r"\*\*\* JOB \d+ ON \S+ CANCELLED AT",
        explains=(*ENDS, "exit_code"),
        checkpoint=True,
    ),
    Rule(
        id="lost",
        headline="Nobody knows how it ended: Slurm has forgotten the job and left no record of it.",
        advice=(LOOK, AGAIN, "set MinJobAge=86400 and JobCompType=jobcomp/filetxt in slurm.conf"),
        outcomes=("LOST",),
        confidence="certain",
    ),
    Rule(
        id="stopped_early",
        headline="It was told to end (SIGTERM) and did so by itself, before it was through.",
        advice=("gpuq resubmit {tag}", LOOK),
        outcomes=("INCOMPLETE",),
        said=r"stopped early by SIGTERM",
        confidence="certain",
    ),
    Rule(
        id="incomplete",
        headline="The program ended without an error, but not with what the run promises[: {promised}].",
        advice=(LOOK, "write the result in job.sh, or correct [results] in gpuq.toml or run.toml", AGAIN),
        outcomes=("INCOMPLETE",),
        confidence="certain",
    ),
    Rule(
        id="no_failure",
        headline="It succeeded; there is no failure to explain.",
        outcomes=("SUCCEEDED",),
        confidence="certain",
    ),
    Rule(
        id="log_not_creatable",
        headline="Slurm could not create the log file in {log_dir}[: {log_fault}], so nothing ran.",
        advice=("mkdir -p {log_dir}", "df -h {log_dir}", AGAIN),
        outcomes=("FAILED",),
        said=r"ExitCode \d+:53|could not create the log file",
        confidence="certain",
    ),
    Rule(
        id="launch_failed",
        headline="Slurm could not start it on the node[: {reason}].",
        advice=(
            "scontrol show node gives the node's state and reason",
            "slurmd's log on the node has the cause",
            AGAIN,
        ),
        outcomes=("FAILED",),
        said=r"ExitCode 0:0.*(?i:launch)",
    ),
    # -- the host and the GPU --------------------------------------------------------------------------------------
    Rule(
        id="host_driver",
        headline="The NVIDIA driver was updated under the running kernel; until the host is rebooted no program can "
        "use the GPU, and yours is not to blame.",
        advice=("reboot the host when the jobs that still run have ended: gpuq queue --all", "nvidia-smi"),
        confidence="certain",
        anchors=(
            "version mismatch",
            "unsupported display driver",
            "forward compatibility was attempted",
            "does not match DSO version",
        ),
        pattern=r"(?i:driver/library version mismatch|NVML/RM version mismatch)"
        r"|unsupported display driver / cuda driver combination|forward compatibility was attempted"
        r"|kernel version [\d.]+ does not match DSO version",
        explains=(*_NO_GPU, "cuda_error", "python_error", "nccl", "exit_code"),
    ),
    Rule(
        id="no_gpu_visible",
        headline="gpuq run did not start the program: the job was promised a GPU and saw none: {why}.",
        advice=("gpuq doctor", "gpuq gpu", AGAIN),
        confidence="certain",
        anchors=("cause=no_gpu",),
        pattern=r"^FAILED cause=no_gpu .*error=\"?the job was promised a GPU and sees none: (?P<why>.*?)\.?\"?"
        r" (?:advice|elapsed)=",
        explains=("exit_code",),
    ),
    Rule(
        id="gpu_busy",
        headline="gpuq run did not start the program: {why}.",
        advice=(
            "gpuq gpu",
            "[preflight] in gpuq.toml or run.toml says how much must be free, and how long to wait",
            AGAIN,
        ),
        confidence="certain",
        anchors=("cause=preflight",),
        pattern=r"^FAILED cause=preflight .*error=\"?(?P<why>.*?)\.?\"? (?:advice|elapsed)=",
        explains=("exit_code",),
    ),
    Rule(
        id="gpu_fault",
        headline="The GPU itself failed: {what}.",
        advice=(
            "sudo dmesg | grep -i -E 'xid|nvrm'",
            "reboot the host; if it comes back, the card or its power is bad",
        ),
        anchors=(
            "uncorrectable ",
            "GPU is lost",
            "fallen off the bus",
            "hardware stack error",
            "requires reset",
            "determine the device handle",
        ),
        pattern=r"(?P<what>uncorrectable (?:ECC|NVLink) error|GPU is lost|fallen off the bus|hardware stack error"
        r"|GPU requires reset|Unable to determine the device handle)",
        explains=("cuda_error", "nccl", "python_error", *_NO_GPU),
    ),
    Rule(
        id="cpu_wheel",
        headline="The installed PyTorch was built without CUDA and can never use a GPU.",
        advice=(
            "python -c 'import torch; print(torch.version.cuda)'",
            "install a CUDA build of it: https://pytorch.org/get-started/locally",
        ),
        confidence="certain",
        anchors=(
            "ot compiled with CUDA",
            "ot compiled with GPU support",
            "doesn't have NCCL built in",
        ),
    ),
    Rule(
        id="cpu_wheel",
        headline="The installed JAX has no CUDA in it and can never use a GPU.",
        advice=("python -c 'import jax; print(jax.devices())'", "install it with CUDA: pip install 'jax[cuda12]'"),
        anchors=("no platforms that are instances of ",),
        gpu=True,
    ),
    Rule(
        id="driver_old",
        headline="The NVIDIA driver of this host is older than the CUDA that the program was built for.",
        advice=("nvidia-smi", "update the driver (and reboot), or install a PyTorch for an older CUDA"),
        confidence="certain",
        anchors=(
            "driver version is insufficient",
            "driver on your system is too old",
            "unsupported toolchain",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "unsatisfied condition: cuda",
        ),
    ),
    Rule(
        id="visible_devices",
        headline="job.sh sets CUDA_VISIBLE_DEVICES={value} by hand, which hides the GPU that Slurm gave to the job.",
        advice=("delete that line from job.sh; Slurm sets the variable", AGAIN),
        anchors=_NO_GPU_ANCHORS,
        pattern=_NO_GPU_PATTERN,
        script=r"(?m)^(?:[^#\n]*[\s;&|])?CUDA_VISIBLE_DEVICES=(?P<value>(?![\"']?(?:0[\"']?(?:[\s;&|]|$)|\$))[^\s;&|]*)",
        gpu=True,
    ),
    Rule(
        id="no_gpu_requested",
        headline="It was submitted with --cpu-only, so Slurm gave it no GPU, and the program wants one.",
        advice=("gpuq submit {tag}",),
        confidence="certain",
        anchors=_NO_GPU_ANCHORS,
        pattern=_NO_GPU_PATTERN,
        gpu=False,
    ),
    Rule(
        id="driver_broken",
        headline="Slurm gave it a GPU, but CUDA found none: the driver of this host does not work, or the program hides "
        "the GPU from itself.",
        advice=(
            "nvidia-smi",
            "lsmod | grep nvidia_uvm",
            "look for CUDA_VISIBLE_DEVICES in the program: grep -rn CUDA_VISIBLE_DEVICES {project}",
        ),
        anchors=_NO_GPU_ANCHORS,
        pattern=_NO_GPU_PATTERN,
        explains=("nccl",),
    ),
    Rule(
        id="wheel_arch",
        headline="The installed build has no code for this GPU[ ({arch})].",
        advice=(
            "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())'",
            "install a build for this GPU: https://pytorch.org/get-started/locally",
        ),
        confidence="certain",
        anchors=(
            "no kernel image is available",
            "is not compatible with the current PyTorch",
            "cudaErrorNoKernelImage",
            "no longer supports this GPU",
            "only supports Ampere",
            "too old to be supported by the triton",
            "for option 'gpu-name'",
            "Unsupported gpu architecture",
            "STATUS_ARCH_MISMATCH",
        ),
        pattern=r"no kernel image is available|CUDA capability (?P<arch>sm_\w+) is not compatible|cudaErrorNoKernelImage"
        r"|no longer supports this GPU|only supports Ampere GPUs|too old to be supported by the triton"
        r"|Value '(?P<arch2>sm_\w+)' is not defined for option 'gpu-name'"
        r"|Unsupported gpu architecture '(?P<arch3>\w+)'|STATUS_ARCH_MISMATCH",
        explains=("cuda_error", "cublas", "nccl"),
    ),
    # -- memory of the GPU, and what CUDA says ---------------------------------------------------------------------
    Rule(
        id="device_assert",
        headline="A check on the GPU failed, mostly an index or a class label out of range.",
        advice=(
            "run it once with CUDA_LAUNCH_BLOCKING=1 in job.sh: the traceback then shows the line that is wrong",
            "check that every label is between 0 and the number of classes - 1, and every token id below the vocabulary",
        ),
        confidence="certain",
        anchors=("device-side assert", ".cu:"),
        pattern=r"device-side assert triggered|\.cu:\d+.*Assertion",
        explains=("cublas", "cuda_error", "nccl", "python_error", "abort"),
    ),
    Rule(
        id="gpu_oom",
        headline="The GPU's memory was full[ when it tried to allocate {size}].",
        advice=(
            "make the batch smaller (and accumulate gradients), use bf16, or checkpoint activations; then " + AGAIN,
            "nvidia-smi shows who else holds memory of the GPU",
        ),
        confidence="certain",
        anchors=(
            "out of memory",
            "Out of memory while",
            "OutOfMemoryError",
            "OUT_OF_MEMORY",
            "RESOURCE_EXHAUSTED",
            "OOM when allocating",
            "STATUS_ALLOC_FAILED",
            "cudaErrorMemoryAllocation",
            "would exceed memory",
            "for new constant",
            "for the cache blocks",
            "desired GPU memory utilization",
            "RMM failure",
            "BFCArena::AllocateRawInternal",
            "Dst tensor is not ",
        ),
        pattern=r"(?:CUDA|HIP) out of memory(?:\. Tried to allocate (?P<size>[\d.]+ \w+))?"
        r"|CUDA (?:runtime |driver )?error[^:]*: out of memory|(?:torch|cuda|memory)\.OutOfMemoryError"
        r"|CUDA_ERROR_OUT_OF_MEMORY|(?:Cuda failure \d* ?'|cudaMalloc failed: |GPU:\d+ failed\. Status: )out of memory"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory|OOM|Allocation .* would exceed memory|Error (?:allocating|loading))"
        r"|Out of memory while trying to allocate (?P<size3>\d+ bytes)"
        r"|OOM when allocating(?!.*by allocator (?:cpu|mklcpu))|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
        r"|cudaErrorMemoryAllocation|Failed to allocate (?P<size2>\d+ bytes) for new constant"
        r"|No available memory for the cache blocks|is less than desired GPU memory utilization"
        r"|cudaGetDeviceCount\(\).*out of memory|RMM failure|BFCArena::AllocateRawInternal.*Failed to allocate"
        r"|Dst tensor is not (?:initialized|copied)",
        explains=("cublas",),
        details=(
            (r"(?:capac\w* of (?P<a>[\d.]+ \w+))", "the GPU has {a}"),
            (r"(?P<a>[\d.]+ \w+) total capacity", "the GPU has {a}"),
            (
                r"Process (?P<pid>\d+) has (?P<used>[\d.]+ \w+) memory in use(?=.*this process has)",
                "another process ({pid}) held {used} of it: ps -o user,args -p {pid}",
            ),
            (
                r"(?P<a>[\d.]+ GiB) is reserved by PyTorch but unallocated",
                "{a} were reserved but not used; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True makes that less",
            ),
        ),
    ),
    Rule(
        id="cublas",
        headline="A CUDA library failed[ ({status})], mostly because the GPU's memory was full or an index out of range.",
        advice=(
            "run it once with CUDA_LAUNCH_BLOCKING=1 in job.sh: the traceback then shows the line that is wrong",
            "try a smaller batch; check that shapes and labels are right",
        ),
        confidence="possible",
        anchors=("CUBLAS_STATUS_", "CUDNN_STATUS_", "CUSOLVER_STATUS_", "CUFFT_", "CUSPARSE_STATUS_", "DNN library "),
        pattern=r"(?P<status>CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?!\w*VERSION_MISMATCH)\w+|CUFFT_\w+)"
        r"|DNN library (?:initialization failed|is not found)",
    ),
    Rule(
        id="cuda_error",
        headline="CUDA failed: {what}.",
        advice=("run it once with CUDA_LAUNCH_BLOCKING=1 in job.sh: the traceback then shows the line that is wrong",),
        anchors=("CUDA error", "Cuda failure", "CUDA_ERROR_"),
        pattern=r"CUDA (?:runtime |driver )?error[^:]*: (?P<what>[^\n.]+)|Cuda failure (?:\d+ )?'(?P<what2>[^']+)'"
        r"|CUDA_ERROR_(?:ILLEGAL|LAUNCH|MISALIGNED|UNKNOWN|ASSERT|HARDWARE)\w*: (?P<what3>[^\n.]+)",
        explains=("nccl", "abort"),
    ),
)
