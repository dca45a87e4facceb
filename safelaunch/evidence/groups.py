"""The process groups that a rank has made, with their members, as it wrote them down beside its black box."""

from __future__ import annotations

import json
from typing import Any

from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.evidence import beside
from safelaunch.model import Evidence, Incident, ProcessGroup, Rendezvous, WorkerProcess
from safelaunch.model.ranks import MOST_RANKS

SOURCE = "groups"
MOST_LINES = 1 << 14  # the worker stops at 10,000 calls of new_group


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`groups`, in the order in which they were made, `asked`: the members of each that `new_group` was called for, and
    `meets`: what `init_process_group` was called with last. A last line that is half written is left out."""
    if not worker.black_box:
        return Evidence(SOURCE, worker.rank, unavailable="there is no black box in this run")
    try:
        lines = beside.read(worker, "groups").split(b"\n")[:MOST_LINES]
    except FileNotFoundError:
        lines = []
    groups, asked, meets = [], [], None
    for line in lines:
        try:
            record = json.loads(line)
            if "new" in record:
                asked.append(list(_ranks(record["new"])))
                continue
            if "meets" in record:
                meets = to_json(checked(Rendezvous, record["meets"]))
                continue
            groups.append(ProcessGroup(str(record["name"]), _ranks(record["ranks"])))
        except (ValueError, KeyError, TypeError, RecursionError, ShapeError):
            continue  # torn, or written by somebody else
    if not groups and not asked and meets is None:
        return Evidence(SOURCE, worker.rank, unavailable="the rank has made no process group")
    return Evidence(SOURCE, worker.rank, {"groups": to_json(groups), "asked": asked, "meets": meets})


def _ranks(numbers: Any) -> tuple[int, ...]:
    """The members of a group.

    Raises:
        TypeError, ValueError: they are no ranks of any job.
    """
    if not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in numbers):
        raise ValueError("no ranks")
    return tuple(numbers)
