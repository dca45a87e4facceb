"""Golden cases that rounds of a loop decide: who is in the next one, who has been through a loop within a step."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import call, condition, done, hang, stack, waiting
from scenes import LOOP, TRAIN, T

from safelaunch.model import Case, Collective, Location, ProcessGroup, RankFacts, SourceLine

Golden = dict[str, tuple[Case, Expected]]

MODEL = "/home/ada/project/model.py"
FORWARD = Location(MODEL, 18, "forward")
BACKWARD = Location(TRAIN, 60, "main")
SAMPLES = Location(TRAIN, 64, "main")
AVERAGES = Location(TRAIN, 27, "average")
STEPS = Location(TRAIN, 59, "main")
WRITES = Location(TRAIN, 12, "write")
FIRES = Location(TRAIN, 65, "main")
GATHERS = Location(TRAIN, 19, "forward")
SYNCS = Location(TRAIN, 23, "sync_norm")
SAVES = Location(TRAIN, 21, "save")
ROUND = ((58, 66),)


def inside(facts: RankFacts, *frames: Location) -> RankFacts:
    """The same rank, with these lines of the program below those of torch."""
    own = next(one for one in facts.stacks)
    frames = (*own.frames[:1], *frames)
    made = stack(facts.pid, *frames)
    return dataclasses.replace(facts, stack=made, stacks=(made,))


def sharded(step_at: float, under: str = "step % 60 == 0 and rank == 0") -> Case:
    """A model whose forward pass gathers its shards: rank 0 alone samples from it, and rank 1 trains on."""
    gathers = [call("all_gather_single", seq, at=FORWARD, size=2, t=T - 9 + seq) for seq in (9, 10, 12)]
    reduces = [call("reduce_scatter_single", seq, at=BACKWARD, size=2, t=T - 9 + seq) for seq in (11, 12)]
    samples = waiting(0, done(gathers[0], 9), done(gathers[1], 10), done(reduces[0], 11), gathers[2])
    trains = waiting(1, done(gathers[0], 9), done(gathers[1], 10), done(reduces[0], 11), reduces[1])
    stepped = {"step": 60, "stepped": step_at}
    return hang(
        dataclasses.replace(inside(samples, FORWARD, SAMPLES), **stepped),  # type: ignore[arg-type]
        dataclasses.replace(inside(trains, BACKWARD), **stepped),  # type: ignore[arg-type]
        source=(
            SourceLine(MODEL, FORWARD.line, "h = h + b(h)", loops=((17, 18),)),
            SourceLine(TRAIN, SAMPLES.line, "sample(model)", loops=ROUND, conditions=(condition(63, under),)),
            SourceLine(TRAIN, BACKWARD.line, "loss.backward()", loops=ROUND),
        ),
    )


def exported(above: str, behind: str = "", step: int = 60) -> Case:
    """A model whose shards are gathered in a group of its own: rank 0 exports it, and rank 1 is in a barrier of all,
    below the conditions `above` and `behind`, in its step `step`."""
    exports, syncs = (Location(TRAIN, 65, "main"), Location(TRAIN, 67, "main"))
    gathers = [call("all_gather", seq, group="1", at=FORWARD, size=2, t=T - 9 + seq) for seq in (9, 10)]
    gathers.append(call("all_gather", 11, group="1", at=SAVES, size=2, t=T + 2))
    one = inside(waiting(0, done(gathers[0], 9), done(gathers[1], 10), gathers[2]), SAVES, exports)
    other = inside(waiting(1, done(gathers[0], 9), done(gathers[1], 10), call("barrier", 1, at=syncs, size=2)), syncs)
    below = (condition(64, behind),) if behind else ()
    return hang(
        dataclasses.replace(one, step=60, stepped=T + 1),
        dataclasses.replace(other, step=step, stepped=T + 1),
        groups=(ProcessGroup("0", (0, 1)), ProcessGroup("1", (0, 1))),
        source=(
            SourceLine(TRAIN, exports.line, "export(model)", loops=ROUND, conditions=(condition(64, above),)),
            SourceLine(TRAIN, SAVES.line, "gather(p)"),
            SourceLine(TRAIN, syncs.line, "dist.barrier()", loops=ROUND, conditions=below),
        ),
    )


def called_back(guard: str, step_at: float = T + 2.5) -> Case:
    """A callback that returns early on most ranks gathers its metrics; rank 1 is in the backward pass of the next
    step."""
    fires, returns = Location(TRAIN, 65, "main"), Location(TRAIN, 37, "on_step_end")
    reduced = [done(call(seq=seq, at=BACKWARD, size=2, t=T - 9 + seq), seq) for seq in (9, 10, 11)]
    metric = call("all_gather", 12, at=SAVES, size=2, t=T + 3)
    one = inside(waiting(0, *reduced, metric), SAVES, returns, fires)
    other = inside(waiting(1, *reduced, call(seq=12, at=BACKWARD, size=2, t=T + 3)), BACKWARD)
    return hang(
        dataclasses.replace(one, step=60, stepped=step_at),
        dataclasses.replace(other, step=60, stepped=step_at),
        source=(
            SourceLine(TRAIN, SAVES.line, "dist.all_gather_object(parts, own)"),
            SourceLine(TRAIN, returns.line, "metric.compute()", conditions=(condition(30, guard),)),
            SourceLine(TRAIN, fires.line, "each.on_step_end(self)", loops=ROUND),
            SourceLine(TRAIN, BACKWARD.line, "loss.backward()", loops=ROUND),
        ),
    )


def averaged(*numbers: int) -> Case:
    """Gradients are averaged one by one, sizes 512, 32 and 1 in turn; then rank 0 alone writes and meets nobody."""
    sizes = (512, 32, 1)

    def average(seq: int) -> Collective:
        return dataclasses.replace(call(seq=seq, at=AVERAGES, size=3, t=T - 20 + seq), numel=sizes[(seq - 1) % 3])

    before = [dataclasses.replace(average(seq), done=True) for seq in numbers]
    barrier = call("barrier", numbers[-1] + 1, at=WRITES, size=3)
    others = [waiting(number, *before, average(numbers[-1] + 1)) for number in (1, 2)]
    return hang(
        inside(waiting(0, *before, barrier), WRITES, FIRES),
        *(inside(facts, AVERAGES, STEPS) for facts in others),
        source=(
            SourceLine(TRAIN, AVERAGES.line, "dist.all_reduce(p.grad)", loops=((25, 28),)),
            SourceLine(TRAIN, STEPS.line, "average(model)", loops=ROUND),
            SourceLine(
                TRAIN, FIRES.line, "callbacks.fire()", loops=ROUND, conditions=(condition(64, "step % 90 == 0"),)
            ),
        ),
    )


def written(guard: str) -> Case:
    """Calls that C++ makes, of which nobody knows the line: rank 0 gathers what it writes, and rank 1 is in the forward
    pass, whose layers stand in a loop."""

    def of_cpp(op: str, seq: int) -> Collective:
        return call(op, seq, at=None, size=2, t=T - 20 + seq)

    before = tuple(dataclasses.replace(of_cpp("all_reduce", seq), done=True) for seq in (9, 10, 11))
    writes, trains = (
        dataclasses.replace(waiting(rank, of_cpp(op, 12)), collectives=(), recorded=(*before, of_cpp(op, 12)))
        for rank, op in ((0, "all_gather"), (1, "all_reduce"))
    )
    return hang(
        inside(writes, GATHERS, WRITES, FIRES),
        inside(trains, FORWARD, STEPS),
        source=(
            SourceLine(MODEL, FORWARD.line, "x = b(x)", loops=((17, 18),)),
            SourceLine(TRAIN, STEPS.line, "loss = model(x)", loops=ROUND),
            SourceLine(TRAIN, GATHERS.line, "p.full_tensor()", conditions=(condition(18, "isinstance(p, DTensor)"),)),
            SourceLine(TRAIN, WRITES.line, "gather(model)", conditions=(condition(11, guard),)),
            SourceLine(TRAIN, FIRES.line, "save(step)", loops=ROUND),
        ),
    )


def meshed(number: int, group: str, *lines: Location, size: int = 2) -> RankFacts:
    """A rank of a group of two that makes calls at two lines in turn; the last one waits."""
    calls = [call(seq=seq, group=group, at=line, size=size, t=T - 20 + seq) for seq, line in enumerate(lines, 1)]
    calls = [dataclasses.replace(one, op="all_gather" if one.location in (GATHERS, SAVES) else one.op) for one in calls]
    return waiting(number, *(dataclasses.replace(one, done=True) for one in calls[:-1]), calls[-1])


def mesh(*usual: Location) -> Case:
    """Two groups that run alike, until one rank of the second leaves out what all others come to."""
    onward = [meshed(number, "3", *usual, SYNCS, GATHERS) for number in (0, 1)]
    after = [dataclasses.replace(call(seq=9, group=name, at=BACKWARD, size=2)) for name in ("1", "2")]
    onward = [
        dataclasses.replace(waiting(f.rank, *(done(c, c.seq) for c in f.collectives), one))
        for f, one in zip(onward, after, strict=True)
    ]
    groups = (("1", (0, 2)), ("2", (1, 3)), ("3", (0, 1)), ("4", (2, 3)))
    return hang(
        *onward,
        meshed(2, "4", *usual, SYNCS),
        meshed(3, "4", *usual, GATHERS),
        groups=tuple(ProcessGroup(*one) for one in groups),
    )


def saved(first: int, now: tuple[int, int]) -> Case:
    """Two ranks that reduce so many times and save; now one saves after so many, and the other after so many not."""

    def run(number: int, again: int, *, saves: bool) -> RankFacts:
        lines = [*[LOOP] * first, SAVES, *[LOOP] * again, *([SAVES] if saves else [])]
        return meshed(number, "0", *lines)

    return hang(run(0, now[0], saves=True), run(1, now[1], saves=False))


FORTH, BACK = Location(TRAIN, 34, "forward"), Location(TRAIN, 43, "backward")


def staged(number: int, *now: tuple[str, int, Location]) -> RankFacts:
    """A stage of three that has made four steps of two micro batches, forth and back; `now` is what it has made of the
    fifth one, and waits for."""
    left, right = number - 1, number + 1
    forth = [("recv", left, FORTH)] * (number > 0) + [("send", right, FORTH)] * (number < 2)
    back = [("recv", right, BACK)] * (number < 2) + [("send", left, BACK)] * (number > 0)
    made = [*([*forth * 2, *back * 2] * 4), *now]
    calls = []
    for at, (op, peer, line) in enumerate(made):
        seq = 1 + sum(one[:2] == (op, peer) for one in made[:at])
        calls.append(call(op, seq, at=line, peer=peer, size=2, t=T - 60 + at))
    return waiting(number, *(dataclasses.replace(one, done=True) for one in calls[:-1]), calls[-1])


def pipeline(*second: tuple[str, int, Location]) -> Case:
    """The second stage has made these of its second micro batch."""
    first = (("recv", 0, FORTH), ("send", 2, FORTH))
    return hang(
        staged(0, ("send", 1, FORTH), ("send", 1, FORTH), ("recv", 1, BACK)),
        staged(1, *first, *second),
        staged(2, ("recv", 1, FORTH), ("recv", 1, FORTH)),
    )


def exchanged(number: int, turns: str, now: str) -> RankFacts:
    """One of two ranks that has sent and received in these turns five times, and now in those, of which it waits in the
    last."""
    made = turns * 5 + now
    ops = [("send", FORTH) if turn == "s" else ("recv", BACK) for turn in made]
    calls = [
        call(op, 1 + made[:at].count(made[at]), at=line, peer=1 - number, size=2, t=T - 60 + at)
        for at, (op, line) in enumerate(ops)
    ]
    return waiting(number, *(dataclasses.replace(one, done=True) for one in calls[:-1]), calls[-1])


def cases() -> Golden:
    """All of them by name."""
    alone = ("rank 0 stands below `step % 60 == 0 and rank == 0`",)
    return {
        "hang-samples-on-one-rank-of-two": (
            sharded(T + 2.5),
            Expected("SL302", (0,), place(FORWARD), confidence="medium", conclusive=True, mentions=alone),
        ),
        # The optimizer's step stands at the end of the loop: rank 1 is still on its way to the condition.
        "hang-samples-before-the-other-comes": (
            sharded(T + 0.5),
            Expected("SL302", (), place(FORWARD), confidence="medium", conclusive=True),
        ),
        "hang-samples-on-ranks-that-data-chooses": (
            sharded(T + 2.5, "loss < best"),
            Expected("SL302", (), place(FORWARD), confidence="medium", conclusive=True),
        ),
        "hang-exports-on-one-rank-by-another-group": (
            exported("rank == 0"),
            Expected("SL311", (0,), place(SAVES), confidence="medium", conclusive=True, mentions=("`rank == 0`",)),
        ),
        "hang-exports-in-one-branch-and-waits-in-the-other": (
            exported("rank == 0", "else: rank == 0"),
            Expected("SL311", (), place(SAVES), conclusive=True),
        ),
        "hang-exports-in-another-step": (
            exported("rank == 0", step=59),
            Expected("SL311", (), place(SAVES), conclusive=True),
        ),
        "hang-exports-where-data-chooses": (
            exported("loss < best"),
            Expected("SL311", (), place(SAVES), conclusive=True),
        ),
        "hang-behind-an-early-return-of-all-but-one": (
            called_back("else: step % 60 or not self.is_main"),
            Expected(
                "SL302",
                (0,),
                place(SAVES),
                confidence="medium",
                conclusive=True,
                mentions=("is_main` does not hold",),
            ),
        ),
        "hang-behind-an-early-return-by-number": (
            called_back("else: rank != 0"),
            Expected("SL302", (0,), place(SAVES), confidence="medium", conclusive=True),
        ),
        # Who returns early here are all but rank 1.
        "hang-behind-an-early-return-of-others": (
            called_back("else: rank != 1"),
            Expected("SL302", (), place(SAVES), confidence="medium", conclusive=True),
        ),
        "hang-behind-an-early-return-that-data-chooses": (
            called_back("else: step % 60 or loss > best"),
            Expected("SL302", (), place(SAVES), confidence="medium", conclusive=True),
        ),
        # The step comes behind the callback: rank 1 is on its way to it.
        "hang-behind-an-early-return-to-which-the-other-has-not-come": (
            called_back("else: rank != 0", T + 1),
            Expected("SL302", (), place(SAVES), confidence="medium", conclusive=True),
        ),
        # Rank 1 has changed its order, and that would do, had rank 0 changed its own: no send waits for another alone.
        "hang-both-send-where-one-has-changed-its-order": (
            hang(exchanged(0, "ssrr", "ss"), exchanged(1, "rrss", "rs")),
            Expected(
                "SL311",
                (),
                place(FORTH),
                conclusive=True,
                mentions=("wait to send to each other, and neither of them receives", "rank 1 ", "irecv"),
            ),
        ),
        # Messages that are received by both were sent by neither, in any order: one has left a send out.
        "hang-both-receive-where-one-has-changed-its-order": (
            hang(exchanged(0, "ssrr", "ssr"), exchanged(1, "rrss", "rrr")),
            Expected("SL311", (1,), place(BACK), confidence="medium", conclusive=True),
        ),
        # It dropped the second micro batch, and waits for the gradient of the first one.
        "hang-dropped-a-micro-batch": (
            pipeline(("recv", 0, FORTH), ("recv", 2, BACK)),
            Expected(
                "SL311",
                (1,),
                place(BACK),
                confidence="medium",
                conclusive=True,
                mentions=("rank 1 skipped send to rank 2 (train.py:34)",),
            ),
        ),
        "hang-dropped-a-micro-batch-and-went-on": (
            pipeline(("recv", 0, FORTH), ("recv", 2, BACK), ("send", 0, BACK), ("recv", 2, BACK)),
            Expected("SL311", (1,), place(BACK), confidence="medium", conclusive=True),
        ),
        "hang-left-out-what-its-like-did": (
            mesh(GATHERS, LOOP, GATHERS, LOOP),
            Expected(
                "SL302",
                (3,),
                place(GATHERS),
                confidence="medium",
                conclusive=True,
                mentions=("went on to all_reduce",),
            ),
        ),
        # Two calls alike are no history.
        "hang-left-out-and-nobody-is-like-it": (
            mesh(GATHERS, LOOP),
            Expected("SL302", (), place(SYNCS), confidence="medium", conclusive=True),
        ),
        "hang-left-out-a-save": (
            saved(8, (8, 9)),
            Expected("SL302", (1,), place(LOOP), confidence="medium", conclusive=True, mentions=("makes one more",)),
        ),
        # It came once before, after eight: they may have agreed on another moment, which the other has missed.
        "hang-saves-too-early": (
            saved(8, (5, 6)),
            Expected("SL302", (), place(SAVES), confidence="medium", conclusive=True),
        ),
        # After three calls: that may be chance.
        "hang-left-out-a-frequent-save": (
            saved(3, (3, 4)),
            Expected("SL302", (), place(SAVES), confidence="medium", conclusive=True),
        ),
        # All parameters of this step are done: nobody has left that loop early.
        "hang-behind-a-loop-within-the-step": (
            averaged(*range(1, 13)),
            Expected(
                "SL302",
                (0,),
                place(WRITES),
                conclusive=True,
                mentions=("under `step % 90 == 0`",),
            ),
        ),
        # Which pass through the layers it is nobody knows: rank 1 may have passed the saving by.
        "hang-writes-what-c++-gathers-under-a-flag": (
            written("self.args.should_save"),
            Expected(
                "SL302", (), place(GATHERS), confidence="medium", mentions=("stands below `self.args.should_save`",)
            ),
        ),
        "hang-in-the-midst-of-a-loop-within-the-step": (
            averaged(*range(1, 12)),
            Expected("SL303", (0,), place(WRITES), conclusive=True, mentions=("past the loop",)),
        ),
    }
