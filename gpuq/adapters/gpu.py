"""NVML, through nvidia-ml-py: the only module that imports pynvml, and only when a GPU is asked about.

A value that this GPU or driver does not have is None; that NVML as a whole, or one GPU, does not answer is a state of
the answer (`gpuq.core.gpu.Trouble`), not an exception.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuq.core.gpu import GpuProcess, GpuState, Reading, Trouble

_NONE32 = 0xFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE of an unsigned int: no such value, no such instance."""
_NONE64 = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE of an unsigned long long."""

_TRIES = 3
"""The list of processes may have grown between the question for its length and the question for it."""


def read() -> Reading:
    """Everything that NVML tells of every GPU, now."""
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


def _read(nvml: Any) -> Reading:
    driver = _text(_value(nvml, nvml.nvmlSystemGetDriverVersion))
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return Reading(trouble=_trouble(nvml, error), detail=str(error), driver=driver)
    if not count:
        return Reading(trouble=Trouble.NO_DEVICE, driver=driver)
    return Reading(driver=driver, gpus=tuple(_gpu(nvml, index) for index in range(count)))


def _gpu(nvml: Any, index: int) -> GpuState:
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
        if args and _trouble(nvml, error) is Trouble.LOST:
            raise
        return None


def _trouble(nvml: Any, error: Any) -> Trouble:
    return {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Trouble.NO_LIBRARY,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: Trouble.NO_DRIVER,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Trouble.MISMATCH,
        nvml.NVML_ERROR_GPU_IS_LOST: Trouble.LOST,
        nvml.NVML_ERROR_RESET_REQUIRED: Trouble.LOST,
        nvml.NVML_ERROR_NO_PERMISSION: Trouble.NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Trouble.LACKING,
        nvml.NVML_ERROR_NOT_FOUND: Trouble.NO_DEVICE,
    }.get(error.value, Trouble.OTHER)


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
