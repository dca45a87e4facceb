"""The values of `safelaunch.expect_same`: this node's ranks tell them, and the hub compares those of all nodes."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from typing import Any

from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import TellValues
from safelaunch.model import Finding, WorkerGroup, WorkerProcess
from safelaunch.model.values import Told
from safelaunch.redaction import redact
from safelaunch.report.verdict import relative
from safelaunch.run.inboxes import Inbox
from safelaunch.watch.values import Values

MOST = 2000  # values in a message of the link
Read = Callable[[WorkerProcess, int], "tuple[list[dict[str, Any]], int]"]


class RankValues:
    """Listens to this node's ranks, and as the hub to all nodes.

    Args:
        read: the remarks of a rank behind an offset, and where to go on.
        inbox: what other nodes tell.
    """

    def __init__(self, read: Read, inbox: Inbox) -> None:
        self._read = read
        self._inbox = inbox
        self._attempt = -1
        self._link: Link | None = None

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:
        """What differs."""
        if group.attempt != self._attempt:
            self._attempt, self._offsets, self._own = group.attempt, dict[int, int](), list[Told]()
            self._values = Values(group.world_size)
        self._take_in()
        self._own += [value for worker in group.workers for value in self._of(worker)]
        if group.world_size == len(group.workers) or last:
            self._values.add(self._own)
            self._own.clear()
        elif self._link is not None and self._link.reaches_hub:  # some seconds after the ranks have begun
            for at in range(0, len(self._own), MOST):
                self._link.to_hub(TellValues(group.attempt, tuple(self._own[at : at + MOST])))
            self._own.clear()
        return self._values.told(last=last)

    def _take_in(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._link, _, message = self._inbox.get_nowait()
                if isinstance(message, TellValues) and message.attempt == self._attempt:
                    self._values.add(message.values)

    def _of(self, worker: WorkerProcess) -> list[Told]:
        said, self._offsets[worker.local_rank] = self._read(worker, self._offsets.get(worker.local_rank, 0))
        found: list[Told] = []
        for remark in said:
            if remark.get("kind") == "same":
                place = f"{relative(remark['file'])}:{remark['line']}"
                found += [
                    Told(worker.rank, remark["name"], remark["number"], part, digest, redact(part, shown), place)
                    for part, digest, shown in remark["items"]
                ]
        return found
