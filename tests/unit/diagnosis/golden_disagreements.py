"""Golden cases of programs that have come apart: other operations, loops left early, circles."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    BARRIER,
    BEHIND_LOOP,
    GATHER,
    INSIDE_LOOP,
    as_recorded,
    call,
    condition,
    done,
    elsewhere,
    hang,
    in_cpp,
    recv,
    send,
    waiting,
    world,
)
from scenes import LOOP, STEP, TORCH, TRAIN, T

from safelaunch.model import Case, Collective, Condition, Gap, Location, ProcessGroup, RankFacts, SourceLine, WayOut

Golden = dict[str, tuple[Case, Expected]]

LEAVE = Location(TRAIN, 97, "main")
LAYER = Location(TRAIN, 17, "forward")
VALIDATE = Location(TRAIN, 64, "main")
LOOPS = (INSIDE_LOOP, BEHIND_LOOP)

LOOPING = (done(call(), 10), done(call(), 11), call())  # what each rank had done: an all_reduce a step


def behind(number: int, batches: int = 11) -> RankFacts:
    """A rank that has left the loop, and waits in the barrier behind it."""
    return dataclasses.replace(waiting(number, *LOOPING[:2], call("barrier", at=BARRIER)), batch=batches)


def sends(peer: int) -> Collective:
    """A message to the next stage, inside the loop."""
    return call("send", at=LOOP, peer=peer, size=2)


def in_loop(number: int) -> RankFacts:
    return waiting(number, *LOOPING)


def decodes(number: int, group: str, *callers: Location) -> RankFacts:
    """A rank that is in the helper which gathers the layers of both its models, called from there."""
    own = call("all_gather", 12, group=group, at=LAYER, size=3)
    facts = waiting(number, done(call("all_gather", 11, group="0", at=LAYER, size=3)), own)
    assert facts.stack is not None
    own_stack = dataclasses.replace(facts.stack, frames=(*facts.stack.frames, *callers))
    return dataclasses.replace(facts, stack=own_stack, stacks=(own_stack,))


def _left_decoding() -> tuple[Case, Expected]:
    """One rank has met its end of text, and gathers the layers of another model at the same line as its peers."""
    calls, scores, decode = Location(TRAIN, 44, "main"), Location(TRAIN, 45, "main"), Location(TRAIN, 25, "generate")
    stops = WayOut(29, "break", 24, "", "token == eos")
    source = (
        SourceLine(TRAIN, LAYER.line, loops=((15, 18),)),
        SourceLine(TRAIN, decode.line, loops=((24, 29),), exits=(stops,)),
        SourceLine(TRAIN, calls.line, loops=((42, 49),)),
        SourceLine(TRAIN, scores.line, loops=((42, 49),)),
    )
    ranks = [decodes(number, "0", decode, calls) for number in (0, 2)]
    groups = (world(3), ProcessGroup("1", (0, 1, 2)))
    return (
        hang(ranks[0], decodes(1, "1", scores), ranks[1], groups=groups, source=source),
        Expected(
            "SL303",
            (1,),
            place(LAYER),
            conclusive=True,
            mentions=(
                "of group 1 (train.py:17, from train.py:45)",
                "(train.py:17, from train.py:25)",
                "`token == eos`",
            ),
        ),
    )


def _left_loop() -> Golden:
    leaving = call("destroy_process_group", at=LEAVE, t=T)
    destroyed = elsewhere(3, ASLEEP, LEAVE, before=(*LOOPING[:2], done(leaving)))
    return {
        "hang-left-loop": (
            hang(*map(in_loop, range(3)), behind(3), source=LOOPS),
            Expected(
                "SL303",
                (3,),
                place(BARRIER),
                conclusive=True,
                mentions=("barrier #12", "all_reduce #12", "rank 3 had 11 batches of its loaders, the others 12"),
            ),
        ),
        "hang-left-loop-all-but-one": (
            hang(in_loop(0), *map(behind, (1, 2, 3)), source=LOOPS),
            Expected(
                "SL303",
                (),
                place(BARRIER),
                confidence="medium",
                conclusive=True,
                mentions=("ranks 1-3", "only rank 0 is still in it"),
            ),
        ),
        "hang-left-loop-of-two": (
            hang(in_loop(0), behind(1), source=LOOPS),
            Expected("SL303", (1,), place(BARRIER), confidence="medium", conclusive=True),
        ),
        "hang-left-loop-without-source": (
            hang(*map(in_loop, range(3)), behind(3)),
            Expected("SL303", (3,), place(BARRIER), confidence="medium", conclusive=True, mentions=("11 batches",)),
        ),
        "hang-left-loop-of-two-without-source": (
            hang(in_loop(0), behind(1)),
            Expected("SL303", (1,), place(BARRIER), confidence="medium", conclusive=True),
        ),
        "hang-left-decoding-for-another-model": _left_decoding(),
        # On a mesh, the others wait for one another in their groups, and one of them for the rank that has left.
        "hang-left-loop-between-groups": (
            hang(
                *(
                    waiting(number, done(call(group=group, size=2), 11), call(group=group, size=2))
                    for number, group in enumerate("124")
                ),
                behind(3),
                groups=(
                    *(ProcessGroup(name, members) for name, members in (("1", (0, 2)), ("2", (1, 3)), ("4", (2, 3)))),
                    world(4),
                ),
                source=LOOPS,
            ),
            Expected(
                "SL303", (3,), place(BARRIER), conclusive=True, mentions=("peers still in it wait in all_reduce #12",)
            ),
        ),
        # A pipeline: the last stage has one micro batch less, and its peers still send.
        "hang-stage-left-its-loop": (
            hang(
                *(waiting(number, done(sent, 11), sent) for number, sent in ((0, sends(1)), (1, sends(2)))),
                behind(2),
                source=LOOPS,
            ),
            Expected("SL303", (2,), place(BARRIER), confidence="medium", conclusive=True),
        ),
        # Two stages alone: who has one too many, or too few, nobody can say.
        "hang-stage-of-two-left-its-loop": (
            hang(waiting(0, done(sends(1), 11), sends(1)), behind(1), source=LOOPS),
            Expected("SL311", (), place(LOOP), conclusive=True),
        ),
        "hang-destroyed-its-group": (
            hang(*map(in_loop, range(3)), destroyed),
            Expected("SL303", (3,), place(LEAVE), conclusive=True, mentions=("rank 3",)),
        ),
    }


def _loops_under_conditions() -> Golden:
    """One rank is in a loop that its peers stand behind, or never came to: their record tells which."""

    def loop(under: str) -> SourceLine:
        return SourceLine(TRAIN, VALIDATE.line, loops=((62, 65),), conditions=(condition(61, under),))

    def alone(at: Location | None, condition: str, *peers: RankFacts) -> Case:
        inside = waiting(0, *LOOPING[:2], call("broadcast", at=at))
        if at is None:  # DDP's own, which only the recorder has
            inside = in_cpp(inside, Location(f"{TORCH}/nn/parallel/distributed.py", 2363, "_sync_buffers"), VALIDATE)
        return hang(inside, *peers, source=(loop(condition), BEHIND_LOOP))

    strangers = [behind(number) for number in (1, 2, 3)]
    veterans = [
        waiting(n, done(call(), 10), done(call("broadcast", at=VALIDATE), 11), call("barrier", at=BARRIER))
        for n in (1, 2, 3)
    ]
    other = SourceLine(
        TRAIN, BARRIER.line, loops=((69, 71),), conditions=(Condition(61, "step % 50 == 0", holds=False),)
    )
    branches = [waiting(number, *LOOPING[:2], call("all_reduce", at=BARRIER)) for number in (1, 2, 3)]
    return {
        "hang-loop-of-one-rank-only": (
            alone(VALIDATE, "step % 50 == 0", *strangers),
            Expected("SL302", (0,), place(VALIDATE), conclusive=True, mentions=("`step % 50 == 0`",)),
        ),
        "hang-left-loop-under-condition": (
            alone(VALIDATE, "step % 50 == 0", *veterans),
            Expected("SL303", (), place(BARRIER), confidence="medium", conclusive=True),
        ),
        "hang-loop-of-rank-0-in-cpp": (
            alone(None, "rank == 0", *strangers),
            Expected("SL302", (0,), place(VALIDATE), conclusive=False, mentions=("`rank == 0`",)),
        ),
        "hang-loop-of-nobody-knows-whom": (
            alone(None, "needs_validation", *strangers),
            Expected("SL302", (), place(VALIDATE), confidence="medium", conclusive=False),
        ),
        "hang-two-branches": (
            hang(
                waiting(0, *LOOPING[:2], call("broadcast", at=VALIDATE)),
                *branches,
                source=(loop("step % 50 == 0"), other),
            ),
            Expected("SL302", (0,), place(VALIDATE), conclusive=True),
        ),
    }


def _operations() -> Golden:
    gather = call("all_gather_into_tensor", at=GATHER)
    validate = call("barrier", at=VALIDATE)
    only = (
        INSIDE_LOOP,
        SourceLine(
            TRAIN,
            VALIDATE.line,
            "dist.barrier()",
            loops=((58, 66),),
            conditions=(Condition(60, "step % 10 == 0"), Condition(63, "rank == 0")),
        ),
    )
    skipped = waiting(2, done(call(), 11), call("broadcast", at=GATHER))
    in_base = call("_allgather_base", at=None)
    roots = [call("broadcast", at=GATHER, peer=0), call("broadcast", at=GATHER, peer=2)]
    collects = [call("gather", at=GATHER, peer=0), call("gather", at=GATHER)]
    return {
        "hang-wrong-operation": (
            hang(waiting(0, call()), waiting(1, call()), waiting(2, gather), waiting(3, call())),
            Expected(
                "SL302", (2,), place(GATHER), conclusive=True, mentions=("all_gather_into_tensor #12", "all_reduce #12")
            ),
        ),
        # It left out the all_reduce of this step: the broadcast that follows comes under the number of it.
        "hang-skipped-collective": (
            hang(waiting(0, call()), waiting(1, call()), skipped, waiting(3, call())),
            Expected("SL302", (2,), place(GATHER), conclusive=True),
        ),
        "hang-collective-of-rank-0-only": (
            hang(waiting(0, validate), *(waiting(n, call()) for n in (1, 2, 3)), source=only),
            Expected("SL302", (0,), place(VALIDATE), conclusive=True, mentions=("`rank == 0`", ":63")),
        ),
        "hang-two-that-disagree": (
            hang(waiting(0, call()), waiting(1, gather)),
            Expected(
                "SL302", (), place(LOOP), confidence="medium", conclusive=True, mentions=("all_gather_into_tensor #12",)
            ),
        ),
        "hang-two-against-two": (
            hang(waiting(0, call()), waiting(1, gather), waiting(2, call()), waiting(3, gather)),
            Expected("SL302", (), place(LOOP), confidence="medium", conclusive=True),
        ),
        # Four members are on another node: 1 + 4 votes could be more than 3.
        "hang-wrong-operation-in-a-larger-job": (
            hang(
                *(waiting(n, dataclasses.replace(call() if n else gather, group_size=8)) for n in range(4)),
                world_size=8,
            ),
            Expected("SL302", (), place(GATHER), confidence="medium", conclusive=True),
        ),
        "hang-three-different": (
            hang(waiting(0, call()), waiting(1, gather), waiting(2, validate)),
            Expected("SL302", (), place(LOOP), confidence="medium", conclusive=True),
        ),
        # Python calls it all_gather_into_tensor, C++ _allgather_base: they meet, and nobody is wrong.
        "hang-two-names-of-one-operation": (
            hang(waiting(0, gather), in_cpp(waiting(1, in_base))),
            Expected("SL310", location=place(GATHER), confidence="medium", conclusive=False),
        ),
        "hang-wrong-operation-of-cpp": (
            hang(waiting(0, gather), *(in_cpp(waiting(n, call(at=None))) for n in (1, 2, 3))),
            Expected("SL302", (0,), place(GATHER), conclusive=True),
        ),
        "hang-broadcast-from-another-root": (
            hang(*(waiting(n, roots[n == 2]) for n in range(4))),
            Expected("SL302", (2,), place(GATHER), conclusive=True, mentions=("broadcast",)),
        ),
        # Rank 0 says `dst=0`, the others leave it out: they mean the same, and rank 3 is late.
        "hang-gather-with-a-root-by-default": (
            hang(waiting(0, collects[0]), *(waiting(n, collects[1]) for n in (1, 2)), elsewhere(3, ASLEEP, STEP)),
            Expected("SL301", (3,), place(STEP), conclusive=False),
        ),
        # One that disagrees, and one that never came: who is late is not what keeps them apart.
        "hang-wrong-operation-and-a-late-rank": (
            hang(waiting(0, call()), waiting(1, call()), waiting(2, gather), elsewhere(3, ASLEEP, STEP)),
            Expected("SL302", (2,), place(GATHER), conclusive=True),
        ),
    }


def _circles() -> Golden:
    first, second = ProcessGroup("1", (0, 1)), ProcessGroup("2", (0, 1))
    all_first, all_second = ProcessGroup("1", (0, 1, 2, 3)), ProcessGroup("2", (0, 1, 2, 3))
    in_first, in_second = call(seq=5, group="1"), call(seq=5, group="2", at=GATHER)
    pairs = tuple(dataclasses.replace(one, group_size=2) for one in (in_first, in_second))
    return {
        "hang-order-of-two-ranks": (
            hang(waiting(0, pairs[0]), waiting(1, pairs[1]), groups=(world(2), first, second)),
            Expected("SL311", (), place(LOOP), conclusive=True, mentions=("all_reduce #5", f"{TRAIN}:{GATHER.line}")),
        ),
        "hang-order-of-four-ranks": (
            hang(
                *(waiting(n, in_first) for n in range(3)),
                waiting(3, in_second),
                groups=(world(), all_first, all_second),
            ),
            Expected("SL311", (3,), place(GATHER), confidence="medium", conclusive=True),
        ),
        "hang-order-two-against-two": (
            hang(
                *(waiting(n, in_first) for n in range(2)),
                *(waiting(n, in_second) for n in (2, 3)),
                groups=(world(), all_first, all_second),
            ),
            Expected("SL311", (), place(LOOP), conclusive=True),
        ),
        "hang-both-receive": (
            hang(waiting(0, recv(1, size=2)), waiting(1, recv(0, size=2))),
            Expected(
                "SL311",
                (),
                (STAGE.file, STAGE.line),
                conclusive=True,
                mentions=("recv from rank 1", "recv from rank 0"),
            ),
        ),
        "hang-both-send": (
            hang(waiting(0, send(1, size=2)), waiting(1, send(0, size=2))),
            Expected("SL311", (), (STAGE.file, STAGE.line), conclusive=True, mentions=("send to rank 1",)),
        ),
        "hang-ring-of-receives": (
            hang(*(waiting(n, recv((n - 1) % 4)) for n in range(4))),
            Expected("SL311", (), (STAGE.file, STAGE.line), conclusive=True, mentions=("ranks 0-3",)),
        ),
    }


STAGE = recv(0).location
assert STAGE is not None


def _nobody() -> Golden:
    inside = [waiting(n, call(size=8)) for n in range(4)]
    unwatched = dataclasses.replace(
        elsewhere(2, ASLEEP, STEP, before=()),
        watched=False,
        beat_age_s=None,
        missing=(Gap("collectives", "the rank did not open its black box"),),
    )
    issued = dataclasses.replace(done(call()), issued=True)
    idle = [elsewhere(n, ASLEEP, STEP) for n in range(2)]
    return {
        "hang-all-inside": (
            hang(*(waiting(n, call()) for n in range(4))),
            Expected("SL310", location=place(LOOP), confidence="medium", conclusive=False, mentions=("ranks 0-3",)),
        ),
        "hang-all-inside-of-cpp": (
            hang(*(in_cpp(waiting(n, call(at=None))) for n in range(4))),
            Expected("SL310", location=None, confidence="medium", conclusive=False),
        ),
        "hang-exchange-that-does-not-end": (
            hang(waiting(0, send(1, size=2)), waiting(1, recv(0, size=2))),
            Expected("SL310", location=(STAGE.file, STAGE.line), confidence="medium", conclusive=False),
        ),
        "hang-others-on-another-node": (
            hang(*inside, world_size=8),
            Expected(
                "SL310",
                location=place(LOOP),
                confidence="low",
                conclusive=False,
                mentions=("ranks 4-7", "other nodes"),
            ),
        ),
        "hang-rank-that-nobody-watches": (
            hang(waiting(0, call()), waiting(1, call()), unwatched, waiting(3, call())),
            Expected(
                "SL399",
                location=place(LOOP),
                confidence="low",
                conclusive=False,
                mentions=("nothing is known of rank 2",),
            ),
        ),
        # They have issued #12 and asked nobody for its result: nobody waits.
        "hang-nobody-waits": (
            hang(
                *(
                    dataclasses.replace(
                        facts,
                        collectives=(*facts.collectives, issued),
                        recorded=as_recorded((*facts.collectives, issued)),
                    )
                    for facts in idle
                )
            ),
            Expected("SL399", confidence="low", conclusive=False),
        ),
        "hang-without-evidence": (
            hang(
                *(
                    dataclasses.replace(
                        waiting(n, call()),
                        collectives=(),
                        recorded=None,
                        stack=None,
                        stacks=(),
                        kernel=None,
                        missing=(Gap("collectives", "there is no black box in this run"),),
                    )
                    for n in range(2)
                )
            ),
            Expected("SL399", confidence="low", conclusive=False, mentions=("no black box",)),
        ),
    }


def cases() -> Golden:
    """All of them by name."""
    return {**_left_loop(), **_loops_under_conditions(), **_operations(), **_circles(), **_nobody()}
