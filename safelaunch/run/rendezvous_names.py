"""Whether the nodes of a Slurm step will meet, asked before anything else where a command line has a rendezvous of its
own: with another id on each they would not, nor where one of them refuses its options, and torch would not say why.
Standard library only, and over in seconds."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping, Sequence

from safelaunch.codes import CATALOGUE
from safelaunch.model import Finding, Settings
from safelaunch.model.hosts import host_name
from safelaunch.preflight.between.agreement import DIFFERENT_IDS, LEAVE_OUT
from safelaunch.schedulers.host_list import spelled_out
from safelaunch.schedulers.slurm import step_of_nodes
from safelaunch.schedulers.variables import number
from safelaunch.settings.from_scheduler import port

ARRIVE_S = 10.0  # srun starts all of its tasks at once, and who comes later is waited for in the rendezvous as well
ANSWER_S = 1.0
MOST = 400  # characters of an id, or of a refusal
LINE = 8 * MOST  # bytes
MOST_NODES = 1 << 14
SHOWN = 3

Said = list[str]  # by one node: its rendezvous id, and why it refuses to start, with the code of that


def will_not_meet(settings: Settings, environ: Mapping[str, str]) -> Finding | None:
    """What keeps the nodes apart; None for nothing, and where there is nobody to ask, or no answer in time.

    Args:
        settings: of the launch.
        environ: of safelaunch.
    """
    backend, nodes = settings["rdzv_backend"], int(str(settings["nnodes"]).rpartition(":")[2])
    if settings.allocation is not None or settings["standalone"] or backend not in ("c10d", "static"):
        return None
    found = _step(environ, nodes)
    if found is None:
        return None
    step, me, hosts = found
    try:
        said = _as_first(step, me, _own(settings)) if me == 0 else _as_other(step, hosts[0], me, _own(settings))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return _judged(said, hosts)


def tell_refusal(environ: Mapping[str, str], error: Finding) -> None:
    """Let the first node know that this one refuses to start: it would wait for it.

    Args:
        environ: of safelaunch.
        error: the refusal.
    """
    found = _step(environ, number(environ, "SLURM_STEP_NUM_NODES") or 1)
    if found is not None and found[1] > 0:
        step, me, hosts = found
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            _as_other(step, hosts[0], me, ["", error.summary[:MOST], error.code])


def _step(environ: Mapping[str, str], nodes: int) -> tuple[str, int, tuple[str, ...]] | None:
    """The name of the step, the number of this node, and the names of all; None outside of a step of several nodes."""
    name = step_of_nodes(environ, nodes) if 1 < nodes <= MOST_NODES else ""
    me, hosts = number(environ, "SLURM_NODEID"), spelled_out(environ.get("SLURM_STEP_NODELIST", ""))
    is_there = bool(name) and me is not None and me < nodes == len(hosts)
    return (f"{name}/{nodes}", me, hosts) if is_there and me is not None else None


def _own(settings: Settings) -> Said:
    """The id that was chosen, and no refusal."""
    chosen = settings.options["rdzv_id"]
    was_chosen = chosen.origin.source in ("flag", "shell") and settings["rdzv_backend"] == "c10d"
    return [str(chosen.value)[:MOST] if was_chosen else "", "", ""]


def _judged(said: Mapping[int, Said], hosts: Sequence[str]) -> Finding | None:
    refused = next(((node, one) for node, one in sorted(said.items()) if one[1]), None)
    if refused is not None:
        node, (_, summary, code) = refused
        host = host_name(hosts[node])
        why = f"{host} refuses to start, and the others would wait for it"
        # Nothing says who has sent it: what to do is told by our own words, and by the output of that node.
        said_so = f'{host} is said to say: "{summary}"'
        explain = f", and `safelaunch explain {code}`" if code in CATALOGUE else ""
        remedy = f"see the output of {host}{explain}"
        return Finding(code="SL009", severity="error", summary=why, because=(said_so,), remedy=remedy)
    if len({name for name, *_ in said.values()}) < 2:
        return None
    because = tuple(f"{hosts[node]}: --rdzv-id {one[0]}" for node, one in sorted(said.items())[:SHOWN])
    return Finding(code="SL170", severity="error", summary=DIFFERENT_IDS, because=because, remedy=LEAVE_OUT)


def _as_first(step: str, me: int, own: Said) -> dict[int, Said]:
    """Hear the others, and tell each of them what all have said."""
    nodes = int(step.rpartition("/")[2])
    until = time.monotonic() + ARRIVE_S
    said, others = {me: own}, []
    with contextlib.ExitStack() as stack, socket.create_server(("", port(step)), backlog=min(nodes, 1024)) as server:
        while len(said) < nodes and (left := until - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                other, _ = server.accept()
            except TimeoutError:
                break
            stack.enter_context(other)
            others.append(other)
            with contextlib.suppress(OSError, ValueError, TypeError):
                node, one = json.loads(_line(other, LINE, ANSWER_S))
                if type(node) is int and 0 < node < nodes:
                    said[node] = _checked(one)
        answer = json.dumps(list(said.items())).encode() + b"\n"
        for other in others:
            with contextlib.suppress(OSError):
                other.sendall(answer)
    return said


def _as_other(step: str, first: str, me: int, own: Said) -> dict[int, Said]:
    until = time.monotonic() + ARRIVE_S
    while True:
        try:
            connection = socket.create_connection((first, port(step)), timeout=ANSWER_S)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    with connection:
        connection.sendall(json.dumps([me, own]).encode() + b"\n")
        found = json.loads(_line(connection, MOST_NODES * LINE, ARRIVE_S + ANSWER_S))
    nodes = int(step.rpartition("/")[2])
    return {node: _checked(one) for node, one in found if type(node) is int and 0 <= node < nodes}


def _checked(said: object) -> Said:
    if not isinstance(said, list) or len(said) != 3:
        raise ValueError("not what a node says")
    return [str(one)[:MOST] for one in said]


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
