"""Check for processes that the kernel holds, and for masses of dead ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.processes import Sleep
from safelaunch.sizes import plural

INTERVAL_S = 0.3  # between two looks
SHOWN = 5  # processes that a finding names
# Asleep in the same state and well: the parent of a vfork(), and processes of a paused container.
NO_FAULT = ("__refrigerator", "do_freezer_trap", "wait_for_vfork_done", "kernel_clone")


def stuck(host: Host) -> Iterator[Finding]:
    """Processes are stuck in the kernel, or dead ones are not collected.

    A process in uninterruptible sleep (state D) for seconds waits for a driver, a disk or a file server that does not
    answer. Ranks that touch the same will follow it, and what it holds, a GPU for example, stays held. Thousands of
    zombies mean a broken parent, and take process ids that ranks need.

    How it is concluded: /proc/PID/stat of all processes that are visible. A process counts that is in state D for 3 s
    without one step in between: same place in the kernel (wchan, where it may be read), no context switch. Ordinary
    input and output does not do that, and a node without any process in state D is not looked at twice. Kernel threads,
    parents of a vfork and paused containers are left out. Zombies count from 1000 on, as in leptonai/gpud.

    What to do: the place in the kernel says who is waited for (nfs_, fuse_, nvidia, mlx5). Where the device or server
    does not come back, only a reboot ends such a process. Zombies go when their parent is ended.
    """
    first = _sleeping(host)
    held = first
    waited = 0.0
    while held and waited < host.threshold("stuck_s"):
        host.sleep(INTERVAL_S)
        waited += INTERVAL_S
        held &= _sleeping(host)
    faults = [*_held(host, held, waited), *_zombies(host)]
    yield from faults or [ok("SL140", "no process is stuck in the kernel")]


def _sleeping(host: Host) -> set[Sleep]:
    found = {processes.sleep(host.root, pid) for pid in host.pids()}
    # Children of ours that are held are the findings of those who started them.
    return {sleep for sleep in found if sleep and sleep.where not in NO_FAULT and sleep.parent != os.getpid()}


def _held(host: Host, held: set[Sleep], waited: float) -> Iterator[Finding]:
    known = [(sleep, host.process(sleep.pid)) for sleep in sorted(held, key=lambda sleep: sleep.pid)]
    lines = [f"{process}" + (f" (in {sleep.where})" if sleep.where else "") for sleep, process in known if process]
    if lines:
        count = "a process is" if len(lines) == 1 else f"{len(lines)} processes are"
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        yield Finding(
            code="SL140",
            severity="warning",
            summary=f"{count} stuck in the kernel (state D, not a step in {waited:.1f} s)",
            because=(*lines[:SHOWN], *more),
            remedy="have an administrator look at the device or file server that they wait for; if it does not come "
            "back, reboot the node",
        )


def _zombies(host: Host) -> Iterator[Finding]:
    parents = Counter(processes.zombies(host.root))
    count = sum(parents.values())
    if count >= host.threshold("zombies"):
        parent, most = parents.most_common(1)[0]
        who = host.process(parent)
        yield Finding(
            code="SL140",
            severity="warning",
            summary=f"{plural(count, 'zombie')} on this node: dead processes that their parents do not collect",
            because=(f"{most} of them are children of {who or f'pid {parent}'}",),
            remedy="end or mend the parent; its zombies go with it",
        )
