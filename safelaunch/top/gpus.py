"""How busy the GPUs of ranks are: NVML is asked in a child process now and then, and nobody waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from safelaunch.evidence import devices
from safelaunch.model import WorkerProcess
from safelaunch.model.devices import gpu_of
from safelaunch.top import folder

EVERY_S = 10.0  # a look takes about 0.2 s of a CPU, in a process of its own
DEADLINE_S = 5.0  # of a driver that does not answer


class Gpus:
    """What is known of the GPUs of a node's ranks."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}  # by rank: the number, as the driver counts, or what the rank itself says
        self.busy: dict[int, int] = {}  # by rank, in percent
        self._next = 0.0
        self.thread: threading.Thread | None = None

    def poll(self, workers: Sequence[WorkerProcess], places: Mapping[int, Mapping[str, Any]], now: float) -> None:
        """Look again, where it is time and the last look is over.

        Args:
            workers: the living ranks.
            places: where each of them runs, as run.json has it.
            now: CLOCK_MONOTONIC.
        """
        if now < self._next or (self.thread is not None and self.thread.is_alive()):
            return
        self._next = now + EVERY_S
        self.thread = threading.Thread(target=self._look, args=(tuple(workers), dict(places)), daemon=True)
        self.thread.start()

    def _look(self, workers: Sequence[WorkerProcess], places: Mapping[int, Mapping[str, Any]]) -> None:
        from safelaunch.run import hardware

        names = {one.rank: _name(one, places.get(one.rank, {})) for one in workers}
        self.names = {rank: name for rank, name in names.items() if name}
        if not hardware.uses_gpus(workers):
            self.busy = {}
            return
        busy: dict[int, int] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            for gpu in _asked():
                known = {str(gpu.index), gpu.uuid}
                for rank, name in self.names.items():
                    if gpu.busy is not None and (name in known or (len(name) > 8 and gpu.uuid.startswith(name))):
                        busy[rank] = gpu.busy
                        self.names[rank] = str(gpu.index)
        self.busy = busy


def _asked() -> list[Any]:
    from safelaunch.model import Job
    from safelaunch.preflight import gpu_state_now
    from safelaunch.preflight.machine.host import Host

    ended = Host(Job(nproc=1)).run_probe("machine/nvml_probe", "moment", deadline_s=DEADLINE_S)
    return [gpu for gpu, _ in gpu_state_now.reading(ended, DEADLINE_S).gpus]


def _name(worker: WorkerProcess, place: Mapping[str, Any]) -> str:
    said = devices.read(worker) if worker.black_box else None
    chosen = gpu_of(said) if said is not None and said.count else None
    if chosen is not None:
        return chosen
    return folder.gpu_of(place)
