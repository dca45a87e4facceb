"""The traces of several ranks in one file and in words. Times of torch are in µs of the time of day."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from safelaunch.model.traces import RankEvents, RankTrace, StepMark, TracedCall
from safelaunch.report import trace_file, trace_summary
from safelaunch.report.trace_facts import AFTER_WAIT, Span, facts, length, shared, within

BASE_NS = 1_700_000_000 * 10**9
STEP_S = 0.1


def trace(rank: int, **more: Any) -> RankTrace:
    """Two steps, 8 and 9, of 100 ms each. The time of day began 1000 s before the clock of the node."""
    marks = tuple(
        StepMark(7 + i, 1000 + STEP_S * i, BASE_NS + round(STEP_S * i * 1e9), 0.01 * i, 0.02 * i) for i in range(3)
    )
    return RankTrace(rank, "node-a", 400 + rank, 400 + rank, path=f"rank_{rank}", marks=marks, **more)


def op(name: str, ts: float, dur: float = 10.0, tid: int = 400, **more: Any) -> dict[str, Any]:
    """An event, `ts` µs behind the first step's beginning."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": tid, "tid": tid, "ts": ts, "dur": dur, **more}


def call(t: float, returned: float, seq: int = 1) -> TracedCall:
    return TracedCall(
        "all_reduce", "0", 2, seq, 1000 + t, 1000 + returned, "/home/ada/train.py", 31, "main", 4, "float32"
    )


def late(rank: int, by_ms: float, groups: int = 1, **more: Any) -> tuple[RankTrace, RankEvents]:
    """A rank that comes to its four collectives so many ms later than it could."""
    times = [10_000 + 40_000 * i + by_ms * 1000 for i in range(4)]
    own = trace(rank, calls=tuple(call(t / 1e6 - 1e-5, t / 1e6 + 0.02, i) for i, t in enumerate(times)), **more)
    return own, RankEvents(BASE_NS, [op("c10d::allreduce_", t, tid=own.pid) for t in times], groups)


def lines(*ranks: tuple[RankTrace, RankEvents]) -> list[str]:
    return trace_summary.lines([facts(*one) for one in ranks])


def test_the_rank_that_starts_last_is_named_with_its_line() -> None:
    found = lines(late(0, 0), late(1, 20), late(2, 3))

    assert found[0] == "steps 8 to 9 of ranks 0-2: 100.0 ms a step, 20% of it waiting in collectives"
    assert found[1] == "rank 1 starts last in 4 of 4 collectives, 20.0 ms after the first (median), most at train.py:31"
    assert found[3].split() == ["0", "100.0", "20%", "10%"]


def test_nobody_is_named_for_what_is_little() -> None:
    assert (
        lines(late(0, 0), late(1, 0.4))[1]
        == "no rank starts last: all begin their 4 collectives within 0.4 ms (median)"
    )


def test_nobody_is_named_for_what_the_clocks_may_be_wrong_by() -> None:
    assert lines(late(0, 0), late(1, 20, clock_error_s=0.015))[1].startswith("no rank starts last")
    assert "the clocks of the nodes could not be compared" in lines(late(0, 0), late(1, 20, clock_error_s=None))[1]


def test_a_clock_that_is_ahead_makes_no_rank_late() -> None:
    own, events = late(1, 0)
    ahead = RankTrace(**{**vars(own), "marks": tuple(StepMark(m.count, m.t + 5, m.wall_ns) for m in own.marks),
                         "calls": (), "offset_s": -5.0})  # fmt: skip

    assert lines(late(0, 0), (ahead, events))[1].startswith("no rank starts last")


def test_ranks_of_several_groups_meet_by_group_and_number() -> None:
    first, second = late(0, 0, groups=2), late(1, 20, groups=2)
    second[1].found.insert(0, op("c10d::allreduce_", 5.0, tid=401))  # of another group: the counts differ

    assert lines(first, second)[1].startswith("rank 1 starts last in 4 of 4 collectives")


def test_the_wait_of_ddp_counts_and_what_it_does_meanwhile_does_not() -> None:
    own = trace(0)
    found = [
        op("aten::mm", 10_000, 10_000),
        op("gloo:all_reduce", 12_000, 50_000, tid=999, cat="user_annotation"),
        op(AFTER_WAIT, 60_000, 100),
    ]

    assert facts(own, RankEvents(BASE_NS, found)).waiting == pytest.approx(0.04 + 0.04)


