"""Errors of the NVIDIA driver in the kernel log."""

from __future__ import annotations

import pytest

from gpuq.core.gpu.xid import KernelLine, errors, mismatch, read_dmesg, read_kmsg


def lines(*texts: str) -> list[KernelLine]:
    return [KernelLine(None, text) for text in texts]


@pytest.mark.parametrize(
    ("text", "code", "pci", "pid", "grave"),
    [
        (
            "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            79, "0000:01:00", None, True,
        ),
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", 79, "0000:01:00", None, True),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", None, "0000:01:00.0", None, True),
        ("NVRM: GPU at PCI:0000:01:00 has fallen off the bus.", None, "0000:01:00", None, True),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS",
            31, "0000:01:00", 4711, False,
        ),
        ("NVRM: Xid (PCI:0000:01:00): 13, pid='4711', name=python, Graphics Exception: x", 13, "0000:01:00", 4711, False),
        ("NVRM: Xid (0000:03:00): 48, Double Bit ECC", 48, "0000:03:00", None, True),
        (
            "NVRM: The NVIDIA GPU 0000:05:00.0 installed in this system has fallen off the bus and is not responding.",
            None, "0000:05:00.0", None, True,
        ),
        (
            r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0aNVRM: "
            r"fallen off the bus and is not responding to commands.",
            None, "0000:b3:00.0", None, True,
        ),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)", None, "0000:01:00.0", None, True),
        ("NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08", 149, "0000:dc:00", None, True),
        ("NVRM: Xid (PCI:0000:01:00): 999, something new", 999, "0000:01:00", None, False),
    ],
)  # fmt: skip
def test_errors(text: str, code: int | None, pci: str, pid: int | None, grave: bool) -> None:
    (one,) = errors(lines("usb 1-1: new device", text))
    assert (one.code, one.pci, one.pid, one.grave) == (code, pci, pid, grave)
    assert one.meaning
    assert one.text == text


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.171.04",
        "NVRM: GPU at PCI:0000:01:00: GPU-5e1f9a70-8a3c-4b2d-9c1e-0f6d2b7a9c31",
        "python: Xid (PCI:0000:01:00): 79 is what I print",
        "",
    ],
)
def test_what_is_no_error(text: str) -> None:
    assert errors(lines(text)) == []


def test_a_gpu_that_fell_off_the_bus_told_over_three_lines() -> None:
    (one,) = errors(
        lines(
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "               NVRM: fallen off the bus and is not responding to commands.",
        )
    )
    assert (one.pci, one.grave, one.code) == ("0000:b3:00.0", True, None)


@pytest.mark.parametrize(
    "texts",
    [
        (
            "NVRM: API mismatch: the client has the version 535.183.01, but",
            "NVRM: this kernel module has the version 535.171.04.  Please",
            "NVRM: make sure that this kernel module and all NVIDIA driver",
        ),
        (
            "NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)",
            "NVRM: has the version 535.183.01, but this kernel module has",
            "usb 1-1: new device",
            "NVRM: the version 535.171.04.  Please make sure that this",
        ),
        (
            r"NVRM: API mismatch: the client 'python' (pid 4)\x0aNVRM: has the version 535.183.01, but this kernel module "
            r"has\x0aNVRM: the version 535.171.04.  Please make sure that this",
        ),
    ],
)
def test_a_version_mismatch_however_it_is_broken_over_lines(texts: tuple[str, ...]) -> None:
    assert mismatch(lines("NVRM: x")) is None
    found = mismatch(lines(*texts))
    assert found is not None
    assert (found.library, found.module) == ("535.183.01", "535.171.04")


def test_records_of_the_kernel() -> None:
    assert read_kmsg(" SUBSYSTEM=pci", None) is None
    assert read_kmsg("", None) is None
    assert read_kmsg("no record", None) is None
    assert read_kmsg("6,1,5,-,caller=T1;a;b", None) == KernelLine(None, "a;b")
    assert read_dmesg("[12.5] x", None) == KernelLine(None, "x")
    assert read_dmesg("<6>[   12.500000] x", None) == KernelLine(None, "x")
