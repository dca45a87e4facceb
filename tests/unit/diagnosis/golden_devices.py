"""Calls that end on a device, of which the recorders of all ranks tell; and a receive from whoever sends."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import BARRIER, SEND, T, call, done, hang, recv, send, waiting, world
from scenes import LOOP

from safelaunch.model import CallState, Case, Collective, GroupProgress, ProcessGroup, RankFacts

Golden = dict[str, tuple[Case, Expected]]
SIZE = 4


def cases() -> Golden:
    """By name."""
    return {**_exchanges(), **_orders(), **_receivers()}


def on_device(number: int, *calls: tuple[Collective, CallState]) -> RankFacts:
    """A rank whose host has enqueued these, and waits for its GPU at the last of them."""
    facts = waiting(number, *(one for one, _ in calls))
    own = tuple(
        dataclasses.replace(one, thread=facts.pid, state=state, done=state == "completed") for one, state in calls
    )
    recorded = tuple(dataclasses.replace(one, location=None, thread=0, group_size=0) for one in own)
    completed = sum(one.done for one in own)
    progress = GroupProgress("0", "nccl", len(calls), completed)
    return dataclasses.replace(facts, collectives=own, recorded=recorded, progress=(progress,))


def _exchanges() -> Golden:
    def exchange(number: int, sent: int, state: CallState) -> RankFacts:
        one = dataclasses.replace(call("all_to_all_single", 12), numel=sent, outputs=(8,))
        behind = (dataclasses.replace(call(seq=13), t=T + 0.03), "enqueued")
        return on_device(number, (one, state), *([behind] if state == "completed" else []))

    states: tuple[CallState, ...] = ("completed", "enqueued", "completed", "enqueued")
    return {
        "hang-exchange-of-other-sizes": (
            hang(*(exchange(n, 7 if n == 1 else 8, state) for n, state in enumerate(states))),
            Expected("SL410", location=place(LOOP), confidence="medium", mentions=("send 31 elements, and expect 32",)),
        ),
        "hang-exchange-that-two-do-not-complete": (
            hang(*(exchange(n, 8, state) for n, state in enumerate(states))),
            Expected("SL399", location=place(LOOP), confidence="low", mentions=("ranks 1 and 3 do not complete",)),
        ),
    }


def _orders() -> Golden:
    groups = (world(), ProcessGroup("1", tuple(range(SIZE))), ProcessGroup("2", tuple(range(SIZE))))

    def uses(number: int, first: str, second: str) -> RankFacts:
        return on_device(
            number,
            (call(seq=6, group=first, t=T + 0.01), "enqueued"),
            (call(seq=6, group=second, at=BARRIER, t=T + 0.02), "enqueued"),
        )

    return {
        "hang-enqueued-in-another-order": (
            hang(*(uses(n, *(("2", "1") if n == 2 else ("1", "2"))) for n in range(SIZE)), groups=groups),
            Expected("SL311", (2,), place(LOOP), confidence="medium", mentions=("the other way round",)),
        ),
        "hang-enqueued-in-another-order-by-half": (
            hang(*(uses(n, *(("2", "1") if n % 2 else ("1", "2"))) for n in range(SIZE)), groups=groups),
            Expected("SL311", location=place(LOOP), confidence="medium"),
        ),
    }


def _receivers() -> Golden:
    def reports(number: int, times: int) -> RankFacts:
        """Has sent rank 0 so many messages, and waits for it in a barrier."""
        sent = [dataclasses.replace(done(send(0)), seq=1 + n, t=T - 1.0 + n / 100) for n in range(times)]
        return waiting(number, *sent, call("barrier", 4, at=BARRIER))

    collects = waiting(0, done(recv(1)), dataclasses.replace(recv(1), peer=None, seq=13, t=T + 0.01))
    return {
        "hang-for-a-message-that-nobody-sends": (
            hang(collects, *(reports(n, 3 if n == 2 else 4) for n in range(1, SIZE))),
            Expected("SL311", (2,), place(BARRIER), confidence="medium", mentions=("rank 2 has sent it 3 messages",)),
        ),
        "hang-for-one-message-more-than-all-send": (
            hang(collects, *(reports(n, 4) for n in range(1, SIZE))),
            Expected("SL311", location=place(SEND), confidence="medium"),
        ),
    }