class Counted(list[Span]):
    """Spans that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_waits_are_looked_for_once_along_all_collectives() -> None:
    """A trace of a megabyte had 12,500 of the ones and 4,500 of the others, and took eleven seconds."""
    running = Counted((float(i * 10), i * 10 + 6.0) for i in range(12_500))
    gaps = [(i * 25 + 1.0, i * 25 + 24.0) for i in range(4_500)]

    found = shared(running, gaps)

    assert running.looks < 10 * (len(running) + len(gaps))
    assert found == sum(length(within(running[i * 5 // 2 : i * 5 // 2 + 6], (a, b))) for i, (a, b) in enumerate(gaps))


def test_spans_that_lie_over_several_others_count_in_each() -> None:
    long, short = [(0.0, 100.0)], [(1.0, 2.0), (3.0, 4.0), (99.0, 105.0)]

    assert shared(long, short) == shared(short, long) == 3.0
    assert shared([], short) == shared(long, []) == 0.0


def test_no_rank_waits_for_longer_than_its_steps_took() -> None:
    own = trace(0)
    marks = (own.marks[0], StepMark(9, own.marks[-1].t, own.marks[-1].wall_ns, 1e9, 1e9))

    measured = facts(RankTrace(**{**vars(own), "marks": marks}), RankEvents(BASE_NS, []))

    assert (measured.waiting, measured.loader) == (own.seconds, own.seconds)


def test_kernels_count_once_where_streams_overlap() -> None:
    found = [
        op("gemm", 0, 50_000, cat="kernel", pid=0, tid=7),
        op("ncclDevKernel_AllReduce", 40_000, 60_000, cat="kernel", pid=0, tid=20),
    ]

    measured = facts(trace(0, cuda=True), RankEvents(BASE_NS, found))

    assert (measured.kernels, measured.communication) == (pytest.approx(0.1), pytest.approx(0.06))
    assert "50% of it with kernels, 30% with those of NCCL" in trace_summary.lines([measured])[0]


def test_why_there_are_no_kernels_is_told() -> None:
    found = lines(
        late(0, 0, cuda=True, no_kernels="cuInit says 100"), late(1, 0, cuda=True, no_kernels="cuInit says 100")
    )

    assert "no kernels of ranks 0-1: cuInit says 100" in found
    assert "how long GPUs wait is not seen" in found[0]


def test_many_ranks_are_told_by_the_middle_and_the_ends() -> None:
    found = lines(*(late(rank, 0) for rank in range(64)))

    assert len(found) < 8
    assert any("10% in the loader (median)" in line for line in found)


def written(tmp_path: Path, *ranks: tuple[RankTrace, RankEvents]) -> list[dict[str, Any]]:
    events = {one.rank: of for one, of in ranks}
    path = tmp_path / "trace.json.gz"
    trace_file.write(str(path), [one for one, _ in ranks], lambda one: events[one.rank], {})
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def test_ranks_of_two_nodes_with_the_same_pid_are_two_processes_on_one_clock(tmp_path: Path) -> None:
    first = trace(0)
    second = RankTrace(**{**vars(trace(1)), "pid": first.pid, "host": "node-b", "offset_s": 0.25})

    found = written(
        tmp_path,
        (first, RankEvents(BASE_NS, [op("here", 50.0)])),
        (second, RankEvents(BASE_NS - 10**9, [op("there", 1_000_050.0)])),
    )

    at = {one["name"]: (one["pid"], one["ts"]) for one in found if one.get("cat") == "cpu_op"}
    assert at == {"here": (400, 50.0), "there": (400 + trace_file.NODE, 250_050.0)}
    assert {one["args"]["name"] for one in found if one["name"] == "process_name"} == {"rank 0", "rank 1"}


def test_arrows_of_two_ranks_do_not_meet(tmp_path: Path) -> None:
    arrow = {"ph": "s", "id": 3, "cat": "fwdbwd", "name": "fwdbwd", "tid": 1, "ts": 1.0}

    found = written(tmp_path, *((trace(rank), RankEvents(BASE_NS, [{**arrow, "pid": 400 + rank}])) for rank in (0, 1)))

    assert len({one["id"] for one in found if one["ph"] == "s"}) == 2


def test_streams_of_a_gpu_are_threads_of_their_rank(tmp_path: Path) -> None:
    kernel = op("gemm", 5.0, cat="kernel", pid=0, tid=7)
    name = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7"}}

    found = written(tmp_path, *((trace(rank, cuda=True), RankEvents(BASE_NS, [kernel, name])) for rank in (0, 1)))

    of = {one["pid"]: one["tid"] for one in found if one["name"] == "gemm"}
    named = {one["pid"]: one["tid"] for one in found if one.get("args", {}).get("name") == "stream 7"}
    assert list(of) == [400, 401]
    assert of == named


def test_secrets_in_the_names_of_a_program_are_left_out(tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"[:34]
    event = op(f"push --token {secret}", 5.0, cat="user_annotation", args={"url": f"https://me:{secret}@host/x"})

    found = json.dumps(written(tmp_path, (trace(0), RankEvents(BASE_NS, [event]))))

    assert "push" in found
    assert secret not in found


def test_secrets_in_arguments_go_by_their_names_and_within_lists(tmp_path: Path) -> None:
    token = "sk-ant-api03-" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
    args = {
        "External id": 7, "password": "hunter2secret", "deep": [f"api_key={token}"], "in": {"a": [f"token={token}"]},
        "db_password": 48291733, "Input Dims": [[2, 3], []], "Concrete Inputs": ["", "[]"],
    }  # fmt: skip

    found = written(tmp_path, (trace(0), RankEvents(BASE_NS, [op("call", 5.0, cat=f"token={token}", args=args)])))

    shown = next(one for one in found if one["name"] == "call")
    assert not any(secret in json.dumps(shown) for secret in (token, "hunter2secret", "48291733"))
    kept = {"External id": 7, "Input Dims": [[2, 3], []], "Concrete Inputs": ["", "[]"]}
    assert {key: shown["args"][key] for key in kept} == kept


def test_where_no_rank_can_be_read_there_is_no_file(tmp_path: Path) -> None:
    def read(_: RankTrace) -> RankEvents:
        raise ValueError("it is no trace")

    measured, unread = trace_file.write(str(tmp_path / "trace.json.gz"), [trace(0), trace(1)], read, {})

    assert (measured, list(unread), list(tmp_path.iterdir())) == ([], [0, 1], [])


def test_a_rank_whose_trace_cannot_be_read_is_named_and_the_others_are_written(tmp_path: Path) -> None:
    def read(one: RankTrace) -> RankEvents:
        if one.rank == 0:
            raise ValueError("it is no trace")
        return RankEvents(BASE_NS, [])

    measured, unread = trace_file.write(str(tmp_path / "trace.json.gz"), [trace(0), trace(1)], read, {})

    assert ([one.trace.rank for one in measured], unread) == ([1], {0: "it is no trace"})
