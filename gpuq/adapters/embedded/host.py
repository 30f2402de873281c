"""What the host offers the embedded Slurm: programs, processors, memory, the GPU's device file, ports."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import shutil
import socket
import stat
from collections.abc import Collection
from pathlib import Path

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.embedded.layout import Layout
from gpuq.core.host.spec import CpuLayout
from gpuq.errors import HostError

SYSTEM_DIRS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where daemons live; a plain user's PATH often lacks these."""

NVIDIA_MAJOR = 195
"""Character device major of NVIDIA GPUs (Linux, Documentation/admin-guide/devices.txt)."""

PORTS = range(20000, 32768)
"""Below Linux's default ephemeral range, so that no outgoing connection takes a port between two starts."""


class Programs(msgspec.Struct, frozen=True):
    """Absolute paths of the programs that the embedded Slurm needs."""

    munged: str
    slurmctld: str
    slurmd: str
    scontrol: str
    squeue: str
    scancel: str


class Hardware(msgspec.Struct, frozen=True):
    """What `slurmd -C` and `slurmd -V` say. memory is in MiB."""

    version: tuple[int, int]
    version_text: str
    cpus: CpuLayout
    memory: int


class Gpu(msgspec.Struct, frozen=True):
    """The device file that stands for the GPU. `isolated`: closing it to a job harms nothing else."""

    file: Path
    real: bool
    isolated: bool


def find_programs() -> Programs:
    """Find the installed daemons and clients. Raises HostError that names the packages."""
    path = os.environ.get("PATH", os.defpath) + ":" + SYSTEM_DIRS
    found = {name: shutil.which(name, path=path) for name in Programs.__struct_fields__}
    missing = [name for name, where in found.items() if where is None]
    if missing:
        raise HostError(
            f"not installed: {', '.join(missing)} (looked in {path.replace(':', ', ')})",
            hint="apt-get install slurm-wlm munge",
        )
    return msgspec.convert(found, Programs)


def hardware(programs: Programs) -> Hardware:
    """Ask slurmd what it sees. Raises HostError when its answer has no NodeName line."""
    version = proc.run([programs.slurmd, "-V"], timeout=20)
    numbers = re.search(r"(\d+)\.(\d+)\.(\S+)", version.stdout)
    seen = proc.run([programs.slurmd, "-C"], timeout=30)
    # GPU libraries print noise beside it ("Exception caught: rsmi_init.").
    line = next((text for text in seen.stdout.splitlines() if text.startswith("NodeName=")), "")
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    try:
        if numbers is None:
            raise KeyError("version")
        return Hardware(
            version=(int(numbers[1]), int(numbers[2])),
            version_text=numbers[0],
            cpus=CpuLayout(
                cpus=int(words["CPUs"]),
                boards=int(words.get("Boards", 1)),
                sockets_per_board=int(words.get("SocketsPerBoard", 1)),
                cores_per_socket=int(words["CoresPerSocket"]),
                threads_per_core=int(words["ThreadsPerCore"]),
            ),
            memory=int(words["RealMemory"]),
        )
    except (KeyError, ValueError) as error:
        raise HostError(
            f"slurmd does not say what this host has ({error}): {(seen.stderr or seen.stdout).strip()[:300]}",
            hint="slurmd -C",
        ) from None


def gpu(layout: Layout, *, simulate: bool | None, dev_root: Path = Path("/dev")) -> Gpu:
    """The GPU's device file: the real one where it exists, else a simulated one.

    simulate: True never uses the real one. As root the simulated one is a node of NVIDIA's major number in the
    private directory, which opens with ENXIO when allowed and EPERM when the device cgroup denies it. Where
    mknod(2) is not permitted, /dev/null stands in (Slurm 22.05 gives CUDA_VISIBLE_DEVICES for a character
    device only, not for a regular file).
    """
    real = dev_root / "nvidia0"
    if not simulate and _is_char_device(real):
        return Gpu(real, real=True, isolated=True)
    if _is_char_device(layout.device):
        return Gpu(layout.device, real=False, isolated=True)
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            layout.device.unlink(missing_ok=True)
            os.mknod(layout.device, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, 0))
            layout.device.chmod(0o666)  # the umask does not decide here
            return Gpu(layout.device, real=False, isolated=True)
    return Gpu(dev_root / "null", real=False, isolated=False)


def has_swap(meminfo: Path = Path("/proc/meminfo")) -> bool:
    """True when the host has swap space."""
    with contextlib.suppress(OSError):
        match = re.search(r"^SwapTotal:\s+(\d+)", meminfo.read_text(), re.MULTILINE)
        return match is not None and int(match[1]) > 0
    return False


def has_ipv6() -> bool:
    """True when the loopback address ::1 can be bound."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def hostname() -> str:
    """The short host name, as slurmctld compares it with SlurmctldHost."""
    return socket.gethostname().split(".", 1)[0]


def port_is_free(port: int) -> bool:
    """True when a daemon could listen on `port` on all addresses, IPv4 and IPv6."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Slurm does: TIME_WAIT is no obstacle
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue  # no IPv6 here
            return False
    return True


def port_listens(port: int, proc_root: Path = Path("/proc")) -> bool:
    """True when a socket of this host listens on `port` (state 0A in /proc/net/tcp and tcp6).

    Connecting would tell as well, but leaves an error in the daemon's log each time.
    """
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc_root / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False


def choose_ports(kept: tuple[int, int], *, avoid: Collection[int] = ()) -> tuple[int, int]:
    """Ports for slurmctld and slurmd: the `kept` ones while they are free, else random free ones.

    Raises HostError when no free port is found.
    """
    first, second = kept
    if first and second and not {first, second} & set(avoid) and port_is_free(first) and port_is_free(second):
        return kept
    chosen: list[int] = []
    for port in random.sample(PORTS, 500):
        if port not in avoid and port_is_free(port):
            chosen.append(port)
            if len(chosen) == 2:
                return chosen[0], chosen[1]
    raise HostError(f"no two free ports between {PORTS.start} and {PORTS.stop - 1}", hint="ss -ltn shows who listens")


def _is_char_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
