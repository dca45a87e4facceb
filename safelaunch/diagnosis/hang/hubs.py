"""Messages of all ranks with one of them, in a circle of waits: who is not where that one and the others are."""

from __future__ import annotations

import collections

from safelaunch.diagnosis.blame.history import OFTEN
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import canonical, final
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import label, names
from safelaunch.model import RankFacts, Verdict

ENOUGH = 2  # ranks that agree against one


def nobody_sends(view: View) -> Verdict | None:
    """A rank waits for a message from any other, and all others wait for that rank: none is left to send one.

    How it was concluded: each rank of the job is blocked, one in a receive from whoever sends, the others in what that
    one has not come to. Where all others but one have sent it the same number of messages, the one that sent fewer is
    named.

    What to do: see how many messages the receiver counts on, and which rank has left one out. It may have caught an
    exception, or returned early.
    """
    found = view.graph
    ranks = view.by_rank
    open_ = [wait for wait in found.waits if wait.call.is_message and wait.call.peer is None]
    others = {wait.rank for wait in found.waits} - {wait.rank for wait in open_}
    if len(open_) != 1:
        return None
    receiver = open_[0]
    blocked = [wait for wait in found.waits if wait is not receiver]
    if others | {receiver.rank} != {facts.rank for facts in view.living} or not others:
        return None
    if not all(receiver.rank in wait.blockers for wait in blocked):
        return None
    sent = {rank: _sent(ranks[rank], receiver) for rank in sorted(others)}
    usual, count = collections.Counter(sent.values()).most_common(1)[0]
    fewer = [rank for rank, number in sent.items() if number < usual]
    sure = len(fewer) == 1 and count == len(sent) - 1 >= ENOUGH and sent[fewer[0]] >= OFTEN
    named = tuple(fewer) if sure else ()
    wait = next(wait for wait in blocked if wait.rank in named) if named else receiver
    counts = (
        (f"rank {named[0]} has sent it {sent[named[0]]} messages, {names(others - {*named})} {usual} each",)
        if named
        else (f"messages sent to it: {', '.join(f'{number} by rank {rank}' for rank, number in sent.items())}",)
    )
    waits = f"rank {receiver.rank} waits in {label(receiver.call)}, and all others wait for rank {receiver.rank}"
    return hang_verdict(
        view,
        "SL311",
        f"rank {named[0]} sent rank {receiver.rank} fewer messages than its peers: {waits}"
        if named
        else f"{waits}: nobody is left to send",
        named,
        location=place_of(view, wait),
        call=wait.call,
        because=(*counts, *waiters(view)),
        remedy="see how many messages it counts on, and which rank has left one out",
        confidence="medium",
        conclusive=final((ranks[wait.rank], wait.call) for wait in found.waits),
        waiting={wait.rank for wait in found.waits},
    )


def _sent(facts: RankFacts, receiver: Wait) -> int:
    """How many messages a rank has sent to the receiver: each has its number."""
    own = [call.seq for call in facts.calls if "send" in call.op and call.peer == receiver.rank]
    return max(own, default=0)


def alone_among(found: Graph) -> tuple[int, ...]:
    """The rank that is in a collective while all others, two at least, are in messages with it; or, where more are in
    that collective, one with which two are in messages, of which one sends and one receives, as the stages beside it
    do; or the one that alone exchanges messages with another rank than two others do at its line, where the one that
    they agree on waits for it."""
    collective = [wait for wait in found.waits if not wait.call.is_message]
    messages = [wait for wait in found.waits if wait.call.is_message]
    if found.sinks:
        return ()
    if len({(wait.call.group, wait.call.seq) for wait in collective}) == 1 and len(messages) >= ENOUGH:
        peers = {wait.call.peer for wait in messages}
        # Who agree with it there may have done as much as is right: but not two that wait for it from both sides.
        both = len(collective) == 1 or len({"send" in wait.call.op for wait in messages}) > 1
        return tuple(wait.rank for wait in collective if both and {wait.rank} == peers)
    lines: dict[object, list[Wait]] = collections.defaultdict(list)
    for wait in messages:
        lines[wait.call.location, canonical(wait.call.op)].append(wait)
    named = {odd for waits in lines.values() if (odd := _with_another(waits, found)) is not None}
    return tuple(named) if len(named) == 1 and not collective else ()


def _with_another(waits: list[Wait], found: Graph) -> int | None:
    """The one of these ranks, which are at one line, whose peer is not that of all others."""
    peers = collections.Counter(wait.call.peer for wait in waits)
    (hub, most), *rest = peers.most_common()
    if hub is None or most < ENOUGH or [count for _, count in rest] != [1] or waits[0].call.location is None:
        return None
    odd = next(wait for wait in waits if wait.call.peer != hub)
    own = found.of(hub)
    agrees = own is not None and own.call.is_message and own.call.peer == odd.rank
    return odd.rank if agrees and ("recv" in odd.call.op) != ("recv" in (own.call.op if own else "")) else None
