"""Runs in: a child process, by its path. Asks NVML for everything the checks need and prints it as JSON, in the form
of `nvml.Snapshot`.

A driver in trouble can block any of these calls for minutes or for good (NVIDIA/DCGM#313, NVIDIA/NVSentinel#1576),
so each call is named on stderr before it is made: the last line tells where the probe is stuck.

Every launch waits for this, so it imports nothing of safelaunch: the dataclasses alone would double its time.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_NOT_FOUND = 12  # nvmlReturn_t


class Calls:
    """Makes calls of pynvml one by one and says before each which it is."""

    def __init__(self) -> None:
        self._current = ""

    def __call__(self, function: Any, *arguments: Any, gpu: int | None = None) -> Any:
        self._current = function.__name__ + ("" if gpu is None else f" of GPU {gpu}")
        print(self._current, file=sys.stderr, flush=True)
        return function(*arguments)

    def failure(self, error: Any) -> dict[str, Any]:
        """The NVMLError of the latest call."""
        return {"call": self._current, "code": error.value, "text": str(error)}


def snapshot() -> dict[str, Any]:
    """Everything that NVML tells, with the failed calls in their places."""
    try:
        # Looking for the library first saves the import of pynvml on the machines that have none.
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"failure": {"call": "dlopen", "code": LIBRARY_NOT_FOUND, "text": str(error)}}
    import pynvml

    call = Calls()
    try:
        call(pynvml.nvmlInit)
        driver = call(pynvml.nvmlSystemGetDriverVersion)
        count = call(pynvml.nvmlDeviceGetCount)
    except pynvml.NVMLError as error:
        return {"failure": call.failure(error)}
    return {"driver": driver, "gpus": [_gpu(pynvml, call, index) for index in range(count)]}


def _gpu(pynvml: Any, call: Calls, index: int) -> dict[str, Any]:
    known: dict[str, Any] = {"index": index}
    try:
        handle = call(pynvml.nvmlDeviceGetHandleByIndex, index, gpu=index)
        known["uuid"] = call(pynvml.nvmlDeviceGetUUID, handle, gpu=index)
        known["name"] = call(pynvml.nvmlDeviceGetName, handle, gpu=index)
        memory = call(pynvml.nvmlDeviceGetMemoryInfo, handle, gpu=index)
        known["memory_total"], known["memory_used"] = memory.total, memory.used
        known["mig"] = _mig(pynvml, call, handle, index)
        running = call(pynvml.nvmlDeviceGetComputeRunningProcesses, handle, gpu=index)
        known["processes"] = [{"pid": process.pid, "memory": process.usedGpuMemory} for process in running]
    except pynvml.NVMLError as error:
        known["failure"] = call.failure(error)
    return known


def _mig(pynvml: Any, call: Calls, handle: Any, index: int) -> bool:
    try:
        current, _pending = call(pynvml.nvmlDeviceGetMigMode, handle, gpu=index)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False  # GPUs before the A100, and drivers before 450
    return bool(current)


if __name__ == "__main__":
    json.dump(snapshot(), sys.stdout)
