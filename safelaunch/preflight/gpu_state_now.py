"""What the GPUs of a job do at this moment: for an incident of a run, from outside, within a second."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safelaunch import procfs
from safelaunch.codec import from_json
from safelaunch.model import GpuState, NetworkPort, RankDevice, Tenant
from safelaunch.model.xids import parse
from safelaunch.preflight import mapping
from safelaunch.preflight.machine import infiniband, kernel_log
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.clock_reasons import LIMITS, REASONS
from safelaunch.preflight.machine.host import FIRST_PID_NAMESPACE, Host
from safelaunch.preflight.machine.nvml import GPU_IS_LOST, LIBRARY_NOT_FOUND, RESET_REQUIRED, Failure, Gpu, Snapshot
from safelaunch.preflight.machine.visible import VARIABLE
from safelaunch.preflight.network.infiniband import down

REAP_S = 0.05  # a child that can be killed is gone by then, and who asks must not wait for one that cannot
AFTER_S = 0.05  # to make sense of what was read
GENERATIONS = 8  # from a process on a GPU up to its rank: a shell, a server of its own, a compiler
# Timestamps of the kernel's log run by a clock that nobody corrects: by so much of the uptime they may be off (the
# 100 ppm of an ordinary crystal, and a minute at most; estimates).
DRIFT = 1e-4
MOST_DRIFT_S = 60.0


@dataclass(frozen=True)
class LocalRank:
    """A rank of the job, and what is known of its GPUs. `environ` is what its process was started with."""

    rank: int
    local_rank: int
    pid: int
    environ: Mapping[str, str]
    device: RankDevice | None = None


@dataclass(frozen=True)
class Reading:
    """What NVML said of the GPUs, each with the reason why the rest of its readings is not there (empty: all are)."""

    gpus: tuple[tuple[Gpu, str], ...] = ()
    failure: Failure | None = None
    missing: str = ""


def gpus(host: Host, local_ranks: Sequence[LocalRank], since_s: float, until: float) -> tuple[GpuState, ...]:
    """The GPUs that these ranks use; none where they use none, or there is no driver.

    Args:
        host: this node.
        local_ranks: the ranks of this node.
        since_s: seconds since boot: older lines of the kernel log are of others.
        until: CLOCK_MONOTONIC: later answers do not count.
    """
    host = host.reopened(REAP_S)  # the preflight may have ended its children for good
    logs: list[kernel_log.Log] = []
    log_reader = threading.Thread(target=lambda: logs.append(_log(host, until)), daemon=True)
    log_reader.start()
    found = _ask(host, until)
    if found.failure is not None and found.failure.code == LIBRARY_NOT_FOUND:
        return ()
    tenants = _Tenants(host, local_ranks)
    states = [_state(gpu, missing, tenants) for gpu, missing in found.gpus]
    states = [*_placed(host, local_ranks, states, found)]
    used = sorted((state for state in states if state.ranks), key=lambda state: state.index)
    log_reader.join(max(0.0, until - time.monotonic()))
    log = logs[0] if logs else kernel_log.Log(unreadable="it was not read in time")
    return tuple(_with_xids(state, log, since_s, tenants) for state in used)


def ports_down(host: Host, environ: Mapping[str, str]) -> tuple[NetworkPort, ...]:
    """The InfiniBand and RoCE ports that should be up, as their like are, and are not.

    Args:
        host: this node.
        environ: of a rank: NCCL_IB_HCA chooses the ports.
    """
    chosen = infiniband.selected(infiniband.read(host.root), environ)
    return tuple(NetworkPort(str(port), port.state, port.physical, port.link_layer) for port in down(chosen))


# ---------------------------------------------------------------------------------------------------- asking


def _log(host: Host, until: float) -> kernel_log.Log:
    def run(argv: tuple[str, ...], deadline_s: float) -> Ended:
        return host.run(argv, max(0.05, min(deadline_s, until - REAP_S - time.monotonic())))

    return kernel_log.read(host.root, run)


def _ask(host: Host, until: float) -> Reading:
    deadline_s = max(0.05, until - REAP_S - AFTER_S - time.monotonic())
    try:
        ended = host.run_probe("machine/nvml_probe", "moment", deadline_s=deadline_s)
    except OSError as error:
        return Reading(missing=f"the NVML probe did not start: {error}")
    return reading(ended, deadline_s)


def reading(ended: Ended, deadline_s: float) -> Reading:
    """Read what the probe printed; of one that did not finish, what it had read, and in which calls it was."""
    gpus: dict[int, Gpu] = {}
    done: set[int] = set()
    complete, failure = False, None
    for line in procfs.lines(ended.stdout):
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # cut short in the middle of a write
        if "gpu" in said:
            gpu = from_json(Gpu, said["gpu"])
            gpus[gpu.index] = gpu
            done |= {gpu.index} if said.get("done") or gpu.failure else set()
        complete = complete or bool(said.get("complete"))
        failure = from_json(Failure, said["failure"]) if said.get("failure") else failure
    if failure is not None:
        return Reading(failure=failure, missing=f"{failure.call}: {failure.text}")
    waited = f"NVML did not answer within {deadline_s:.1f} s"
    calls = [line for line in procfs.lines(ended.stderr) if line.startswith("nvml")]
    for index in {int(n) for call in calls for n in re.findall(r" of GPU (\d+)$", call)} - gpus.keys():
        gpus[index] = Gpu(index)
    found = []
    for index, gpu in sorted(gpus.items()):
        own = [call for call in calls if call.endswith(f" of GPU {index}")]
        stuck = f"{waited}: {own[-1].partition(' of ')[0]}" if own else waited
        found.append((gpu, "" if index in done else stuck if ended.timed_out else "the NVML probe failed"))
    missing = ""
    if not complete and ended.timed_out:
        missing = f"{waited}: {calls[-1] if calls else 'the start of Python'}"
    elif not complete:
        missing = f"the NVML probe ended with {ended.returncode}: {ended.last_line}"
    return Reading(tuple(found), missing=missing)


# --------------------------------------------------------------------------------------------------- mapping


class _Tenants:
    """Which rank a process on a GPU belongs to. NVML numbers processes as the host does."""

    def __init__(self, host: Host, local_ranks: Sequence[LocalRank]) -> None:
        self._host = host
        self._on_host = host.pid_namespace() == FIRST_PID_NAMESPACE
        numbers = ((_number_on_host(host, local.pid, self._on_host), local.rank) for local in local_ranks)
        self.ranks = {number: rank for number, rank in numbers if number is not None}

    def of(self, pid: int, memory: int | None) -> Tenant:
        """The process as it is to be shown."""
        rank = self.rank(pid)
        process = None if rank is not None else self._host.gpu_process(pid)
        return Tenant(pid, rank, memory, process.command if process is not None else "")

    def rank(self, pid: int) -> int | None:
        """The rank that this process is, or is a child of; None where it is none, or that cannot be told."""
        for _ in range(GENERATIONS):
            if pid in self.ranks or not self._on_host or pid <= 1:
                break
            pid = _parent(self._host, pid)
        return self.ranks.get(pid)

    def stranger(self, pid: int) -> bool:
        """Whether this process is certainly none of the job's: it is still there, and below no rank."""
        return self._on_host and self.rank(pid) is None and self._host.process(pid) is not None


