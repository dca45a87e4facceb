"""Timeouts that ranks tell of: those of the script, which nobody could know before, beside the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from safelaunch.model import Finding, WorkerGroup, WorkerProcess

Remark = dict[str, Any]
Reader = Callable[[WorkerProcess, int], "tuple[list[Remark], int]"]
Judge = Callable[["Remark | None", "Remark | None"], Iterable[Finding]]


class RankTimeouts:
    """What the ranks of one run have told, and what follows from it: each code once, and again where it is worse.

    Args:
        read: what a rank has said since an offset, and where to go on; it costs some microseconds.
        judge: what is wrong with the timeout of a rank's process group and the longest one of its loaders, None for
            what it has not told.
    """

    def __init__(self, read: Reader, judge: Judge) -> None:
        self._read = read
        self._judge = judge
        self._offsets: dict[int, int] = {}
        self._groups: dict[int, Remark] = {}  # by pid
        self._loaders: dict[int, Remark] = {}
        self._told: set[tuple[str, bool]] = set()

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:  # noqa: ARG002  it never waits
        """What is new."""
        found: list[Finding] = []
        for worker in group.workers:
            offset = self._offsets.get(worker.local_rank, 0)
            said, self._offsets[worker.local_rank] = self._read(worker, offset)
            for remark in said:
                if self._take(worker.pid, remark):
                    judged = self._judge(self._groups.get(worker.pid), self._loaders.get(worker.pid))
                    found += [finding for finding in judged if self._is_news(finding)]
        return found

    def _take(self, pid: int, remark: Remark) -> bool:
        """Whether the remark counts."""
        if remark["kind"] == "group":
            self._groups[pid] = remark
            return True
        longest = self._loaders.get(pid)
        if remark["kind"] != "loader" or (longest is not None and remark["seconds"] <= longest["seconds"]):
            return False
        self._loaders[pid] = remark
        return True

    def _is_news(self, finding: Finding) -> bool:
        """A note does not keep back the warning that comes after it."""
        note = finding.severity == "note"
        if (finding.code, False) in self._told or (finding.code, note) in self._told:
            return False
        self._told.add((finding.code, note))
        return True
