"""Golden cases of ranks that met at one number from different lines, and of the ways out of a loop."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import BARRIER, INSIDE_LOOP, SAVE, Kernel, call, condition, done, elsewhere, hang, waiting
from scenes import STEP, TRAIN, T, case, exited, lost_peer, rank, shutting_down

from safelaunch.model import Case, Child, Collective, Location, RankFacts, SourceLine, WayOut

END = Location(TRAIN, 90, "main")
ON_MAIN = SourceLine(TRAIN, SAVE.line, "dist.barrier()", conditions=(condition(118, "is_main()"),))
BARE = SourceLine(TRAIN, SAVE.line, "dist.barrier()")

Golden = dict[str, tuple[Case, Expected]]


def barrier(seq: int, at: Location, *, over: bool = True) -> Collective:
    return dataclasses.replace(call("barrier", seq, at=at, t=T - 2 + seq / 100), done=over)


def together(seq: int) -> Collective:
    return done(call(seq=seq, t=T - 2 + seq / 100))


def left(number: int, *calls: Collective) -> RankFacts:
    """A rank that came to its end and exited with 0."""
    return exited(shutting_down(rank(number, inside=calls)), 0, T + 0.05)


def cases() -> Golden:
    """All of them by name."""
    ahead = lost_peer(rank(0, inside=(together(11), barrier(12, SAVE), barrier(13, END, over=False))), t=T + 0.1)
    gone = [left(number, together(11), barrier(12, END)) for number in (1, 2, 3)]
    blame_main = Expected(
        "SL408", (0,), place(SAVE), mentions=("barrier #12 (train.py:120)", "under `is_main()`", "train.py:90")
    )
    skipped = left(1, together(11), barrier(12, END))
    more = [
        lost_peer(rank(number, inside=(together(11), barrier(12, SAVE), barrier(13, END, over=False))), t=T + 0.1)
        for number in (0, 2, 3)
    ]
    return {
        "apart-one-made-a-call-too-many": (dataclasses.replace(case(ahead, *gone), source=(ON_MAIN,)), blame_main),
        "apart-one-made-a-call-too-many-of-two": (
            dataclasses.replace(case(ahead, gone[0]), source=(ON_MAIN,)),
            blame_main,
        ),
        "apart-one-made-a-call-too-many-by-votes": (
            dataclasses.replace(case(ahead, *gone), source=(BARE,)),
            Expected("SL408", (0,), place(SAVE), confidence="medium"),
        ),
        "apart-of-two-and-no-condition": (
            dataclasses.replace(case(ahead, gone[0]), source=(BARE,)),
            Expected(
                "SL408", (), place(SAVE), secondary=(0,), confidence="medium", mentions=("which of them is wrong",)
            ),
        ),
        "apart-one-skipped-a-call": (
            case(*more[:1], skipped, *more[1:]),
            Expected(
                "SL408",
                (1,),
                place(SAVE),
                secondary=(0, 2, 3),
                confidence="medium",
                mentions=("rank 1 skipped barrier #12",),
            ),
        ),
        **_ways_out(),
        "hang-at-a-pipe-of-a-process-that-was-killed": _killed(),
    }


def _ways_out() -> Golden:
    behind = SourceLine(TRAIN, BARRIER.line, "dist.barrier()")
    peers = [waiting(number, call()) for number in range(3)]
    alone = waiting(3, call("barrier", at=BARRIER))

    def told(*exits: WayOut, caught: tuple[tuple[int, str], ...] = ()) -> Case:
        inside = dataclasses.replace(INSIDE_LOOP, exits=exits, caught=caught)
        return hang(*peers, alone, source=(inside, behind))

    gone = Expected("SL303", (3,), place(BARRIER), conclusive=True)
    return {
        "left-loop-by-continue-in-an-except": (
            told(WayOut(60, "continue", 58, "except ValueError")),
            dataclasses.replace(
                gone, mentions=("a pass skips that call by `continue` in `except ValueError`", "train.py:60")
            ),
        ),
        "left-loop-by-break-in-an-except": (
            told(WayOut(64, "break", 58, "except OSError")),
            dataclasses.replace(gone, mentions=("left by `break` in `except OSError`",)),
        ),
        "left-loop-by-a-flag": (
            told(WayOut(65, "break", 58, "", "stopper.should_stop"), WayOut(66, "break", 58, "", "step >= max_steps")),
            dataclasses.replace(gone, mentions=("where `stopper.should_stop` holds",)),
        ),
        "left-loop-past-a-try-around-the-call": (
            told(caught=((62, "except RuntimeError"),)),
            dataclasses.replace(gone, mentions=("in a `try` whose `except RuntimeError`",)),
        ),
    }


def _killed() -> tuple[Case, Expected]:
    reads = Kernel("S", "unix_stream_read_generic", "read", "socket:[25438]")
    dead = Child(4188, "python", Kernel("Z"), status=9)
    late = elsewhere(2, reads, STEP, children=(dead,))
    peers = [waiting(number, call()) for number in (0, 1, 3)]
    return (
        hang(peers[0], peers[1], late, peers[2]),
        Expected(
            "SL301", (2,), place(STEP), conclusive=False, mentions=("python (pid 4188), which was killed by SIGKILL",)
        ),
    )