def _number_on_host(host: Host, pid: int, on_host: bool) -> int | None:
    """The number by which the host knows a process: NSpid lists those of all namespaces that /proc shows, outermost
    first. Inside of a container it shows the container's own alone."""
    if on_host:
        return pid
    numbers = _status(host, pid, "NSpid")
    return int(numbers[0]) if len(numbers) > 1 else None


def _parent(host: Host, pid: int) -> int:
    numbers = _status(host, pid, "PPid")
    return int(numbers[0]) if numbers else 0


def _status(host: Host, pid: int, name: str) -> list[str]:
    text = host.root.text(f"/proc/{pid}/status")
    return next((line.split()[1:] for line in procfs.lines(text) if line.startswith(name + ":")), [])


def _state(gpu: Gpu, missing: str, tenants: _Tenants) -> GpuState:
    failure = gpu.failure
    on_it = tuple(tenants.of(process.pid, process.memory) for process in gpu.processes)
    return GpuState(
        gpu.index,
        gpu.uuid,
        gpu.address,
        gpu.name,
        ranks=tuple(sorted({tenant.rank for tenant in on_it if tenant.rank is not None})),
        memory_total=gpu.memory_total or None,
        memory_used=gpu.memory_used if gpu.memory_total else None,
        busy_percent=gpu.busy,
        clock_mhz=gpu.clock,
        clock_max_mhz=gpu.clock_max,
        held_back=tuple(reason.words for reason in REASONS if (gpu.clock_reasons or 0) & reason.bit),
        limited_by=tuple(words for bit, words in LIMITS.items() if (gpu.clock_reasons or 0) & bit),
        temperature=gpu.temperature,
        tenants=on_it,
        links_down=sum(not link.active for link in gpu.links) if gpu.links else None,
        missing=f"{failure.call.partition(' of ')[0]}: {failure.text}" if failure is not None else missing,
        links=len(gpu.links) or None,
        ecc_errors=gpu.ecc_volatile,
        lost=failure is not None and failure.code in (GPU_IS_LOST, RESET_REQUIRED),
    )


