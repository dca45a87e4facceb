"""Whether the nodes of a Slurm step were all given the same rendezvous id, asked before anything else: with different
ones they would never meet, and torch would not say why. Standard library only, and over in seconds."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping

from safelaunch.model import Finding, Settings
from safelaunch.preflight.between.agreement import DIFFERENT_IDS, LEAVE_OUT
from safelaunch.schedulers.host_list import spelled_out
from safelaunch.schedulers.slurm import step_of_nodes
from safelaunch.schedulers.variables import number
from safelaunch.settings.from_scheduler import port

ARRIVE_S = 3.0  # srun starts all of its tasks at once
ANSWER_S = 1.0
MOST = 256  # bytes of an id
MOST_NODES = 1 << 14
SHOWN = 3


def differing(settings: Settings, environ: Mapping[str, str]) -> Finding | None:
    """What is wrong with the ids; None where they agree, where there is nothing to ask, or no answer in time.

    Args:
        settings: of the launch.
        environ: of safelaunch.
    """
    chosen = settings.options["rdzv_id"]
    if chosen.origin.source not in ("flag", "shell") or settings["rdzv_backend"] != "c10d":
        return None
    nodes = int(str(settings["nnodes"]).rpartition(":")[2])
    step = step_of_nodes(environ, nodes) if 1 < nodes <= MOST_NODES else ""
    me, hosts = number(environ, "SLURM_NODEID"), spelled_out(environ.get("SLURM_STEP_NODELIST", ""))
    if not step or me is None or len(hosts) != nodes:
        return None
    own = str(chosen.value)[:MOST]
    try:
        ids = _as_first(port(f"{step}/names"), nodes, own) if me == 0 else _as_other(hosts[0], step, me, own)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    if len(set(ids.values())) < 2:
        return None
    shown = sorted(ids.items(), key=lambda item: int(item[0]))[:SHOWN]
    return Finding(
        code="SL170",
        severity="error",
        summary=DIFFERENT_IDS,
        because=tuple(f"{hosts[int(node)]}: --rdzv-id {name}" for node, name in shown),
        remedy=LEAVE_OUT,
    )


def _as_first(at: int, nodes: int, own: str) -> dict[str, str]:
    """Hear the others, and tell each of them what all have said; {node: id}."""
    until = time.monotonic() + ARRIVE_S
    ids, others = {"0": own}, []
    with contextlib.ExitStack() as stack, socket.create_server(("", at), backlog=min(nodes, 1024)) as server:
        while len(ids) < nodes and (left := until - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                other, _ = server.accept()
            except TimeoutError:
                break
            stack.enter_context(other)
            others.append(other)
            with contextlib.suppress(OSError, ValueError, TypeError):
                node, name = json.loads(_line(other, 2 * MOST, ANSWER_S))
                if 0 < int(node) < nodes:
                    ids[str(int(node))] = str(name)[:MOST]
        answer = json.dumps(ids).encode() + b"\n"
        for other in others:
            with contextlib.suppress(OSError):
                other.sendall(answer)
    return ids


def _as_other(first: str, step: str, me: int, own: str) -> dict[str, str]:
    until = time.monotonic() + ARRIVE_S
    while True:
        try:
            connection = socket.create_connection((first, port(f"{step}/names")), timeout=ANSWER_S)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    with connection:
        connection.sendall(json.dumps([me, own]).encode() + b"\n")
        found = json.loads(_line(connection, MOST_NODES * 2 * MOST, ARRIVE_S + ANSWER_S))
    return {str(int(node)): str(name) for node, name in dict(found).items() if 0 <= int(node) < MOST_NODES}


def _line(connection: socket.socket, most: int, seconds: float) -> bytes:
    """What is sent until a line ends, at most so much and for so long."""
    until, received = time.monotonic() + seconds, b""
    while not received.endswith(b"\n") and len(received) < most and (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        received += chunk
    return received
