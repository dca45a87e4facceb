"""The counters of torch's Flight Recorder (`pg_status`): how far a rank has come in each of its process groups.

They are in every dump, with entries or without, and cost a rank microseconds (`_dump_fr_trace_json` without
collectives), so both a live run and `diagnose` read them, here. Measured with torch 2.9 to 2.15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from safelaunch.model import GroupProgress

FROM_ZERO = ("nccl2",)  # backends that number from 0, so that the first call is 0; all say -1 where there was none
NAMES_ALL = ("nccl2",)  # backends that list groups without a call as well


def progress(dump: Mapping[str, Any], backend: str) -> tuple[GroupProgress, ...]:
    """What `pg_status` of a dump says, in the order in which the rank made its groups: of those that it has called.

    A group that was destroyed and made anew under its name counts as the latest of them.

    Args:
        dump: the document, of a pickle or of JSON, with entries or without.
        backend: the backend whose recorder wrote it: `nccl`, `nccl2`, `gloo` or another.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: for counters that are none.
    """
    status = {int(key): counts for key, counts in (dump.get("pg_status") or {}).items()}
    entries = [entry for entry in dump.get("entries") or () if entry.get("pg_id") is not None]
    names = _names(sorted(status), [str(name) for name in dump.get("pg_config") or {}], entries, backend)
    base = 1 if backend in FROM_ZERO else 0
    messages = {int(entry["pg_id"]) for entry in entries if entry.get("is_p2p") or entry.get("p2p_seq_id")}
    found: dict[str | int, GroupProgress] = {}
    for key in sorted(status):
        enqueued, started, completed = (
            int(status[key][f"last_{what}_collective"]) for what in ("enqueued", "started", "completed")
        )
        group = names.get(key, "")
        found.pop(group, None)
        found[group or key] = GroupProgress(
            group,
            backend,
            max(0, enqueued + base),
            max(0, completed + base),
            started + base if started >= 0 else None,
            key in messages,
        )
    return tuple(found.values())


def _names(
    keys: Sequence[int], names: Sequence[str], entries: Sequence[Mapping[str, Any]], backend: str
) -> dict[int, str]:
    """The name of each group, by its key in `pg_status`.

    The keys of `pg_status` count the groups that the rank itself has made, `pg_config` has their names, which count
    those of the job. Entries have both. nccl2 names all groups, so that a key is a place among the names. The old
    backend names those whose communicator exists: between two groups that entries tell, names stand in the order of
    the keys, and where there are as many of them, one belongs to each.
    """
    latest = {entry["pg_id"]: entry for entry in entries}  # of 2,000 entries, those of a few groups
    told = {int(key): str(entry["process_group"][0]) for key, entry in latest.items()}
    left = [name for name in names if name not in told.values()]
    open_ = [key for key in keys if key not in told]
    if len(open_) == len(left) == 1 and len(names) == len(keys):
        return {**told, open_[0]: left[0]}
    if not all(name.isdecimal() for name in names):
        return told  # groups that only their members have made are named by a hash
    if backend in NAMES_ALL:
        in_order = dict(enumerate(sorted(names, key=int)))
        fits = all(in_order.get(key) == name for key, name in told.items())
        return {key: in_order[key] for key in keys if key in in_order} if fits else told
    anchors = [(key, int(name)) for key, name in sorted(told.items()) if name.isdecimal()]
    for low, high in pairwise([(-math.inf, -math.inf), *anchors, (math.inf, math.inf)]):
        between = [key for key in open_ if low[0] < key < high[0]]
        theirs = sorted(int(name) for name in left if low[1] < int(name) < high[1])
        if len(between) == len(theirs):
            told.update(zip(between, map(str, theirs), strict=True))
    return told
