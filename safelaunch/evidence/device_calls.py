"""How a rank's own record of its calls and torch's Flight Recorder fit together, where calls end on a device.

The record has the line of a call, and that its host has come back from it; the recorder has what became of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from safelaunch.model import CallState, Collective

Way = tuple[str, bool, int | None]  # of messages: group, whether they are sent, the other rank


def with_states(calls: Sequence[Collective], recorded: Iterable[Collective]) -> tuple[Collective, ...]:
    """The calls of a rank's own record as they stand on the device, where the recorder knows that.

    A rank waits in the first collective of a group that has not ended there, wherever its host is by now; those that it
    has enqueued behind that one are `issued`. A collective is known by its number. Of messages, which both number
    otherwise, those to one rank end in their order: the latest ones are under way.

    Args:
        calls: the rank's own record, oldest first.
        recorded: what the recorders hold.
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


def _standing(call: Collective, state: CallState, is_first: bool) -> Collective:
    return dataclasses.replace(call, state=state, done=not is_first, issued=not is_first)


def _way(call: Collective) -> Way:
    return call.group, "send" in call.op, call.peer
