"""The GPU as the host has it: device files, the driver's module for this kernel, driver against library."""

from __future__ import annotations

import re

from gpuq.core.checks.check import Check, failure, ok, warning
from gpuq.core.checks.hostfacts import HostFacts


def _device(facts: HostFacts) -> list[Check]:
    missing = [file.path for file in facts.gres_files if file.missing]
    if not facts.gres_files:
        return []
    if not missing:
        wrong = [file for file in facts.gres_files if file.kind != "char"]
        if wrong:
            return failure(
                "gpu-device",
                f"{wrong[0].path} is not a device, but a {wrong[0].kind}",
                repair=(f"rm {wrong[0].path}", *_make_devices(facts)),
            )
        return ok("gpu-device", "the device files that gres.conf names are there")
    named = ", ".join(missing)
    evidence = [f"{named}: no such file"]
    if not all(path.startswith("/dev/nvidia") for path in missing):
        return failure(
            "gpu-device", f"the device file {named} of gres.conf is missing", *evidence, repair=_make_devices(facts)
        )
    return _why_missing(facts, named, evidence)


def _why_missing(facts: HostFacts, named: str, evidence: list[str]) -> list[Check]:
    kernels = facts.gpu.modules
    if facts.gpu.on_bus is False:
        return failure(
            "gpu-off-bus",
            f"{named} is missing, because no NVIDIA GPU answers on the PCI bus",
            *evidence,
            repair=("lspci | grep -i nvidia", "dmesg | grep -iE 'NVRM|Xid'", "power the host off and on again"),
        )
    if not kernels:
        return failure(
            "gpu-driver",
            f"{named} is missing, because no NVIDIA driver is installed for any kernel",
            *evidence,
            repair=("install the driver: apt-get install nvidia-driver", facts.restart("slurmd")),
        )
    if facts.kernel not in kernels:
        others = ", ".join(kernels)
        return failure(
            "gpu-module",
            f"{named} is missing, because the NVIDIA module was built for kernel {others}, and {facts.kernel} runs",
            *evidence,
            f"no nvidia module below /lib/modules/{facts.kernel}",
            repair=(
                f"apt-get install linux-headers-{facts.kernel} && dkms autoinstall -k {facts.kernel}",
                "modprobe nvidia && nvidia-modprobe -c 0 -u",
                facts.restart("slurmd"),
                f"or boot kernel {kernels[-1]} again",
            ),
        )
    return failure(
        "gpu-boot-order",
        f"{named} is missing though the module for kernel {facts.kernel} is there: it was not loaded when slurmd started",
        *evidence,
        f"driver loaded: {facts.gpu.loaded or 'no'}",
        repair=(
            "modprobe nvidia && nvidia-modprobe -c 0 -u",
            facts.restart("slurmd"),
            "for every boot: systemctl enable nvidia-persistenced, and Restart=on-failure for slurmd.service",
        ),
    )


def _make_devices(facts: HostFacts) -> tuple[str, ...]:
    if facts.embedded:
        return (facts.restart("slurmd"),)
    return ("nvidia-modprobe -c 0 -u", facts.restart("slurmd"))


def _mismatch(facts: HostFacts) -> list[Check]:
    gpu = facts.gpu
    said = re.search(r"Driver/library version mismatch", gpu.nvml_error, re.IGNORECASE)
    on_disk = gpu.loaded is not None and gpu.libraries and gpu.loaded not in gpu.libraries
    if not said and not on_disk:
        if gpu.nvml_error:
            return warning(
                "gpu-nvml", "the NVIDIA library does not work", gpu.nvml_error, repair=("nvidia-smi", "dmesg | tail")
            )
        return ok("gpu-driver-library", f"driver and library are both {gpu.loaded}") if gpu.loaded else []
    versions = (
        f"driver {gpu.loaded or 'unknown'} is loaded, library {', '.join(gpu.libraries) or 'unknown'} is installed"
    )
    jobs = facts.running_jobs
    if jobs:
        count = f"{len(jobs)} jobs still run" if len(jobs) > 1 else "1 job still runs"
        advice: tuple[str, ...] = (
            f"start nothing new: scontrol update NodeName={_node(facts)} State=DRAIN Reason='reboot for the driver'",
            f"wait for them: gpuq wait {' '.join(map(str, jobs))}",
            f"then: reboot, and scontrol update NodeName={_node(facts)} State=RESUME",
        )
        text = f"the driver was upgraded under the running kernel; {count}, reboot when they have ended"
    else:
        advice = (
            "reboot",
            "or, with nothing using the GPU: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia",
        )
        text = "the driver was upgraded under the running kernel; no job runs, reboot now"
    return failure("gpu-driver-library", text, gpu.nvml_error, versions, repair=advice)


def _lost(facts: HostFacts) -> list[Check]:
    if not facts.gpu.lost:
        return []
    return failure(
        "gpu-lost",
        "the GPU does not answer any more: it has fallen off the bus, or must be reset",
        facts.gpu.lost,
        *facts.gpu.faults[-1:],
        repair=(
            "switch the machine off and on again (a reboot may not do)",
            "if it comes back: power supply, cable, heat",
        ),
    )


def _faults(facts: HostFacts) -> list[Check]:
    if not facts.gpu.faults:
        return []
    return warning(
        "gpu-faults",
        f"the driver has reported errors of the GPU itself since the boot ({len(facts.gpu.faults)})",
        *facts.gpu.faults[-3:],
        repair=("gpuq gpu", "sudo dmesg | grep NVRM"),
    )


def _node(facts: HostFacts) -> str:
    return facts.node.name if facts.node is not None else facts.hostname


def _autodetect(facts: HostFacts) -> list[Check]:
    wants = any("nvml" in entry.fields.get("autodetect", "").lower() for entry in facts.gres_conf.entries)
    if not wants or facts.plugins is None or any(name.startswith("gpu_nvml") for name in facts.plugins):
        return []
    node = facts.node_entry.fields["nodename"] if facts.node_entry else facts.hostname
    devices = [name for name in facts.gpu.devices if re.fullmatch(r"/dev/nvidia\d+", name)]
    lines = tuple(f"NodeName={node} Name=gpu File={name}" for name in devices or ["/dev/nvidia0"])
    return failure(
        "autodetect-nvml",
        "gres.conf says AutoDetect=nvml, and this build of Slurm has no NVML in it, so it finds no GPU",
        f"gpu_nvml.so is not in {facts.setting('PluginDir') or 'the plugin directory'}",
        repair=(
            f"in {facts.gres_conf.path}, instead of AutoDetect=nvml: {lines[0]}",
            *lines[1:],
            facts.restart("slurmd"),
        ),
    )


RULES = (_lost, _device, _autodetect, _mismatch, _faults)
