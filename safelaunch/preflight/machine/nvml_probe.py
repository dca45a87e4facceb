"""Runs in: a child process, by its path. Asks NVML for everything the checks need and prints it as lines of JSON, in
the form of `nvml.Snapshot`: first the driver and who the GPUs are, then the readings of each, then each pair of GPUs.
What was read before a call that does not return is not lost.

With the argument `moment` it asks what the GPUs do just now, and who uses them, for an incident of a run: few readings,
of all GPUs at once, so that one that does not answer takes nothing from the others.

A driver in trouble can block any of these calls for minutes or for good (NVIDIA/DCGM#313, NVIDIA/NVSentinel#1576),
so each call is named on stderr before it is made: the last line tells where the probe is stuck.

Every launch waits for this, so it imports nothing of safelaunch: the dataclasses alone would double its time.
Numbers are those of nvml.h: a user's older pynvml need not have a name for them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

# nvmlReturn_t
INVALID_ARGUMENT, NOT_SUPPORTED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 2, 3, 12, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 25

RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, since driver 570
UNCORRECTABLE, VOLATILE, AGGREGATE, SRAM = 1, 0, 1, 7  # kinds of ECC counters
SENSOR, SLOWDOWN = 0, 1  # the temperature of the chip, and the threshold at which its clocks are lowered
P2P_NVLINK = 2  # nvmlGpuP2PCapsIndex_t
LINK_KINDS = {0: "gpu", 1: "cpu", 2: "switch"}  # nvmlIntNvLinkDeviceType_t
# Clock event reasons that hold the clocks back: those of clock_reasons.REASONS. Power is drawn in jolts, and what shows
# once may be over in the next moment.
HELD_BACK = 0x40 | 0x80 | 0x20 | 0x08
BETWEEN_LOOKS_S = 0.3
BETWEEN_GLANCES_S = 0.1  # at an incident there is no time for more
SM_CLOCK = 1  # nvmlClockType_t
MOST_LINKS = 64  # ends the loop for a driver that never says that a link does not exist
WRITING = threading.Lock()


class Unanswered(Exception):
    """A call that this pynvml or this GPU does not answer; the GPU itself is there."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(text)
        self.call, self.code = call, code


