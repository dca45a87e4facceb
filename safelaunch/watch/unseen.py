"""Ranks that can only be watched for their end: those that show no heartbeat, or use no torch.distributed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from safelaunch.pulse import HAS_TORCH, USES_GROUPS, Pulse

TELL_UNUSED_S = 20.0  # ranks that have torch and make no process group for so long are told of
TELL_UNSEEN_S = 60.0  # ... and ranks that show nothing at all


class Unseen:
    """Knows of one run whether this has been told: it is told once."""

    def __init__(self) -> None:
        self.unseen = 0  # ranks without a heartbeat, in the latest round
        self._told = False
        self._started = self._started_beating = 0.0

    def restart(self, now: float) -> None:
        """A new attempt, at that CLOCK_MONOTONIC."""
        self._started = self._started_beating = now

    def poll(self, living: Collection[int], pulses: Mapping[int, Pulse], now: float) -> str:
        """One round; what is to be told: `unseen`, `unused`, or nothing.

        Args:
            living: the ranks.
            pulses: of those that write one.
            now: CLOCK_MONOTONIC.
        """
        if self._told:
            return ""
        self.unseen = sum(rank not in pulses for rank in living)
        if any(pulse.state & USES_GROUPS for pulse in pulses.values()):
            self._told = not self.unseen
        if not any(pulse.beat or pulse.state & HAS_TORCH for pulse in pulses.values()):
            self._started_beating = now
        news = self._news(now)
        self._told = self._told or bool(news)
        return news

    def _news(self, now: float) -> str:
        if self.unseen:
            return "unseen" if now - self._started > TELL_UNSEEN_S else ""
        return "unused" if not self._told and now - self._started_beating > TELL_UNUSED_S else ""
