"""Hangs of calls that return at once, and end on a device: what the ranks of a GPU job wait in."""

from __future__ import annotations

import dataclasses
import time

from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.view import View
from safelaunch.evidence.device_calls import with_states
from safelaunch.model import (
    CallState,
    Case,
    Collective,
    Condition,
    GroupProgress,
    Incident,
    Kernel,
    Location,
    ProcessGroup,
    RankFacts,
    SourceLine,
    Stack,
    StreamMark,
    StreamProgress,
)

SIZE = 4
LINE = Location("train.py", 10, "main")
SYNC = Stack((Location("train.py", 12, "main"),), "py-spy")
ASLEEP = Stack((Location("data.py", 7, "fetch"),), "py-spy")
HANG = Incident("hang", 0, (), 100.0)


def call(
    seq: int, state: CallState, op: str = "all_reduce", group: str = "0", t: float = 0.0, **more: object
) -> Collective:
    return dataclasses.replace(
        Collective(op, group, seq, 4, "float32", True, t or float(seq), SIZE, state=state),
        **more,  # type: ignore[arg-type]
    )


def of_python(*calls: Collective) -> tuple[Collective, ...]:
    """The rank's own record of these: all of them have returned."""
    return tuple(
        dataclasses.replace(one, state="", done=True, location=LINE, thread=100, issued=False) for one in calls
    )


def rank(
    number: int, *recorded: Collective, python: bool = True, stack: Stack = SYNC, syscall: str = "futex"
) -> RankFacts:
    """A rank whose recorder holds these calls, and whose host made them from Python, or from C++."""
    shown = tuple(dataclasses.replace(one, done=one.state == "completed") for one in recorded)
    own = with_states(of_python(*recorded), shown) if python else ()
    under_way = any(one.state != "completed" for one in recorded)
    progress = GroupProgress("0", "nccl2", len(recorded) + under_way, len(recorded))
    return RankFacts(
        rank=number,
        local_rank=number,
        pid=100 + number,
        collectives=own,
        recorded=shown,
        stack=stack,
        stacks=(dataclasses.replace(stack, thread=100 + number),),
        kernel=Kernel("S", syscall=syscall),
        progress=(progress,),
        quiet_s=9.0,
        beat_age_s=0.1,
    )


def job(*ranks: RankFacts, groups: tuple[str, ...] = ("0",)) -> Case:
    known = tuple(ProcessGroup(name, tuple(range(SIZE))) for name in groups)
    return Case(HANG, "node-a", SIZE, ranks, groups=known, now=110.0)


def test_a_host_that_enqueues_no_more_is_waited_for_wherever_its_peers_stand() -> None:
    waiting = [call(7, "completed"), call(8, "enqueued"), call(9, "enqueued", "barrier")]
    late = rank(1, call(7, "completed"), stack=ASLEEP, syscall="clock_nanosleep")
    verdict = diagnose(job(rank(0, *waiting), late, rank(2, *waiting[:2]), rank(3, *waiting)))

    assert (verdict.code, verdict.culprit_ranks, verdict.seq) == ("SL301", (1,), 8)
    assert verdict.location == ASLEEP.frames[0]


def test_calls_of_cpp_are_compared_with_those_of_python() -> None:
    peers = [rank(number, call(8, "enqueued", numel=16640), python=False) for number in (0, 2, 3)]
    verdict = diagnose(job(peers[0], rank(1, call(8, "enqueued")), *peers[1:]))

    assert (verdict.code, verdict.culprit_ranks, verdict.location) == ("SL410", (1,), LINE)


def test_of_two_groups_that_are_used_in_another_order_the_odd_rank_is_named() -> None:
    first, second = call(6, "enqueued", group="1", t=1.0), call(6, "enqueued", group="2", t=2.0)
    other_way = (dataclasses.replace(second, t=1.0), dataclasses.replace(first, t=2.0))
    ranks = [rank(number, *(other_way if number == 2 else (first, second))) for number in range(SIZE)]
    verdict = diagnose(job(*ranks, groups=("0", "1", "2")))

    assert (verdict.code, verdict.culprit_ranks) == ("SL311", (2,))
    assert "all_reduce #6 of group 2 before all_reduce #6 of group 1" in verdict.summary


