"""Which ranks have left a loop in which others still are: from stacks and source, or from what they did before."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from safelaunch.diagnosis.blame.rounds import round_of
from safelaunch.diagnosis.blame.variants import Place, Variant, where_they_part
from safelaunch.diagnosis.lines import Lines, by_place, calls_in_order, with_callers
from safelaunch.diagnosis.waitgraph.calls import canonical, frames_at, frames_of, record_is_complete
from safelaunch.diagnosis.waitgraph.record import LEAVING
from safelaunch.diagnosis.wording import call_at, names
from safelaunch.model import Collective, Location, RankFacts, SourceLine

ON_THE_RANK = re.compile(r"rank|is_(main|master|primary|lead|chief)", re.IGNORECASE)
CLOSING = {canonical(name) for name in ("barrier", LEAVING)}  # what programs do after their loop
UNEVEN = "all ranks must make the same number of steps: look for uneven data, or use `drop_last` or DDP's `join()`"
SEVERAL = 1.5  # calls of a group for each step; an estimate
Frame = tuple[str, int, str]  # file, line and function


@dataclass(frozen=True)
class LoopExit:
    """The ranks that stand behind a loop in which all others still are.

    Args:
        ranks: which.
        unclear: there are none, and one may have left it all the same. It cannot be told from a rank that skipped what
            its peers do behind the loop, and is in the loop again.
        again: all are inside another loop, which leads there once more. Then they may have never been in the inner one
            this time.
    """

    ranks: tuple[int, ...] = ()
    unclear: bool = False
    again: bool = False


NOBODY, UNCLEAR = LoopExit(), LoopExit(unclear=True)


def left_the_loop(source: Iterable[SourceLine], variants: list[Variant]) -> LoopExit:
    """A rank has left the loop in which its peers still are: they wait for it where it will not come again.

    Example:
        error[SL303]: rank 3 left the loop and entered barrier #12 (train.py:70); peers still in it wait in all_reduce
            #12 (train.py:61)

    How it was concluded: ranks have come to one number of a group with different calls. By their stacks and the source,
    one line stands inside a loop, and the other behind it. Where the source cannot be read, the calls that ranks have
    always made tell it, with less confidence. The records of loaders say how many batches each rank had. A rank that
    ran out of batches and does something else meanwhile, such as an upload, has left the loop as well. Where all ranks
    but one have left, that one may have too much to do: then nobody is named, or one of two with less confidence.

    What to do: all ranks must make the same number of steps. Look for uneven data, an early `break` or `return`, or use
    `drop_last`, DistributedSampler or DDP's `join()`.

    What it is not: a rank that skipped one call within a step. That is SL302.
    """
    lines = by_place(source)
    if not lines:
        return _by_history(variants)
    looked = _look(lines, variants)
    if looked is None:
        return UNCLEAR
    inside, behind = looked.inside, looked.behind
    everybody = len({*inside, *behind}) == sum(len(variant) for variant in variants)
    if not behind or inside.keys() & behind.keys() or not everybody:
        return UNCLEAR if looked.blind and _is_left_behind(variants) else NOBODY
    if not looked.again:
        return LoopExit(tuple(sorted(behind)))
    if any(_ended_its_loader(facts) for facts in inside.values()):
        return NOBODY
    one = len(behind) == 1 and not looked.guarded
    sure = one or all(_ended_its_loader(facts) for facts in behind.values())
    return LoopExit(tuple(sorted(behind)), again=True) if sure else UNCLEAR


def has_left(ranks: tuple[int, ...], mine: Place, theirs: Place, *, again: bool) -> str:
    """`ranks 1 and 2 left the loop and entered barrier #9; peers still in it wait in all_reduce #8`."""
    groups = mine[1].group != theirs[1].group
    callers = where_they_part(mine, theirs)
    call, peers = (
        call_at(one[1], group=groups, caller=caller) for one, caller in zip((mine, theirs), callers, strict=True)
    )
    if again:
        beyond = f"{names(ranks)} {'is' if len(ranks) == 1 else 'are'} past the loop in which peers still are"
        return f"{beyond}, in {call}; those wait in {peers}"
    return f"{names(ranks)} left the loop and entered {call}; peers still in it wait in {peers}"


def stays_alone(participants: set[int], left: tuple[int, ...]) -> tuple[str, ...]:
    """Said where all ranks but one have left: what they have less, or it has more, only their owner knows."""
    stays = participants - {*left}
    if len(stays) > 1:
        return ()
    return (
        f"only {names(stays)} is still in it: whether it has too much to do, or {names(left)} too little, is not known",
    )


@dataclass(frozen=True)
class _Looked:
    """Who is inside a loop, and who behind it. `again` says that both may come to that loop once more, `blind` that the
    lines of some pair could not be compared, `guarded` that one behind stands there by a condition of its own: then the
    others may have passed that by, and be in the loop once more."""

    inside: dict[int, RankFacts]
    behind: dict[int, RankFacts]
    again: bool
    blind: bool
    guarded: bool


def _look(lines: Lines, variants: list[Variant]) -> _Looked | None:
    """Each rank compared with all of other sides; None where it cannot be told whether one has been in the loop."""
    inside, behind = {}, {}
    again = blind = guarded = False
    gone_on = _gone_on(variants)
    still = [[pair for pair in variant if pair[0].rank not in gone_on] for variant in variants]
    for (facts, call), (peer, theirs) in _pairs(still):
        fork = _fork(frames(facts, call, lines), frames(peer, theirs, lines), lines)
        blind = blind or fork is None
        if fork is None or (loop := fork.loop_left(facts, call)) is None:
            continue
        was_inside = _was_inside(peer, loop, call, fork.conditions_of(loop))
        if was_inside is None:
            return None
        if was_inside:
            inside[facts.rank], behind[peer.rank] = facts, peer
            again = again or fork.in_outer_loop
            guarded = guarded or _is_guarded(lines, (peer, theirs), (facts, call))
    for places in (inside, behind):
        places.update({facts.rank: facts for facts, mate in gone_on.values() if mate in places})
    return _Looked(inside, behind, again, blind, again and guarded)


def _is_guarded(lines: Lines, behind: Place, inside: Place) -> bool:
    """Whether the one behind has come to its call by a condition of its own, while nobody knows which pass through the
    loop the other makes: its call is not in a rank's own record."""
    fork = _fork(frames(*behind, lines), frames(*inside, lines), lines)
    return inside[1].location is None and fork is not None and fork.is_guarded


