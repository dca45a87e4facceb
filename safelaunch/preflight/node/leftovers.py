"""Check for processes that an earlier run of safelaunch left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch import regular
from safelaunch.model import Finding
from safelaunch.preflight.check import ok
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.processes import Process

# Set in every process of a run: what run it belongs to, and `PID:START` of its supervisor, the start in clock ticks
# since boot as field 22 of /proc/PID/stat has it.
TOKEN = "SAFELAUNCH_RUN_TOKEN"
SUPERVISOR = "SAFELAUNCH_SUPERVISOR"
# Programs that take on what others leave, and start no ranks themselves.
INITS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "pause"}


def earlier_runs(host: Host) -> Iterator[Finding]:
    """Processes of an earlier run of safelaunch are alive, and its supervisor is not.

    safelaunch ends everything it started; only its own death by SIGKILL together with its guard's, or a process that
    the kernel holds, leaves something behind. What is left keeps memory, ports, and GPUs, and may write into the same
    checkpoints.

    How it is concluded: every process of a run has SAFELAUNCH_RUN_TOKEN in its environment, and in
    SAFELAUNCH_SUPERVISOR the pid and start time of its supervisor. No process with both is alive. Only your own
    processes are looked at, and only those of this container. What the ranks of a run that succeeded have detached (an
    upload in a session of its own) is meant to live, and is left out. It is a warning, with what they hold: a GPU may
    have memory left for this job, and of a port that it asked for SL102 says whether it can be used.

    What to do: `safelaunch clean` shows what they hold, and ends them. Processes that ignore it and are in state D
    (`ps -o stat`) are held by the kernel, usually by a driver or a network file system. Only a reboot ends them.
    """
    found = [left.process for left in leftovers(host) if not left.on_purpose]
    if not found:
        yield ok("SL110", "no process of an earlier run is alive")
        return
    in_the_way = list(_in_the_way(host, {process.pid for process in found}))
    count = "a process" if len(found) == 1 else f"{len(found)} processes"
    yield Finding(
        code="SL110",
        severity="warning",
        summary=f"{count} of an earlier safelaunch run left alive: its supervisor is gone",
        because=(*map(str, found), *in_the_way),
        remedy=f"`safelaunch clean`, or `{processes.kill_line(found)}`",
    )


@dataclass(frozen=True)
class Leftover:
    """A living process of a run whose supervisor is gone. `run_dir` may be gone, too; it is empty where the process
    does not say it. `on_purpose`: the run came to a good end, and left alone what its ranks had detached."""

    process: Process
    run_dir: str
    on_purpose: bool


def leftovers(host: Host) -> Iterator[Leftover]:
    """What earlier runs of this user have left in this container, by the marks in the environments of processes."""
    namespace = host.pid_namespace()
    for pid in host.pids():
        process = host.process(pid)
        if process is None or process.uid != host.uid:
            continue
        environ = host.process_environ(pid)
        if TOKEN not in environ or SUPERVISOR not in environ:
            continue
        # The pid of a supervisor in another container means nothing here.
        if host.pid_namespace(pid) != namespace or _alive(host, environ[SUPERVISOR]):
            continue
        rank_dir = environ.get("SAFELAUNCH_RANK_DIR", "")
        run_dir = os.path.dirname(os.path.dirname(rank_dir))
        yield Leftover(process, run_dir, _was_left(host, run_dir))


def _was_left(host: Host, run_dir: str) -> bool:
    """Whether the run has come to a good end: it was its supervisor that left the process alone."""
    return bool(run_dir) and regular.document(f"{host.root.prefix}{run_dir}/result.json").get("exit_code") == 0


def _alive(host: Host, supervisor: str) -> bool:
    if not re.fullmatch("[0-9]{1,18}:[0-9]{1,18}", supervisor):
        return True  # not ours to judge
    pid, start = supervisor.split(":")
    process = host.process(int(pid))
    return process is not None and process.start == int(start)


def _in_the_way(host: Host, pids: set[int]) -> Iterator[str]:
    if host.job.uses_gpu:
        for gpu in host.nvml().gpus:
            holders = [host.gpu_process(entry.pid) for entry in gpu.processes]
            if any(holder and holder.pid in pids for holder in holders):
                yield f"GPU {gpu.index} is held by one of them"
    if host.job.master_port:
        sockets = host.port_holders(host.job.master_port)
        if any(socket.process and socket.process.pid in pids for socket in sockets):
            yield f"port {host.job.master_port} is held by one of them"


def orphaned_ranks(host: Host) -> Iterator[Process]:
    """Ranks that other launchers have left: processes with RANK and WORLD_SIZE in their environment, and the machine's
    first process, or its like, for a parent."""
    for pid in host.pids():
        environ = host.process_environ(pid)
        if TOKEN in environ or not environ.get("RANK", "").isdecimal() or "WORLD_SIZE" not in environ:
            continue
        process = host.process(pid)
        if process is not None and host.root.text(f"/proc/{processes.parent(host.root, pid)}/comm") in INITS:
            yield process
