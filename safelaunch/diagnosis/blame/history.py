"""What ranks have done at the same line before: a rank that deviates from it, where all others do as always, is named
with medium confidence. A change may be meant, and the others may have missed it."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from safelaunch.diagnosis.blame.deviation import OFTEN, Deviation
from safelaunch.diagnosis.blame.rounds import rounds_of
from safelaunch.diagnosis.waitgraph.calls import canonical
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import call_at, label, short
from safelaunch.model import Case, Collective, Location, RankFacts


def changed_size(meeting: Sequence[tuple[RankFacts, Collective]]) -> Deviation | None:
    """One rank brings another size or type to a line to which all have brought one and the same before."""
    before = {facts.rank: [(c.numel, c.dtype) for c in _before(facts, call)] for facts, call in meeting}
    usual = {size for sizes in before.values() for size in sizes}
    if len(usual) != 1 or any(len(sizes) < OFTEN for sizes in before.values()):
        return None
    outliers = [facts.rank for facts, call in meeting if (call.numel, call.dtype) not in usual]
    if len(outliers) != 1:
        return None
    numel, dtype = usual.pop()
    return Deviation(outliers[0], f"all ranks had brought {numel} x {dtype} to this line before")


def changed_line(meeting: Sequence[tuple[RankFacts, Collective]]) -> Deviation | None:
    """One rank comes to a number at another line than two others at least.

    All of them have come to every number before at one line, to these two lines as well.
    """
    lines = {facts.rank: call.location for facts, call in meeting}
    by_line = collections.Counter(lines.values()).most_common()
    if len(lines) < 3 or len(by_line) != 2 or by_line[1][1] != 1:
        return None
    (usual, _), (own, _) = by_line
    before = _lines_before(meeting)
    if usual is None or own is None or len(before) < OFTEN or any(len({*lines}) > 1 for lines in before):
        return None
    if not {usual, own} <= {line for lines in before for line in lines}:
        return None
    rank = next(rank for rank, line in lines.items() if line == own)
    met = meeting[0][1]
    return Deviation(
        rank,
        f"rank {rank} came to #{met.seq} of group {met.group} at line {own.line}, all others at line {usual.line}; "
        f"they had come to each of the {len(before)} before at one line",
    )


def _lines_before(meeting: Sequence[tuple[RankFacts, Collective]]) -> list[list[Location | None]]:
    """The lines at which these ranks came to earlier numbers of a group, of numbers to which all of them came."""
    met = meeting[0][1]
    before: dict[int, list[Location | None]] = {}
    for facts, _ in meeting:
        for call in facts.calls:
            if call.group == met.group and call.seq < met.seq and not call.is_message:
                before.setdefault(call.seq, []).append(call.location)
    return [lines for lines in before.values() if len(lines) == len(meeting)]


def of_cycle(case: Case, waits: Sequence[Wait]) -> Deviation | None:
    """Who deviates, by its messages or the order of its calls, of ranks that wait for one another."""
    changes = (changed_peer, changed_count, changed_order)
    return next((deviation for change in changes if (deviation := change(case, waits)) is not None), None)


def changed_peer(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank waits for a message from, or to, another peer than at the same line before; all others that wait do what
    they have done before."""
    ranks = {facts.rank: facts for facts in case.ranks}
    deviations = []
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
        deviations.append(Deviation(wait.rank, text))
    return deviations[0] if len(deviations) == 1 else None


