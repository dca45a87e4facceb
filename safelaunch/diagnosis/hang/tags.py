"""Messages between two ranks that carry another tag than the one that is waited for."""

from __future__ import annotations

import collections
from collections.abc import Mapping

from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import is_irreversible
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import at, label
from safelaunch.model import Collective, RankFacts, Verdict


def tags_differ(view: View) -> Verdict | None:
    """A rank waits for a message with one tag, and its peer has sent the message in its place with another tag.

    How it was concluded: messages from one rank to another are counted on both sides. The one that is waited for has
    been sent with another tag, nothing has been sent since with the tag that is waited for, and the sender is blocked
    itself. A rank that disagrees so with two others or more, which agree among themselves, is named. NCCL does not look
    at tags: where earlier messages arrived in spite of other tags, nothing follows from them.

    What to do: compare the tags at the two lines. A counter that makes them must count alike on both sides.
    """
    graph = view.graph
    ranks = view.by_rank
    blocked = {wait.rank for wait in graph.waits}
    pairs = [
        (wait, sent)
        for wait in graph.waits
        if wait.call.peer in blocked and (sent := _sent_instead(wait, ranks)) is not None
    ]
    if not pairs:
        return None
    times = collections.Counter(rank for wait, _ in pairs for rank in (wait.rank, wait.call.peer))
    (most, count), *rest = times.most_common()
    named = (most,) if count > 1 and all(other < count for _, other in rest) else ()
    wait, sent = pairs[0]
    first = next((call for wait, sent in pairs for call in _of(most, wait, sent)), wait.call) if named else wait.call
    return hang_verdict(
        view,
        "SL302",
        f"rank {wait.rank} waits for a message with tag {wait.call.tag} from rank {wait.call.peer}, which sent tag "
        f"{sent.tag}",
        tuple(rank for rank in named if rank is not None),
        location=first.location,
        call=wait.call,
        because=(
            *(
                f"rank {wait.rank} waits in {label(wait.call)} with tag {wait.call.tag}{at(wait.call.location)}; "
                f"rank {wait.call.peer} has sent it with tag {sent.tag}{at(sent.location)}"
                for wait, sent in pairs
            ),
            *waiters(view),
        ),
        remedy="compare the tags at these lines: what makes them must count alike on both sides",
        confidence="medium",
        conclusive=is_irreversible((ranks[wait.rank], wait.call) for wait in graph.waits),
        waiting=blocked,
    )


def _sent_instead(wait: Wait, ranks: Mapping[int, RankFacts]) -> Collective | None:
    """The message that was sent in the place of the one that is waited for, where its tag is another one."""
    call = wait.call
    if "recv" not in call.op or call.peer is None:
        return None
    sends = [
        own
        for own in ranks[call.peer].calls
        if "send" in own.op and own.peer == wait.rank and own.group == call.group and own.seq >= call.seq
    ]
    expected = {own.tag for own in ranks[wait.rank].calls if _is_open(own) and own.peer == call.peer}
    if not sends or sends[0].seq != call.seq or any(own.tag in expected for own in sends):
        return None
    if _ever_differed(ranks[wait.rank], ranks[call.peer], call.group):
        return None
    return sends[0]


def _ever_differed(receiver: RankFacts, sender: RankFacts, group: str) -> bool:
    """Whether a message has arrived under another tag than that of the one which was sent under its number."""
    sent = {
        own.seq: own.tag for own in sender.calls if "send" in own.op and (own.peer, own.group) == (receiver.rank, group)
    }
    return any(
        own.tag != sent.get(own.seq, own.tag)
        for own in receiver.calls
        if "recv" in own.op and not _is_open(own) and (own.peer, own.group) == (sender.rank, group)
    )


def _is_open(call: Collective) -> bool:
    """Whether a receive has not ended, as far as is known: nobody has waited for it yet."""
    return "recv" in call.op and (call.issued or not call.done)


def _of(rank: int | None, wait: Wait, sent: Collective) -> list[Collective]:
    return [wait.call] if wait.rank == rank else [sent] if wait.call.peer == rank else []