def _pairs(variants: list[Variant]) -> Iterator[tuple[Place, Place]]:
    """Each rank with each of other sides, both ways round."""
    for one, other in itertools.permutations(variants, 2):
        yield from itertools.product(one, other)


Loop = tuple[str, int, int]  # file, first and last line


@dataclass(frozen=True)
class _Fork:
    """The function in which two stacks come apart: the line `here` of the one, those that it calls from there, and the
    line `there` of the other; `later` says that both are one line, which calls the other's function after the one's."""

    here: SourceLine
    deeper: list[SourceLine]
    there: SourceLine
    later: bool = False

    @property
    def in_outer_loop(self) -> bool:
        """Whether a loop is around both."""
        return bool(set(self.here.loops) & set(self.there.loops))

    @property
    def is_guarded(self) -> bool:
        """Whether the one has come to its call by a condition that the other does not share."""
        conditions = [each for line in (self.here, *self.deeper) for each in line.conditions]
        return any(each not in self.there.conditions for each in conditions)

    def loop_left(self, facts: RankFacts, call: Collective) -> Loop | None:
        """The loop that the one is in, and the other behind. Not one within the step: behind it one may be in every
        step."""
        loop = self._loop
        own = set(self.here.loops) - set(self.there.loops)
        around = [*own, *(each for line in self.deeper for each in line.loops)]
        return None if loop is not None and len(around) == 1 and _begins_anew(facts, call) else loop

    @property
    def _loop(self) -> Loop | None:
        """The outermost loop that `here`, or what it calls, is inside of, and that `there` stands behind."""
        here, there = self.here, self.there
        own = {condition.line: condition for condition in here.conditions}
        if any(own.get(condition.line, condition) != condition for condition in there.conditions):
            return None  # the two branches of one `if`: neither stands behind the other
        left = [loop for loop in here.loops if loop not in there.loops]
        if left:
            return (here.file, *left[0]) if all(there.line > last for _, last in left) else None
        called = next((line for line in self.deeper if line.loops), None)
        return (
            (called.file, *called.loops[0]) if called is not None and (self.later or there.line > here.line) else None
        )

    def conditions_of(self, loop: Loop) -> list[str]:
        """The conditions under which a loop is entered at all, and which `there` does not share."""
        file, first, last = loop
        found = []
        for line in (self.here, *self.deeper):
            found += [
                each.text
                for each in line.conditions
                if each not in self.there.conditions and not (line.file == file and first <= each.line <= last)
            ]
            if line.file == file and (first, last) in line.loops:
                break  # what is called from inside the loop does not decide about it
        return found


