"""How long a rank takes from one call of `should_stop()` to the next, and for a save: what a stop in time needs."""

from __future__ import annotations

import collections

BIN_S, BINS = 10.0, 90  # the longest of the last quarter of an hour
FACTOR = 1.5  # a step or a save may take so much longer than the longest that was seen; an estimate
REST_S = 5.0  # for the ends of the processes
UNSEEN_SAVE_S = 60.0  # where no save was seen yet; an estimate
SHARE = 1 / 3  # of a run, at most: in a short one there is no time for all of it


class Rhythm:
    """Learns from looks at the ranks. Times are CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._bins: collections.deque[tuple[float, float]] = collections.deque(maxlen=BINS)
        self._calls, self._since = 0, 0.0
        self._longest_save = 0.0

    def look(self, calls: int, saving_since: float, now: float) -> None:
        """One look.

        Args:
            calls: how many the slowest rank has made.
            saving_since: when the longest save that goes on has begun; 0 for none.
            now: of the look.
        """
        if saving_since:
            self._longest_save = max(self._longest_save, now - saving_since)
        if calls == self._calls:
            return
        if self._calls and calls > self._calls:
            self._keep((now - self._since) / (calls - self._calls), now)
        self._calls, self._since = calls, now

    def _keep(self, gap: float, now: float) -> None:
        if self._bins and now - self._bins[-1][0] < BIN_S:
            begun, longest = self._bins.pop()
            self._bins.append((begun, max(longest, gap)))
        else:
            self._bins.append((now, gap))

    @property
    def known(self) -> bool:
        """Whether two calls have been seen."""
        return bool(self._bins)

    def needed_s(self, whole_s: float) -> float:
        """How long before its end a run of `whole_s` seconds is to be asked to stop."""
        step = max((gap for _, gap in self._bins), default=0.0)
        save = self._longest_save or UNSEEN_SAVE_S
        return min(FACTOR * (step + save) + REST_S, SHARE * whole_s)
