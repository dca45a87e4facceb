"""Messages of ranks that wait for one another: who has sent too few, or is not where its peers are."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from safelaunch.diagnosis.blame.deviation import OFTEN, Deviation
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import canonical, is_irreversible
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import label, names
from safelaunch.model import RankFacts, Verdict

ENOUGH = 2  # ranks that agree against one
OF_SCHEDULE = "/torch/distributed/pipelining/"  # it sends and receives in the right order, if told alike on all ranks
SAME_SCHEDULE = "give the schedule of the pipeline the same `n_microbatches` on all ranks, and compare the schedules"


def nobody_sends(view: View) -> Verdict | None:
    """A rank waits for a message from any other, and all others wait for that rank: none is left to send one.

    How it was concluded: each rank of the job is blocked, one in a receive from whoever sends, the others in what that
    one has not come to. Where all others but one have sent it the same number of messages, the one that sent fewer is
    named.

    What to do: see how many messages the receiver counts on, and which rank has left one out. It may have caught an
    exception, or returned early.
    """
    graph = view.graph
    receivers = [wait for wait in graph.waits if wait.call.is_message and wait.call.peer is None]
    if len(receivers) != 1:
        return None
    receiver = receivers[0]
    blocked = [wait for wait in graph.waits if wait is not receiver]
    others = {wait.rank for wait in blocked} - {receiver.rank}
    if not others or others | {receiver.rank} != {facts.rank for facts in view.living}:
        return None
    if not all(receiver.rank in wait.blockers for wait in blocked):
        return None
    sent = {rank: _sent(view.by_rank[rank], receiver) for rank in sorted(others)}
    named = _sent_fewer(sent)
    waits = f"rank {receiver.rank} waits in {label(receiver.call)}, and all others wait for rank {receiver.rank}"
    if named is None:
        wait, headline = receiver, f"{waits}: nobody is left to send"
        counts = f"messages sent to it: {', '.join(f'{number} by rank {rank}' for rank, number in sent.items())}"
    else:
        wait = next(wait for wait in blocked if wait.rank == named)
        headline = f"rank {named} sent rank {receiver.rank} fewer messages than its peers: {waits}"
        usual = max(sent.values())
        counts = f"rank {named} has sent it {sent[named]} messages, {names(others - {named})} {usual} each"
    return hang_verdict(
        view,
        "SL311",
        headline,
        () if named is None else (named,),
        location=place_of(view, wait),
        call=wait.call,
        because=(counts, *waiters(view)),
        remedy="see how many messages it counts on, and which rank has left one out",
        confidence="medium",
        conclusive=is_irreversible((view.by_rank[wait.rank], wait.call) for wait in graph.waits),
        waiting={wait.rank for wait in graph.waits},
    )


def _sent_fewer(sent: Mapping[int, int]) -> int | None:
    """The one rank that has sent fewer messages than all others, which have sent as many as one another."""
    usual, count = collections.Counter(sent.values()).most_common(1)[0]
    fewer = [rank for rank, number in sent.items() if number < usual]
    if len(fewer) != 1 or not ENOUGH <= count == len(sent) - 1:
        return None
    return fewer[0] if sent[fewer[0]] >= OFTEN else None


def _sent(facts: RankFacts, receiver: Wait) -> int:
    """How many messages a rank has sent to the receiver: each has its number."""
    own = [call.seq for call in facts.calls if "send" in call.op and call.peer == receiver.rank]
    return max(own, default=0)


@dataclass(frozen=True)
class Between:
    """The stage that takes fewer messages than the one before it sends, and sends fewer than the one behind it waits
    for, while it waits for that one.

    `counts` has how many messages each of the two pairs have posted, in words. Who is wrong they tell where a schedule
    of torch's orders the messages (`scheduled`): else a wrong order looks the same.
    """

    deviation: Deviation
    counts: tuple[str, ...]
    scheduled: bool


def between_two(view: View) -> Between | None:
    """The one rank for which that holds."""
    messages = [wait for wait in view.graph.waits if wait.call.is_message and wait.call.peer in view.by_rank]
    if any(wait.call.tag for wait in messages):
        return None  # messages of several tags need not be taken in the order in which they were sent
    pairs = [(wait, behind) for wait, behind in itertools.permutations(messages, 2) if _receive(wait, behind)]
    senders = [wait for wait in messages if "send" in wait.call.op]
    tried = [_between(view, one, *pair) for pair in pairs for one in senders if one.call.peer == pair[0].rank]
    found = [each for each in tried if each is not None]
    return found[0] if len(found) == 1 else None


def _receive(one: Wait, other: Wait) -> bool:
    """Whether two ranks wait to receive from each other."""
    each_other = (one.call.peer, other.call.peer) == (other.rank, one.rank)
    return each_other and "recv" in one.call.op and "recv" in other.call.op


def _between(view: View, sender: Wait, wait: Wait, behind: Wait) -> Between | None:
    ranks, group = view.by_rank, wait.call.group
    before, own, after = ranks[sender.rank], ranks[wait.rank], ranks[behind.rank]
    sent, taken = _posted(before, own.rank, "send", group), _posted(own, before.rank, "recv", group)
    passed, wanted = _posted(own, after.rank, "send", group), _posted(after, own.rank, "recv", group)
    if not 0 < taken < sent or not 0 < passed < wanted:
        return None
    text = (
        f"rank {own.rank} took {taken} of {sent} messages from rank {before.rank}, "
        f"and sent {passed} to rank {after.rank}, which waits for #{behind.call.seq}"
    )
    counts = (
        f"rank {before.rank} has posted {sent} sends to rank {own.rank}, which has posted {taken} receives from it",
        f"rank {own.rank} has posted {passed} sends to rank {after.rank}, which has posted {wanted} receives from it",
    )
    return Between(Deviation(own.rank, text), counts, all(map(_in_schedule, (before, own, after))))


def _posted(facts: RankFacts, peer: int, way: str, group: str) -> int:
    """How many messages a rank has begun to send to another, or to receive from it: each has its number."""
    return max((one.seq for one in facts.calls if way in one.op and (one.peer, one.group) == (peer, group)), default=0)


def _in_schedule(facts: RankFacts) -> bool:
    return any(OF_SCHEDULE in frame.file for stack in facts.stacks for frame in stack.frames)


def outlier(graph: Graph) -> int | None:
    """The rank that is not where those that exchange messages with it, or like it, are:

    - it is in a collective while all others, two at least, are in messages with it;
    - where more are in that collective: two are in messages with it, of which one sends and one receives, as the stages
      beside it do;
    - it alone exchanges messages with another rank than two others do at its line, and the one that these agree on
      waits for it.
    """
    messages = [wait for wait in graph.waits if wait.call.is_message]
    collectives = [wait for wait in graph.waits if not wait.call.is_message]
    if graph.sinks:
        return None
    if len({(wait.call.group, wait.call.seq) for wait in collectives}) == 1 and len(messages) >= ENOUGH:
        return _in_collective(collectives, messages)
    return _with_another_peer(messages, graph) if not collectives else None


def _in_collective(collectives: list[Wait], messages: list[Wait]) -> int | None:
    peers = {wait.call.peer for wait in messages}
    # Who agree with it there may have done as much as is right: but not two that wait for it from both sides.
    if len(collectives) > 1 and len({"send" in wait.call.op for wait in messages}) == 1:
        return None
    return next((wait.rank for wait in collectives if {wait.rank} == peers), None)


def _with_another_peer(messages: list[Wait], graph: Graph) -> int | None:
    lines: dict[object, list[Wait]] = collections.defaultdict(list)
    for wait in messages:
        lines[wait.call.location, canonical(wait.call.op)].append(wait)
    outliers = {rank for waits in lines.values() if (rank := _outlier_at_line(waits, graph)) is not None}
    return outliers.pop() if len(outliers) == 1 else None


def _outlier_at_line(waits: list[Wait], graph: Graph) -> int | None:
    """The one of these ranks, which are at one line, whose peer is not that of all others."""
    (usual, most), *rest = collections.Counter(wait.call.peer for wait in waits).most_common()
    if usual is None or most < ENOUGH or [count for _, count in rest] != [1] or waits[0].call.location is None:
        return None
    wait = next(wait for wait in waits if wait.call.peer != usual)
    theirs = graph.of(usual)
    if theirs is None or not theirs.call.is_message or theirs.call.peer != wait.rank:
        return None
    return wait.rank if ("recv" in wait.call.op) != ("recv" in theirs.call.op) else None
