"""local.json: what the embedded Slurm must remember between `up`s; and the lock that serialises them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gpuq.adapters import files
from gpuq.adapters.embedded.layout import Layout
from gpuq.errors import HostError

FORMAT = 1

DEFAULT_KILL_WAIT = 5
"""Seconds between SIGTERM and SIGKILL of a job: short, because `down` waits for it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose. None: gpuq's default. `memory` is in MiB, `kill_wait` in seconds.

    `max_time` and `default_time` are Slurm time strings. `cpus` and `memory` above what the host has are
    allowed (Slurm is told to believe them; cores are not bound then). `grace`: seconds that a job in `bg` gets to save.
    gate: job_submit.lua refuses what asks for anything but one GPU in a GPU partition. `extra` lines go to the end of
    slurm.conf.
    """

    max_time: str | None = None
    default_time: str | None = None
    cpus: int | None = None
    memory: int | None = None
    kill_wait: int | None = None
    simulate_gpu: bool | None = None
    confine: bool | None = None
    gate: bool | None = None
    grace: int | None = None
    extra: tuple[str, ...] | None = None

    def over(self, older: Options) -> Options:
        """These options, and where one is None, that of `older`."""
        names = Options.__struct_fields__
        mine = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return msgspec.structs.replace(older, **mine)


class LocalState(msgspec.Struct, kw_only=True):
    """The content of local.json. `node` names the node, the cluster and, in the kernel, the cgroups."""

    version: int = FORMAT
    node: str
    slurmctld_port: int = 0
    slurmd_port: int = 0
    options: Options = Options()
    gpu_real: bool = False
    gpu_file: str = ""
    confined: bool = False
    missing: tuple[str, ...] = ()
    slurm_version: str = ""
    watch: bool = False
    """`up` also starts a watcher."""


def node_name(directory: Path) -> str:
    """A node name that belongs to `directory` alone: letters only, because digits mean ranges to Slurm."""
    digest = hashlib.sha256(os.fsencode(directory)).digest()
    return "gpuq" + "".join(chr(ord("a") + byte % 26) for byte in digest[:6])


def load(layout: Layout) -> LocalState | None:
    """The saved state; None when there is none. Raises HostError when it cannot be read."""
    try:
        raw = layout.state_file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        state = msgspec.json.decode(raw, type=LocalState)
    except msgspec.MsgspecError as error:
        raise HostError(
            f"{layout.state_file} cannot be read ({error})",
            hint=f"move it away, then: gpuq local up --dir {layout.dir}",
        ) from None
    if state.version > FORMAT:
        raise HostError(
            f"{layout.state_file} has format {state.version}; this gpuq knows up to {FORMAT}",
            hint="use the newer gpuq that wrote it",
        )
    return state


def save(layout: Layout, state: LocalState) -> None:
    """Write local.json. Raises OSError."""
    files.write_atomic(layout.state_file, msgspec.json.format(msgspec.json.encode(state)) + b"\n")


@contextlib.contextmanager
def locked(layout: Layout, say: Callable[[str], None], *, patience: float = 120.0) -> Iterator[None]:
    """Hold the directory's lock (flock(2): released by the kernel when its holder dies).

    patience: seconds to wait for another `up` or `down`. Raises HostError after it.
    """
    with layout.lock.open("w") as handle:
        deadline = time.monotonic() + patience
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HostError(
                        f"another gpuq has been changing {layout.dir} for more than {patience:g} s",
                        hint=f"gpuq local status --dir {layout.dir}",
                    ) from None
                if not told:
                    say(f"another gpuq is changing {layout.dir}; waiting for it")
                    told = True
                time.sleep(0.05)
        yield
