"""Runs in: ranks. torch's Flight Recorders: one for each backend of process groups, each asked under its own name.

Gloo's answers to `_dump_fr_trace_json`, that of the NCCL backend before torch 2.15 to `_dump_nccl_trace_json`; torch
2.15 names the others as an argument (`backend="nccl2"`). One that nothing has been recorded into has no groups.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Dict, Iterable, List, Tuple

Dump = Callable[[bool, bool], bytes]  # whether with entries, whether with the open ones only

GLOO = "gloo"
OLD_NCCL = "nccl"
NAMED = ("nccl2", "nccl-lazy", "xccl", "rccl")  # asking for one that there is not takes a microsecond


def recorders(bindings: Any) -> Dict[str, Dump]:
    """What dumps a recorder, by the name of its backend.

    Args:
        bindings: `torch._C._distributed_c10d`.
    """
    found: Dict[str, Dump] = {}
    default = getattr(bindings, "_dump_fr_trace_json", None)
    nccl = getattr(bindings, "_dump_nccl_trace_json", None)
    if default is not None:
        found[GLOO] = default
    if nccl is not None:
        found[OLD_NCCL] = nccl
    if default is not None and "backend" in (default.__doc__ or ""):
        found.update((name, functools.partial(default, backend=name)) for name in NAMED)
    return found


def totals(dump: Dump) -> Tuple[int, int]:
    """The sums of the numbers that the groups of a recorder have enqueued and completed: about 15 µs. They only serve
    to see that something moves."""
    numbers = _numbers(dump)
    return sum(max(0, enqueued) for enqueued, _ in numbers), sum(max(0, completed) for _, completed in numbers)


def under_way(dumps: Iterable[Dump]) -> Tuple[int, int]:
    """How many groups of these recorders have a call under way, and the sum of the numbers that were completed.

    Messages have numbers of their own in the old backend, and the latest call, of whichever kind, has the one that is
    shown: what says that nothing is under way is that both are the same.
    """
    numbers = [pair for dump in dumps for pair in _numbers(dump)]
    return sum(enqueued != completed for enqueued, completed in numbers), sum(completed + 1 for _, completed in numbers)


def _numbers(dump: Dump) -> List[Tuple[int, int]]:
    statuses = json.loads(dump(False, False)).get("pg_status") or {}
    return [
        (int(status["last_enqueued_collective"]), int(status["last_completed_collective"]))
        for status in statuses.values()
    ]


def everything(dumps: Dict[str, Dump]) -> bytes:
    """A JSON object with the whole dump of each recorder that has a group: 15 to 200 ms for a ring of 2,000 entries."""
    said: List[bytes] = []
    for name, dump in dumps.items():
        if b'"pg_status":{}' not in dump(False, False).replace(b" ", b""):
            said.append(json.dumps(name).encode() + b":" + dump(True, False))
    return b"{" + b",".join(said) + b"}"
