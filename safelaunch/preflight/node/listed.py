"""Check against the list of bad nodes."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch import bad_nodes
from safelaunch.deadline import within
from safelaunch.model import Finding
from safelaunch.model.hosts import host_name
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Host

ANSWER_S = 5.0  # a shared file system under load; without an answer the node is not refused


def listed(host: Host) -> Iterator[Finding]:
    """The node is on the list of bad nodes that the profile names (`bad` in `[nodes]`).

    The list is a text file: a line a node, with its name, the date and the reason; `#` begins a comment. safelaunch
    adds a line itself where there is proof that the hardware of a node is bad: a GPU failed under a job (SL428), its
    driver asks for a reset (SL112), its memory cannot be repaired (SL119), it computes wrong results (SL152). What may
    have been the network or the program (SL604, a hang) is never written. People may write any node.

    How it is concluded: one of the node's names stands first in a line. These are the host name, and what Slurm
    (SLURMD_NODENAME), Beaker (BEAKER_NODE_HOSTNAME) or the pod (NODE_NAME) call it; a missing domain makes no
    difference. A list that cannot be read within 5 s refuses no node.

    What to do: run the job without the node (Slurm: --exclude). When it has been repaired, delete its line.
    """
    path = host.wanted.bad_nodes
    if not path:
        yield skipped("SL141", "the profile names no list of bad nodes")
        return
    names = bad_nodes.own_names(host.name(), host.environ)
    try:
        found = bad_nodes.find(names, within(ANSWER_S, lambda: bad_nodes.read(f"{host.root.prefix}{path}")))
    except OSError as error:
        yield unchecked("SL141", f"the list of bad nodes cannot be read: {path}", error.strerror or str(error))
        return
    if found is None:
        yield ok("SL141", "this node is not on the list of bad nodes")
        return
    shown = host_name(found.host)
    yield Finding(
        code="SL141",
        severity="error",
        summary=f"{shown} is on the list of bad nodes",
        because=(found.why or "the list does not say why",),
        remedy=f"run without it (Slurm: --exclude={shown}); once it is repaired, delete its line",
        where=f"{path}:{found.line}",
    )
