"""The start of a worker group: which rank got which GPU, for `run.json`, and the start banner."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safelaunch import regular
from safelaunch.codec import to_json
from safelaunch.model import Place, Settings, WorkerGroup
from safelaunch.run.console import Console
from safelaunch.run.own_faults import contained
from safelaunch.run.this_node import ThisNode

if TYPE_CHECKING:
    from safelaunch.preflight.machine.host import Host

WAIT_S = 1.0  # a run that is over waits no longer for its mapping
DRIVER_FILE = "/dev/nvidiactl"


class Start:
    """Called when all ranks of an attempt have been started. All its work is done in threads: it can neither delay nor
    harm the run.

    Args:
        settings: of the launch.
        run_dir: of this node.
        environ: of the ranks.
        this_node: as the preflight has seen it.
        console: of the run; it shows the banner where somebody wants to see it.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: str,
        environ: Mapping[str, str],
        this_node: ThisNode,
        console: Console,
    ) -> None:
        self._settings = settings
        self._run_file = os.path.join(run_dir, "run.json")
        self._run_dir = run_dir
        self._environ = environ
        self._this_node = this_node
        self._console = console
        self._mapping: list[dict[str, Any]] = []
        self._thread: threading.Thread | None = None

    def __call__(self, group: WorkerGroup) -> None:
        self._thread = threading.Thread(target=self._run, args=(group, self._thread), daemon=True)
        self._thread.start()

    def wait(self, seconds: float = WAIT_S) -> None:
        """Wait for the latest one."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, group: WorkerGroup, before: threading.Thread | None) -> None:
        if before is not None:
            before.join(WAIT_S)
        with contained(self._console.degraded, "the mapping of ranks and GPUs is not in run.json"):
            try:
                places, host, uses_gpu = self._places(group)
                self._mapping.append({"attempt": group.attempt, "ranks": to_json(places)})
                self._write()
                if self._shows_banner():
                    self._show(group, places, host, uses_gpu)
            except OSError as error:
                where = f"{error.filename}: {error.strerror}"
                self._console.degraded(f"the mapping of ranks and GPUs is not in {where}")

    def _shows_banner(self) -> bool:
        wanted = "banner" in self._settings.launch and self._settings.launch["banner"].value
        return self._console.loud > 0 or (wanted and self._console.loud >= 0)

    def _show(self, group: WorkerGroup, places: tuple[Place, ...], host: Host, uses_gpu: bool) -> None:
        from safelaunch.report import banner as screen
        from safelaunch.run import banner

        fields = banner.fields(self._settings, self._run_dir, self._environ, group, host, uses_gpu)
        shown = screen.Banner(group.attempt, tuple(fields), places)
        self._console.print(screen.lines(shown, self._console.palette))

    def _places(self, group: WorkerGroup) -> tuple[tuple[Place, ...], Host, bool]:
        from safelaunch.model import Job
        from safelaunch.preflight import mapping
        from safelaunch.preflight.machine import topology
        from safelaunch.preflight.machine.host import Host

        known = self._this_node.host
        host = known or Host(Job(nproc=1), environ=self._environ)
        snapshot = host.nvml_known()
        uses_gpu = host.job.uses_gpu if known else self._may_use_gpu(host)
        ranks = [
            mapping.Started(worker.rank, worker.local_rank, worker.pid, _environ(host, worker.pid), _cpus(worker.pid))
            for worker in group.workers
        ]
        devices = {
            gpu.index: topology.device(host.root, f"GPU{gpu.index}", gpu.name, gpu.address)
            for gpu in (snapshot.gpus if snapshot is not None and uses_gpu else ())
            if gpu.address
        }
        return mapping.places(host.name(), ranks, snapshot, devices, uses_gpu=uses_gpu), host, uses_gpu

    def _may_use_gpu(self, host: Host) -> bool:
        """Without a preflight nobody has counted GPUs."""
        from safelaunch.preflight.local_world_size import torch_build

        if self._settings["nproc_per_node"] == "cpu" or torch_build() not in ("cuda", "hip"):
            return False
        return host.root.exists(DRIVER_FILE)

    def _write(self) -> None:
        from safelaunch import files

        document = json.loads(regular.read(self._run_file))
        files.write_json(self._run_file, {**document, "mapping": self._mapping})


def _environ(host: Host, pid: int) -> Mapping[str, str]:
    """What the rank was started with. The agent gives each rank a GPU of its own with --virtual-local-rank."""
    return host.process_environ(pid) or host.environ


def _cpus(pid: int) -> frozenset[int] | None:
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:  # it has ended
        return None