def _fork(one: list[Frame], other: list[Frame], lines: Lines) -> _Fork | None:
    """Where two stacks come apart, both in one function; None where they do not, or its source is not known."""
    for depth, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if (mine[0], mine[2]) != (theirs[0], theirs[2]):
            return _fork_of_calls(one, other, depth, lines)
        if mine[1] != theirs[1]:
            here, there = lines.get(mine[:2]), lines.get(theirs[:2])
            deeper = [line for frame in one[depth + 1 :] if (line := lines.get(frame[:2])) is not None]
            return _Fork(here, deeper, there) if here is not None and there is not None else None
    return None


def _fork_of_calls(one: list[Frame], other: list[Frame], depth: int, lines: Lines) -> _Fork | None:
    """Where one line has called two functions, each with one of the stacks: `report(train_epoch(...))`."""
    line = lines.get(one[depth - 1][:2]) if depth else None
    order = calls_in_order(line.text) if line is not None else []
    mine, theirs = (frames[depth][2].rpartition(".")[2] for frames in (one, other))
    if line is None or order.count(mine) != 1 or order.count(theirs) != 1:
        return None
    deeper = [each for frame in one[depth:] if (each := lines.get(frame[:2])) is not None]
    return _Fork(line, deeper, line, later=order.index(mine) < order.index(theirs))


def _begins_anew(facts: RankFacts, call: Collective) -> bool:
    """Whether a call is the first one of a pass through a loop that stands within each step, over parameters for one.

    Whoever has made the call before has been through the whole loop then. It is so

    - where an optimizer's step lies between the two, of which steps have several, at that line,
    - or where the group was only ever used there, with sizes that come round again, and they are at their beginning.
    """
    own = [one for one in facts.calls if one.group == call.group and (one.done or one == call)]
    if len(own) < 2 or own[-1] != call or own[-2].location != call.location or call.location is None:
        return False
    if facts.stepped is not None and facts.step:
        return facts.stepped > own[-2].t and call.seq > SEVERAL * facts.step
    return _is_first_in_round(own)


def _is_first_in_round(calls: list[Collective]) -> bool:
    """Whether all of these are made at one line, their sizes come round again, and the last is the first of a round."""
    length = round_of([call.numel for call in calls[:-1]])
    if length is None or length == 1 or any(call.location != calls[-1].location for call in calls):
        return False
    return (calls[-1].seq - 1) % length == 0


def _gone_on(variants: list[Variant]) -> dict[int, tuple[RankFacts, int]]:
    """The ranks whose stacks show something later than the call in question, each with one of its variant.

    That one is still inside the call, at the same line, and its stack speaks for both.
    """
    found = {}
    for variant in variants:
        inside = {call.location: facts.rank for facts, call in variant if not call.done and call.location is not None}
        for facts, call in variant:
            if call.done and call.location in inside:
                found[facts.rank] = facts, inside[call.location]
    return found


