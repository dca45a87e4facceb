"""The wiring of what ranks say of themselves while they run: where it is read, and which rules judge it."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch import black_box_reader
from safelaunch.evidence import announcements, cold_start, devices
from safelaunch.model import Finding, Location, RankDevice, Settings, WorkerGroup, WorkerProcess
from safelaunch.report.verdict import relative
from safelaunch.run.console import Console
from safelaunch.run.findings import Findings
from safelaunch.run.inboxes import Inbox
from safelaunch.run.own_faults import contained
from safelaunch.run.this_node import ThisNode
from safelaunch.run.values import RankValues
from safelaunch.settings import cold_scripts, severity
from safelaunch.settings.lint.timeouts import late_limit, late_loader
from safelaunch.settings.timeouts import InForce, hang_limit
from safelaunch.watch.cold_starts import ColdStarts
from safelaunch.watch.rank_devices import RankDevices, Stamp
from safelaunch.watch.rank_timeouts import Judge, RankTimeouts, Reader, Remark
from safelaunch.watch.tensors import Brought, RankTensors
from safelaunch.watch.tensors import Reader as CallReader

if TYPE_CHECKING:
    from safelaunch.preflight.machine.nvml import Snapshot

MPS = "CUDA_MPS_PIPE_DIRECTORY"
EVERY_S = 1.0  # that ranks are listened to: nothing hurries, and each look opens their files


class Watcher(Protocol):
    """Gives what is new about the ranks of one run."""

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:
        """What is new; `last` says that the ranks will say no more."""


class Listener:
    """What ranks say, judged. A fault of ours is told once, and costs the one watcher alone.

    Args:
        watchers: each with a word for what it listens to.
        console: of the run.
    """

    def __init__(self, watchers: Mapping[str, Watcher], console: Console) -> None:
        self._watchers = dict(watchers)
        self._console = console
        self._next = 0.0
        self._attempt = -1

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:
        """What is new, of all of them; nothing where it is too soon for another look."""
        found: list[Finding] = []
        now = time.monotonic()
        if now < self._next and group.attempt == self._attempt and not last:
            return found
        self._next, self._attempt = now + EVERY_S, group.attempt
        for what, watcher in list(self._watchers.items()):
            with contained(self._console.degraded, f"the ranks' {what} are not judged"):
                found += watcher.poll(group, last=last)
                continue
            del self._watchers[what]
        return found


def listener(
    path: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    this_node: ThisNode,
    console: Console,
    script: str,
    of_values: Inbox,
) -> Listener:
    """All that a run listens to.

    Args:
        path: the black box, None where there is none.
        settings: of the launch.
        environ: of the ranks.
        this_node: knows what NVML has said already.
        console: of the run.
        script: the training script.
        of_values: what other nodes tell of values that are to be the same.
    """
    cold = ColdStarts(
        cold_start.read,
        lambda file, line: f"{relative(file)}:{line}",
        console.say,
        lambda changed: cold_scripts.remember(script, changed, environ),
    )
    if path is None:
        return Listener({"cold starts": cold}, console)
    timeouts = RankTimeouts(remarks_of(path), timeouts_judge(settings))
    gpu_watch = RankDevices(_stamp, _device, lambda gpu: gpu_name(gpu, this_node.nvml_known()), mps=MPS in environ)
    tensors = RankTensors(_calls_of(path))
    values = RankValues(remarks_of(path), of_values)
    watchers: dict[str, Watcher] = {
        "cold starts": cold,
        "timeouts": timeouts,
        "GPUs": gpu_watch,
        "tensors": tensors,
        "values": values,
    }
    return Listener(watchers, console)


def of_others(path: str, console: Console) -> Listener:
    """What is listened to of ranks that somebody else starts: their settings are not ours to judge, nor is the order of
    their GPUs.

    Args:
        path: the black box.
        console: of the job.
    """
    return Listener({"tensors": RankTensors(_calls_of(path))}, console)


class Hearing:
    """Tells what follows from what the ranks say of themselves, unless the lint has told it already.

    Args:
        listener: of the run.
        settings: of the launch: profiles weigh what is found.
        console: of the run.
        findings: takes what is new.
    """

    def __init__(self, listener: Listener, settings: Settings, console: Console, findings: Findings) -> None:
        self._listener = listener
        self._settings = settings
        self._console = console
        self._findings = findings

    def poll(self, group: WorkerGroup, *, last: bool = False) -> None:
        """One round; `last` says that the ranks will say no more."""
        fresh = self._listener.poll(group, last=last)
        if not fresh:
            return
        from safelaunch.run import lint

        found = self._findings.add(severity.weighed(fresh, severity.of_table(self._settings.lint)))
        shown, _ = lint.at_launch(found, verbose=self._console.loud > 0)
        self._console.findings(shown)


# ------------------------------------------------------------------------------------------------ timeouts


def remarks_of(path: str) -> Reader:
    """Reads the remarks beside the black box at `path`."""
    return lambda worker, offset: announcements.read(path, worker.local_rank, worker.pid, offset)


def timeouts_judge(settings: Settings) -> Judge:
    """What is wrong with timeouts, in a launch with these settings."""
    limit = hang_limit(settings.hang)
    profile = settings.timeouts

    def who(remark: Remark) -> str:
        if remark["explicit"]:
            return f"the script, {_place(remark)}"
        if "process_group" in profile:
            return str(profile["process_group"].origin)
        return f"torch's default for {remark['backend']}" if remark["backend"] else "torch's default"

    def judge(group: Remark | None, loader: Remark | None) -> Iterator[Finding]:
        if group is None:
            return
        in_force = InForce(group["seconds"], who(group))
        yield from late_limit(limit, in_force)
        if loader is None:
            return
        if loader["explicit"]:
            where = _place(loader)
            yield from late_loader(loader["seconds"], where, f"the timeout of the DataLoader at {where}", in_force)
        else:
            where = profile["loader"].origin.where if "loader" in profile else _place(loader)
            yield from late_loader(loader["seconds"], where, "`loader` in [timeouts]", in_force)

    return judge


def _place(remark: Remark) -> str:
    return f"{relative(remark['file'])}:{remark['line']}"


# ------------------------------------------------------------------------------------------------ GPUs


def gpu_name(gpu: str, snapshot: Snapshot | None) -> str:
    """The full name of a GPU as CUDA_VISIBLE_DEVICES names it: by number, or by (the beginning of) its UUID."""
    for known in snapshot.gpus if snapshot is not None else ():
        if gpu == str(known.index) or (gpu.startswith("GPU-") and known.uuid.startswith(gpu)):
            return str(known)
    return gpu if gpu.startswith(("GPU-", "MIG-")) else f"GPU {gpu}"


def _stamp(worker: WorkerProcess) -> Stamp | None:
    try:
        status = os.stat(devices.path(worker))
    except OSError:
        return None  # not there yet
    return status.st_ino, status.st_mtime_ns


def _device(worker: WorkerProcess) -> RankDevice | None:
    """What a rank said, with files as they are shorter to read."""
    said = devices.read(worker)
    if said is None:
        return None
    changed = said.changed
    if changed is not None:
        changed = dataclasses.replace(changed, location=_shorter(changed.location))
    return dataclasses.replace(said, changed=changed, chosen_at=_shorter(said.chosen_at))


def _shorter(location: Location | None) -> Location | None:
    return dataclasses.replace(location, file=relative(location.file)) if location is not None else None


# ------------------------------------------------------------------------------------------------ calls


def _calls_of(path: str) -> CallReader:
    """Reads the records of calls in the black box at `path`."""
    reader = black_box_reader.Reader(path)

    def read(worker: WorkerProcess, after: int) -> tuple[list[Brought], int]:
        found = reader.arrivals(worker.local_rank, worker.pid, after)
        return [_brought(call) for call in found if len(call[-1]) == 8], found[-1][0] if found else after

    return read


def _brought(call: tuple[Any, ...]) -> Brought:
    _, _, _, seq, size, _, _, _, numel, words = call
    op, group, dtype, file, line, _, _, how = (word.decode("utf-8", "replace") for word in words)
    place = f"{relative(file)}:{line}" if file else ""
    return Brought(op, group, seq, size, numel, dtype, how, place)
