"""Whether a rank has gone past a call that its peers are in: then it has skipped it, and made none too many."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safelaunch.diagnosis.blame.variants import Place
from safelaunch.diagnosis.blame.ways_out import AFTER_AN_EXCEPTION, COUNTS, EACH_ALIKE, in_words
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.waitgraph.calls import canonical, frames_at
from safelaunch.diagnosis.wording import call_at, in_brackets
from safelaunch.model import Collective, Condition, Location, RankFacts, SourceLine, WayOut

# Tests that hold every so many steps come out alike on all ranks that have made as many.
EVERY = re.compile(
    r"^\(?\w*(?:step|iter|epoch|batch|idx|count|num|i|n)\w*(?:\s*[+-]\s*\d+\)?)?\s*%\s*[\w.]+\s*==\s*[\w.]+$"
)
LONG = 5  # calls between two of the rare ones: then one pass that was skipped is seldom the very pass of the rare one


@dataclass(frozen=True)
class SkippedPass:
    """The rank that came to what is done every so many passes, before its peer had made the call of as many passes.

    Args:
        who: that rank, and the call that it is in.
        peer: the other one, and its own, which every pass makes that is not cut short.
        at: the line of that.
        way: how a pass is cut short.
        every: under which condition the call of `who` is made.
        file: of the source.
        since: how many collectives each of them has made since the rare one before; None where that is not known.
    """

    who: Place
    peer: Place
    at: Location
    way: WayOut
    every: Condition
    file: str
    since: int | None

    @property
    def summary(self) -> str:
        (facts, call), (peer, theirs) = self.who, self.peer
        return (
            f"rank {facts.rank} skipped {theirs.op}{in_brackets(self.at)} in a pass: it is in {call_at(call)}, "
            f"and rank {peer.rank} still makes {theirs.op} #{theirs.seq}"
        )

    @property
    def because(self) -> tuple[str, ...]:
        call, peer = self.who[1], self.peer[0]
        counts = (f"each has made {self.since} collectives since the {call.op} before",) if self.since else ()
        return (
            in_words(self.file, self.way),
            *counts,
            f"unless rank {peer.rank} skipped {call.op}, in the one pass where `{self.every.text}` held: less likely",
        )

    @property
    def remedy(self) -> str:
        return AFTER_AN_EXCEPTION if self.way.handler else EACH_ALIKE


def skipped_pass(who: Place, peer: Place, lines: Lines) -> SkippedPass | None:
    """Whether `who` has cut a pass short in which its peer has made its call, by what the source and the numbers tell:

    - both are in one function and one loop, `who` at a later line, which is reached every so many steps;
    - a `continue` above the peer's line cuts a pass short, by a test that does not count steps, or in an `except`;
    - many passes lie between two calls like that of `who`. That the peer has left that one out, it would have to have
      cut short the very pass in which it comes.
    """
    lines_of_both = _in_one_function(who, peer)
    if lines_of_both is None:
        return None
    own, theirs = lines_of_both
    here, there = lines.get((own.file, own.line)), lines.get((theirs.file, theirs.line))
    if here is None or there is None or not here.loops or here.loops != there.loops or here.line <= there.line:
        return None
    way, every, since = _way(there), _every(here, there), _since(*who)
    if way is None or every is None or (who[0].step if since is None else since) < LONG:
        return None
    return SkippedPass(who, peer, theirs, way, every, here.file, since)


def _every(here: SourceLine, there: SourceLine) -> Condition | None:
    """The innermost condition of a line that another one does not share; None where one of these counts no steps."""
    own = [each for each in here.conditions if each not in there.conditions]
    return own[-1] if own and all(each.holds and EVERY.match(each.text) for each in own) else None


def _way(line: SourceLine) -> WayOut | None:
    """What cuts a pass of the innermost loop short above a line, and not on all ranks alike."""
    ways = [
        way for way in line.exits if way.word == "continue" and way.loop == line.loops[-1][0] and way.line < line.line
    ]
    alike = [
        way for way in ways if not way.handler and (not way.test or COUNTS.match(way.test) or EVERY.match(way.test))
    ]
    return next((way for way in ways if way not in alike), None)


def _since(facts: RankFacts, call: Collective) -> int | None:
    """How many collectives of the group a rank has made since its latest call like this one."""
    before = [
        own.seq
        for own in facts.calls
        if own.group == call.group
        and own.seq < call.seq
        and own.location == call.location
        and canonical(own.op) == canonical(call.op)
    ]
    return call.seq - max(before) - 1 if before else None


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
