"""Golden cases of ranks that do not mean the same message, or have not made the same process groups."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import COMPUTING, as_recorded, call, elsewhere, hang, waiting
from scenes import GLOO_RESET, GLOO_SIZE, LOOP, TORCH, TRAIN, aborted_in_collective, case, crashed, lost_peer, rank

from safelaunch.model import Case, Collective, Location, ProcessGroup, RankFacts

FUNCTIONAL = (
    Location(f"{TORCH}/_ops.py", 1279, "__call__"),
    Location(f"{TORCH}/distributed/_functional_collectives.py", 142, "wait_tensor"),
)
Golden = dict[str, tuple[Case, Expected]]

READ = Location(TRAIN, 48, "exchange")
COUNTS = Location(TRAIN, 44, "exchange")
SWAPS = Location(TRAIN, 46, "exchange")
CALLS_IT = Location(TRAIN, 62, "main")


def _messages() -> Golden:
    def exchanges(number: int, left: int, right: int, tag: int) -> RankFacts:
        """Has posted all its messages of this step, and waits for the one from the left."""
        ops = (("irecv", left, tag), ("irecv", right, tag + 1), ("isend", right, tag), ("isend", left, tag + 1))
        calls = [
            dataclasses.replace(call(op, 8, at=READ, peer=peer, size=4, tag=own), done=True, issued=True)
            for op, peer, own in ops
        ]
        facts = waiting(number, *calls[1:], dataclasses.replace(calls[0], done=False, issued=False))
        return dataclasses.replace(facts, recorded=as_recorded(facts.collectives))

    def parts(op: str, peer: int, *, late: bool) -> list[Collective]:
        """Messages with the tags 3, 2 and 1; or all four of them, of which that with tag 0 is waited for."""
        pid = 4101 - peer
        tags = (0, 1, 2, 3) if late else (3, 2, 1)
        made = [call(op, seq, at=READ, peer=peer, size=2, tag=tag, thread=pid) for seq, tag in enumerate(tags, start=1)]
        posted = [dataclasses.replace(one, done=True, issued=True) for one in (made[1:] if late else made)]
        return [*posted, made[0]] if late else posted

    def ring(*tags: int) -> Case:
        return hang(*(exchanges(number, (number - 1) % 4, (number + 1) % 4, tag) for number, tag in enumerate(tags)))

    return {
        "hang-for-another-tag": (
            ring(12, 14, 12, 12),
            Expected(
                "SL302",
                (1,),
                place(READ),
                confidence="medium",
                conclusive=True,
                mentions=("rank 1 has sent it with tag 14", "rank 0 has sent it with tag 12"),
            ),
        ),
        # Two stages wait for the same one, which has done one round less and is behind it, with the first stage.
        "hang-between-two-stages-that-wait-for-one": (
            hang(
                *(waiting(number, call("barrier", 2, at=CALLS_IT)) for number in (0, 2)),
                waiting(1, call("send", 8, at=READ, peer=2, size=2)),
                waiting(3, call("recv", 8, at=READ, peer=2, size=2)),
            ),
            Expected("SL311", (2,), place(CALLS_IT), confidence="medium", conclusive=True),
        ),
        # Those behind the loop may have done as much as is right, and these too much.
        "hang-two-send-to-one-of-many": (
            hang(
                *(waiting(number, call("barrier", 2, at=CALLS_IT, size=5)) for number in (0, 1, 2)),
                *(waiting(number, call("send", 8, at=READ, peer=0, size=2)) for number in (3, 4)),
            ),
            Expected("SL311", (), place(CALLS_IT), conclusive=True),
        ),
        "hang-for-tags-of-two-halves": (
            ring(12, 12, 14, 14),
            Expected("SL302", (), place(READ), confidence="medium", conclusive=True),
        ),
        # It computes, and is about to send what is waited for, after what it has sent before that.
        "hang-for-a-tag-that-comes-last": (
            hang(
                dataclasses.replace(
                    waiting(0, call("irecv", 4, at=READ, peer=1, size=2, tag=0)),
                    collectives=(*parts("irecv", 1, late=True),),
                ),
                dataclasses.replace(elsewhere(1, COMPUTING, READ), collectives=(*parts("isend", 0, late=False),)),
            ),
            Expected("SL301", (1,), place(READ), conclusive=False),
        ),
        "hang-for-a-message-with-its-tag": (
            ring(12, 12, 12, 12),
            Expected("SL310", (), place(READ), confidence="medium", conclusive=False),
        ),
    }


def _aborts() -> Golden:
    backward = Location(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")

    def swaps(number: int, last: Location) -> RankFacts:
        """Has made four calls of all_to_all at two lines in turn, and is in the fifth."""
        places = (COUNTS, SWAPS, COUNTS, SWAPS, last)
        calls = [call("all_to_all_single", 8 + n, at=where) for n, where in enumerate(places)]
        return rank(number, inside=(*(dataclasses.replace(one, done=True) for one in calls[:-1]), calls[-1]))

    def made(number: int, last: int) -> RankFacts:
        """Gathers in every third call, and is behind #6 or in a later one."""
        calls = [call("all_gather", seq, at=COUNTS) for seq in range(3, last + 1, 3)]
        return rank(number, inside=[dataclasses.replace(one, done=one.seq <= 6) for one in calls])

    return {
        # It caught an exception between the two calls of a step, and came to the first one of the next.
        "crash-gloo-aborts-at-two-lines": (
            case(*(lost_peer(swaps(number, SWAPS), message=GLOO_RESET) for number in (0, 1, 3)), swaps(2, COUNTS)),
            Expected(
                "SL411",
                (2,),
                place(COUNTS),
                secondary=(0, 1, 3),
                confidence="medium",
                mentions=("at line 44", "line 46"),
            ),
        ),
        # All of them, this time; and no record reaches far enough to tell who departs from what.
        "crash-gloo-aborts-all": (
            case(*(aborted_in_collective(rank(number)) for number in range(3)), world_size=3),
            Expected("SL406", (), place(LOOP), secondary=(0, 1, 2), confidence="medium"),
        ),
        # Functional collectives are in nobody's record; its peers were past the one that broke.
        "crash-gloo-aborts-between-recorded-calls": (
            case(
                *(lost_peer(made(number, 9), message=GLOO_RESET) for number in (0, 1)),
                dataclasses.replace(crashed(made(2, 6), 6, *FUNCTIONAL, READ), last_lines=(f"  what():  {GLOO_SIZE}",)),
                world_size=3,
            ),
            Expected(
                "SL406",
                (),
                place(READ),
                secondary=(0, 1, 2),
                confidence="medium",
                mentions=(
                    "inside a functional collective behind all_gather #6 (train.py:44)",
                    "received 4000 bytes where it had room for 40",
                    "it was in #7 or #8",
                    "ranks 0 and 1 were past that, in all_gather #9",
                ),
            ),
        ),
        # DDP's collectives are in nobody's record: gloo aborts whichever rank receives what it did not expect.
        "crash-gloo-aborts-in-a-backward-pass": (
            case(
                *(lost_peer(rank(number), message=GLOO_RESET) for number in (0, 1)),
                crashed(rank(2), 6, backward, READ),
                world_size=3,
            ),
            Expected(
                "SL406",
                (),
                place(READ),
                secondary=(0, 1, 2),
                confidence="medium",
                mentions=("ranks 0 and 1 were at", "rank 2 was at"),
            ),
        ),
    }


