"""Runs in: agent. Lines that several ranks print alike become one line for all of them (`--log merge`).

    [0-3] epoch 1 begins
    [0-3] loss 2.31…2.38

Lines are alike where they are the same but for the numbers in them. The order of each rank's lines stays as it was.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

HOLD_S = 0.5  # a line waits for those of other ranks so long at most
MOST_WAITING = 1000  # lines, before the first of them is shown without those that may still come
MOST_DIFFERENT = 3  # numbers of a line in which ranks differ: a line with more of them is shown for each rank
NEAR = 32  # waiting lines among which a rank's own is looked for by its exact words

# A number that follows a letter belongs to a name: `float32`, `a3f9`. In `\x1b[31m` is none, but behind it may be one.
NUMBER = re.compile(
    r"(?:(?<![\w.])(?<!\x1b\[)(?<!\d;)|(?<=\x1b\[\dm)|(?<=[\[;]\d\dm))[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
)
TRACEBACK = "Traceback (most recent call last):"

Head = Callable[[str, float], str]
_told: list[str] = []  # the fault of ours for which lines are not merged any more: it is told once


class Waiting:
    """A line that is to be shown, and the ranks that have printed it so far."""

    __slots__ = ("begun", "key", "ranks", "serial", "texts", "urgent")

    def __init__(self, key: str, serial: int, begun: float) -> None:
        self.key = key
        self.serial = serial
        self.begun = begun
        self.texts: dict[str, list[int]] = {}
        self.ranks = 0
        self.urgent = False

    def add(self, rank: int, text: str) -> None:
        """One more rank has printed it."""
        self.texts.setdefault(text, []).append(rank)
        self.ranks += 1


class Merger:
    """Takes the lines of ranks, and gives back those that are to be shown. A fault of its own ends the merging, never
    the output: from then on each line is shown as it comes, behind the number of its rank.

    Args:
        ranks: how many ranks there are on this node.
        head: what goes before a line, by its ranks (`0-3`) and the time at which the first of them printed it.
    """

    def __init__(self, ranks: int, head: Head) -> None:
        self._count = ranks
        self._head = head
        self._waiting: deque[Waiting] = deque()
        self._by_key: dict[str, list[Waiting]] = {}
        self._last: dict[int, int] = {}  # the serial of the line that a rank has printed last
        self._serial = 0
        self._urgent: dict[int, float] = {}
        self._shown: list[str] = []  # lines that wait no more
        self._merges = True

    def add(self, rank: int, text: str, now: float) -> None:
        """A rank has printed a line.

        Args:
            rank: its number.
            text: without an end.
            now: CLOCK_MONOTONIC.
        """
        if self._merges:
            try:
                self._add(rank, text, now)
                return
            except Exception as fault:
                self._give_up(fault)
        self._shown.append(_plain(rank, text))

    def due(self, now: float) -> float:
        """Seconds until a line is to be shown; infinity where none waits."""
        if self._shown:
            return 0.0
        if not self._waiting:
            return float("inf")
        return 0.0 if any(group.urgent for group in self._waiting) else self._waiting[0].begun + HOLD_S - now

    def ready(self, now: float, *, last: bool = False) -> str:
        """The lines that are to be shown now, in the order in which they came.

        Args:
            now: CLOCK_MONOTONIC.
            last: show all that wait.
        """
        if self._merges:
            try:
                self._let_go(now, last)
            except Exception as fault:
                self._give_up(fault)
        shown, self._shown = self._shown, []
        return "".join(shown)

    def _give_up(self, fault: Exception) -> None:
        self._merges = False
        for group in self._waiting:
            self._shown += [_plain(rank, text) for text, ranks in group.texts.items() for rank in ranks]
        self._waiting.clear()
        if not _told:
            _told.append(repr(fault)[:200])
            words = f"safelaunch's own fault, lines of several ranks are not shown as one any more: {_told[0]}"
            with contextlib.suppress(OSError, ValueError):  # nobody reads it
                print(f"safelaunch: warning[SL902]: {words}", file=sys.stderr, flush=True)

    def _add(self, rank: int, text: str, now: float) -> None:
        # A null byte stands for the numbers of a line: one that holds such bytes is alike to itself alone.
        key = "\n" + text if "\0" in text else NUMBER.sub("\0", text)
        group = self._open(key, rank, text)
        if group is None:
            self._serial += 1
            group = Waiting(key, self._serial, now)
            self._waiting.append(group)
            self._by_key.setdefault(key, []).append(group)
        self._last[rank] = group.serial
        if TRACEBACK in text:
            self._urgent[rank] = now
        group.urgent = group.urgent or now - self._urgent.get(rank, -HOLD_S) < HOLD_S
        group.add(rank, text)  # the last: what is added has been taken

    def _open(self, key: str, rank: int, text: str) -> Waiting | None:
        """The line that this one is to join: one that comes after the rank's own last, by its exact words before one
        that differs in numbers."""
        groups = self._by_key.get(key)
        if not groups:
            return None
        first = bisect_right(groups, self._last.get(rank, 0), key=lambda group: group.serial)
        near = groups[first : first + NEAR]
        return next((group for group in near if text in group.texts), near[0] if near else None)

    def _let_go(self, now: float, last: bool) -> None:
        through = max((group.serial for group in self._waiting if group.urgent), default=0)
        while self._waiting:
            group = self._waiting[0]
            whole = group.ranks == self._count
            waits = not whole and now - group.begun < HOLD_S and len(self._waiting) <= MOST_WAITING
            if waits and not last and group.serial > through:
                return
            shown = list(self._lines(group))
            self._waiting.popleft()
            self._shown += shown
            groups = self._by_key[group.key]
            groups.remove(group)
            if not groups:
                del self._by_key[group.key]

    def _lines(self, group: Waiting) -> Iterator[str]:
        if len(group.texts) > 1 and (one := spread(list(group.texts))) is not None:
            yield self._line(one, (rank for ranks in group.texts.values() for rank in ranks), group.begun)
            return
        for text, ranks in group.texts.items():
            yield self._line(text, ranks, group.begun)

    def _line(self, text: str, ranks: Iterable[int], begun: float) -> str:
        return f"{self._head(spans(sorted(ranks)), begun)}{text}\n"


def _plain(rank: int, text: str) -> str:
    return f"[{rank}] {text}\n"


def spread(texts: Sequence[str]) -> str | None:
    """Texts that are the same but for their numbers, as one: `loss 2.31…2.38`; None where too many numbers differ."""
    columns = list(zip(*(NUMBER.findall(text) for text in texts), strict=True))
    if sum(len(set(column)) > 1 for column in columns) > MOST_DIFFERENT:
        return None
    shown = iter([_range(column) for column in columns])
    return NUMBER.sub(lambda _: next(shown), texts[0])


def _range(numbers: Sequence[str]) -> str:
    least, most = min(numbers, key=float), max(numbers, key=float)
    return least if least == most or float(least) == float(most) else f"{least}…{most}"


def spans(ranks: Sequence[int]) -> str:
    """Ranks, in order, as they stand before a line: `0-3,5`."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


class Pieces:
    """The content of a rank's file, as lines and as a bar that it draws anew with a carriage return."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self.begun = ""  # of a line whose end is not known yet

    def feed(self, data: bytes) -> list[str]:
        """The lines that end in this block, each as a terminal would show it in the end."""
        *whole, rest = (self.begun + self._decoder.decode(data)).split("\n")
        # What is drawn over again is not needed any more.
        self.begun = rest[rest.rindex("\r", 0, -1) :] if "\r" in rest[:-1] else rest
        return [_in_the_end(line) for line in whole]

    @property
    def bar(self) -> str:
        """What stands at the place where the next carriage return leads back to; empty where there is no bar."""
        return self.begun.strip("\r").rpartition("\r")[2] if "\r" in self.begun else ""

    def rest(self) -> str:
        """What is left when the file says no more."""
        text = _in_the_end(self.begun + self._decoder.decode(b"", final=True))
        self.begun = ""
        return text


def _in_the_end(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]
