"""The words in a rank's slot by which supervisor and ranks agree at which call of `should_stop()` all ranks stop.

Written inside workers, whatever their Python (3.8 syntax, standard library only). Layout, from the start of the area,
in items of eight bytes; the first of them are the rank's, the last one is the supervisor's:

    0  how many calls the rank has made; written before LIMIT is read
    1  the call that was the first to return True (0: none has)
    2  the signal that asked the rank itself to stop (0: none did)
    3  the signals that a handler of ours catches in this rank, as bits
    4  LIMIT: 0 (go on), `HELD` (wait: it is being agreed), or the first call that returns True

To stop, the supervisor writes HELD, waits `SETTLE_S`, and reads all counts. By then a rank has either published the
call that it is in, or comes to a call later, sees HELD, and waits. So no rank has returned False for a call beyond the
largest count, and none will: that count plus one can be the first True of all. Nothing is to be learned or paid while
nobody stops. `SETTLE_S` stands for a memory barrier: a processor's stores become visible within microseconds.
"""

from __future__ import annotations

import itertools
import time

CALLS, TOLD, ASKED, CAUGHT, LIMIT = range(5)
SIZE = 64
GO_ON, HELD = 0, (1 << 64) - 1
SETTLE_S = 0.02
PATIENCE_S = 4.0  # a supervisor that says no more has been stopped, or has failed: the rank goes on without it
POLL_S = 0.0005


class Rank:
    """A rank's own words: called, it says whether the rank is to stop.

    Args:
        memory: of the slot, writable.
        base: where the area begins.
    """

    def __init__(self, memory, base: int) -> None:  # type: ignore[no-untyped-def]
        self.words = memoryview(memory)[base : base + SIZE].cast("Q")
        self._next = itertools.count(1).__next__  # whole whichever thread comes
        self._alone = False

    def __call__(self) -> bool:
        words = self.words
        words[0] = count = self._next()
        if not words[4]:
            return False
        return self._agreed(count)

    def _agreed(self, count: int) -> bool:
        words = self.words
        limit: int = words[LIMIT]
        until = time.monotonic() + PATIENCE_S
        while limit == HELD and not self._alone:
            time.sleep(POLL_S)
            limit = words[LIMIT]
            self._alone = time.monotonic() > until
        if limit in (GO_ON, HELD):
            return False
        self._alone = False
        if count < limit:
            return False
        if not words[TOLD]:
            words[TOLD] = count
        return True


class Ranks:
    """The words of some ranks, as the supervisor has them.

    Args:
        areas: one a rank, writable.
    """

    def __init__(self, areas) -> None:  # type: ignore[no-untyped-def]
        self._words = [area.cast("Q") for area in areas]

    def largest(self, word: int) -> int:
        """The largest of one word of all ranks."""
        return max((words[word] for words in self._words), default=0)

    def each(self, word: int) -> list[int]:
        """One word of each rank."""
        return [words[word] for words in self._words]

    def limit(self, limit: int) -> None:
        """Write LIMIT into each, where it says something else: a rank that begins has cleared its slot."""
        for words in self._words:
            if words[LIMIT] != limit:
                words[LIMIT] = limit
