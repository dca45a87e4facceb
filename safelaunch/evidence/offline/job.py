"""What a job has concluded of a node that has left no result: `result.json` above the nodes' folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from safelaunch import regular
from safelaunch.codec import ShapeError, checked
from safelaunch.model.nodes import Nodes

MOST = 4 << 20  # bytes of a result, and of the journal that is looked through for the rendezvous
PLACES = 100  # jobs of one name, each with a result of its own


@dataclass(frozen=True)
class JobResult:
    """What is read of a job's result. Its verdicts are taken apart one by one: a wrong one costs itself."""

    path: str
    exit_code: int | None
    verdicts: tuple[Any, ...]


@dataclass(frozen=True)
class _Document:
    rounds: tuple[str, ...] = ()
    exit_code: int | None = None
    verdicts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Event:
    event: str
    nodes: Nodes


def result_of(folder: str) -> JobResult | None:
    """The result of the job that a node took part in; None where there is none with a verdict, or it is another job's.

    Args:
        folder: of the node, with its journal, whatever else it has left.
    """
    rounds = set(_rounds(os.path.join(folder, "agent.jsonl")))
    above = os.path.dirname(os.path.abspath(folder))
    for number in range(PLACES if rounds else 0):
        path = os.path.join(above, f"result-{number}.json" if number else "result.json")
        if not os.path.lexists(path):
            return None
        try:
            document = checked(_Document, json.loads(regular.read(path, MOST)))
        except (OSError, ValueError, RecursionError, ShapeError):
            continue
        if rounds & set(document.rounds) and document.verdicts:
            return JobResult(path, document.exit_code, document.verdicts)
    return None


def _rounds(journal: str) -> Iterator[str]:
    """The rendezvous rounds of a node, as its journal has them."""
    try:
        lines = regular.beginning(journal, MOST).splitlines()
    except OSError:
        return
    for line in lines:
        if b'"nodes"' in line:
            try:
                yield checked(_Event, json.loads(line)).nodes.round
            except (ValueError, RecursionError, ShapeError):
                continue
