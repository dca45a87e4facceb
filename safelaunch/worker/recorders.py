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
STILL = 5  # looks, a second
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


class UnderWay:
    """Which groups of some recorders have a call under way on a device.

    A group has none where the latest number that was enqueued is the latest that was completed. The other way round
    proves nothing: nccl2 shows the number that ended last, which of calls on several streams (FSDP2) need not be the
    highest one. So where nothing moves for a moment, the entries are looked at, once: 4 to 20 ms.
    """

    def __init__(self, dumps: Iterable[Dump]) -> None:
        self._dumps = list(dumps)
        self._numbers: List[Tuple[int, int]] = []
        self._looks = 0
        self._none = False  # of what is shown, nothing is under way

    def look(self) -> Tuple[int, int]:
        """How many groups have a call under way, and the sum of the numbers that were completed: that changes when
        something ends."""
        numbers = [pair for dump in self._dumps for pair in _numbers(dump)]
        if numbers != self._numbers:
            self._numbers, self._looks, self._none = numbers, 0, False
        groups = sum(enqueued != completed for enqueued, completed in numbers)
        self._looks += 1
        if groups and self._looks == STILL:
            self._none = not any(json.loads(dump(True, True)).get("entries") for dump in self._dumps)
        return 0 if self._none else groups, sum(completed + 1 for _, completed in numbers)


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
