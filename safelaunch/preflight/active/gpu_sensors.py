"""Runs in: a process of the compute probe. What NVML says of one GPU while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

INTERVAL_S = 0.05
# A call of NVML that takes longer is left behind; the GPU's work does not wait for it.
PATIENCE_S = 2.0

# nvml.h
CLOCK_SM = 1
CORRECTED = 0
VOLATILE = 0


class Sensors:
    """Asks NVML for clocks until it is left. Without a UUID there is nothing to ask."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sensors", daemon=True)
        self._started = threading.Event()
        self._clocks: list[int] = []
        self._reasons: list[int] = []
        self._corrected: list[int | None] = []
        self._error = ""

    def __enter__(self) -> Sensors:
        if self._uuid:
            self._thread.start()
            self._started.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._uuid:
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                self._error = f"NVML had no answer after {PATIENCE_S:g} s, while the GPU worked"

    def readings(self) -> dict[str, Any]:
        """The fields of a DeviceReport."""
        before, after = self._corrected if len(self._corrected) == 2 else (None, None)
        return {
            "clocks": list(self._clocks),
            "reasons": list(self._reasons),
            "corrected_before": before,
            "corrected_after": after,
            "nvml_error": self._error,
        }

    def _watch(self) -> None:
        try:
            import pynvml

            try:
                self._ask(pynvml)
            except pynvml.NVMLError as error:
                self._error = f"NVML: {error}"
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
        finally:
            self._started.set()

    def _ask(self, nvml: Any) -> None:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByUUID(self._uuid)

        def where_supported(call: Callable[[], int]) -> int | None:
            try:
                return call()
            except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
                return None

        def reasons() -> int:
            try:  # the name since driver 535
                return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
            except (AttributeError, nvml.NVMLError_FunctionNotFound):
                return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))

        def corrected() -> int | None:
            return where_supported(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, CORRECTED, VOLATILE)))

        self._corrected.append(corrected())
        self._started.set()
        while not self._over.wait(INTERVAL_S):
            clock = where_supported(lambda: int(nvml.nvmlDeviceGetClockInfo(gpu, CLOCK_SM)))
            why = where_supported(reasons)
            self._clocks += [] if clock is None else [clock]
            self._reasons += [] if why is None else [why]
        self._corrected.append(corrected())
