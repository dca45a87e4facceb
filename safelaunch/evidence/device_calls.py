"""How a rank's own record of its calls and torch's Flight Recorder fit together, where calls end on a device.

The record has the line of a call, and that its host has come back from it; the recorder has what became of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from safelaunch.model import CallState, Collective, RankFacts, StreamProgress

Way = tuple[str, bool, int | None]  # of messages: group, whether they are sent, the other rank


def with_states(
    calls: Sequence[Collective], recorded: Iterable[Collective], stream: StreamProgress | None = None
) -> tuple[Collective, ...]:
    """The calls of a rank's own record as they stand on the device, where the recorder knows that.

    A rank waits in the first collective of a group that has not ended there, wherever its host is by now; those that it
    has enqueued behind that one are `issued`. A collective is known by its number. Of messages, which both number
    otherwise, those to one rank end in their order: the latest ones are under way. Of those that were enqueued together
    with others nccl2's recorder says at once that they have ended (measured with torch 2.15): whether they have, only
    the stream tells, which waits for them. Such a batch is under way where the stream has come to it, and not to what
    was enqueued next, or not even to it.

    Args:
        calls: the rank's own record, oldest first.
        recorded: what the recorders hold.
        stream: how far the device has come.
    """
    states: dict[tuple[str, int], CallState] = {}
    first: dict[str, int] = {}
    messages: Counter[Way] = Counter()
    for call in recorded:
        if call.state and call.peer is None:
            states[call.group, call.seq] = call.state
            if call.state != "completed":
                first[call.group] = min(call.seq, first.get(call.group, call.seq))
        elif call.state and call.state != "completed":
            messages[_way(call)] += 1
    if not messages:
        messages = _not_passed(calls, stream)
    if not states and not messages:  # nothing here ends on a device
        return tuple(calls)
    found = []
    for call in reversed(calls):
        if call.is_message:
            left = messages[_way(call)]
            messages[_way(call)] -= 1
            found.append(_standing(call, "enqueued", left == 1) if left > 0 else call)
        elif states.get((call.group, call.seq), "completed") != "completed":
            found.append(_standing(call, states[call.group, call.seq], call.seq == first[call.group]))
        else:
            found.append(dataclasses.replace(call, state=states.get((call.group, call.seq), "")))
    return tuple(reversed(found))


def _not_passed(calls: Sequence[Collective], stream: StreamProgress | None) -> Counter[Way]:
    """How many messages of batches the stream has not passed, by way; none where it has come to all that there is."""
    if stream is None or stream.outstanding is None:
        return Counter()
    since = stream.reached.t if stream.reached is not None else 0.0
    ahead = [call for call in calls if call.t < stream.outstanding.t and call.t >= since]
    first = ahead[0].t if ahead and all(call.is_batched for call in ahead) else stream.outstanding.t
    return Counter(_way(call) for call in calls if call.is_batched and call.t >= first)


def _standing(call: Collective, state: CallState, is_first: bool) -> Collective:
    return dataclasses.replace(call, state=state, done=not is_first, issued=not is_first)


def _way(call: Collective) -> Way:
    return call.group, "send" in call.op, call.peer


def settled(ranks: Sequence[RankFacts]) -> tuple[RankFacts, ...]:
    """The ranks without the messages of batches that only seemed to be under way on a device, since it has not come to
    what was enqueued behind them: the other end of such a message has ended, so it has, and something else holds the
    stream."""
    known = {facts.rank: facts for facts in ranks}
    return tuple(_settled(facts, known) for facts in ranks)


def _settled(facts: RankFacts, ranks: Mapping[int, RankFacts]) -> RankFacts:
    told = any(call.state not in ("", "completed") for call in facts.recorded or () if call.peer is not None)
    if told or not any(call.is_batched and call.state == "enqueued" for call in facts.collectives):
        return facts
    ended: dict[str, Any] = {"state": "completed", "done": True, "issued": False}
    calls = [
        dataclasses.replace(call, **ended)
        if call.is_batched and call.state == "enqueued" and _has_ended(call, facts.rank, ranks.get(call.peer or 0))
        else call
        for call in facts.collectives
    ]
    return dataclasses.replace(facts, collectives=tuple(calls))


def _has_ended(call: Collective, rank: int, other: RankFacts | None) -> bool:
    """Whether the other end of a message has ended on its device."""
    there = [
        own
        for own in (other.collectives if other is not None else ())
        if own.group == call.group and own.is_message and own.peer == rank and ("send" in own.op) != ("send" in call.op)
    ]
    mine = next((own for own in there if own.seq >= call.seq), None)  # what came before may have been passed over
    return mine is not None and mine.state in ("", "completed")
