"""Whatever job is simulated, and whichever dumps of it are lost or old: nobody is named but who was late."""

from __future__ import annotations

import dataclasses

from fr_dumps import Recorder
from fr_simulation import Call, Job, Rank
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from safelaunch.diagnosis import diagnose
from safelaunch.evidence.offline import dump, dump_case
from safelaunch.evidence.offline.dump import Dump
from safelaunch.model import Case, Verdict

steady = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def read(recorder: Recorder) -> Dump:
    return dump.read(recorder.document(), recorder.rank, f"nccl_trace_rank_{recorder.rank}")


def case(job: Job) -> Case:
    return dump_case.build([read(job.recorder(rank.number)) for rank in job.ranks])


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, int]:
    """A pipeline of stages, each of several data-parallel ranks; one rank does not come to one of its calls."""
    stages, width = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size = stages * width
    groups = {"0": tuple(range(size))}
    for stage in range(stages):
        groups[str(stage + 1)] = tuple(range(stage * width, stage * width + width))
    steps = draw(st.integers(1, 4))
    programs: list[list[Call]] = [[] for _ in range(size)]
    for _ in range(steps):
        for rank in range(size):
            stage = rank // width
            if stage:
                programs[rank].append(Call("recv", peer=rank - width, line=40))
            if width > 1:
                programs[rank].append(Call("_all_gather_base", str(stage + 1), line=44))
            if stage < stages - 1:
                programs[rank].append(Call("send", peer=rank + width, line=48))
            programs[rank].append(Call("all_reduce", line=52))
    late = draw(st.integers(0, size - 1))
    stops_at = draw(st.integers(0, len(programs[late]) - 1))
    ahead = draw(st.integers(1, 6))
    ranks = [Rank(rank, program, stops_at if rank == late else None, ahead) for rank, program in enumerate(programs)]
    return Job(ranks, groups).play(), late


def waits(job: Job) -> bool:
    return any(rank.current() is not None for rank in job.ranks)


@steady
@given(jobs())
def test_who_is_late_is_named(story: tuple[Job, int]) -> None:
    job, late = story
    verdict = diagnose(case(job))

    if waits(job):
        # Who has never come so far may be the one that is right, where only a few wait.
        assert verdict.culprit_ranks in ((late,), ()), verdict.summary
        assert verdict.culprit_ranks or verdict.code == "SL399"
        if sum(rank.current() is not None for rank in job.ranks) == len(job.ranks) - 1 > 0:
            assert verdict.culprit_ranks == (late,), verdict.summary
    else:
        assert not verdict.culprit_ranks


@steady
@given(jobs(), st.data())
def test_a_dump_that_is_lost_makes_nobody_else_guilty(story: tuple[Job, int], data: st.DataObject) -> None:
    job, late = story
    lost = data.draw(st.integers(0, len(job.ranks) - 1))
    kept = [read(job.recorder(rank.number)) for rank in job.ranks if rank.number != lost]
    if kept:
        verdict = diagnose(dump_case.build(kept))
        assert set(verdict.culprit_ranks) <= {late}, verdict.summary
        assert lost not in verdict.culprit_ranks


@steady
@given(jobs(), st.data())
def test_a_dump_that_was_taken_early_makes_nobody_else_guilty(story: tuple[Job, int], data: st.DataObject) -> None:
    job, late = story
    early = data.draw(st.integers(0, len(job.ranks) - 1))
    done = data.draw(st.integers(0, job.ranks[early].done))
    dumps = [read(job.recorder(rank.number, done=done if rank.number == early else None)) for rank in job.ranks]
    verdict = diagnose(dump_case.build(dumps))
    assert set(verdict.culprit_ranks) <= {late, early}, verdict.summary
    if not _hidden(job, early, done):
        assert set(verdict.culprit_ranks) <= {late}, verdict.summary


def _hidden(job: Job, early: int, done: int) -> bool:
    """Whether nothing in the others' dumps contradicts that the rank had come no further."""
    rank = job.ranks[early]
    known = rank.program[: min(rank.enqueued(), done + rank.ahead)]
    return not any(call.peer is None for call in rank.program[len(known) : rank.done])


