"""gres.conf and cgroup.conf of a one-host Slurm, rendered from a `HostSpec`. Pure."""

from __future__ import annotations

from gpuq.core.host.spec import CGROUP_KEYWORDS, KEPT, HostSpec


def gres_conf(spec: HostSpec) -> str:
    """The text of gres.conf. Device files by name, not AutoDetect=nvml: distributions build Slurm without that plugin."""
    if not spec.gpus:
        return "# This host has no GPU.\n"
    lines = ["# Written by gpuq. The device cgroup opens this file to a job with --gres=gpu:1 and closes it to others."]
    for gpu in spec.gpus:
        kind = f" Type={gpu.kind}" if gpu.kind else ""
        lines.append(f"NodeName={spec.node} Name=gpu{kind} File={gpu.file}")
    if spec.kept:
        lines += [
            "# Not for jobs (the desktop's, say). Without a line here it would be open to every job, and",
            "# CUDA_VISIBLE_DEVICES=0 might mean this GPU. It is no network card: Slurm closes the files of this",
            "# GRES, too, and nothing counts it as a GPU. job_submit.lua refuses who asks for it.",
            *(f"NodeName={spec.node} Name={KEPT} File={file}" for file in spec.kept),
        ]
    return "\n".join(lines) + "\n"


def cgroup_conf(spec: HostSpec) -> str:
    """The text of cgroup.conf. Only keywords that `spec.version` knows: an unknown one is fatal to slurmd."""
    held = spec.confinement
    lines = ["# Written by gpuq."]
    if not held.any:
        lines.append("# No confinement: without root (or without writable cgroups) Slurm counts but does not enforce.")
        # slurmd loads the plugin even when nothing is constrained, and v2's wants to make a scope. Where the plugin
        # cannot be switched off, v1's does nothing until it is used.
        lines.append(f"CgroupPlugin={'disabled' if spec.version >= CGROUP_KEYWORDS else 'cgroup/v1'}")
        return "\n".join(lines) + "\n"
    lines.append("CgroupPlugin=autodetect")
    if held.ignore_systemd:
        lines += ["# slurmd is not a systemd unit here: make the scope directly, without asking dbus.",
                  "IgnoreSystemd=yes"]  # fmt: skip
        if spec.version >= CGROUP_KEYWORDS:
            lines += ["# Nobody else enables the controllers for us then.", "EnableControllers=yes"]
    lines += [
        "# A job has the cores, the memory and the devices that it asked for, and no others.",
        f"ConstrainCores={_yes(held.cores)}",
        f"ConstrainRAMSpace={_yes(held.ram)}",
        f"ConstrainDevices={_yes(held.devices)}",
    ]
    if held.swap:
        lines += [
            "# Without these a job grows into swap beyond its --mem and is never stopped.",
            "ConstrainSwapSpace=yes",
            "AllowedSwapSpace=0",
        ]
    return "\n".join(lines) + "\n"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
