"""Ranks that wait for one another because their programs have come apart: no patience ends such a wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from safelaunch.diagnosis import alone, batches, habits, hubs, loops, memberships, variants, witnesses
from safelaunch.diagnosis.failures import LEAVING
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.graph import Graph, Wait
from safelaunch.diagnosis.hang import UNEVEN
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.loops import CLOSING, Side
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waits import (
    MAKING,
    canonical,
    final,
    stack_of,
    threads_inside,
)
from safelaunch.diagnosis.wording import below, label, names
from safelaunch.model import Case, Collective, Confidence, RankFacts, Verdict

SAME_OP = "pass the same `op` on all ranks"
SAME_ORDER = "make the same collectives in the same order on all ranks"
NO_CONDITIONS = {"True", "__name__ == '__main__'", '__name__ == "__main__"'}  # they hold on all ranks
Place = tuple[RankFacts, Collective]  # where a rank waits
MAJORITY_OF_DUMPS = 3  # ranks that have to agree against one, where nothing but dumps is left


def different_operation(view: View) -> Verdict | None:
    """Ranks are inside different collectives at the same number of the same group, and wait for each other for ever.

    How it was concluded: the record of collectives (or the Flight Recorder) of the ranks that wait shows different
    operations at one number, or one operation with different roots or reductions (`op`; with the latter alone NCCL may
    go on with wrong results, so confidence is medium). A collective that a rank skipped, or made once too often, shows
    like this, and so does one that stands below `if rank == 0`. If one side has left a loop in which the other still is
    (read from stacks and source), the side that left is named (SL303); where that is all ranks but one, who has it
    wrong is not known: it may have too much to do; nobody is named, or of two ranks the one that left, with less
    confidence. Otherwise, with at least three ranks, one that differs from all others is named (SL302); so is one whose
    call stands below a condition for that rank alone (`if rank == 0`) which all others have passed by; and the one that
    has gone on to another call of its rounds (of whole steps) than the one whose turn it was, or has come to it after
    another number of steps than ever, where all others do as always; and the one of a group whose peers do what groups
    of other ranks did, which had made the same calls until then (those of one dimension of a mesh). Where nobody can
    say who is right, as often with two, the lines are shown; so it is where ranks have not made the same process
    groups, since then one name means several (call `new_group` on all ranks, in one order). Dumps of the Flight
    Recorder do not show who left a loop: from them only one rank against three or more is named.

    What to do: compare the two lines. Every rank must make the same collectives in the same order; for uneven data
    use `drop_last`, DistributedSampler or DDP's `join()`.
    """
    found = view.graph
    wait = next(wait for wait in found.waits if wait.differing)
    sides = variants.at(view.case, wait.call)
    voters = {facts.rank for side in sides for facts, _ in side}
    if len(sides) < 2:
        return None
    several = next((f for side in sides for f, _ in side if len(threads_inside(f)) > 1), None)
    # Dumps hold neither lines of loops nor counts of batches: who left a loop, and who skipped a barrier, look alike.
    left = loops.NOBODY if view.from_dumps else loops.left(view.case.source, sides) if several is None else loops.UNTOLD
    named = left.ranks
    if not named and several is None:
        named = batches.ran_out([[facts for facts, _ in side] for side in sides])
    code = "SL303" if named else "SL302"
    if not named and not left.untold:
        odd = [side for side in sides if len(side) == 1]
        most = max(len(side) for side in sides)
        # Members whose vote is not known, here or on other nodes, must not be able to turn it.
        unseen = {rank for other in found.waits if variants.same_place(other.call, wait.call) for rank in other.away}
        others = len(unseen | voters) - most
        enough = most >= (MAJORITY_OF_DUMPS if view.from_dumps else 2)
        named = (odd[0][0][0].rank,) if len(odd) == 1 and enough and most > others else ()
    apart = alone.passed_by(view.case, sides) if not named and several is None else ()
    named = named or apart
    lonely = _alone_in_the_loop(voters, named) if code == "SL303" else ()
    habit = _habit(view, found, sides) if several is None and (not named or lonely) else None
    if habit is not None:
        code, named, lonely = "SL302", (habit.rank,), ()
    shown = next((side for side in sides if any(f.rank in named for f, _ in side)), sides[0])
    facts, call = next((pair for pair in shown if pair[0].rank in named), shown[0])
    other = next(side[0] for side in sides if side is not shown)
    peers = other[1]
    place = call.location or user_frame(stack_of(facts, call.thread))
    whose = "peers" if len(voters) > 2 else "peer"
    kinds = [(canonical(one.op), one.peer, one.location) for one in (call, peers)]
    alike = kinds[0] == kinds[1] and call.how != peers.how
    mine_is, theirs_is = (label(one, reduction=alike) for one in (call, peers))
    if named and code == "SL303":
        summary = _has_left(named, call, peers, again=left.again)
    elif named:
        summary = f"{names(named)} entered {mine_is}, its {whose} {theirs_is}: none of them can go on"
    else:
        summary = f"ranks disagree: {mine_is} here, {theirs_is} there, and nobody can say who is right"
    threads = (
        (f"two threads of rank {several.rank} use process groups at once: their order differs from rank to rank",)
        if several is not None
        else ()
    )
    ending = view.from_dumps and any(canonical(side[0][1].op) in CLOSING for side in sides)
    if ending:
        threads = ("programs end their loops with a barrier: who skipped it, or left early, the dumps do not say",)
    mine, theirs = (facts, call), [pair for side in sides if side is not shown for pair in side]
    conditions = _conditions(mine, theirs, view.lines) or (_conditions(other, [mine], view.lines) if named else ())
    usual = (habit.text,) if habit is not None else ()
    because = (*threads, *usual, *conditions, *batches.compared(view.case, named), *lonely, *waiters(view))
    return hang_verdict(
        view,
        code,
        summary,
        () if lonely and len(named) > 1 else named,
        location=place,
        call=call,
        because=because,
        remedy=UNEVEN if code == "SL303" else SAME_OP if alike else SAME_ORDER,
        confidence="medium" if apart or lonely or usual or alike else _sureness(view, wait, named, code, ending),
        conclusive=final(pair for pair in itertools.chain(*sides) if not pair[1].done),
        waiting=voters,
    )


def _habit(view: View, found: Graph, sides: list[Side]) -> habits.Departure | None:
    """Who of these departs from what it has always done, while all others do as always, or from what others do."""
    if view.from_dumps:
        return None
    voters = {facts.rank for side in sides for facts, _ in side}
    waits = [wait for wait in found.waits if wait.rank in voters]
    departure = habits.other_order(view.case, waits) if len(waits) == len(voters) else None
    departure = departure or habits.other_group(view.case)
    departure = departure or witnesses.other_interval(sides) or witnesses.other_than_its_like(view.case, sides)
    return departure if departure is not None and departure.rank in voters else None


def _has_left(ranks: tuple[int, ...], call: Collective, peers: Collective, *, again: bool) -> str:
    if again:
        beyond = f"{names(ranks)} {'is' if len(ranks) == 1 else 'are'} past the loop in which peers still are"
        return f"{beyond}, in {label(call)}; those wait in {label(peers)}"
    return f"{names(ranks)} left the loop and entered {label(call)}; peers still in it wait in {label(peers)}"


def _alone_in_the_loop(voters: set[int], left: tuple[int, ...]) -> tuple[str, ...]:
    """Said where all ranks but one have left: what they have less, or it has more, only their owner knows."""
    stays = voters - {*left}
    if len(stays) > 1:
        return ()
    return (
        f"only {names(stays)} is still in it: whether it has too much to do, or {names(left)} too little, is not known",
    )


def _sureness(view: View, wait: Wait, named: tuple[int, ...], code: str, ending: bool) -> Confidence:
    if view.from_dumps:
        told = any(group.name == wait.call.group for group in view.case.groups)
        return "low" if ending or (named and not told) else "medium"
    return "high" if named and (code == "SL302" or view.case.source) else "medium"


def departed(view: View) -> Verdict | None:
    """Ranks wait in a collective for a rank that has destroyed its process group: it left the loop early.

    How it was concluded: the last word of the named rank in that group is `destroy_process_group`, or it is shutting
    down, while its peers are inside a collective of that group. It cannot enter one any more.

    What to do: all ranks must make the same number of steps (`drop_last`, DistributedSampler, DDP's `join()`); look
    for an early return or break.
    """
    found = view.graph
    gone = sorted({rank for wait in found.waits for rank in wait.gone})
    ranks = view.by_rank
    left = [rank for rank in gone if ranks[rank].exit is None and ranks[rank].error is None]
    if not left or any(ranks[rank].exit is not None for rank in gone):
        return None
    blocked = found.waiting_for(left)
    if not blocked:
        return None
    wait = blocked[0]
    last = ranks[left[0]].last_collective
    place = last.location if last is not None and last.op == LEAVING else None
    return hang_verdict(
        view,
        "SL303",
        f"{names(left)} left its process group while {'a peer' if len(found.waits) == 1 else 'peers'} still waited",
        tuple(left),
        location=place,
        call=wait.call,
        because=(*batches.compared(view.case, left), *waiters(view)),
        remedy="all ranks must make the same number of steps: look for uneven data or an early return",
        confidence="high",
        conclusive=final((ranks[wait.rank], wait.call) for wait in blocked),
        waiting={wait.rank for wait in blocked},
    )


def left_between_groups(view: View) -> Verdict | None:
    """Ranks wait for one another in a circle of several groups, as one has left the loop in which the others still are.

    How it was concluded: each rank waits where another one does not come (one in a barrier of all behind the loop, its
    peers in groups of a mesh inside it), and stacks and source show who stands behind the loop that the others are in.
    Stages of a pipeline leave their loops one after the other, by design: of them one is named only, with less
    confidence, that is behind its loop while another still sends to it, and two at least are inside theirs.

    What to do: all ranks must make the same number of steps: decide together when to stop (all_reduce the decision),
    use `drop_last`, DistributedSampler or DDP's `join()`.
    """
    found = view.graph
    ranks = view.by_rank
    if any(len(threads_inside(ranks[wait.rank])) > 1 for wait in found.waits):
        return None
    places: dict[object, Side] = {}
    for wait in found.waits:
        places.setdefault((wait.call.location, canonical(wait.call.op)), []).append((ranks[wait.rank], wait.call))
    left = loops.left(view.case.source, [*places.values()]) if view.case.source else loops.NOBODY
    named = left.ranks
    if not named or not {*named} <= {*found.cycle}:
        return None
    messages = [wait for wait in found.waits if wait.call.is_message]
    if messages and not _is_left_by_a_stage(view.case, found, named, messages):
        return None
    first = next(wait for wait in found.waits if wait.rank in named)
    peer = next(wait for wait in found.waits if wait.rank not in named)
    lonely = _alone_in_the_loop({wait.rank for wait in found.waits}, named)
    return hang_verdict(
        view,
        "SL303",
        _has_left(named, first.call, peer.call, again=left.again),
        () if lonely and len(named) > 1 else named,
        location=place_of(view, first),
        call=first.call,
        because=(*batches.compared(view.case, named), *lonely, *waiters(view)),
        remedy=UNEVEN,
        confidence="medium" if lonely or messages else "high",
        conclusive=final((ranks[wait.rank], wait.call) for wait in found.waits),
        waiting=(wait.rank for wait in found.waits),
    )


def _is_left_by_a_stage(case: Case, found: Graph, left: tuple[int, ...], messages: list[Wait]) -> bool:
    """Whether one stage has left its loop while another still sends to it, and two at least are inside theirs; and none
    of that pair has made more or fewer messages than ever."""
    own = found.of(left[0])
    senders = [wait for wait in messages if wait.call.peer == left[0] and "send" in wait.call.op]
    if len(left) > 1 or len(messages) < 2 or len(senders) != 1 or own is None or own.call.is_message:
        return False
    return habits.other_count(case, [own, senders[0]]) is None


def deadlock(view: View) -> Verdict | None:
    """Ranks wait for one another in a circle, in different groups or messages: nobody can go on.

    How it was concluded: following who waits for whom leads back to where it started, and every rank on the way is
    blocked. Typical are two groups entered in different order, or two ranks that both receive before they send. With
    at least three ranks, one that waits somewhere else than all others is named; so is the one that waits for another
    peer than at that line before, has made more or fewer messages in this round than in each before, has gone on to
    another call of its rounds than the one whose turn it was (of four or more up to half may have done so: they are
    named with low confidence), or has come to a line with another group than ever, where all others do as always, or
    with one whose members come there with others, where all others agree; and one that waits in a collective while all
    others wait for messages to or from it, or that exchanges messages with another rank than two others do at that
    line, whose peer waits for it: one mistake explains them all; and one that stands below a condition for it alone,
    which all others of the circle have passed by. Otherwise the sites are shown.

    What to do: enter groups in the same order on all ranks; post receives with irecv, or let one side send first.
    """
    found = view.graph
    if view.from_dumps and found.sinks:
        return None  # a dump does not show what a rank waits in, only what it called: one that is late explains more
    sites: dict[tuple[str, int, str], list[int]] = {}
    groups = {wait.call.group for wait in found.heads if wait.rank in found.cycle}
    making = [wait.call.group for wait in found.heads if wait.call.group.startswith(f"{MAKING} #")]
    if len(making) == 1:  # all ranks make each group, whoever is to belong to it: one that does so alone is the odd one
        groups.discard(making[0])
    members = [set(group.ranks) for group in view.case.groups if group.name in groups]
    for wait in found.heads:  # those who wait for the circle from outside have a vote too, if all of it concerns them
        if all(wait.rank in those for those in members):
            call = wait.call
            what = f"rank {wait.rank}" if call.is_message else canonical(call.op)
            sites.setdefault((call.group, call.seq, what), []).append(wait.rank)
    odd = [ranks for ranks in sites.values() if len(ranks) == 1]
    most = max((len(ranks) for ranks in sites.values()), default=0)
    # Members that nobody has seen must not be able to turn the vote.
    unseen = {rank for wait in found.waits for rank in wait.away}
    others = len(unseen) + sum(map(len, sites.values())) - most
    named = tuple(odd[0]) if len(sites) == 2 and len(odd) == 1 and most >= 2 and most > others else ()
    if named and (named[0] not in found.cycle or _forgotten_by_its_peer(view, found, named[0])):
        named = ()
    circle = [wait for wait in found.heads if wait.rank in found.cycle]
    known = {group.name for group in view.case.groups}
    if making and not groups <= known:  # a group whose members nobody knows may not be the one that its name says
        named = ()
    habit = None
    if not named and not unseen and (habit := habits.of_circle(view.case, circle)) is None:
        other = habits.other_group(view.case) or memberships.alone_in_its_group(view)
        habit = other if other is not None and other.rank in found.cycle else None
    named = (habit.rank, *habit.too) if habit is not None else named or hubs.alone_among(found)
    ranks = view.by_rank
    pairs = any(wait.call.is_message for wait in circle)
    apart = () if named or pairs or unseen else _passed_by(view.case, ranks, circle)
    named = named or apart
    first = next(wait for wait in found.heads if wait.rank == (named or found.cycle)[0])
    peer = next((wait for wait in found.heads if wait.rank not in named), first)
    theirs = f"its peers in {label(peer.call)}" if len(sites) == 2 and not pairs else "others elsewhere"
    mine, its = (ranks[first.rank], first.call), (ranks[peer.rank], peer.call)
    # A program that uses several streams may yet come to what stands behind another call on its device.
    in_order = len(circle) == sum(wait.rank in found.cycle for wait in found.waits)
    conditions: tuple[str, ...] = ()
    if named and not pairs:
        conditions = _conditions(mine, [its], view.lines) or _conditions(its, [mine], view.lines)
    return hang_verdict(
        view,
        "SL311",
        f"{names(named)} make their calls in another order than ever: now they wait for one another"
        if habit is not None and habit.too
        else f"{habit.text}: now they wait for one another"
        if habit is not None
        else f"rank {first.rank} waits in {label(first.call)}, {theirs}, and they wait for one another"
        if named
        else f"{names(found.cycle)} wait for one another in a circle",
        named,
        location=place_of(view, first),
        call=first.call,
        because=(*conditions, *([habit.text] if habit is not None and habit.too else ()), *waiters(view)),
        remedy="compare what both sides of each pair send and receive, how often and in which order"
        if pairs
        else "take the collective out of the condition, or let all ranks of the group call it"
        if apart
        else "see which of these calls that rank has left out, or makes in another order than its peers"
        if named
        else "use the groups in the same order on all ranks, and let one side of two send first",
        confidence="low" if len(named) > 1 else "medium" if named else "high",
        conclusive=in_order and final((ranks[wait.rank], wait.call) for wait in found.waits),
        waiting=found.cycle,
    )


def _passed_by(case: Case, ranks: Mapping[int, RankFacts], circle: list[Wait]) -> tuple[int, ...]:
    """The one rank of a circle that stands below a condition for it alone, which all others have passed by."""
    places: dict[object, Side] = {}
    for wait in circle:
        places.setdefault((wait.call.group, wait.call.location), []).append((ranks[wait.rank], wait.call))
    return alone.passed_by(case, places.values()) if case.source else ()


def _forgotten_by_its_peer(view: View, found: Graph, rank: int) -> bool:
    """Whether a rank waits in a message of which its peer may have forgotten its part: one that it has exchanged
    before; in dumps, which hold no source and few calls, any."""
    wait = found.of(rank)
    facts = view.by_rank[rank]
    if wait is None or (view.from_dumps and wait.call.is_message):
        return wait is not None
    return any(
        own.done and (own.op, own.peer, own.location) == (wait.call.op, wait.call.peer, wait.call.location)
        for own in facts.calls
        if own.is_message
    )


def _conditions(of: Place, others: Iterable[Place], lines: Lines) -> tuple[str, ...]:
    """The innermost condition that a rank's call stands below, in whichever function: most often it is the mistake. It
    is none where all others stand below it as well."""

    def above(pair: Place) -> list[tuple[str, int, str]]:
        return [
            (frame.file, where, text)
            for frame in reversed(alone.frames_at(*pair, pair[1].thread) or [*filter(None, [pair[1].location])])
            if (frame.file, frame.line) in lines
            for where, text in lines[frame.file, frame.line].conditions
            if text not in NO_CONDITIONS
        ]

    shared = [set(above(pair)) for pair in others]
    own = [each for each in above(of) if not shared or not all(each in one for one in shared)]
    if not own:
        return ()
    file, where, text = own[-1]
    return (f"{label(of[1])} of rank {of[0].rank} {below(text, f'{file}:{where}')}",)