def test_what_stands_behind_a_message_has_not_been_come_to() -> None:
    # Rank 1 has skipped an all_reduce, and waits for the next activations before it comes to another one.
    receive = call(3, "enqueued", "recv", t=5.0, peer=0)
    ranks = [rank(number, call(6, "enqueued", t=6.0)) for number in range(SIZE)]
    behind = dataclasses.replace(call(6, "enqueued", t=6.0), done=False, thread=101)
    ranks[1] = dataclasses.replace(
        ranks[1], collectives=(dataclasses.replace(receive, done=False, location=LINE, thread=101), behind)
    )
    found = View(job(*ranks)).graph

    assert {0, 1} <= set(found.cycle)


def test_nobody_is_named_where_all_have_enqueued_the_same() -> None:
    verdict = diagnose(job(*(rank(number, call(8, "enqueued")) for number in range(SIZE))))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL310", (), "low")
    assert verdict.summary == "ranks 0-3 have enqueued all_reduce #8, and no GPU completes it"


def test_a_device_that_has_not_completed_what_its_peers_have_is_named() -> None:
    through = [rank(number, call(7, "completed"), call(8, "enqueued")) for number in (0, 2, 3)]
    verdict = diagnose(job(through[0], rank(1, call(7, "enqueued"), call(8, "enqueued")), *through[1:]))

    assert (verdict.code, verdict.culprit_ranks) == ("SL318", (1,))


def on_its_way(facts: RankFacts, outstanding: StreamMark | None, reached: StreamMark | None = None) -> RankFacts:
    return dataclasses.replace(facts, stream=StreamProgress(reached, outstanding))


def behind(one: Collective) -> StreamMark:
    """The mark that stands ahead of the call that comes after this one of Python's."""
    return StreamMark(one.op, one.t + 0.5, LINE)


def test_a_gpu_that_has_not_come_to_the_call_is_named_though_all_have_enqueued_it() -> None:
    waiting = [call(7, "completed"), call(8, "enqueued"), call(9, "enqueued")]
    peers = [on_its_way(rank(number, *waiting), behind(waiting[1])) for number in (0, 1, 3)]
    passed = StreamMark("broadcast", 7.5, Location("train.py", 8, "main"))
    held = on_its_way(rank(2, *waiting), StreamMark("all_reduce", waiting[1].t - 1e-5, LINE), passed)

    verdict = diagnose(job(*peers[:2], held, peers[2]))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL318", (2,), "medium")
    assert (
        verdict.summary
        == "a kernel on the GPU of rank 2 does not end: it was enqueued before all_reduce #8 at train.py:10"
    )
    assert any("has passed broadcast at train.py:8" in line for line in verdict.because)


def test_a_stream_that_waits_for_a_collective_is_no_kernel_without_an_end() -> None:
    waiting = [call(7, "completed"), call(8, "enqueued"), call(9, "enqueued")]
    ranks = [on_its_way(rank(number, *waiting), behind(waiting[1])) for number in range(SIZE)]

    verdict = diagnose(job(*ranks))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())


def test_a_stream_that_may_wait_for_a_message_is_no_kernel_without_an_end() -> None:
    # The device has passed the mark ahead of the message, and not the one ahead of the all_reduce behind it.
    waiting = [call(7, "completed"), call(8, "enqueued"), call(9, "enqueued")]
    marks = StreamMark("isend", 7.4, LINE), StreamMark("all_reduce", waiting[1].t - 1e-5, LINE)

    def sends(number: int) -> RankFacts:
        facts = on_its_way(rank(number, *waiting), marks[1], marks[0])
        message = call(3, "enqueued", "send", t=7.5, peer=0, location=LINE, thread=100 + number, done=True)
        return dataclasses.replace(facts, collectives=(message, *facts.collectives))

    verdict = diagnose(job(*(sends(number) for number in range(SIZE))))

    assert verdict.code != "SL318", verdict.summary


