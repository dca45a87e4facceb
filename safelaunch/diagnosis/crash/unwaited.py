"""What a rank had only started as it ended: asynchronous calls that nobody waited for, which a peer needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch.diagnosis import pasted
from safelaunch.diagnosis.wording import at, in_brackets, label, names
from safelaunch.model import Collective, RankFacts


@dataclass(frozen=True)
class Unwaited:
    """A call that a rank started and did not wait for.

    Args:
        call: as the rank that left had made it.
        peers: who needed it, the first one first.
        theirs: that call of the first of them.
    """

    call: Collective
    peers: tuple[int, ...]
    theirs: Collective

    @property
    def told(self) -> str:
        """`waiting for isend to rank 1 (train.py:32), which rank 1 waited for in recv (train.py:39)`."""
        what = self.theirs.op if self.theirs.is_message else label(self.theirs)
        place = in_brackets(self.theirs.location)
        own = f"{label(self.call)}{in_brackets(self.call.location)}"
        return f"waiting for {own}, which {names(self.peers)} waited for in {what}{place}"

    @property
    def because(self) -> str:
        """That it was started, and no more."""
        return f"{self.call.op} #{self.call.seq}{at(self.call.location)} had only been started: nobody waited for it"

    @property
    def remedy(self) -> str:
        """What makes it end in time."""
        what = "batch_isend_irecv" if self.call.is_batched else pasted.name(self.call.op, "that call")
        kept = "the handles" if self.call.is_batched else "the handle"
        return f"keep {kept} that {what} returned, and call wait() before the program goes on or ends"


def needed_by(left: RankFacts, rest: Iterable[RankFacts]) -> Unwaited | None:
    """The first call that a rank had started only, and that a peer was still inside; None where there is none."""
    started = [call for call in left.calls if call.issued]
    inside = {other.rank: call for other in rest if other.rank != left.rank and (call := _inside(other)) is not None}
    for call in started:
        peers = [rank for rank, theirs in inside.items() if _meet(left.rank, call, rank, theirs)]
        if peers:
            return Unwaited(call, tuple(peers), inside[peers[0]])
    return None


def _inside(facts: RankFacts) -> Collective | None:
    """The call that a rank is inside of, or that raised an exception on it."""
    return next((call for call in reversed(facts.calls) if not call.done or call.raised), None)


def _meet(rank: int, call: Collective, other: int, theirs: Collective) -> bool:
    """Whether two calls of two ranks belong together: a message with its other end, or one collective."""
    if call.group != theirs.group or call.is_message != theirs.is_message:
        return False
    if not call.is_message:
        return (call.op, call.seq) == (theirs.op, theirs.seq)
    if call.peer != other or theirs.peer not in (rank, None) or ("recv" in call.op) == ("recv" in theirs.op):
        return False
    return call.tag == theirs.tag and (theirs.peer is None or call.seq == theirs.seq)
