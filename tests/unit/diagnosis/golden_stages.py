"""Golden cases of stages of a pipeline that have not come to as many messages as those beside them."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import call, done, hang, stack, waiting
from scenes import TORCH, TRAIN

from safelaunch.model import Case, Collective, Location, RankFacts

STEPS = Location(TRAIN, 63, "main")
SCHEDULE = Location(f"{TORCH}/distributed/pipelining/schedules.py", 683, "_wait_batch_p2p")
OWN = Location("/home/ada/project/pipeline.py", 20, "exchange")


def message(op: str, peer: int, number: int) -> Collective:
    return call(op, number, at=STEPS, peer=peer, size=3)


def stages(by: Location) -> Case:
    """Stage 0 sends four messages, stage 1 takes two of them and waits for stage 2, which waits for the third."""

    def stage(number: int, *calls: Collective) -> RankFacts:
        facts = waiting(number, *(done(one) for one in calls[:-1]), calls[-1])
        frames = stack(facts.pid, by, STEPS)
        return dataclasses.replace(facts, stack=frames, stacks=(frames,))

    def some(op: str, peer: int, most: int) -> list[Collective]:
        return [message(op, peer, number) for number in range(1, most + 1)]

    return hang(
        stage(0, *some("isend", 1, 2), message("isend", 1, 4), message("isend", 1, 3)),
        stage(1, *some("irecv", 0, 2), *some("isend", 2, 2), message("irecv", 2, 1)),
        stage(2, *some("irecv", 1, 2), message("irecv", 1, 3)),
    )


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    counts = (
        "rank 0 has posted 4 sends to rank 1, which has posted 2 receives from it",
        "rank 1 has posted 2 sends to rank 2, which has posted 3 receives from it",
    )
    told = "rank 1 took 2 of 4 messages from rank 0, and sent 2 to rank 2, which waits for #3"
    return {
        "hang-a-stage-of-fewer-microbatches": (
            stages(SCHEDULE),
            Expected(
                "SL311",
                (1,),
                place(STEPS),
                confidence="medium",
                conclusive=True,
                mentions=(told, *counts, "the same `n_microbatches` on all ranks"),
            ),
        ),
        # In code of the user's own these may wait for each other because of their order as well.
        "hang-two-stages-that-wait-for-each-other": (
            stages(OWN),
            Expected("SL311", (), place(STEPS), conclusive=True, mentions=("ranks 1 and 2 wait to receive", *counts)),
        ),
    }
