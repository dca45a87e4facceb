"""Runs in: agent. What `--log prefix` and `--log merge` make of the ranks' output on its way to the console."""

from __future__ import annotations

import functools
import locale
import re
import socket
import time
from collections.abc import Mapping

from safelaunch.agent.console import BLOCK, LONGEST, Lines
from safelaunch.agent.merged import Merger, Pieces
from safelaunch.model import Log

FIELD = re.compile(r"\{(host|rank|time|date)\}")
BAR_EVERY_S = 10.0  # where a bar cannot be drawn over again, what it says is shown so often


def head(prefix: str, ranks: str, since: float) -> str:
    """What goes before a line.

    Args:
        prefix: as `model.Log` has it.
        ranks: that have printed it: `3`, `0-7`.
        since: when the first of them did, by CLOCK_MONOTONIC.
    """

    def value(field: re.Match[str]) -> str:
        if field[1] == "rank":
            return ranks
        if field[1] == "host":
            return socket.gethostname()
        at = time.time() - (time.monotonic() - since)
        if field[1] == "date":
            return time.strftime("%Y-%m-%d", time.localtime(at))
        return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03}"

    return FIELD.sub(value, prefix)


class PrefixedLines(Lines):
    """Lines behind a header that has the time."""

    def __init__(self, rank: int, prefix: str) -> None:
        super().__init__("")
        self._rank = str(rank)
        self._prefix = prefix

    def _headed(self, text: str) -> str:
        self._header = head(self._prefix, self._rank, time.monotonic()) if text else ""
        return super()._headed(text)


class MergedLines:
    """The lines of one rank on their way to the merger; the interface is that of `Lines`, and the text that it returns
    is what may not wait."""

    def __init__(self, rank: int, merger: Merger, prefix: str) -> None:
        self._rank = rank
        self._merger = merger
        self._prefix = prefix
        self._pieces = Pieces(locale.getpreferredencoding(False))
        self._bar_shown = 0.0

    def feed(self, data: bytes) -> str:
        """Take what has come; returns what is to be shown at once."""
        now = time.monotonic()
        lines = self._pieces.feed(data)
        if len(self._pieces.begun) > LONGEST:
            lines.append(self._pieces.rest())
        if len(data) >= BLOCK:  # a flood is shown without a look at what other ranks print
            before = head(self._prefix, str(self._rank), now)
            return self._merger.ready(now, last=True) + "".join(f"{before}{line}\n" for line in lines)
        for line in lines:
            self._merger.add(self._rank, line, now)
        return ""

    def rest(self) -> str:
        """The line that has no end is taken for one."""
        if text := self._pieces.rest():
            self._merger.add(self._rank, text, time.monotonic())
        return ""

    @property
    def unfinished(self) -> bool:
        """Whether there is a line without an end that is no bar."""
        return bool(self._pieces.begun) and not self._pieces.bar

    def bar(self) -> str:
        """What the rank's bar says, behind its prefix; empty where it draws none."""
        bar = self._pieces.bar
        return head(self._prefix, str(self._rank), time.monotonic()) + bar if bar else ""

    def show_bar_as_line(self, now: float) -> None:
        """Where a bar cannot be drawn over again, its newest state becomes a line now and then."""
        if self._pieces.bar and now - self._bar_shown >= BAR_EVERY_S:
            self._merger.add(self._rank, self._pieces.bar, now)
            self._bar_shown = now


def lines_of(log: Log, ranks: Mapping[int, int]) -> tuple[dict[int, Lines | MergedLines], Merger | None]:
    """What takes the output of each rank, by its local rank, and what merges it.

    Args:
        log: how lines are shown.
        ranks: rank by local rank.
    """
    if log.mode == "prefix":
        return {local: PrefixedLines(rank, log.prefix) for local, rank in ranks.items()}, None
    merger = Merger(len(ranks), functools.partial(head, log.prefix))
    return {local: MergedLines(rank, merger, log.prefix) for local, rank in ranks.items()}, merger