def _groups() -> Golden:
    asked = ((0, 1), (2, 3), (0, 2), (1, 3))

    def makes(*made: tuple[tuple[int, ...], ...]) -> Case:
        making = dataclasses.replace(call("new_group", 1, at=CALLS_IT, size=2), group="new_group #4")
        inside = (
            call(group="1", seq=1, size=2),
            making,
            call(group="3", seq=1, size=2),
            call(group="3", seq=1, size=2),
        )
        ranks = (
            dataclasses.replace(waiting(number, one), new_groups=groups)
            for number, (one, groups) in enumerate(zip(inside, made, strict=True))
        )
        known = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3), "new_group #4": (1, 3)}
        groups = [ProcessGroup(name, members) for name, members in known.items()]
        return hang(*ranks, groups=(*groups, ProcessGroup("3", (0, 2)), ProcessGroup("3", (1, 3))))

    return {
        "hang-in-a-group-that-one-has-left-out": (
            makes(asked, asked, asked, (asked[0], asked[1], asked[3])),
            Expected(
                "SL302",
                (3,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("rank 3 called new_group #3 for ranks 1 and 3, and all others for ranks 0 and 2",),
            ),
        ),
        "hang-in-a-group-that-one-has-never-heard-of": (
            makes(asked, asked, asked, ()),
            Expected(
                "SL302",
                (3,),
                place(LOOP),
                confidence="medium",
                conclusive=True,
                mentions=("rank 3 has not called new_group #1, all others for ranks 0 and 1",),
            ),
        ),
        # Each of these groups was made by all who belong to it, and by nobody else.
        "hang-beside-groups-of-their-own": (
            hang(
                *(
                    dataclasses.replace(waiting(number, call(group=group, size=2)), new_groups=(members,))
                    for number, group, members in ((0, "5", (0, 1, 2)), (1, "6", (0, 1, 2)), (2, "7", (0, 1, 2)))
                ),
                dataclasses.replace(elsewhere(3, COMPUTING, READ), new_groups=((3,),)),
                groups=tuple(ProcessGroup(*one) for one in (("5", (0, 1)), ("6", (1, 2)), ("7", (0, 2)))),
            ),
            Expected("SL311", (), place(LOOP), confidence="high", conclusive=True),
        ),
        # Half of the ranks have left it out.
        "hang-in-a-group-that-two-have-left-out": (
            makes(asked, asked, (asked[0], asked[1], asked[3]), (asked[0], asked[1], asked[3])),
            Expected("SL311", (), place(CALLS_IT), confidence="high", conclusive=True),
        ),
    }


def cases() -> Golden:
    """All of them by name."""
    return {**_messages(), **_aborts(), **_groups()}
