"""What the NVIDIA driver wrote to the kernel log: Xid errors, a GPU that fell off the bus, a version mismatch.

Numbers and causes: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

import msgspec


class KernelLine(msgspec.Struct, frozen=True):
    """A line of the kernel log. at: None where the log has no time."""

    at: datetime.datetime | None
    text: str


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """One error that the driver reported."""

    at: datetime.datetime | None
    code: int | None
    """None for what the driver says without a number: of the bus, and that it could not begin."""
    pci: str
    """As the driver writes it: 0000:01:00; empty: it does not say."""
    pid: int | None
    grave: bool
    """True where the GPU, and not the program that ran on it, is at fault: it needs a reset, a reboot or a repair."""
    meaning: str
    text: str


class Mismatch(msgspec.Struct, frozen=True):
    """The versions of the user's library and of the kernel module, as the module refused it."""

    library: str
    module: str


_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, (?P<rest>.*))?")
_PID = re.compile(r"\bpid='?(\d+)")
_GPU = re.compile(r"NVRM: (?:The )?(?:NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]+:[0-9a-fA-F:.]*[0-9a-fA-F])")
_BUS = re.compile(r"NVRM:.*fallen off the bus")
_INIT = re.compile(r"NVRM:.*RmInitAdapter failed!")
_MISMATCH = re.compile(
    r"NVRM: API mismatch: .*?has the version (?P<library>[0-9.]*\d)"
    r".*?this kernel module has.*?the version (?P<module>[0-9.]*\d)"
)
_BROKEN_OVER = 4
"""Lines over which the driver breaks one sentence; the kernel makes records of them, or one with `\\x0a` in it."""

_PROGRAM = {
    8: "the GPU stopped working on this program's kernel (too long a kernel on a GPU with a display)",
    13: "an illegal instruction, address or argument in the program's kernel (seldom the hardware)",
    31: "an illegal memory access by the program's kernel (seldom the hardware)",
    43: "the program's kernel was stopped after its own error; the GPU is well",
    45: "what a program had on the GPU was cleared away: it was killed, or failed with an error before",
    68: "the video decoder raised an error",
    69: "the program's kernel raised a graphics engine error",
    94: "an uncorrectable memory error, contained to the program that met it",
}
_GRAVE = {
    32: "the GPU received corrupted commands: bus, driver or hardware",
    38: "the driver's firmware raised an error",
    46: "the GPU stopped working: reset it, or reboot",
    48: "an uncorrectable (double bit) memory error: the GPU must be reset",
    61: "the GPU's own microcontroller stopped",
    62: "the GPU's own microcontroller halted: reboot",
    63: "memory is being taken out of use after errors; it takes effect at the next reset",
    64: "memory with errors could not be taken out of use: replace the GPU",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus: power supply, cable, riser, heat, or the GPU itself; switch off and on again",
    92: "many single bit memory errors",
    95: "an uncorrectable memory error, not contained: the GPU must be reset",
    109: "the GPU did not switch between programs in time",
    110: "a security fault: reboot",
    119: "the driver's processor on the GPU (GSP) does not answer: reboot",
    120: "the driver's processor on the GPU (GSP) failed: reboot",
    140: "an uncorrectable memory error: the GPU must be reset",
    143: "the GPU could not be initialised: reboot",
    **dict.fromkeys(range(144, 151), "an NVLink error"),
    154: "the driver asks for a reset or a reboot",
    155: "an NVLink error",
    157: "memory with errors could not be taken out of use: replace the GPU",
    158: "the GPU did not answer in time: reset it, or reboot",
}


def errors(lines: Iterable[KernelLine]) -> list[Xid]:
    """Every error in the kernel log, the oldest first."""
    found = []
    named = ""  # the GPU that the driver named last; it may say in another line what is wrong with it
    for line in lines:
        if "NVRM" not in line.text:
            continue
        if match := _GPU.search(line.text):
            named = match["pci"]
        if match := _XID.search(line.text):
            code = int(match["code"])
            pid = _PID.search(match["rest"] or "")
            found.append(
                Xid(
                    at=line.at,
                    code=code,
                    pci=match["pci"],
                    pid=int(pid[1]) if pid else None,
                    grave=code in _GRAVE,
                    meaning=_GRAVE.get(code) or _PROGRAM.get(code) or "no error that gpuq knows",
                    text=line.text.strip(),
                )
            )
        elif _BUS.search(line.text) or _INIT.search(line.text):
            meaning = _GRAVE[79] if _BUS.search(line.text) else _GRAVE[143]
            text = line.text.strip()
            found.append(Xid(at=line.at, code=None, pci=named, pid=None, grave=True, meaning=meaning, text=text))
    return found


def mismatch(lines: Iterable[KernelLine]) -> Mismatch | None:
    """The last refusal of a library for its version."""
    found: Mismatch | None = None
    said: list[str] = []
    for line in lines:
        if "NVRM: API mismatch" in line.text:
            said = []
        elif not said or "NVRM:" not in line.text:
            continue
        said.append(line.text)
        if match := _MISMATCH.search(" ".join(said)):
            found, said = Mismatch(match["library"], match["module"]), []
        elif len(said) == _BROKEN_OVER:
            said = []
    return found


def read_kmsg(record: str, boot: datetime.datetime | None) -> KernelLine | None:
    """A record of /dev/kmsg (`6,1234,5678901,-;text`); None for a line that goes on with the one before.

    Linux, Documentation/ABI/testing/dev-kmsg: microseconds since boot.
    """
    head, semicolon, text = record.partition(";")
    fields = head.split(",")
    if not semicolon or record.startswith(" ") or len(fields) < 3 or not fields[2].isdigit():
        return None
    return KernelLine(None if boot is None else boot + datetime.timedelta(microseconds=int(fields[2])), text)


def read_dmesg(line: str, boot: datetime.datetime | None) -> KernelLine:
    """A line of dmesg(1), with its time in seconds since boot where it has one (`[ 12.345678] text`)."""
    match = re.match(r"(?:<\d+>)?\[\s*(\d+\.\d+)\] ?(.*)", line)
    if match is None:
        return KernelLine(None, line)
    return KernelLine(None if boot is None else boot + datetime.timedelta(seconds=float(match[1])), match[2])