def _was_inside(peer: RankFacts, loop: Loop, call: Collective, conditions: list[str]) -> bool | None:
    """Whether a rank that stands behind a loop has been in it; None where that cannot be told.

    Args:
        peer: the rank behind the loop.
        loop: which.
        call: the collective inside it, in which another rank is.
        conditions: under which the loop is entered.
    """
    file, first, last = loop
    places = [own.location for own in peer.collectives if own.location is not None]
    if not conditions or any(place.file == file and first <= place.line <= last for place in places):
        return True
    if call.location is not None and record_is_complete(peer):
        return False  # its record would show such a call
    return False if any(ON_THE_RANK.search(text) for text in conditions) else None


def _ended_its_loader(facts: RankFacts) -> bool:
    """Whether a loader of the rank has come to its end since its last collective came back."""
    last = max((call.t for call in facts.collectives if call.done and not call.issued), default=0.0)
    return facts.exhausted is not None and facts.exhausted > last


def _by_history(variants: list[Variant]) -> LoopExit:
    """Without source: a barrier that no rank had made before, against a call that all sides had made before."""
    behind: list[int] = []
    for variant in variants:
        rest = [pair for other in variants if other is not variant for pair in other]
        if canonical(variant[0][1].op) not in CLOSING:
            continue
        fresh = all(not _made_before(facts, variant[0][1]) for facts, _ in (*variant, *rest))
        alike = {(call.group, call.seq, call.op, call.location): call for _, call in rest}
        going_on = all(_made_before(facts, call) for call in alike.values() for facts, _ in (*variant, *rest))
        if fresh and going_on:
            behind += [facts.rank for facts, _ in variant]
    if behind:
        return LoopExit(tuple(sorted(behind)))
    return UNCLEAR if _is_left_behind(variants) else NOBODY


def _is_left_behind(variants: list[Variant]) -> bool:
    """Whether the few go on with what ranks have done before, as far as is known, and the many have come to something
    new.

    That the few are wrong, and that the many have left a loop too early, then look alike.
    """
    few = min(variants, key=len)
    everybody = [facts for variant in variants for facts, _ in variant]
    old = all(call.location is None or any(is_usual(facts, call) for facts in everybody) for _, call in few)
    return old and not any(is_usual(*pair) for variant in variants if variant is not few for pair in variant)


def is_usual(facts: RankFacts, call: Collective) -> bool:
    """Whether a rank has made this call before, as far as the record that is left tells; what C++ makes is in that of
    the Flight Recorder alone."""
    of_cpp = call.location is None and bool(call.state)
    return any(
        own.seq < call.seq
        and own.group == call.group
        and canonical(own.op) == canonical(call.op)
        and (own.location == call.location or None in (own.location, call.location))
        for own in (*facts.calls, *((facts.recorded or ()) if of_cpp or not facts.calls else ()))
    )


def _made_before(facts: RankFacts, call: Collective) -> bool:
    return any(
        own.seq < call.seq and own.group == call.group and (own.op, own.location) == (call.op, call.location)
        for own in facts.calls
    )


def frames(facts: RankFacts, call: Collective, lines: Lines | None = None) -> list[Frame]:
    """The user's frames of a rank that is inside a call, outermost first; functions without their classes, which not
    every stack has."""
    return [(f.file, f.line, f.function.rpartition(".")[2]) for f in reversed(way_to(facts, call, lines or {}))]


def way_to(facts: RankFacts, call: Collective, lines: Lines) -> list[Location]:
    """The user's frames of a rank that is inside a call, innermost first, as far as stack and source have them."""
    found = frames_at(facts, call, call.thread) or ([call.location] if call.location is not None else [])
    return with_callers(found, frames_of(facts, call.thread), lines)