def test_a_coalesced_launch_compares_with_nobodys() -> None:
    through = [rank(number, call(7, "completed"), call(8, "enqueued")) for number in (0, 2, 3)]
    one = call(7, "enqueued", "coalesced")
    verdict = diagnose(job(through[0], rank(1, one, call(8, "enqueued"), python=False), *through[1:]))

    assert verdict.code != "SL318"


def test_what_ddp_enqueues_comes_behind_its_forward_pass() -> None:
    ahead = 3600.0  # seconds by which the wall clock has gone wrong since: the recorder's times are of that one
    own, reduced = call(7, "completed"), call(8, "enqueued", t=8.0 + ahead)

    def trains(number: int, forward: float) -> RankFacts:
        facts = rank(number, own)
        shown = (dataclasses.replace(own, t=own.t + ahead), reduced)
        return on_its_way(dataclasses.replace(facts, recorded=shown), StreamMark("a forward pass", forward))

    next_step = 9.0  # the host has run on
    verdict = diagnose(job(trains(0, next_step), trains(1, 7.9), trains(2, next_step), trains(3, next_step)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL318", (1,))


def sends(number: int, *calls: Collective, shown: int = 0) -> RankFacts:
    """A rank with messages under way, of which its recorder has as many more as `shown` says."""
    recorded = [call(90 + n, "enqueued", "recv", peer=0, t=0.1) for n in range(shown)]
    facts = rank(number, *(dataclasses.replace(one, issued=True) for one in calls))
    return dataclasses.replace(facts, recorded=(*recorded, *(facts.recorded or ())))


def test_what_holds_a_stream_may_be_an_earlier_message() -> None:
    # Rank 1 waits in what it had enqueued first, which its own record has no room for any more.
    receives = call(81, "enqueued", "recv", peer=2, t=5.0)
    mark = StreamMark("recv", 4.9, LINE)
    known = on_its_way(sends(1, receives), mark)
    forgot = on_its_way(sends(1, receives, shown=1), mark)
    others = [rank(number, call(7, "completed")) for number in (0, 2, 3)]

    assert diagnose(job(others[0], known, *others[1:])).code == "SL318"
    assert diagnose(job(others[0], forgot, *others[1:])).code != "SL318"


def test_what_holds_a_stream_may_be_a_call_that_the_recorder_takes_for_ended() -> None:
    def exchanges(number: int, to: int) -> RankFacts:
        facts = rank(number, call(81, "enqueued", t=9.0))
        message = Collective("isend", "0", 1, 4, "float32", False, 5.0, SIZE, LINE, peer=to, state="enqueued")
        return on_its_way(
            dataclasses.replace(facts, collectives=(message, *facts.collectives)), StreamMark("all_reduce", 8.9, LINE)
        )

    verdict = diagnose(job(*(exchanges(number, (number + 2) % SIZE) for number in range(SIZE))))

    assert verdict.code != "SL318"


def in_batches(number: int, completed: int, *, pending: bool) -> RankFacts:
    """A rank that has exchanged messages with both neighbours so many times, in batches, and may do so once more."""
    calls = [
        Collective(
            op, "0", turn, 4, "float32", True, turn + n / 100, SIZE, LINE, peer=(number + step) % SIZE, how="batch",
            thread=100 + number,
        )
        for turn in range(1, completed + pending + 1)
        for n, (op, step) in enumerate([("isend", -1), ("isend", 1), ("irecv", 1), ("irecv", -1)])
    ]  # fmt: skip
    states: list[CallState] = ["completed" if call.seq <= completed else "enqueued" for call in calls]
    recorded = tuple(
        dataclasses.replace(one, state=state, done=state == "completed", location=None, thread=0)
        for one, state in zip(calls, states, strict=True)
    )
    facts = rank(number)
    return dataclasses.replace(facts, collectives=with_states(calls, recorded), recorded=recorded)


def test_neighbours_in_batches_wait_for_the_one_that_has_not_come_and_not_for_each_other() -> None:
    # GPU 2 still computes; rank 0 has gone on to its next batch, since it exchanges nothing with rank 2.
    ranks = (in_batches(n, 12 if n == 0 else 11, pending=n != 2) for n in range(SIZE))
    found = View(job(*ranks)).graph

    assert found.cycle == ()
    assert [number for number, _ in found.sinks] == [2]


def test_a_rank_that_reduces_in_another_way_is_named() -> None:
    def reduces(number: int, how: str) -> RankFacts:
        facts = rank(number, call(8, "enqueued"))
        return dataclasses.replace(
            facts, collectives=tuple(dataclasses.replace(one, how=how) for one in facts.collectives)
        )

    ways = ["min", "max", "max", "max"]
    verdict = diagnose(job(*(reduces(number, how) for number, how in enumerate(ways))))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL302", (0,), "medium")
    assert (
        "rank 0 makes all_reduce #8 with min (train.py:10), while its peers make all_reduce #8 with max"
        in verdict.summary
    )

    assert "`op`" in verdict.remedy

    verdict = diagnose(job(*(reduces(number, "sum" if number == 3 else "") for number in range(SIZE))))
    assert verdict.code == "SL310"  # of the others it is not known


def test_calls_of_two_lines_that_reduce_otherwise_are_two_calls() -> None:
    def reduces(number: int, how: str, line: int) -> RankFacts:
        facts = rank(number, call(8, "enqueued"))
        there = dataclasses.replace(LINE, line=line)
        calls = tuple(dataclasses.replace(one, how=how, location=there) for one in facts.collectives)
        return dataclasses.replace(facts, collectives=calls)

    verdict = diagnose(job(reduces(0, "avg", 36), *(reduces(number, "sum", 30) for number in range(1, SIZE))))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", (0,))
    assert "same order" in verdict.remedy


def gathers(number: int, numel: int, *outputs: int) -> RankFacts:
    return rank(number, call(8, "enqueued", "all_gather", numel=numel, outputs=outputs))


def test_a_gather_in_which_a_rank_brings_what_nobody_has_room_for() -> None:
    sizes = [8, 8, 6, 8]
    verdict = diagnose(job(*(gathers(number, size, *[size] * SIZE) for number, size in enumerate(sizes))))
    assert (verdict.code, verdict.culprit_ranks, verdict.location) == ("SL410", (2,), LINE)

    # The old backend's recorder has all outputs as one.
    verdict = diagnose(job(*(gathers(number, size, size * SIZE) for number, size in enumerate(sizes))))
    assert (verdict.code, verdict.culprit_ranks) == ("SL410", (2,))


def test_a_gather_may_be_uneven() -> None:
    sizes = [8, 8, 6, 8]
    verdict = diagnose(job(*(gathers(number, size, *sizes) for number, size in enumerate(sizes))))

    assert (verdict.code, verdict.culprit_ranks) == ("SL310", ())


def exchanges(number: int, state: CallState, sent: int, *wanted: int) -> RankFacts:
    exchange = call(7, state, "all_to_all_single", numel=sent, outputs=wanted)
    return rank(number, exchange, *((call(8, "enqueued"),) if state == "completed" else ()))


def test_ranks_that_cannot_complete_an_exchange_with_each_other_are_no_late_gpus() -> None:
    states: list[CallState] = ["completed", "enqueued", "completed", "enqueued"]
    verdict = diagnose(job(*(exchanges(number, state, 8) for number, state in enumerate(states))))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL399", (), "low")
    assert "ranks 1 and 3 do not complete all_to_all_single #7 with each other" in verdict.summary
    assert verdict.location == LINE

    sent = [8, 7, 8, 8]
    verdict = diagnose(job(*(exchanges(number, state, sent[number], 8) for number, state in enumerate(states))))
    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL410", (), "medium")
    assert "send 31 elements, and expect 32" in " ".join(verdict.because)


def test_one_rank_that_does_not_complete_an_exchange_may_have_a_late_gpu() -> None:
    states: list[CallState] = ["completed", "enqueued", "completed", "completed"]
    verdict = diagnose(job(*(exchanges(number, state, 8, 8) for number, state in enumerate(states))))

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == ("SL318", (1,), "low")


def test_a_gpu_that_has_not_come_to_the_exchange_is_named() -> None:
    states: list[CallState] = ["completed", "enqueued", "completed", "enqueued"]
    ranks = [exchanges(number, state, 8) for number, state in enumerate(states)]
    ranks[1] = on_its_way(ranks[1], StreamMark("all_to_all_single", 6.9, LINE))
    verdict = diagnose(job(*ranks))

    assert (verdict.code, verdict.culprit_ranks) == ("SL318", (1,))


def test_what_cpp_makes_again_and_again_is_nothing_new() -> None:
    # Rank 3 alone makes a broadcast once more; its peers' hosts have run on behind DDP's all_reduce.
    def trains(number: int, at: Stack) -> RankFacts:
        reduced = [call(7, "completed", "broadcast"), call(8, "completed"), call(9, "enqueued"), call(10, "enqueued")]
        facts = rank(number, *reduced, stack=at)
        own = tuple(one for one in facts.collectives if one.op == "broadcast")
        return dataclasses.replace(facts, collectives=own)

    stands = [
        Stack((Location("train.py", line, function),), "py-spy") for line, function in ((59, "main"), (23, "ema"))
    ]
    once_more = rank(3, call(7, "completed", "broadcast"), call(8, "completed"), call(9, "enqueued", "broadcast"))
    own = tuple(one for one in once_more.collectives if one.op == "broadcast")
    case = job(
        trains(0, stands[0]),
        trains(1, stands[1]),
        trains(2, stands[1]),
        dataclasses.replace(once_more, collectives=own, stack=stands[1], stacks=()),
    )
    lines = tuple(SourceLine("train.py", line, loops=((50, 60),)) for line in (10, 23, 59))
    verdict = diagnose(dataclasses.replace(case, source=lines))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", (3,))


def test_where_a_host_waits_is_not_where_its_device_s_call_stands() -> None:
    printing = Stack((Location("train.py", 35, "main"),), "py-spy")
    ranks = [
        rank(0, call(8, "enqueued"), stack=printing, python=False),
        rank(1, call(8, "enqueued"), python=False),
        rank(2, call(8, "enqueued", "barrier")),
        rank(3, call(8, "enqueued"), python=False),
    ]
    source = (SourceLine("train.py", 35, conditions=(Condition(34, "rank == 0"),)), SourceLine("train.py", 12))
    verdict = diagnose(dataclasses.replace(job(*ranks), source=source))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", (2,))
    assert not any("rank == 0" in line for line in verdict.because)


def test_a_thread_of_cpp_that_has_made_calls_is_not_where_a_rank_stands() -> None:
    waiting = [call(7, "completed"), call(8, "enqueued")]
    late = rank(1, waiting[0], stack=ASLEEP, syscall="clock_nanosleep")
    backward = 555  # autograd's thread for the device, which has called a hook of FSDP's
    late = dataclasses.replace(
        late,
        collectives=tuple(dataclasses.replace(one, thread=backward) for one in late.collectives),
        stack=Stack((), "py-spy", thread=backward),
        stacks=(*late.stacks, Stack((), "py-spy", thread=backward)),
    )
    verdict = diagnose(job(rank(0, *waiting), late, rank(2, *waiting), rank(3, *waiting)))

    assert (verdict.code, verdict.culprit_ranks, verdict.location) == ("SL301", (1,), ASLEEP.frames[0])


def test_a_thousand_groups_are_compared_at_once() -> None:
    calls = [call(1, "enqueued", group=str(number), t=float(number)) for number in range(1, 1000)]
    groups = tuple(str(number) for number in range(1000))
    before = time.process_time()
    verdict = diagnose(job(*(rank(number, *calls) for number in range(SIZE)), groups=groups))

    assert verdict.culprit_ranks == ()
    assert time.process_time() - before < 20  # 1 s; each pair of groups against each wait took minutes
