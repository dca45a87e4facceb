"""The result of a job of several nodes, on a file system that they share: `result.json` above the nodes' folders.

Each node writes it anew at its end, from the results of those that have ended: whoever is last has them all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from safelaunch import files, regular
from safelaunch.model import SCHEMA_VERSION
from safelaunch.model.hosts import host_name
from safelaunch.model.nodes import Nodes

MOST = 4 << 20  # bytes of a node's result
MOST_NODES = 1 << 14
AGAIN = 3  # times: another node may have ended since it was read
NAME = "result.json"


@dataclass
class Met:
    """The nodes that this one has met: their hosts, and the rendezvous rounds by which their results are known."""

    hosts: dict[str, None] = field(default_factory=dict)
    rounds: dict[str, None] = field(default_factory=dict)

    def add(self, nodes: Nodes) -> None:
        """A round, of which these are the nodes."""
        self.hosts |= {host_name(node.host): None for node in nodes.nodes if node.host}
        self.rounds[nodes.round] = None


def write(run_dir: str, met: Met) -> None:
    """Write it, where this node has met others.

    Args:
        run_dir: of this node, whose own result is there.
        met: the others.

    Raises:
        OSError: it cannot be written.
    """
    if not met.rounds:
        return
    above = os.path.dirname(run_dir)
    told = -1
    for _ in range(AGAIN):
        results = {name: one for name, one in _results(above) if _is_ours(one, met)}
        if len(results) == told:
            return
        told = len(results)
        files.write_text(_place(above, met), json.dumps(_document(results, met), indent=1) + "\n")


def _results(above: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What nodes have left, by the names of their folders."""
    for name in sorted(os.listdir(above))[:MOST_NODES]:
        document = regular.document(os.path.join(above, name, NAME), MOST)
        if document:
            yield name, document


def _is_ours(document: Mapping[str, Any], met: Met) -> bool:
    rounds = document.get("rounds")
    return isinstance(rounds, list) and any(isinstance(one, str) and one in met.rounds for one in rounds)


def _place(above: str, met: Met) -> str:
    """Where it goes: another job of the same name has one of its own."""
    number = 0
    while True:
        path = os.path.join(above, NAME if not number else f"result-{number}.json")
        if not os.path.lexists(path) or _is_ours(regular.document(path, MOST), met):
            return path
        number += 1


def _document(results: Mapping[str, dict[str, Any]], met: Met) -> dict[str, Any]:
    verdicts: dict[str, Any] = {}
    rounds, hosts = dict(met.rounds), dict(met.hosts)
    for one in results.values():
        rounds |= dict.fromkeys(one["rounds"])
        hosts |= dict.fromkeys(one.get("hosts") or ())
        for verdict in one.get("verdicts") or ():
            verdicts.setdefault(json.dumps([verdict.get(key) for key in ("code", "summary", "host")]), verdict)
    first = next(iter(results.values()), {})
    nodes = [
        {"host": one.get("host"), "folder": name, "exit_code": one.get("exit_code"), "elapsed_s": one.get("elapsed_s")}
        | ({"left_out": True} if one.get("left_out") else {})
        for name, one in results.items()
    ]
    known = {one["host"] for one in nodes}
    nodes += [
        {"host": host, "folder": None, "exit_code": None, "elapsed_s": None} for host in hosts if host not in known
    ]
    # A node that has left the job says nothing of how that ends.
    codes = [one.get("exit_code") for one in results.values() if not one.get("left_out")]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": first.get("run_id"),
        "exit_code": max((code for code in codes if isinstance(code, int)), default=None),
        "verdicts": list(verdicts.values()),
        "nodes": nodes,
        "rounds": list(rounds),
    }
