"""NVML, through nvidia-ml-py: the only module that imports pynvml, and only when a GPU is asked about.

A value that this GPU or driver does not have is None; that NVML as a whole, or one GPU, does not answer is a state of
the answer (`gpuq.core.gpu.readings.Trouble`), not an exception.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `glance` does without: what it is asked for begins with every job
    from gpuq.core.gpu.readings import GpuProcess, GpuState, Reading, Trouble

_NONE32 = 0xFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE of an unsigned int: no such value, no such instance."""
_NONE64 = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE of an unsigned long long."""

_TRIES = 3
"""The list of processes may have grown between the question for its length and the question for it."""


class Glance:
    """What `glance` saw. trouble: a value of gpuq.core.gpu.readings.Trouble; empty: the driver answers. Sizes in bytes."""

    def __init__(self) -> None:
        self.trouble = ""
        self.detail = ""
        self.driver: str | None = None
        self.gpus: list[tuple[str | None, int | None, int | None, list[tuple[int, int | None]]]] = []
        """(name, number in /dev/nvidiaN, free memory, (process, memory) of each that computes)."""


def glance() -> Glance:
    """Name, free memory and processes of every GPU that answers, at the least cost."""
    found = Glance()
    try:
        import pynvml
    except ImportError:
        found.trouble = "no-binding"
        return found
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
        found.driver = _text(_value(nvml, nvml.nvmlSystemGetDriverVersion))
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        found.trouble, found.detail = _trouble_word(nvml, error), str(error)
        return found
    if not count:
        found.trouble = "no-device"
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = _memory(nvml, handle)
            computing = _listed(nvml, handle, "Compute") or []
        except nvml.NVMLError as error:
            found.trouble, found.detail = _trouble_word(nvml, error), str(error)
            continue
        name = _text(_value(nvml, nvml.nvmlDeviceGetName, handle))
        minor = _number(_value(nvml, nvml.nvmlDeviceGetMinorNumber, handle))
        free = None if memory is None else _number(memory.free, _NONE64)
        found.gpus.append((name, minor, free, [(one.pid, _number(one.usedGpuMemory, _NONE64)) for one in computing]))
    if found.gpus:
        found.trouble = found.detail = ""
    return found


def read() -> Reading:
    """Everything that NVML tells of every GPU, now."""
    from gpuq.core.gpu.readings import Reading, Trouble

    try:
        import pynvml
    except ImportError:
        return Reading(trouble=Trouble.NO_BINDING)
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Reading(trouble=_trouble(nvml, error), detail=str(error))
    try:
        return _read(nvml)
    finally:
        _value(nvml, nvml.nvmlShutdown)


class Meter:
    """Memory in use and utilisation of the one GPU of a host, asked again and again at little cost."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handle: Any = None

    def open(self) -> bool:
        """True when there is exactly one GPU that answers; whose another one is could not be told."""
        try:
            import pynvml
        except ImportError:
            return False
        nvml: Any = pynvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return False
        try:
            if nvml.nvmlDeviceGetCount() == 1:
                self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByIndex(0)
                return True
        except nvml.NVMLError:
            pass
        _value(nvml, nvml.nvmlShutdown)
        return False

    def read(self) -> tuple[int | None, int | None]:
        """(bytes in use, percent); None: not told. A GPU that is lost tells nothing any more."""
        if self._nvml is None:
            return None, None
        try:
            memory = _memory(self._nvml, self._handle)
            rates = _value(self._nvml, self._nvml.nvmlDeviceGetUtilizationRates, self._handle)
        except self._nvml.NVMLError:
            self.close()
            return None, None
        used = None if memory is None else _number(memory.used, _NONE64)
        return used, None if rates is None else _number(rates.gpu)

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            _value(self._nvml, self._nvml.nvmlShutdown)
            self._nvml = self._handle = None


def _read(nvml: Any) -> Reading:
    from gpuq.core.gpu.readings import Reading, Trouble

    driver = _text(_value(nvml, nvml.nvmlSystemGetDriverVersion))
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return Reading(trouble=_trouble(nvml, error), detail=str(error), driver=driver)
    if not count:
        return Reading(trouble=Trouble.NO_DEVICE, driver=driver)
    return Reading(driver=driver, gpus=tuple(_gpu(nvml, index) for index in range(count)))