def _placed(
    host: Host, local_ranks: Sequence[LocalRank], states: Sequence[GpuState], found: Reading
) -> Iterable[GpuState]:
    """The states with the ranks that NVML showed no process of, by what they say themselves, or were started with."""
    shown = {rank for state in states for rank in state.ranks}
    started = [_started(local) for local in local_ranks if local.rank not in shown]
    known = Snapshot(tuple(gpu for gpu, _ in found.gpus)) if found.gpus else None
    places = mapping.places(host.name(), started, known, {}, uses_gpu=True)
    by_index: dict[int, list[int]] = {}
    for place in places:
        if place.gpu_index is not None:
            by_index.setdefault(place.gpu_index, []).append(place.rank)
    for state in states:
        yield replace(state, ranks=tuple(sorted({*state.ranks, *by_index.pop(state.index, [])})))
    if not states and found.missing:  # NVML did not come so far as to tell of any GPU
        yield from (GpuState(index, ranks=tuple(ranks), missing=found.missing) for index, ranks in by_index.items())


def _started(local: LocalRank) -> mapping.Started:
    """The rank with the GPU in LOCAL_RANK's place that it has taken, where it has said so."""
    environ, device = dict(local.environ), local.device
    if device is not None:
        late = device.changed is not None and device.changed.late
        visible = device.started_with if late else device.visible
        environ.pop(VARIABLE, None)
        environ.update({VARIABLE: visible} if visible is not None else {})
        chosen = next((n for n in (device.chosen, device.bound, device.device) if n is not None), None)
        environ.update({"LOCAL_RANK": str(chosen)} if chosen is not None else {})
    if not environ.get("LOCAL_RANK", "0").isdecimal():
        environ.pop("LOCAL_RANK")
    return mapping.Started(local.rank, max(0, local.local_rank), local.pid, environ)


def _with_xids(state: GpuState, log: kernel_log.Log, since_s: float, tenants: _Tenants) -> GpuState:
    """The state with the messages about its GPU. What the driver says of another job's process is not this job's."""
    if log.unreadable:
        return replace(state, log_unread=log.unreadable)
    since_s -= 1.0 + min(MOST_DRIFT_S, DRIFT * since_s)
    entries = [parse(message.text, message.at_s) for message in log.messages if message.at_s >= since_s]
    own = [
        f"[{entry.at_s:.3f}] {entry.text}"
        for entry in entries
        if entry is not None
        and entry.address == state.address.rpartition(".")[0]
        and (entry.ends_work or entry.pid is None or not tenants.stranger(entry.pid))
    ]
    return replace(state, xids=tuple(own))
