"""What ranks have done at the same line before: a rank that departs from it, where all others do as always, is named
with medium confidence. A change may be meant, and the others may have missed it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from safelaunch.diagnosis.waitgraph.calls import RING, canonical
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import call_at, label, of_group, short
from safelaunch.model import Case, Collective, Location, RankFacts

OFTEN = 3  # times that something must have happened to be usual; an estimate


@dataclass(frozen=True)
class Deviation:
    """The rank that departs, and from what; `too` are others that do as well."""

    rank: int
    text: str
    too: tuple[int, ...] = ()


def other_size(meeting: Sequence[tuple[RankFacts, Collective]]) -> Deviation | None:
    """One rank brings another size or type to a line to which all have brought one and the same before."""
    before = {facts.rank: [(c.numel, c.dtype) for c in _before(facts, call)] for facts, call in meeting}
    usual = {size for sizes in before.values() for size in sizes}
    if len(usual) != 1 or any(len(sizes) < OFTEN for sizes in before.values()):
        return None
    odd = [(facts, call) for facts, call in meeting if (call.numel, call.dtype) not in usual]
    if len(odd) != 1:
        return None
    numel, dtype = usual.pop()
    return Deviation(odd[0][0].rank, f"all ranks had brought {numel} x {dtype} to this line before")


def other_line(meeting: Sequence[tuple[RankFacts, Collective]]) -> Deviation | None:
    """One rank comes to a number at another line than two others at least, where all of them have come to every number
    before at one line, to these two lines as well."""
    lines = {facts.rank: call.location for facts, call in meeting}
    odd = [rank for rank, line in lines.items() if [*lines.values()].count(line) == 1]
    if len(odd) != 1 or len(lines) < 3 or len({*lines.values()}) != 2 or None in lines.values():
        return None
    group, seq = meeting[0][1].group, meeting[0][1].seq
    before: dict[int, list[Location | None]] = {}
    for facts, _ in meeting:
        for call in facts.calls:
            if call.group == group and call.seq < seq and not call.is_message:
                before.setdefault(call.seq, []).append(call.location)
    together = [places for places in before.values() if len(places) == len(meeting)]
    known = {place for places in together for place in places}
    if len(together) < OFTEN or any(len({*places}) > 1 for places in together) or not {*lines.values()} <= known:
        return None
    usual = next(line for rank, line in lines.items() if rank not in odd and line is not None)
    mine = lines[odd[0]]
    assert mine is not None
    return Deviation(
        odd[0],
        f"rank {odd[0]} came to #{seq} of group {group} at line {mine.line}, all others at line {usual.line}; they had "
        f"come to each of the {len(together)} before at one line",
    )


def of_circle(case: Case, waits: Sequence[Wait]) -> Deviation | None:
    """Who departs, by its messages or the order of its calls, of ranks that wait for one another."""
    rules = (other_peer, other_count, other_order)
    return next((departure for rule in rules if (departure := rule(case, waits)) is not None), None)


def other_peer(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank waits for a message from, or to, another peer than at the same line before; all others that wait do what
    they have done before."""
    ranks = {facts.rank: facts for facts in case.ranks}
    found = []
    for wait in waits:
        before = _before(ranks[wait.rank], wait.call)
        peers = {call.peer for call in before}
        if (often := sum(call.peer == wait.call.peer for call in before)) >= OFTEN:
            continue
        if often:
            return None  # it has come to this peer of late: what is new here may be what is right
        if not wait.call.is_message or wait.call.peer is None or len(before) < OFTEN or len(peers) != 1:
            return None
        usual = label(replace(wait.call, peer=peers.pop()))
        text = f"rank {wait.rank} is in {call_at(wait.call)}, where it was in {usual} the last {len(before)} times"
        found.append(Deviation(wait.rank, text))
    return found[0] if len(found) == 1 else None


