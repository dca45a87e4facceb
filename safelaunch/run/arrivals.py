"""From a rank's own record of its calls to what the watch compares."""

from __future__ import annotations

from typing import Any

from safelaunch import black_box
from safelaunch.model import WorkerProcess
from safelaunch.watch.meetings import Arrival


def arrivals(worker: WorkerProcess, seen: list[tuple[Any, ...]]) -> list[Arrival]:
    """The calls of a rank as `black_box_reader.Reader.arrivals` gives them. The latest one, where the rank is still in
    it, is left out: it is told again when it is over."""
    own = [_arrival(worker, call) for call in seen if len(call[-1]) >= 6]
    if own and not own[-1].returned and seen[-1][5] == black_box.INSIDE:
        del own[-1]
    return own


def _arrival(worker: WorkerProcess, call: tuple[Any, ...]) -> Arrival:
    """One call. Those of other threads than the main one let nobody go."""
    ordinal, t, returned, seq, size, status, thread, peer, _, words = call
    op = words[0].decode("ascii", "replace") if thread == worker.pid else ""
    root = peer if status != black_box.ISSUED and returned >= 0 else -1
    group = words[1].decode("utf-8", "replace")
    return Arrival(ordinal, t, op, group, seq, size, words[3:5], root, max(returned, 0.0))
