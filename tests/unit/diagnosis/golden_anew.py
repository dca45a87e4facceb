"""Golden cases of a rank that has left a loop and begun the function around it anew."""

from __future__ import annotations

import dataclasses

from expected import Expected
from hang_scenes import call, condition, done, hang, stack, waiting
from scenes import TORCH, TRAIN

from safelaunch.model import Case, Collective, Location, RankFacts, SourceLine
from safelaunch.model.surroundings import Reducer

CALLER, BUILDS, TRAINS, WAITS = (
    Location(TRAIN, 24, "run"),
    Location(TRAIN, 60, "fit"),
    Location(TRAIN, 70, "fit"),
    Location(TRAIN, 73, "fit"),
)
SYNCHRONIZE = Location(f"{TORCH}/cuda/__init__.py", 985, "synchronize")
RETRIES = SourceLine(
    TRAIN, 24, "return fn(size)", ((20, 26),), (condition(20, "size > 0"),), caught=((25, "except OutOfMemoryError"),)
)
BUILT = SourceLine(TRAIN, 60, "dist.broadcast(weights, 0)")
INSIDE = (SourceLine(TRAIN, 70, "dist.all_reduce(g)", ((68, 74),)), SourceLine(TRAIN, 73, "wait()", ((68, 74),)))


def stands(number: int, op: str, at: Location, host: Location | None = None) -> RankFacts:
    """A rank in its 12th call, after ten passes of the loop."""
    built = done(call("broadcast", 1, at=BUILDS, size=2))
    passes = [done(call("all_reduce", seq, at=TRAINS, size=2)) for seq in range(2, 12)]
    facts = waiting(number, built, *passes, call(op, 12, at=at, size=2))
    inner = (SYNCHRONIZE,) if host is not None else next(iter(facts.stacks)).frames[:1]
    frames = stack(facts.pid, *inner, host or at, CALLER)
    return dataclasses.replace(facts, stack=frames, stacks=(frames,))


def by_cpp(facts: RankFacts) -> RankFacts:
    """The same, where C++ makes the calls of the loop: only the Flight Recorder has them, without a line."""

    def on_gpu(one: Collective) -> Collective:
        state = "completed" if one.done else "enqueued"
        return dataclasses.replace(one, location=None, thread=0, state=state)

    recorded = tuple(on_gpu(one) for one in facts.collectives)
    return dataclasses.replace(facts, collectives=(), recorded=recorded, reducers=(Reducer("Net", 10),))


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    source = (RETRIES, BUILT, *INSIDE)
    ranks = stands(0, "all_reduce", TRAINS), stands(1, "broadcast", BUILDS)
    on_gpus = by_cpp(stands(0, "all_reduce", TRAINS, host=WAITS)), ranks[1]
    named = Expected(
        "SL303",
        (1,),
        (TRAIN, BUILDS.line),
        conclusive=True,
        mentions=(
            "rank 1 left the loop of fit and began anew: it is in broadcast #12 (train.py:60), and rank 0 still in",
            f"fit is called in a loop ({TRAIN}:24), and again after `except OutOfMemoryError` ({TRAIN}:25)",
            "meets an exception",
        ),
    )
    guarded = dataclasses.replace(BUILT, conditions=(condition(59, "stale"),))
    return {
        "hang-began-anew-after-an-exception": (hang(*ranks, source=source), named),
        "hang-began-anew-on-a-gpu": (
            hang(*on_gpus, source=source),
            dataclasses.replace(named, conclusive=False),
        ),
        "hang-began-anew-for-an-unknown-reason": (
            hang(*ranks, source=(dataclasses.replace(RETRIES, caught=()), BUILT, *INSIDE)),
            dataclasses.replace(named, confidence="medium", mentions=(*named.mentions[:1], "uneven data")),
        ),
        # Its peer may have passed that call by, and be in the loop again.
        "hang-in-front-of-a-loop-under-a-condition": (
            hang(*ranks, source=(RETRIES, guarded, *INSIDE)),
            Expected(
                "SL302",
                (),
                (TRAIN, TRAINS.line),
                confidence="medium",
                conclusive=True,
                mentions=("which of them is wrong is not known",),
            ),
        ),
    }
