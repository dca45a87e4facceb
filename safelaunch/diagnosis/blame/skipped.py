"""Whether a rank has gone past a call that its peers are in: then it has skipped it, and made none too many."""

from __future__ import annotations

from safelaunch.diagnosis.blame.variants import Place
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.waitgraph.calls import frames_at
from safelaunch.model import Collective, Location, RankFacts


def has_skipped(who: Place, peer: Place, lines: Lines) -> bool:
    """Whether `who` has passed the line of its peer's call, without making it, since the latest call of both.

    From that latest call on, the lines of one function follow one another, and after the last one of a loop comes its
    first. Where the two lines are not in one function and the same loops, or stand in the two branches of one `if`,
    nothing is known.
    """
    lines_of_both = _in_one_function(who, peer)
    before = _latest_of_both(who[0], peer[0])
    if lines_of_both is None or before is None:
        return False
    own, theirs = lines_of_both
    here, there = lines.get((own.file, own.line)), lines.get((theirs.file, theirs.line))
    if here is None or there is None or here.loops != there.loops:
        return False
    if (before.file, before.function) != (own.file, own.function):
        return False
    opposite = {(condition.line, condition.holds) for condition in here.conditions}
    if any((condition.line, not condition.holds) in opposite for condition in there.conditions):
        return False
    first, last = here.loops[-1] if here.loops else (0, 0)
    if here.loops and not first <= before.line <= last:
        return False
    round_ = last - first + 1 if here.loops else 0
    return 0 < _distance(before.line, theirs.line, round_) < _distance(before.line, own.line, round_)


def _distance(start: int, line: int, round_: int) -> int:
    """How many lines behind `start` another line is; in a loop of `round_` lines that may be in its next turn."""
    return line - start if line > start else line - start + round_


def _in_one_function(who: Place, peer: Place) -> tuple[Location, Location] | None:
    """Where both are in the innermost function that both are in, on the way to their calls."""
    own = {(frame.file, frame.function): frame for frame in reversed(frames_at(*who, who[1].thread))}
    for frame in frames_at(*peer, peer[1].thread):
        mine = own.get((frame.file, frame.function))
        if mine is not None:
            return mine, frame
    return None


def _latest_of_both(one: RankFacts, other: RankFacts) -> Location | None:
    """The line of the latest call that has ended for both, where it is one and the same."""
    mine, theirs = _latest(one), _latest(other)
    if mine is None or theirs is None or mine.location is None:
        return None
    same = (mine.group, mine.seq, mine.location) == (theirs.group, theirs.seq, theirs.location)
    return mine.location if same else None


def _latest(facts: RankFacts) -> Collective | None:
    return next((call for call in reversed(facts.calls) if call.done and not call.issued and not call.is_message), None)