def other_order(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank has gone on to another call of its rounds than the one whose turn it was, now or earlier in this round;
    all others that wait have come to the call whose turn it is. Of two ranks whose calls are all made at one line
    nobody is named: their order is data, and may be new for both. So it may be where several depart: of four or more
    that wait all of these are named, if no more than half do. The rounds must be whole steps: what is repeated within a
    step ends with it."""
    ranks = {facts.rank: facts for facts in case.ranks}
    blocked, found = list(waits), []
    for wait in blocked:
        own = [call for call in ranks[wait.rank].calls if call.thread == wait.call.thread and call.t <= wait.call.t]
        sites = [(call.group, canonical(call.op), call.is_message and call.peer, call.location) for call in own]
        rounds = _rounds(sites) if _holds_step(ranks[wait.rank], own) else None
        if rounds is None or own[-1] != wait.call:
            return None
        length, place = rounds
        if place == len(sites):
            continue
        # A call that is in none of the rounds may belong to another part of the program, which repeats as well.
        if sites[place] not in sites[place - length : place] or sites[-1] not in sites[place - length : place]:
            return None
        usual = own[place - length]
        if len(blocked) == 2 and usual.location == own[place].location:
            return None
        turn = sites[place - length : place].index(sites[place])
        found.append(Deviation(wait.rank, _out_of_turn(wait.rank, usual, own[place], turn, length)))
    if not found or (len(found) > 1 and len(found) > len(blocked) // 2):
        return None
    return replace(found[0], too=tuple(one.rank for one in found[1:]))


def _holds_step(facts: RankFacts, calls: Sequence[Collective]) -> bool:
    """Whether an optimizer has made a step between these calls, and many of them lie before it; or they are all that
    the rank has made: what comes in another part of a step would be among them."""
    if facts.watched and len(facts.calls) < RING:
        return True
    before = [call for call in calls if facts.stepped is not None and call.t < facts.stepped]
    return len(calls) - len(before) < len(before)


def _rounds(sites: Sequence[object]) -> tuple[int, int] | None:
    """After how many calls a rank has always come round to the same one, and the place of the first call for which that
    is not so, in the last round: the length of all where there is none."""
    for end in range(len(sites), len(sites) // 2, -1):
        length = round_of(sites[:end])
        if length is not None:
            return (length, end) if len(sites) - end < length else None
    return None


def round_of(sites: Sequence[object]) -> int | None:
    """After how many calls a rank has always come round to the same one; None where it has not, or not often. What it
    did at its beginning alone does not count."""
    still = {*sites[len(sites) // 2 :]}
    turns = [*itertools.dropwhile(lambda site: site not in still, sites)]
    for length in range(1, len(turns) // OFTEN + 1):
        if all(one == other for one, other in zip(turns, turns[length:], strict=False)):
            return length
    return None


def _out_of_turn(rank: int, usual: Collective, made: Collective, turn: int, length: int) -> str:
    """What a rank has done that has always made the same calls in turn.

    Args:
        rank: which.
        usual: a call like the one whose turn it was.
        made: what it has called instead.
        turn: how many calls later that would have had its turn.
        length: how many calls there are in a round.
    """
    due, instead = _without_number(usual), _without_number(made)
    always = f"of the {length} calls that it has always made in turn"
    if turn == 1 and length > 2:
        return f"rank {rank} skipped {due}, {always}, and went on to {instead}"
    if turn == length - 1 and length > 2:
        return f"rank {rank} made {instead} once more, {always}, where {due} was next"
    return f"rank {rank} went on to {instead} where {due} was next, {always}"


def _without_number(call: Collective) -> str:
    """`all_reduce of group 3 (train.py:61)`, `send to rank 2 (train.py:34)`."""
    name = label(call) if call.is_message else f"{call.op}{of_group(call)}"
    return f"{name} ({short(call.location)})" if call.location is not None else name


def other_group(case: Case) -> Deviation | None:
    """One rank has come to a line with another group than all the times before, where two others at least have come to
    it once more with theirs: theirs has been one and the same all the time."""
    came: dict[Location, list[tuple[int, list[Collective]]]] = {}
    for facts in case.ranks:
        lines: dict[Location, list[Collective]] = {}
        for call in facts.calls:
            if call.location is not None and call.thread in (0, facts.pid) and not call.is_message:
                lines.setdefault(call.location, []).append(call)
        for line, calls in lines.items():
            came.setdefault(line, []).append((facts.rank, calls))
    found = []
    for line, ranks in came.items():
        other = [(rank, calls) for rank, calls in ranks if len({call.group for call in calls}) > 1]
        always = [calls for _, calls in ranks if len({call.group for call in calls}) == 1]
        if len(other) != 1:
            continue
        rank, calls = other[0]
        usual = calls[0].group
        strange = [call for call in calls if call.group != usual]
        last = calls[calls.index(strange[0]) - 1]
        once_more = [
            peers[-1].group for peers in always if peers[-1].seq > last.seq and any(c.seq == last.seq for c in peers)
        ]
        if strange[0] is not calls[-1] or strange[0].done or calls.index(last) + 1 < OFTEN:
            continue
        if usual not in once_more or len(once_more) < 2:
            continue
        text = f"rank {rank} uses group {strange[0].group} at {short(line)}, where it had always used group {usual}"
        found.append(Deviation(rank, f"{text}; all others do as always"))
    return found[0] if len(found) == 1 else None


def other_count(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank has come to a collective after more or fewer messages with a peer than all the times before, or has gone
    beyond that number before it; of the other one of that pair it is as always."""
    blocked = list(waits)
    ranks = {facts.rank: facts for facts in case.ranks}
    meetings = [wait.call for wait in blocked if not wait.call.is_message]
    pairs = [wait for wait in blocked if wait.call.is_message and wait.call.peer is not None]
    if len(meetings) != 1 or len(pairs) != 1 or pairs[0].call.peer not in {wait.rank for wait in blocked}:
        return None
    waits_for, other = pairs[0], ranks[pairs[0].call.peer or 0]
    back = "send" if "recv" in waits_for.call.op else "recv"
    mine = _counts(ranks[waits_for.rank], meetings[0], waits_for.call.op, other.rank)
    theirs = _counts(other, meetings[0], back, waits_for.rank)
    if mine is None or theirs is None or mine[0] != theirs[0]:
        return None
    usual, made = mine
    if made <= usual and theirs[1] != usual:
        odd, peer, op, made = other.rank, waits_for.rank, back, theirs[1]
    elif made > usual and theirs[1] == usual:
        odd, peer, op = waits_for.rank, other.rank, waits_for.call.op
    else:
        return None
    way = "from" if "recv" in op else "to"
    text = f"rank {odd} made {made} x {op} {way} rank {peer} in this round, and {usual} in each before"
    return Deviation(odd, f"{text}; rank {peer} does as always")


def _counts(facts: RankFacts, meeting: Collective, op: str, peer: int) -> tuple[int, int] | None:
    """How many messages a rank makes with a peer from one meeting to the next, all the times before, and how many since
    the last one; None where that is not known, or was not always the same."""
    calls = [call for call in facts.calls if call.thread in (0, facts.pid)]
    site = (meeting.group, canonical(meeting.op), meeting.location)
    marks = [at for at, call in enumerate(calls) if (call.group, canonical(call.op), call.location) == site]
    end = marks.pop() if marks and calls[marks[-1]].seq == meeting.seq else len(calls)
    if len(marks) < 2:
        return None

    def between(begin: int, end: int) -> list[Collective]:
        return [call for call in calls[begin:end] if op in canonical(call.op) and call.peer == peer]

    rounds = [between(one, two) for one, two in itertools.pairwise(marks)]
    usual = len(rounds[-1])
    # The numbers of messages tell of the rounds that the record has no room for.
    always = usual > 0 and rounds[-1][-1].seq == usual * calls[marks[-1]].seq and calls[marks[-1]].seq >= OFTEN
    if any(len(each) != usual for each in rounds) or not (always or len(rounds) >= OFTEN):
        return None
    return usual, len(between(marks[-1], end))


def _before(facts: RankFacts, call: Collective) -> list[Collective]:
    """The earlier calls of a rank like this one, at the same line."""
    return [
        own
        for own in facts.calls
        if own.done
        and own.t < call.t
        and (own.group, canonical(own.op)) == (call.group, canonical(call.op))
        and own.location is not None
        and own.location == call.location
    ]
