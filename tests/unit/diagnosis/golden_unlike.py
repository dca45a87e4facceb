"""Golden cases of calls that are not the same, though they have one number, or though all ranks wait."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import INIT, SAVE, call, condition, done, hang, in_cpp, stack, waiting, world
from scenes import DISTRIBUTED, LOOP, STEP, TORCH, TRAIN, T, case, crashed, lost_peer, rank

from safelaunch.model import (
    Case,
    Collective,
    LoaderPass,
    Location,
    ProcessGroup,
    RankDevice,
    RankFacts,
    Rendezvous,
    SourceLine,
    Stack,
)

Golden = dict[str, tuple[Case, Expected]]

MAKE = Location(TRAIN, 19, "groups")
SHARE = Location(TRAIN, 39, "evaluate")


def cases() -> Golden:
    """By name."""
    return {**_saves_alone(), **_members_alone(), **_two_lines(), **_meetings(), **_broken(), **_handlers()}


def enqueued(number: int, latest: Collective, *before: Collective) -> RankFacts:
    """A rank whose host goes on, or waits for its GPU, behind a call of C++ that its GPU does not end."""
    facts = waiting(number, *before, latest)
    recorded = tuple(
        dataclasses.replace(one, location=None, group_size=0, thread=0, state="completed" if one.done else "enqueued")
        for one in (*before, latest)
    )
    kept = tuple(dataclasses.replace(one, thread=facts.pid, state="completed") for one in before)
    return dataclasses.replace(facts, collectives=kept, recorded=recorded, step=40, stepped=T - 0.2)


def _saves_alone() -> Golden:
    """FSDP: one rank alone gathers the whole state, in C++, where the other gathers for the next step."""
    reduces = done(call("reduce_scatter_tensor", 12, at=STEP, size=2), 11)
    forward = done(call("all_gather_single", 12, size=2), 10)
    gathers = dataclasses.replace(call("all_gather_into_tensor_coalesced", 12, at=None, size=2, t=T), numel=16)
    inner = Location(f"{TORCH}/distributed/_state_dict_utils.py", 183, "_iterate_state_dict")
    outer = Location(TRAIN, 66, "main")
    saver = enqueued(0, gathers, forward, reduces)
    own = stack(saver.pid, inner, SAVE, outer)
    saver = dataclasses.replace(saver, stack=own, stacks=(own,))
    trains = enqueued(1, dataclasses.replace(call("all_gather_single", 12, size=2), numel=33), forward, reduces)
    made = dataclasses.replace(call("all_gather_single", 12, size=2), state="enqueued", thread=trains.pid)
    # Its host has run ahead of its GPU, through the optimizer's step.
    trains = dataclasses.replace(trains, collectives=(*trains.collectives, made), step=41, stepped=T + 0.1)
    main_only = condition(65, "step % 40 == 0 and self.is_main()")
    source = (
        SourceLine(TRAIN, SAVE.line, "weights = get_model_state_dict(model)"),
        SourceLine(TRAIN, 66, "self.export(step)", loops=((58, 66),), conditions=(main_only,)),
        SourceLine(TRAIN, LOOP.line, "logits = model(ids)", loops=((58, 66),)),
    )
    expected = Expected(
        "SL302",
        (0,),
        place(SAVE),
        confidence="medium",
        conclusive=False,
        mentions=(
            "rank 0 makes all_gather_into_tensor_coalesced #12 (train.py:120) under `step % 40 == 0 and",
            "while rank 1 makes all_gather_single #12 (train.py:61)",
        ),
    )
    return {
        "hang-saves-on-rank-0-alone": (hang(saver, trains, source=source), expected),
    }


def makes(number: int, members: tuple[int, ...], size: int) -> RankFacts:
    making = call("new_group", 1, group="new_group #1", size=len(members), at=MAKE, t=T - 0.1)
    making = dataclasses.replace(making, numel=-1, dtype="")
    facts = waiting(number, done(call("init_process_group", 1, group="init", size=size)), making)
    own = stack(facts.pid, Location(f"{TORCH}/distributed/distributed_c10d.py", 7137, "new_group"), MAKE)
    return dataclasses.replace(facts, new_groups=(members,), recorded=(), stack=own, stacks=(own,))


def shares(number: int, size: int) -> RankFacts:
    return waiting(number, call("broadcast", 1, at=SHARE, size=size, peer=0))


def _members_alone() -> Golden:
    """The members alone make a group, and who is none waits for them behind it."""

    def made(*members: int, size: int) -> tuple[ProcessGroup, ...]:
        return world(size), ProcessGroup("new_group #1", members)

    named = Expected(
        "SL302",
        (2,),
        place(SHARE),
        confidence="medium",
        conclusive=False,
        mentions=("rank 2 has not called new_group #1, all others for ranks 0 and 1", "call new_group on all ranks"),
    )
    return {
        "hang-makes-a-group-with-its-members-alone": (
            hang(makes(0, (0, 1), 3), makes(1, (0, 1), 3), shares(2, 3), groups=made(0, 1, size=3)),
            named,
        ),
    }


def _two_lines() -> Golden:
    """One operation at one number, from two lines: it may be the call of both branches, or of two that are not one."""
    expected = Expected(
        "SL399",
        location=place(LOOP),
        confidence="low",
        mentions=("rank 0 at train.py:61, rank 1 at train.py:39", "whether it is the same call is not known"),
    )
    return {
        "hang-one-call-at-two-lines": (
            hang(waiting(0, call("barrier", size=2)), waiting(1, call("barrier", at=SHARE, size=2))),
            expected,
        )
    }


GIVEN = "node-a:51234"


def inside(number: int, where: str, size: int = 2, own: int = -1) -> RankFacts:
    """A rank that has called `init_process_group` so."""
    facts = waiting(number, call("init_process_group", 1, group="init", size=2, at=INIT))
    return dataclasses.replace(facts, meets=Rendezvous(where, GIVEN, size, number if own < 0 else own))


def _meetings() -> Golden:
    """Ranks that look for one another in `init_process_group`."""

    init = (ProcessGroup("init", (0, 1)),)
    ports = Expected(
        "SL319",
        location=place(INIT),
        mentions=("ranks 0 and 1 call init_process_group with different MASTER_PORT: 29501 and 29502 (train.py:40)",),
    )
    return {
        "hang-meets-at-two-ports": (hang(inside(0, "node-a:29501"), inside(1, "node-a:29502"), groups=init), ports),
        "hang-meets-where-nobody-listens": (
            hang(inside(0, "node-a:29501"), inside(1, "node-a:29501"), groups=init),
            dataclasses.replace(
                ports, mentions=("look for one another at node-a:29501, and the launcher has given node-a:51234",)
            ),
        ),
        "hang-meets-as-one-rank": (
            hang(inside(0, GIVEN, own=0), inside(1, GIVEN, own=0), groups=init),
            dataclasses.replace(ports, mentions=("ranks 0 and 1 all call init_process_group as rank 0",)),
        ),
        "hang-meets-as-it-should": (
            hang(inside(0, GIVEN), inside(1, GIVEN), groups=init),
            Expected("SL310", location=place(INIT), confidence="medium"),
        ),
    }


def _broken() -> Golden:
    """gloo aborts the rank that receives bytes of another call: here the one that has left its loop."""
    on_cpu = {number: RankDevice(number, number, backend="gloo") for number in range(3)}
    autograd = Location(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")
    totals = Location(TRAIN, 79, "main")

    def with_loader(facts: RankFacts, given: int, ended: float | None = None) -> RankFacts:
        loader = LoaderPass(7, 1, given, None, ended)
        return dataclasses.replace(facts, device=on_cpu[facts.rank], loaders=(loader,), batch=given)

    def passes(number: int, given: int = 24) -> RankFacts:
        inside = Stack((autograd, STEP), "py-spy", "", 4100 + number, "MainThread")
        facts = rank(number, inside=())
        return with_loader(dataclasses.replace(facts, stack=inside, stacks=(inside,)), given)

    def aborts(number: int, seq: int, given: int) -> RankFacts:
        own = call(seq=seq, at=totals, size=3, t=T - 0.2)
        return with_loader(crashed(rank(number, inside=(own,)), 6, DISTRIBUTED, totals), given, T - 0.3)

    def loses(facts: RankFacts) -> RankFacts:
        text = 'File "graph.py", line 979, in _engine_run_backward'
        lost = lost_peer(facts, ended=False)
        assert lost.error is not None
        return dataclasses.replace(lost, error=dataclasses.replace(lost.error, traceback=text, location=STEP))

    waits = call(seq=36, at=totals, size=3, t=T - 0.1)
    waits_at_totals = Stack((DISTRIBUTED, totals), "py-spy", "", 4100, "MainThread")
    ahead = dataclasses.replace(rank(0, inside=(waits,)), stack=waits_at_totals, stacks=(waits_at_totals,))
    ran_out = Expected(
        "SL411",
        (1,),
        place(totals),
        secondary=(0,),
        mentions=(
            "rank 1 is in all_reduce #29 (train.py:79), while its peers are in a backward pass (train.py:88)",
            "rank 1 ran out of batches after 23; its peers have had 24",
        ),
    )
    behind = Expected(
        "SL411",
        location=place(totals),
        secondary=(1,),
        confidence="medium",
        mentions=("rank 1 had made one collective fewer than rank 0 when both came to train.py:79",),
    )
    return {
        "gloo-aborts-who-ran-out-of-batches": (case(loses(passes(0)), aborts(1, 29, 23), passes(2)), ran_out),
        "gloo-aborts-who-is-one-call-behind": (
            case(with_loader(ahead, 30, T - 0.2), aborts(1, 35, 30), passes(2, 30)),
            behind,
        ),
    }


def _handlers() -> Golden:
    """A timer's handler makes a barrier, in the midst of a line of arithmetic."""
    takes, counts, steps = Location(TRAIN, 25, "take"), Location(TRAIN, 35, "tokens"), Location(TRAIN, 49, "main")
    facts = waiting(0, call("barrier", at=takes, size=2))
    assert facts.stack is not None
    own = dataclasses.replace(facts.stack, frames=(*facts.stack.frames, counts, steps))
    facts = dataclasses.replace(facts, stack=own, stacks=(own,))

    def job(text: str) -> Case:
        source = (
            SourceLine(TRAIN, 25, "dist.barrier()"),
            SourceLine(TRAIN, 35, text, loops=((34, 35),)),
            SourceLine(TRAIN, 49, "ids = tokens(step)", loops=((48, 56),)),
            SourceLine(TRAIN, STEP.line, "loss.backward()", loops=((48, 90),)),
        )
        return hang(facts, in_cpp(waiting(1, call(size=2))), source=source)

    handled = Expected(
        "SL302",
        (0,),
        place(takes),
        confidence="medium",
        conclusive=True,
        mentions=(
            "rank 0 makes barrier #12 (train.py:25) in a signal handler (take), while rank 1 is in all_reduce #12",
            "train.py:35 does not call take",
            "set a flag",
        ),
    )
    return {
        "hang-barrier-in-a-signal-handler": (job("acc = (acc + i * i) % 997"), handled),
        "hang-barrier-in-a-handler-that-ended-a-sleep": (job("time.sleep(0.001 if rank else 0.11)"), handled),
    }
