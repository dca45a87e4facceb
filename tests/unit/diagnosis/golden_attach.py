"""Jobs that somebody has attached to, of which nobody knows more than what can be seen from outside."""

from __future__ import annotations

import dataclasses

from attach_scenes import C10D, INIT, LOAD, LOOP, SLEEPS, WAITS, case, rank, sleeper, waiter
from expected import Expected, place

from safelaunch.model import Case, Gap, RankFacts


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    return {**_named(), **_untold()}


def _named() -> dict[str, tuple[Case, Expected]]:
    gone = RankFacts(1, 1, 0, watched=False, state="X", missing=(Gap("process", "it has ended"),))
    return {
        "attach-one-sleeps": (
            case(waiter(0), sleeper(1), waiter(2)),
            Expected("SL301", (1,), place(LOAD), confidence="medium"),
        ),
        "attach-one-of-two-sleeps": (
            case(waiter(0), sleeper(1)),
            Expected("SL301", (1,), place(LOAD), confidence="low"),
        ),
        "attach-one-sleeps-and-others-are-elsewhere": (
            case(waiter(0), sleeper(1), waiter(2), world=6),
            Expected("SL301", (1,), place(LOAD), confidence="low"),
        ),
        "attach-a-short-look": (
            case(waiter(0, since_s=3.0), sleeper(1, since_s=3.0), waiter(2, since_s=3.0)),
            Expected("SL301", (1,), place(LOAD), confidence="low"),
        ),
        "attach-one-is-stopped": (
            case(waiter(0), sleeper(1, state="T", syscall=""), waiter(2)),
            Expected("SL304", (1,), place(LOAD), confidence="medium"),
        ),
        "attach-one-has-ended": (
            case(waiter(0), gone, waiter(2)),
            Expected("SL408", (1,), confidence="low"),
        ),
    }


def _untold() -> dict[str, tuple[Case, Expected]]:
    moving = rank(1, (LOAD,), dataclasses.replace(SLEEPS, cpu_s=9.0), earlier=(LOOP,))
    unread = RankFacts(2, 2, 102, watched=False, kernel=WAITS, missing=(Gap("stack", "py-spy: Permission denied"),))
    halted = [
        dataclasses.replace(one, state="T", kernel=dataclasses.replace(WAITS, state="T"))
        for one in map(waiter, range(3))
    ]
    blind = [
        dataclasses.replace(
            waiter(number), stack=None, stacks=(), earlier=None, missing=(Gap("stack", "py-spy is not installed"),)
        )
        for number in range(2)
    ]
    tries = dataclasses.replace(SLEEPS, io_bytes=49, switches=2)
    untold = Expected("SL399", confidence="low")
    going = dataclasses.replace(WAITS, io_bytes=4096, switches=40, cpu_s=3.0)
    return {
        "attach-all-make-progress": (
            case(*(rank(number, (C10D, LOOP), going, earlier=(LOAD, LOOP)) for number in range(3))),
            Expected("SL502", confidence="medium", mentions=("ranks 0-2 moved within 12 s",)),
        ),
        "attach-one-is-at-work": (
            case(waiter(0), sleeper(1, cpu_s=6.0, syscall=""), waiter(2)),
            dataclasses.replace(untold, location=place(LOAD), mentions=("at work",)),
        ),
        "attach-one-never-left-a-call": (
            case(waiter(0), moving, waiter(2)),
            dataclasses.replace(untold, location=place(LOAD)),
        ),
        "attach-waits-differ": (case(waiter(0), waiter(1, LOAD), sleeper(2), waiter(3)), untold),
        "attach-one-waits-alone": (case(waiter(0), sleeper(1), sleeper(2), sleeper(3)), untold),
        "attach-one-could-not-be-looked-at": (case(waiter(0), sleeper(1), unread, waiter(3)), untold),
        "attach-one-is-traced": (case(waiter(0), sleeper(1, state="t", tracer=4), waiter(2)), untold),
        "attach-no-stack": (
            case(*blind),
            dataclasses.replace(untold, mentions=("stack: py-spy is not installed",)),
        ),
        "attach-all-are-stopped": (case(*halted), Expected("SL304", confidence="medium")),
        "attach-all-in-one-call": (
            case(*map(waiter, range(3))),
            Expected("SL310", location=place(LOOP), confidence="low"),
        ),
        "attach-all-try-to-connect": (
            case(*(rank(number, INIT, tries) for number in range(3))),
            Expected(
                "SL310",
                location=place(INIT[-1]),
                confidence="low",
                mentions=("try again and again to connect to the store",),
            ),
        ),
    }