@steady
@given(jobs(), st.integers(1, 4))
def test_a_ring_that_has_wrapped_makes_nobody_else_guilty(story: tuple[Job, int], room: int) -> None:
    job, late = story
    dumps = [read(job.recorder(rank.number, room=room)) for rank in job.ranks]
    verdict = diagnose(dump_case.build(dumps))
    assert set(verdict.culprit_ranks) <= {late}, verdict.summary


HOLDS = st.sampled_from(["all", "active", "counters"])
BACKENDS = st.sampled_from(["nccl", "nccl2"])


def counted(job: Job, rank: int, backend: str, holds: str) -> Dump:
    document = job.recorder(rank, backend=backend).document(holds)
    try:
        return dump.read(document, rank, f"comm_lib_trace_rank_{rank}")
    except dump.UnreadableError as error:  # a rank without a single call looks like one whose recorder is off
        return Dump(rank, f"comm_lib_trace_rank_{rank}", unreadable=str(error))


def undecided(job: Job, backend: str, holds: str) -> bool:
    """Whether only counters are left, and those of the old backend, which counts messages for themselves: one that has
    ended and a collective that has not may have the same number."""
    return (backend, holds) == ("nccl", "counters") and any(call.peer is not None for call in job.ranks[0].program)


@steady
@given(jobs(), BACKENDS, HOLDS)
def test_counters_name_nobody_but_who_is_late(story: tuple[Job, int], backend: str, holds: str) -> None:
    job, late = story
    assume(not undecided(job, backend, holds))
    verdict = diagnose(dump_case.build([counted(job, rank.number, backend, holds) for rank in job.ranks]))

    assert set(verdict.culprit_ranks) <= {late}, verdict.summary
    waiting = sum(rank.current() is not None for rank in job.ranks)
    messages = any(call.peer is not None for rank in job.ranks for call in rank.program)
    if job.ranks[late].done and waiting == len(job.ranks) - 1 > 0 and (holds == "all" or not messages):
        assert verdict.culprit_ranks == (late,), verdict.summary


@steady
@given(jobs(), BACKENDS, st.data())
def test_dumps_of_different_kinds_or_lost_ones_make_nobody_else_guilty(
    story: tuple[Job, int], backend: str, data: st.DataObject
) -> None:
    job, late = story
    holds = {rank.number: data.draw(st.sampled_from(["all", "active", "counters", "none"])) for rank in job.ranks}
    assume(not undecided(job, backend, "counters"))
    kept = [counted(job, rank, backend, what) for rank, what in holds.items() if what != "none"]
    if kept:
        verdict = diagnose(dump_case.build(kept))
        assert set(verdict.culprit_ranks) <= {late}, (verdict.summary, holds)


@steady
@given(jobs(), BACKENDS, HOLDS, st.integers(0, 5), st.data())
def test_a_gpu_that_fails_is_told_from_a_late_host(
    story: tuple[Job, int], backend: str, holds: str, unseen: int, data: st.DataObject
) -> None:
    job, failed = story
    job.ranks[failed].unseen = unseen
    assume(not undecided(job, backend, holds))
    lost = data.draw(st.sampled_from([-1, *range(len(job.ranks))]))
    dumps = [counted(job, rank.number, backend, holds) for rank in job.ranks if rank.number != lost]
    verdict = diagnose(dump_case.build(dumps))

    assert set(verdict.culprit_ranks) <= {failed}, verdict.summary
    rank = job.ranks[failed]
    proof = rank.program[max(0, rank.done - unseen) : rank.done]
    # A message that has ended on one side only is of dumps that were taken at different moments, or times would tell.
    proven = all(call.peer is None for call in proof) and any(len(job.groups[call.group]) > 1 for call in proof)
    if holds == "all" and lost == -1 and proven:
        assert (verdict.code, verdict.culprit_ranks) == ("SL318", (failed,)), verdict.summary


@steady
@given(jobs(), st.randoms(use_true_random=False))
def test_order_of_the_files_changes_nothing(story: tuple[Job, int], random: object) -> None:
    job, _ = story
    dumps = [read(job.recorder(rank.number)) for rank in job.ranks]
    before = diagnose(dump_case.build(dumps))
    random.shuffle(dumps)  # type: ignore[attr-defined]

    def told(verdict: Verdict) -> Verdict:
        return dataclasses.replace(verdict, because=tuple(sorted(verdict.because)))

    assert told(diagnose(dump_case.build(dumps))) == told(before)