def _gpu(nvml: Any, index: int) -> GpuState:
    from gpuq.core.gpu.readings import GpuState

    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        # With a GPU that has just been lost the handle can still be had, and then every question fails alike.
        memory = _memory(nvml, handle)
        processes = _processes(nvml, handle)
    except nvml.NVMLError as error:
        return GpuState(index=index, trouble=_trouble(nvml, error), detail=str(error))
    rates = _value(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _number(_value(nvml, nvml.nvmlDeviceGetPowerUsage, handle))
    mig = _value(nvml, nvml.nvmlDeviceGetMigMode, handle)
    return GpuState(
        index=index,
        name=_text(_value(nvml, nvml.nvmlDeviceGetName, handle)),
        uuid=_text(_value(nvml, nvml.nvmlDeviceGetUUID, handle)),
        minor=_number(_value(nvml, nvml.nvmlDeviceGetMinorNumber, handle)),
        memory_total=None if memory is None else _number(memory.total, _NONE64),
        memory_used=None if memory is None else _number(memory.used, _NONE64),
        memory_free=None if memory is None else _number(memory.free, _NONE64),
        utilization=None if rates is None else _number(rates.gpu),
        temperature=_number(_value(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
        power=None if milliwatts is None else milliwatts / 1000,
        mig=None if mig is None else mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        processes=processes,
    )


def _memory(nvml: Any, handle: Any) -> Any:
    """Version 2 counts what the driver keeps for itself apart from what is used; older drivers have version 1 only."""
    found = _value(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    return found if found is not None else _value(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...] | None:
    """Computing and drawing processes, each once; None where the driver does not tell of the computing ones."""
    from gpuq.core.gpu.readings import GpuProcess

    computing = _listed(nvml, handle, "Compute")
    if computing is None:
        return None
    drawing = _listed(nvml, handle, "Graphics") or []
    draw = {one.pid for one in drawing}
    found: dict[tuple[int, int | None], GpuProcess] = {}
    for one in [*computing, *drawing]:
        key = (one.pid, _number(one.gpuInstanceId))
        # Both lists give what the process has in all, so a process that is in both is not counted twice.
        if key not in found or found[key].memory is None:
            found[key] = GpuProcess(one.pid, _number(one.usedGpuMemory, _NONE64), one.pid in draw, key[1])
    return tuple(sorted(found.values(), key=lambda one: one.pid))


def _listed(nvml: Any, handle: Any, kind: str) -> list[Any] | None:
    """_v3 is of driver 510, _v2 of 450; what came before has another layout, and no binding any more."""
    for version in ("_v3", "_v2"):
        ask = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
        if ask is None:
            continue
        for attempt in range(_TRIES):
            try:
                return list(ask(handle))
            except nvml.NVMLError_FunctionNotFound:
                break
            except nvml.NVMLError_InsufficientSize:
                if attempt == _TRIES - 1:
                    return None
            except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired):
                raise
            except nvml.NVMLError:
                return None
    return None


def _value(nvml: Any, ask: Callable[..., Any], *args: Any) -> Any:
    """An answer, or None where there is none. Raises only for a GPU that is lost: then no answer is worth having."""
    try:
        return ask(*args)
    except nvml.NVMLError as error:
        if args and _trouble_word(nvml, error) == "lost":
            raise
        return None


def _trouble(nvml: Any, error: Any) -> Trouble:
    from gpuq.core.gpu.readings import Trouble

    return Trouble(_trouble_word(nvml, error))


def _trouble_word(nvml: Any, error: Any) -> str:
    """A value of gpuq.core.gpu.readings.Trouble."""
    return {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no-library",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "no-driver",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
        nvml.NVML_ERROR_GPU_IS_LOST: "lost",
        nvml.NVML_ERROR_RESET_REQUIRED: "lost",
        nvml.NVML_ERROR_NO_PERMISSION: "no-permission",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "lacking",
        nvml.NVML_ERROR_NOT_FOUND: "no-device",
    }.get(error.value, "other")


def _number(value: Any, absent: int = _NONE32) -> int | None:
    return None if value is None or int(value) == absent else int(value)


def _text(value: Any) -> str | None:
    """str, or bytes in some releases of the binding."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def device_files(dev_root: Path = Path("/dev")) -> list[str]:
    """/dev/nvidia0 and its like (not the control device), for a host whose driver does not answer."""
    try:
        names = os.listdir(dev_root)
    except OSError:
        return []
    return [str(dev_root / name) for name in sorted(names) if re.fullmatch(r"nvidia\d+", name)]


def module_version(proc_root: Path = Path("/proc")) -> str | None:
    """The version of the kernel module that is loaded; None: none is."""
    try:
        text = (proc_root / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return match[1] if match else None