def changed_order(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank has gone on to another call of its rounds than the one whose turn it was, now or earlier in this round.

    All others that wait have come to the call whose turn it is. The rounds must be whole steps: what is repeated within
    a step ends with it.

    - Of two ranks whose calls are all made at one line nobody is named: their order is data, and may be new for both.
    - So it may be where several deviate: of four or more that wait all of these are named, if no more than half do.
    """
    ranks = {facts.rank: facts for facts in case.ranks}
    blocked, deviations = list(waits), []
    for wait in blocked:
        rounds = rounds_of(ranks[wait.rank], wait.call)
        if rounds is None:
            return None
        if rounds.are_kept:
            continue
        by_data = len(blocked) == 2 and rounds.due.location == rounds.made.location
        if by_data or not rounds.hold_all:
            return None
        deviations.append(Deviation(wait.rank, f"rank {wait.rank} {rounds.out_of_turn}"))
    if not deviations or (len(deviations) > 1 and len(deviations) > len(blocked) // 2):
        return None
    return replace(deviations[0], too=tuple(one.rank for one in deviations[1:]))


def changed_group(case: Case) -> Deviation | None:
    """One rank has come to a line with another group than all the times before.

    Two others at least have come to it once more with theirs, which has been one and the same all the time.
    """
    deviations = [
        deviation
        for line, calls in _collectives_by_line(case).items()
        if (deviation := _changed_group_at(line, calls)) is not None
    ]
    return deviations[0] if len(deviations) == 1 else None


def _collectives_by_line(case: Case) -> dict[Location, dict[int, list[Collective]]]:
    """The collectives that the main thread of each rank has made, by line and rank."""
    lines: dict[Location, dict[int, list[Collective]]] = {}
    for facts in case.ranks:
        for call in facts.calls:
            if call.location is not None and call.thread in (0, facts.pid) and not call.is_message:
                lines.setdefault(call.location, {}).setdefault(facts.rank, []).append(call)
    return lines


def _changed_group_at(line: Location, calls: Mapping[int, list[Collective]]) -> Deviation | None:
    """The same, at one line."""
    changed = [rank for rank, own in calls.items() if len({call.group for call in own}) > 1]
    if len(changed) != 1:
        return None
    rank = changed[0]
    *before, now = calls[rank]
    if len(before) < OFTEN or now.done or len({call.group for call in before}) > 1:
        return None
    usual, last = before[0].group, before[-1]
    others = [own for other, own in calls.items() if other != rank]
    once_more = [own[-1].group for own in others if own[-1].seq > last.seq and any(c.seq == last.seq for c in own)]
    if usual not in once_more or len(once_more) < 2:
        return None
    text = f"rank {rank} uses group {now.group} at {short(line)}, where it had always used group {usual}"
    return Deviation(rank, f"{text}; all others do as always")


def changed_count(case: Case, waits: Iterable[Wait]) -> Deviation | None:
    """One rank has come to a collective after more or fewer messages with a peer than all the times before, or has gone
    beyond that number before it.

    Of the other one of that pair it is as always.
    """
    blocked = list(waits)
    in_two = _meeting_and_message(blocked)
    if in_two is None:
        return None
    meeting, wait = in_two
    ranks = {facts.rank: facts for facts in case.ranks}
    own, peer = wait.rank, wait.call.peer or 0
    op, back = wait.call.op, "send" if "recv" in wait.call.op else "recv"
    mine, theirs = _counts(ranks[own], meeting, op, peer), _counts(ranks[peer], meeting, back, own)
    if mine is None or theirs is None or mine[0] != theirs[0]:
        return None
    usual, made = mine
    if made > usual == theirs[1]:
        return _other_number(own, peer, op, made, usual)
    return _other_number(peer, own, back, theirs[1], usual) if made <= usual != theirs[1] else None


def _meeting_and_message(waits: Sequence[Wait]) -> tuple[Collective, Wait] | None:
    """The one collective that these ranks wait in, and the one message, whose peer is among them."""
    meetings = [wait.call for wait in waits if not wait.call.is_message]
    messages = [wait for wait in waits if wait.call.is_message and wait.call.peer is not None]
    if len(meetings) != 1 or len(messages) != 1 or messages[0].call.peer not in {wait.rank for wait in waits}:
        return None
    return meetings[0], messages[0]


def _other_number(rank: int, peer: int, op: str, made: int, usual: int) -> Deviation:
    way = "from" if "recv" in op else "to"
    text = f"rank {rank} made {made} x {op} {way} rank {peer} in this round, and {usual} in each before"
    return Deviation(rank, f"{text}; rank {peer} does as always")


def _counts(facts: RankFacts, meeting: Collective, op: str, peer: int) -> tuple[int, int] | None:
    """How many messages a rank makes with a peer from one meeting to the next, all the times before, and how many since
    the last one.

    None where that is not known, or was not always the same.
    """
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
