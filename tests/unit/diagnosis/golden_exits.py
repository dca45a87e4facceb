"""Golden cases of ranks that end with an error code, most or all of them alike."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from scenes import DATA, MODEL, STEP, TRAIN, T, called_exit, case, exited, rank, shutting_down

from safelaunch.model import Case, ExitCall, Location, RankFacts

PARSE = Location(TRAIN, 21, "main")
CHECK = Location(DATA, 9, "check")
OTHER = Location(MODEL, 30, "build")
USAGE = "train.py: error: the following arguments are required: --lr"


def left(number: int, line: Location = CHECK, code: str = "3", *, t: float = T) -> RankFacts:
    """A rank that has called `sys.exit` with an error code before it used torch.distributed."""
    facts = dataclasses.replace(rank(number, inside=()), watched=True)
    return exited(called_exit(facts, code, t, line), int(code) if code.isdigit() else 1, t + 0.1)


def refused(number: int) -> RankFacts:
    """A rank to which argparse has said no."""
    return dataclasses.replace(left(number, PARSE, "2"), exit_call=ExitCall(PARSE, "2", USAGE))


def on_signal(facts: RankFacts) -> RankFacts:
    """The same rank, whose call of exit a handler of SIGUSR1 has made."""
    assert facts.exit_call is not None
    return dataclasses.replace(facts, exit_call=dataclasses.replace(facts.exit_call, signal="SIGUSR1"))


def raises(number: int, code: str, line: Location | None) -> RankFacts:
    """A rank whose program, or a library of it, has raised SystemExit."""
    facts = shutting_down(dataclasses.replace(rank(number, inside=()), watched=True, program=TRAIN))
    facts = exited(facts, int(code) if code.isdigit() else 1)
    return facts if line is None else dataclasses.replace(facts, exit_call=ExitCall(line, code, raised=True))


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    starting = rank(3, inside=())
    every = ("every rank left",)
    return {
        "exit-everywhere": (
            case(*(left(n, t=T + n / 10) for n in range(4))),
            Expected("SL415", location=place(CHECK), mentions=(*every, "exit code 3")),
        ),
        "exit-everywhere-with-a-message": (
            case(*(left(n, code="no shards in /data") for n in range(4))),
            Expected("SL415", location=place(CHECK), mentions=(*every, "sys.exit: no shards in /data")),
        ),
        "exit-everywhere-with-a-message-like-an-option": (
            case(*(left(n, code="--5") for n in range(3))),
            Expected("SL415", location=place(CHECK), mentions=("sys.exit: --5",)),
        ),
        "exit-of-one-in-a-signal-handler": (
            case(*(rank(n) for n in range(3)), on_signal(left(3))),
            Expected("SL407", (3,), place(CHECK), mentions=("in its handler of SIGUSR1", "who sent SIGUSR1")),
        ),
        "exit-everywhere-by-argparse": (
            case(*(refused(n) for n in range(4))),
            Expected("SL415", location=place(PARSE), mentions=(*every, USAGE, "arguments")),
        ),
        # Slow ranks still start: what is wrong with the command line is wrong for them as well.
        "exit-everywhere-before-one-had-started": (
            case(*(refused(n) for n in range(3)), starting),
            Expected("SL415", location=place(PARSE), confidence="medium", mentions=("ranks 0-2 left", "rank 3 had")),
        ),
        "exit-everywhere-by-a-raised-exit": (
            case(*(raises(n, "no shards in /data", CHECK) for n in range(4))),
            Expected("SL415", location=place(CHECK), confidence="medium", mentions=(*every, "SystemExit: no shards")),
        ),
        "exit-everywhere-by-a-library": (
            case(*(raises(n, "4", None) for n in range(4))),
            Expected("SL415", confidence="medium", mentions=(*every, "exit code 4", "raised SystemExit")),
        ),
        "exit-everywhere-at-two-lines": (
            case(left(0, OTHER, "4"), *(left(n, t=T + 0.2) for n in (1, 2, 3))),
            Expected(
                "SL415",
                location=place(OTHER),
                confidence="medium",
                mentions=("rank 0: exit code 4 at", "ranks 1-3: exit code 3 at"),
            ),
        ),
        # The others have had the time to hear of it.
        "exit-of-one-and-later-of-the-others": (
            case(left(0, OTHER, "4"), *(left(n, t=T + 5) for n in (1, 2, 3))),
            Expected("SL407", (0,), place(OTHER), secondary=(1, 2, 3), mentions=("exit code 4",)),
        ),
        "exit-of-two-alike": (
            case(rank(0), *(exited(called_exit(rank(n), "3"), 3) for n in (1, 2)), rank(3)),
            Expected("SL407", (1, 2), place(STEP), confidence="medium", mentions=("ranks 1 and 2 left",)),
        ),
        # Who trains already, and is not in a collective, may have told them to leave.
        "exit-of-two-and-a-third-at-work": (
            case(
                *(exited(called_exit(rank(n), "3"), 3) for n in (0, 1)),
                dataclasses.replace(rank(2), collectives=rank(2).collectives[:-1]),
            ),
            Expected("SL499", secondary=(0, 1), confidence="low", mentions=("exit code 3 at",)),
        ),
        # It had caught what argparse raised, and failed later for another reason.
        "exit-that-was-caught": (
            case(*(exited(called_exit(rank(n, inside=()), "2", line=PARSE), 9) for n in range(3))),
            Expected("SL415", confidence="medium", mentions=("exit code 9",)),
        ),
    }