class Calls:
    """Makes calls of pynvml one by one and says before each which it is."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.current = ""
        # What pynvml raises, in place of an NVMLError, for a driver that is older than the function that it calls.
        self._too_new: tuple[type[Exception], ...] = tuple(
            filter(None, [getattr(pynvml, "NVMLLibraryMismatchError", None)])
        )

    def __call__(self, function: str, *arguments: Any, about: str = "") -> Any:
        """The result of a call. Raises NVMLError for a GPU that is lost or wants a reset, and before there is a GPU
        to speak of, else Unanswered: for a function that is not there at all in any case."""
        self.current = f"{function} of {about}" if about else function
        found = getattr(self.pynvml, function, None)
        if found is None:
            raise Unanswered(self.current, FUNCTION_NOT_FOUND, "the installed nvidia-ml-py is too old")
        _write(sys.stderr, self.current)
        try:
            return found(*arguments)
        except self.pynvml.NVMLError as error:
            if not about or error.value in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            raise Unanswered(self.current, error.value, str(error)) from None
        except self._too_new:
            raise Unanswered(self.current, FUNCTION_NOT_FOUND, "the driver is too old for it") from None

    def failure(self, error: Any) -> dict[str, Any]:
        """The error of the latest call."""
        return {"call": self.current, "code": getattr(error, "value", None) or error.code, "text": str(error)}


def as_it_is(value: Any) -> Any:
    return value


class Readings:
    """The readings of one GPU, or of a pair, each a value or a reason why there is none."""

    def __init__(self, call: Calls, about: str, *handles: Any) -> None:
        self._call = call
        self._about = about
        self._handles = handles
        self.known: dict[str, Any] = {"unread": []}

    def ask(self, function: str, *arguments: Any) -> Any:
        return self._call(function, *self._handles, *arguments, about=self._about)

    def take(self, names: str, function: str, *arguments: Any, kind: Callable[[Any], Any] = as_it_is) -> bool:
        """Keep the result of a call under a name, or the parts of it under several; False where there is none."""
        return self.keep(names, lambda: self.ask(function, *arguments), kind)

    def keep(self, names: str, read: Callable[[], Any], kind: Callable[[Any], Any] = as_it_is) -> bool:
        fields = names.split()
        try:
            value = read()
        except Unanswered as error:
            for name in fields:
                self.miss(name, error)
            return False
        parts = [value] if len(fields) == 1 else value
        self.known.update(zip(fields, map(kind, parts), strict=True))
        self.known["unread"] = [entry for entry in self.known["unread"] if entry["reading"] not in fields]
        return True

    def miss(self, name: str, error: Unanswered) -> None:
        """Keep the reason why there is no such reading."""
        entry = {"reading": name, "call": error.call, "code": error.code, "text": str(error)}
        # Where a second function was tried, the reason of the first one is the better one.
        if not any(other["reading"] == name for other in self.known["unread"]):
            self.known["unread"].append(entry)


def main() -> None:
    try:
        # Looking for the library first saves the import of pynvml on the machines that have none.
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        _print({"failure": {"call": "dlopen", "code": LIBRARY_NOT_FOUND, "text": str(error)}, "complete": True})
        return
    import pynvml

    call = Calls(pynvml)
    try:
        call("nvmlInit")
        _print({"driver": _version(call)})
        count = call("nvmlDeviceGetCount")
    except (pynvml.NVMLError, Unanswered) as error:
        _print({"failure": call.failure(error), "complete": True})
        return
    if sys.argv[1:] == ["moment"]:
        _moment(pynvml, count)
        return
    handles: dict[int, Any] = {}
    gpus = []
    for index in range(count):
        gpus.append(_identity(call, index, handles))
        _print({"identity": gpus[-1]})
    for gpu in gpus:
        if "failure" not in gpu:
            _read(call, gpu, handles[gpu["index"]])
        _print({"gpu": gpu})
    alive = [gpu["index"] for gpu in gpus if "failure" not in gpu]
    for place, a in enumerate(alive):
        for b in alive[place + 1 :]:
            _print({"pair": _pair(call, a, b, handles[a], handles[b])})
    for gpu in _second_look(call, gpus, handles):
        _print({"gpu": gpu})
    _print({"complete": True})


def _print(line: dict[str, Any]) -> None:
    _write(sys.stdout, json.dumps(line))


def _write(stream: Any, line: str) -> None:
    with WRITING:
        stream.write(line + "\n")
        stream.flush()


def _version(call: Calls) -> str:
    """The version of the driver; empty where it does not tell, which is no reason not to use it."""
    try:
        return str(call("nvmlSystemGetDriverVersion"))
    except (call.pynvml.NVMLError, Unanswered):
        return ""


def _identity(call: Calls, index: int, handles: dict[int, Any]) -> dict[str, Any]:
    """Who a GPU is. It can be used without a name, but not without a handle."""
    about = f"GPU {index}"
    try:
        handles[index] = call("nvmlDeviceGetHandleByIndex", index, about=about)
    except (call.pynvml.NVMLError, Unanswered) as error:
        return {"index": index, "failure": call.failure(error)}
    readings = Readings(call, about, handles[index])
    try:
        readings.take("uuid", "nvmlDeviceGetUUID")
        readings.take("name", "nvmlDeviceGetName")
        readings.take("address", "nvmlDeviceGetPciInfo", kind=_address)
    except call.pynvml.NVMLError as error:
        readings.known["failure"] = call.failure(error)
    return {"index": index, **readings.known}


def _address(pci: Any) -> str:
    """A PCI address as sysfs has it: NVML has eight digits of domain, sysfs four. Empty where there is none."""
    text = pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest else ""


def _read(call: Calls, gpu: dict[str, Any], handle: Any) -> None:
    """All readings of one GPU, into `gpu`."""
    readings = Readings(call, f"GPU {gpu['index']}", handle)
    readings.known["unread"] += gpu["unread"]
    take, keep, ask = readings.take, readings.keep, readings.ask
    try:
        keep("memory_total memory_used", lambda: _memory(ask("nvmlDeviceGetMemoryInfo")))
        _processes_of(readings)
        take("display", "nvmlDeviceGetDisplayActive", kind=bool)
        take("mig mig_pending", "nvmlDeviceGetMigMode", kind=bool)
        keep("recovery_action", lambda: _field(call, ask("nvmlDeviceGetFieldValues", [RECOVERY_ACTION])))
        take("compute_mode", "nvmlDeviceGetComputeMode")
        take("persistence", "nvmlDeviceGetPersistenceMode", kind=bool)
        take("ecc ecc_pending", "nvmlDeviceGetEccMode", kind=bool)
        take("ecc_volatile", "nvmlDeviceGetTotalEccErrors", UNCORRECTABLE, VOLATILE)
        take("ecc_sram", "nvmlDeviceGetMemoryErrorCounter", UNCORRECTABLE, AGGREGATE, SRAM)
        keep("remapped", lambda: _remapped(ask("nvmlDeviceGetRemappedRows")))
        _clock_reasons(readings)
        if not take("temperature", "nvmlDeviceGetTemperature", SENSOR):
            take("temperature", "nvmlDeviceGetTemperatureV", SENSOR)
        take("slowdown_at", "nvmlDeviceGetTemperatureThreshold", SLOWDOWN)
        take("margin", "nvmlDeviceGetMarginTemperature")
        take("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth")
        take("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth")
        keep("links", lambda: _links(readings))
        keep("fabric", lambda: _fabric(call.pynvml, ask))
    except call.pynvml.NVMLError as error:
        gpu["failure"] = call.failure(error)
    else:
        gpu.update(readings.known)


def _moment(pynvml: Any, count: int) -> None:
    """What all GPUs do now. A thread that does not come back ends with the process."""
    threads = [threading.Thread(target=_glance, args=(pynvml, index), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _print({"complete": True})


def _glance(pynvml: Any, index: int) -> None:
    """What one GPU does, in parts: a later line of a GPU holds all of the lines before."""
    call = Calls(pynvml)
    handles: dict[int, Any] = {}
    gpu = _identity(call, index, handles)
    _print({"gpu": gpu})
    if "failure" in gpu:
        return
    readings = Readings(call, f"GPU {index}", handles[index])
    readings.known["unread"] += gpu["unread"]
    take, keep, ask = readings.take, readings.keep, readings.ask
    try:
        keep("memory_total memory_used", lambda: _memory(ask("nvmlDeviceGetMemoryInfo")))
        _processes_of(readings)
        take("busy", "nvmlDeviceGetUtilizationRates", kind=lambda rates: rates.gpu)
        take("clock", "nvmlDeviceGetClockInfo", SM_CLOCK)
        _print({"gpu": {**gpu, **readings.known}})
        take("clock_max", "nvmlDeviceGetMaxClockInfo", SM_CLOCK)
        if not take("temperature", "nvmlDeviceGetTemperature", SENSOR):
            take("temperature", "nvmlDeviceGetTemperatureV", SENSOR)
        take("ecc_volatile", "nvmlDeviceGetTotalEccErrors", UNCORRECTABLE, VOLATILE)
        keep("recovery_action", lambda: _field(call, ask("nvmlDeviceGetFieldValues", [RECOVERY_ACTION])))
        if _clock_reasons(readings) and (first := readings.known["clock_reasons"]) & HELD_BACK:
            time.sleep(BETWEEN_GLANCES_S)
            if _clock_reasons(readings):
                readings.known["clock_reasons"] &= first
        _print({"gpu": {**gpu, **readings.known}})
        keep("links", lambda: _links(readings, ends=False))
    except pynvml.NVMLError as error:
        _print({"gpu": {**gpu, **readings.known, "failure": call.failure(error)}})
        return
    _print({"gpu": {**gpu, **readings.known}, "done": True})


def _processes_of(readings: Readings) -> None:
    if not readings.take("processes", "nvmlDeviceGetComputeRunningProcesses", kind=_processes):
        readings.take("processes", "nvmlDeviceGetComputeRunningProcesses_v2", kind=_processes)  # of older drivers


def _clock_reasons(readings: Readings) -> bool:
    # The old name goes with CUDA 14, the new one came with driver 535.
    return readings.take("clock_reasons", "nvmlDeviceGetCurrentClocksEventReasons") or readings.take(
        "clock_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    )


def _second_look(call: Calls, gpus: list[dict[str, Any]], handles: dict[int, Any]) -> Iterator[dict[str, Any]]:
    """Those GPUs again whose clocks were held back, with what holds them back still."""
    held_back = [gpu for gpu in gpus if (gpu.get("clock_reasons") or 0) & HELD_BACK]
    if held_back:
        time.sleep(BETWEEN_LOOKS_S)
    for gpu in held_back:
        again = Readings(call, f"GPU {gpu['index']}", handles[gpu["index"]])
        try:
            if _clock_reasons(again):
                yield {**gpu, "clock_reasons": gpu["clock_reasons"] & again.known["clock_reasons"]}
        except call.pynvml.NVMLError:  # lost just now
            continue


def _memory(found: Any) -> tuple[int, int]:
    return found.total, found.used


def _processes(found: Any) -> list[dict[str, Any]]:
    return [{"pid": process.pid, "memory": process.usedGpuMemory} for process in found]


def _field(call: Calls, found: Any) -> int:
    if found[0].nvmlReturn:
        error = call.pynvml.NVMLError(found[0].nvmlReturn)
        raise Unanswered(call.current, error.value, str(error))
    return int(found[0].value.uiVal)


def _remapped(found: Any) -> dict[str, Any]:
    correctable, uncorrectable, pending, failed = found
    counts = {"correctable": correctable, "uncorrectable": uncorrectable}
    return {**counts, "pending": bool(pending), "failed": bool(failed)}


def _links(readings: Readings, *, ends: bool = True) -> list[dict[str, Any]]:
    """The NVLinks, up to the first that does not exist. Raises Unanswered where already the first one does not. Where
    they lead to (`ends`) may be hidden, as in a virtual machine: the reason is kept as that of the reading
    `link_ends`."""
    ask = readings.ask
    links: list[dict[str, Any]] = []
    for number in range(MOST_LINKS):
        try:
            active = bool(ask("nvmlDeviceGetNvLinkState", number))
        except Unanswered as error:
            if number == 0 or error.code not in (INVALID_ARGUMENT, NOT_SUPPORTED):
                raise
            break
        link: dict[str, Any] = {"active": active}
        if active and ends:
            try:
                link["kind"] = LINK_KINDS.get(ask("nvmlDeviceGetNvLinkRemoteDeviceType", number), "")
                link["address"] = _address(ask("nvmlDeviceGetNvLinkRemotePciInfo", number))
            except Unanswered as error:
                readings.miss("link_ends", error)
        links.append(link)
    return links


def _fabric(pynvml: Any, ask: Callable[..., Any]) -> dict[str, Any]:
    """By the newest structure that both sides know: 3 and 2 tell the health, 1 only the state."""
    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        structure = getattr(pynvml, name, None)
        if structure is None:
            continue
        info = structure()
        try:
            ask("nvmlDeviceGetGpuFabricInfoV", ctypes.pointer(info))
        except Unanswered as error:
            if error.code not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                raise
            continue
        summary = getattr(info, "healthSummary", None)
        return {"state": info.state & 0xFF, "status": info.status, "mask": info.healthMask, "summary": summary}
    info = pynvml.c_nvmlGpuFabricInfo_t()
    ask("nvmlDeviceGetGpuFabricInfo", ctypes.pointer(info))
    return {"state": info.state & 0xFF, "status": info.status}


def _pair(call: Calls, a: int, b: int, *handles: Any) -> dict[str, Any]:
    readings = Readings(call, f"GPUs {a} and {b}", *handles)
    try:
        readings.take("ancestor", "nvmlDeviceGetTopologyCommonAncestor")
        readings.take("p2p", "nvmlDeviceGetP2PStatus", P2P_NVLINK)
    except call.pynvml.NVMLError as error:  # lost just now
        readings.known["unread"].append({"reading": "p2p", **call.failure(error)})
    return {"a": a, "b": b, **readings.known}


if __name__ == "__main__":
    main()
