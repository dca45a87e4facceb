"""A rank that gloo has aborted in one call, while all others are in another: the abort is a messenger."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.diagnosis.blame.uneven_data import had_fewer
from safelaunch.diagnosis.crash.first_failure import SIMULTANEOUS_S, Failure, aborted_inside, departure, failures
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import BACKWARD, is_inside_torch
from safelaunch.diagnosis.wording import SAME_ORDER, call_at, in_brackets, label, names, short, verb
from safelaunch.model import Collective, Location, PyError, RankFacts, Stack, Verdict

UNEVEN = "all ranks must make the same number of steps: look for uneven data, or use `drop_last` or DDP's `join()`"
TOLD = (
    "gloo aborts whichever rank receives bytes of another size: what that rank was in, and its peers, tells the cause"
)


@dataclass(frozen=True)
class _Place:
    """What a rank was in: a call of its own record, or a backward pass (None), at a line."""

    facts: RankFacts
    call: Collective | None
    line: Location

    @property
    def told(self) -> str:
        return call_at(self.call) if self.call is not None else f"a backward pass{in_brackets(self.line)}"


def aborted_by_gloo(view: View) -> Verdict | None:
    """A rank was aborted inside a collective by gloo, and its peers were in another call than it.

    How it was concluded: that rank failed first, inside torch.distributed, on a job that uses gloo. All other ranks
    were in calls of other lines, or at its line with another number. So the bytes that it received were not of its
    call. With batches that tell of it, the rank that ran out of data is named.

    What to do: see why the ranks came apart: uneven data, a batch that one rank skipped, an exception that was caught.
    """
    own = _aborted(view)
    peers = _peers(view, own) if own is not None else []
    if own is None or own.call is None or not peers:
        return None
    number = own.call
    behind = [peer for peer in peers if peer.call is not None and peer.line == own.line and peer.call.op == number.op]
    fewer = had_fewer(view.case, (own.facts.rank,))
    return crash_verdict(
        view,
        "SL411",
        _summary(own, peers, behind),
        [Failure(own.facts, "abort", departure(own.facts), False)] if fewer else [],
        location=own.line,
        because=(*fewer, *_lines(own, peers), TOLD),
        remedy=UNEVEN if fewer else f"{SAME_ORDER}: look for a step that one rank skipped, or an exception it caught",
        confidence="high" if fewer else "medium",
    )


def _peers(view: View, own: _Place) -> list[_Place]:
    """Where all others were; nothing where that is not known of one of them, or it may be the same call."""
    found = [_place(facts) for facts in view.case.ranks if facts.rank != own.facts.rank]
    peers = [place for place in found if place is not None]
    met = own.call is None or any(_is_met(own.call, peer) for peer in peers)
    return peers if len(peers) == len(found) and not met else []


def _aborted(view: View) -> _Place | None:
    """The rank that gloo aborted first; None where another rank departed before, or may have."""
    found = failures(view.case)
    aborted = [failure for failure in found if aborted_inside(failure)]
    if len(aborted) != 1 or not view.sees_all_ranks or not all(map(_uses_gloo, view.case.ranks)):
        return None
    rest = [facts for facts in view.case.ranks if facts.rank != aborted[0].rank]
    if any(departure(facts) < departure(aborted[0].facts) - SIMULTANEOUS_S for facts in rest):
        return None
    if any(not failure.consequence for failure in found if failure.rank != aborted[0].rank):
        return None
    return _place(aborted[0].facts)


def _uses_gloo(facts: RankFacts) -> bool:
    return facts.device is not None and facts.device.backend == "gloo"


def _place(facts: RankFacts) -> _Place | None:
    """Where a rank was in a call, or a backward pass; None where neither is known."""
    if facts.error is not None:
        return _of_error(facts, facts.error)
    last, stack = facts.last_collective, facts.fault or facts.stack
    line = user_frame(stack)
    if stack is None or line is None or not any(map(is_inside_torch, stack.frames[:3])):
        return None
    if _in_backward(stack):
        return _Place(facts, None, line)
    return _Place(facts, last, last.location or line) if last is not None and not last.done else None


def _of_error(facts: RankFacts, error: PyError) -> _Place | None:
    """The same of a rank that has raised: by now its stack is that of its end."""
    last, line = facts.last_collective, error.location
    if line is not None and BACKWARD in error.traceback:
        return _Place(facts, None, line)
    return _Place(facts, last, line) if last is not None and line is not None and last.location == line else None


def _in_backward(stack: Stack) -> bool:
    return any(BACKWARD in frame.function for frame in stack.frames[:3])


def _is_met(call: Collective, other: _Place) -> bool:
    """Whether a rank may be in the same call: at its line and number; or has come to that number in its record."""
    made = any((one.group, one.seq) == (call.group, call.seq) for one in other.facts.collectives)
    return made or (other.call is not None and other.call.group != call.group)


def _summary(own: _Place, peers: list[_Place], behind: list[_Place]) -> str:
    assert own.call is not None
    rank = own.facts.rank
    if behind and behind[0].call is not None:
        other, count = behind[0].call, abs(behind[0].call.seq - own.call.seq)
        less = "fewer" if own.call.seq < other.seq else "more"
        calls = "one collective" if count == 1 else f"{count} collectives"
        return (
            f"rank {rank} had made {calls} {less} than {names(p.facts.rank for p in behind)} when both came to "
            f"{short(own.line)}: {label(own.call)} and {label(other)}"
        )
    where = " or ".join(dict.fromkeys(peer.told for peer in peers))
    who = f"rank {peers[0].facts.rank} is" if len(peers) == 1 else "its peers are"
    return f"rank {rank} is in {own.told}, while {who} in {where}"


def _lines(own: _Place, peers: list[_Place]) -> tuple[str, ...]:
    told: dict[str, list[int]] = {}
    for place in (own, *peers):
        told.setdefault(place.told, []).append(place.facts.rank)
    return tuple(f"{names(ranks)} {verb(ranks, 'was', 'were')} in {what}" for what, ranks in told.items())
