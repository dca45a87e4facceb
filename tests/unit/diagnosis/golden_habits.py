"""Golden cases that the ranks' habits decide: what they have done at a line before."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import SEND, as_recorded, call, hang, recv, send, waiting
from scenes import GLOO_RESET, LOOP, TRAIN, T, aborted_in_collective, all_reduce, case, lost_peer, rank

from safelaunch.model import Case, Collective, Condition, Location, ProcessGroup, RankFacts, SourceLine

Golden = dict[str, tuple[Case, Expected]]

CALLS_IT = Location(TRAIN, 62, "main")
SYNCED = Location(TRAIN, 64, "main")
RECEIVE = Location("/home/ada/project/pipeline.py", 28, "take_over")
_LINE = {"recv": RECEIVE, "send": SEND}


def cases() -> Golden:
    def gathers(number: int, before: int, now: int) -> RankFacts:
        calls = [
            dataclasses.replace(
                all_reduce(seq, numel=before, done=True, t=T - 20 + seq, op="all_gather", size=2), thread=0
            )
            for seq in range(8, 12)
        ]
        return rank(number, inside=(*calls, all_reduce(12, numel=now, op="all_gather", size=2)))

    def passes(number: int, peers: tuple[int, ...], now: int) -> RankFacts:
        made = tuple(
            dataclasses.replace(recv(peer, size=3), seq=seq + 1, done=True, t=T - 9 + seq, location=RECEIVE)
            for seq, peer in enumerate(peers)
        )
        last = dataclasses.replace(recv(now, size=3), seq=9, location=RECEIVE)
        facts = waiting(number, *made, last)
        return dataclasses.replace(facts, recorded=as_recorded(facts.collectives))

    def sends(number: int, peer: int) -> RankFacts:
        before = tuple(
            dataclasses.replace(send(peer, size=3), seq=seq, done=True, t=T - 9 + seq) for seq in range(1, 5)
        )
        return waiting(number, *before, dataclasses.replace(send(peer, size=3), seq=5))

    circle = (sends(0, 1), sends(1, 2))

    def stage(number: int, message: Collective, now: int, *, meets: bool) -> RankFacts:
        """Makes three messages in each round, and then meets all; so many now."""
        calls: list[Collective] = []
        for turn in range(1, 5):
            count = now if turn == 4 else 3
            for _ in range(count):
                seq = sum(1 for one in calls if one.peer is not None) + 1
                calls.append(dataclasses.replace(message, seq=seq, done=True, t=T - 20 + len(calls)))
            if turn < 4 or meets:
                calls.append(dataclasses.replace(call(seq=turn, size=3), done=True, t=T - 20 + len(calls)))
        return waiting(number, *calls[:-1], dataclasses.replace(calls[-1], done=False))

    meets = stage(0, send(1, size=3), 3, meets=True)

    def in_turn(number: int, groups: tuple[str, str], now: str) -> RankFacts:
        """Has been in two groups in turn, and is now in this one."""
        before = tuple(
            dataclasses.replace(call(seq=seq, group=group, size=2), done=True, t=T - 9 + seq + (group == groups[1]) / 2)
            for seq in range(1, 6)
            for group in groups
        )
        return dataclasses.replace(waiting(number, *before, call(seq=6, group=now, size=2)), stepped=T - 3)

    def layers(number: int, group: str, until: int, now: Collective) -> RankFacts:
        """Has come to one line with its group until this number, and is inside this call."""
        made = [call(seq=seq, group=group, size=2, t=T - 30 + seq) for seq in range(21, until + 1)]
        return waiting(number, *(dataclasses.replace(one, done=True) for one in made), now)

    def on_a_mesh(until: tuple[int, ...], *now: Collective) -> Case:
        usual, groups = "5566", {"5": (0, 1), "6": (2, 3), "9": (0, 2), "8": (1, 3), "0": (0, 1, 2, 3)}
        ranks = (layers(number, usual[number], until[number], one) for number, one in enumerate(now))
        return hang(*ranks, groups=tuple(ProcessGroup(name, members) for name, members in groups.items()))

    end = call(seq=3, at=SYNCED)
    other_dimension, as_always = call(seq=7, group="9", size=2), call(seq=26, group="6", size=2)

    def stage_of(number: int, turns: list[tuple[str, int]], *now: tuple[str, int]) -> RankFacts:
        """A stage of a pipeline that has sent and received this in each of eight steps, and now that."""
        made: list[Collective] = []
        for at, (op, peer) in enumerate([*turns * 8, *now]):
            seq = 1 + sum((one.op, one.peer) == (op, peer) for one in made)
            made.append(call(op, seq, at=_LINE[op], peer=peer, size=3, t=T - 999 + at))
        facts = waiting(number, *(dataclasses.replace(one, done=True) for one in made[:-1]), made[-1])
        return dataclasses.replace(facts, stepped=T - 999 + 8 * len(turns) - 0.5 if turns else None)

    forward, backward = [("recv", 0), ("send", 2)] * 4, [("recv", 2), ("send", 0)] * 4
    first = stage_of(0, [("send", 1)] * 4 + [("recv", 1)] * 4, *[("send", 1)] * 4, ("recv", 1))
    middle = stage_of(1, forward + backward, *forward, ("recv", 2))
    last = [("recv", 1)] * 4 + [("send", 1)] * 4

    def dispatches(number: int, now: Collective) -> RankFacts:
        """Makes two all_to_all and an all_reduce a step."""
        step = [call("all_to_all_single", at=CALLS_IT, size=3)] * 2 + [call(at=SYNCED, size=3)]
        made = [
            dataclasses.replace(one, seq=at, t=T - 60 + at, done=True)
            for at, one in enumerate([*step * 8, *step[:2]], start=1)
        ]
        return waiting(number, *made, now)

    first_time = on_a_mesh((21, 21, 20, 20), end, end, other_dimension, dataclasses.replace(as_always, seq=21))
    pairs = tuple(ProcessGroup(name, members) for name, members in (("1", (0, 1)), ("2", (1, 2)), ("3", (0, 2))))
    others = (in_turn(1, ("1", "2"), "1"), in_turn(2, ("2", "3"), "2"))
    rows = (("1", (0, 1)), ("2", (2, 3)), ("3", (0, 2)), ("4", (1, 3)))
    of_mesh = ("1", "3"), ("1", "4"), ("2", "3"), ("2", "4")
    return {
        "hang-two-whose-order-is-data": (
            hang(
                in_turn(0, ("1", "2"), "2"),
                in_turn(1, ("1", "2"), "1"),
                groups=(ProcessGroup("1", (0, 1)), ProcessGroup("2", (0, 1))),
            ),
            Expected("SL311", (), place(LOOP), confidence="high", conclusive=True),
        ),
        # Rank 2 has taken the other dimension of the mesh; the others have come to that line once more, as always.
        "hang-in-another-group-than-ever": (
            on_a_mesh((26, 26, 25, 25), end, end, other_dimension, as_always),
            Expected(
                "SL311",
                (2,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("always used group 6",),
            ),
        ),
        # Nobody has been there before; ranks 0 and 1 have met there, and rank 3 waits there for rank 2.
        "hang-in-a-group-that-nobody-shares": (
            dataclasses.replace(
                first_time,
                ranks=(
                    *first_time.ranks[:2],
                    *(dataclasses.replace(facts, collectives=facts.collectives[-1:]) for facts in first_time.ranks[2:]),
                ),
            ),
            Expected(
                "SL311",
                (2,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("the group of ranks 0 and 2",),
            ),
        ),
        # Only one other has come once more: from now on it may be that group.
        "hang-in-another-group-before-all-others": (
            on_a_mesh((25, 25, 25, 25), end, end, other_dimension, as_always),
            Expected("SL311", (), place(SYNCED), confidence="high", conclusive=True),
        ),
        # Rank 2 waits for a fifth message of the step: it has always made four.
        "hang-one-message-more-in-a-pipeline": (
            hang(first, middle, stage_of(2, last, *[("recv", 1)] * 5)),
            Expected(
                "SL311",
                (2,),
                place(RECEIVE),
                confidence="medium",
                conclusive=True,
                mentions=("send to rank 1", "was next"),
            ),
        ),
        # Nobody knows what rank 2 has done before: the record of its calls is of this step alone.
        "hang-one-message-more-in-a-first-step": (
            hang(first, middle, stage_of(2, [], *[("recv", 1)] * 37)),
            Expected("SL311", (), place(RECEIVE), confidence="high", conclusive=True),
        ),
        "hang-one-dispatch-more-than-ever": (
            hang(
                *(dispatches(number, call("all_reduce", 27, at=SYNCED, size=3)) for number in range(2)),
                dispatches(2, call("all_to_all_single", 27, at=CALLS_IT, size=3)),
                source=(
                    SourceLine(TRAIN, CALLS_IT.line, loops=((58, 90), (60, 63)), conditions=(Condition(60, "True"),)),
                    SourceLine(TRAIN, SYNCED.line, loops=((58, 90),)),
                ),
            ),
            Expected(
                "SL302",
                (2,),
                place(CALLS_IT),
                confidence="medium",
                conclusive=True,
                mentions=("skipped all_reduce (train.py:64)", "the 3 calls"),
            ),
        ),
        "hang-another-operation-in-another-group": (
            on_a_mesh(
                (26, 26, 25, 25),
                dataclasses.replace(other_dimension, location=SYNCED),
                call(seq=8, group="8", size=2, at=SYNCED),
                dataclasses.replace(other_dimension, op="all_gather"),
                as_always,
            ),
            Expected("SL302", (2,), place(LOOP), confidence="medium", conclusive=True),
        ),
        "hang-one-has-sent-less-than-ever": (
            hang(meets, stage(1, send(2, size=3), 2, meets=True), stage(2, recv(1, size=3), 3, meets=False)),
            Expected(
                "SL311",
                (1,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("2 x send to rank 2", "3 in each before"),
            ),
        ),
        "hang-one-receives-more-than-ever": (
            hang(meets, stage(1, send(2, size=3), 3, meets=True), stage(2, recv(1, size=3), 4, meets=False)),
            Expected("SL311", (2,), place(SEND), confidence="medium", conclusive=True, mentions=("4 x recv",)),
        ),
        "hang-groups-in-another-order": (
            hang(in_turn(0, ("1", "3"), "3"), *others, groups=pairs),
            Expected(
                "SL311",
                (0,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("all_reduce of group 1 (train.py:61) was next",),
            ),
        ),
        "hang-half-of-a-mesh-in-another-order": (
            hang(
                *(in_turn(number, both, both[number in (0, 3)]) for number, both in enumerate(of_mesh)),
                groups=tuple(ProcessGroup(name, members) for name, members in rows),
            ),
            Expected(
                "SL311",
                (0, 3),
                place(LOOP),
                confidence="low",
                conclusive=True,
                mentions=("in another order than ever", "the 2 calls that it has always made in turn"),
            ),
        ),
        # Those that have never been in two groups in turn have no order to depart from.
        "hang-groups-in-orders-that-nobody-knows": (
            hang(
                waiting(0, call(seq=6, group="3", size=2)),
                waiting(1, call(seq=6, group="1", size=2)),
                waiting(2, call(seq=6, group="2", size=2)),
                groups=pairs,
            ),
            Expected("SL311", (), place(LOOP), conclusive=True),
        ),
        "crash-gather-of-another-size": (
            case(
                lost_peer(gathers(0, 512, 512), message=GLOO_RESET),
                aborted_in_collective(gathers(1, 512, 320)),
                world_size=2,
            ),
            Expected(
                "SL410", (1,), place(LOOP), secondary=(0,), confidence="medium", mentions=("320 x float32", "before")
            ),
        ),
        # Sizes that are always different are no habit.
        "crash-gather-of-any-size": (
            case(
                lost_peer(gathers(0, 511, 512), message=GLOO_RESET),
                aborted_in_collective(gathers(1, 100, 320)),
                world_size=2,
            ),
            Expected("SL410", (), place(LOOP), secondary=(0, 1), confidence="medium"),
        ),
        "hang-receives-from-another-peer": (
            hang(*circle, passes(2, (1, 1, 1, 1), 0)),
            Expected(
                "SL311",
                (2,),
                place(RECEIVE),
                confidence="medium",
                conclusive=True,
                mentions=("the last 4 times",),
            ),
        ),
        # One mistake explains it: rank 1 has left its messages out.
        "hang-in-a-collective-of-all-who-wait-for-it": (
            hang(sends(0, 1), waiting(1, call(size=3)), passes(2, (1, 1, 1, 1), 1)),
            Expected("SL311", (1,), place(LOOP), confidence="medium", conclusive=True),
        ),
        "hang-in-a-collective-of-two": (
            hang(sends(0, 1), waiting(1, call(size=2))),
            Expected("SL311", (), place(SEND), conclusive=True),
        ),
        # Ranks 0 and 1 have made a group that rank 2 left out, as it was not to belong to it.
        "hang-groups-that-not-all-have-made": (
            hang(
                waiting(0, dataclasses.replace(call("new_group", 2, at=CALLS_IT, size=3), group="new_group #2")),
                waiting(1, dataclasses.replace(call("new_group", 2, at=CALLS_IT, size=3), group="new_group #2")),
                waiting(2, call("barrier", 1, group="1", at=SYNCED, size=3)),
                groups=(
                    ProcessGroup("0", (0, 1, 2)),
                    ProcessGroup("1", (0, 1)),
                    ProcessGroup("1", (0, 1, 2)),
                    ProcessGroup("new_group #2", (0, 1, 2)),
                ),
            ),
            Expected(
                "SL302", (), place(SYNCED), confidence="medium", conclusive=True, mentions=("for some ranks 0 and 1",)
            ),
        ),
        "hang-in-a-group-that-only-one-makes": (
            hang(
                waiting(0, dataclasses.replace(call("new_group", 1, at=CALLS_IT, size=2), group="new_group #1")),
                *(waiting(number, call(size=3)) for number in (1, 2)),
                groups=(ProcessGroup("0", (0, 1, 2)), ProcessGroup("new_group #1", (0, 1))),
            ),
            Expected("SL311", (0,), place(CALLS_IT), confidence="medium", conclusive=True, mentions=("new_group",)),
        ),
        "hang-receives-from-changing-peers": (
            hang(*circle, passes(2, (1, 0, 1, 0), 0)),
            Expected("SL311", (), place(SEND), conclusive=True),
        ),
    }
