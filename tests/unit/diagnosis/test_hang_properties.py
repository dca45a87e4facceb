"""What holds for every hang, whoever is late, for whatever reason, and in whatever groups its peers wait."""

from __future__ import annotations

import pytest
from hang_stories import APART, LOST, NOBODY, REASONS, SHAPES, Hang, hangs, missing, pieces, with_more, without
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import permuted

from safelaunch.codec import from_json, to_json
from safelaunch.diagnosis import diagnose
from safelaunch.model import Case, Verdict

steady = settings(max_examples=60, deadline=None, derandomize=True, database=None)
few = settings(steady, max_examples=20)  # of each kind, for what is asked of all of them

SURE = {"low": 0, "medium": 1, "high": 2}


@pytest.mark.parametrize("shape", SHAPES + APART + NOBODY)
def test_the_true_culprit_is_named_and_nobody_else(shape: str) -> None:
    @few
    @given(hangs((shape,)))
    def holds(story: Hang) -> None:
        verdict = diagnose(story.case)
        assert (verdict.code, verdict.culprit_ranks) == (story.code, story.culprits), verdict.summary

    holds()


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_reason_in_every_shape(shape: str, reason: str) -> None:
    for size in (2, 5):
        for culprit in range(size):
            story = missing(shape, reason, size, culprit, None)
            verdict = diagnose(story.case)
            assert (verdict.code, verdict.culprit_ranks) == (story.code, story.culprits), verdict.summary
            assert not verdict.conclusive


@steady
@given(st.data(), hangs())
def test_other_rank_numbers_name_the_same_rank(data: st.DataObject, story: Hang) -> None:
    order = data.draw(st.permutations(range(len(story.case.ranks))))
    before, after = diagnose(story.case), diagnose(permuted(story.case, order))

    assert after.code == before.code
    assert set(after.culprit_ranks) == {order[number] for number in before.culprit_ranks}
    assert (after.confidence, after.conclusive) == (before.confidence, before.conclusive)
    if len(before.culprit_ranks) == 1:
        assert after.location == before.location


def unchanged(story: Hang, count: int, joining: bool) -> None:
    before, after = diagnose(story.case), diagnose(with_more(story, count, joining))

    told = (before.code, before.culprit_ranks, before.confidence, before.conclusive)
    assert (after.code, after.culprit_ranks, after.confidence, after.conclusive) == told, after.summary


@pytest.mark.parametrize("shape", ["world", "cpp", "operation", "left"])
def test_more_ranks_that_wait_change_nothing(shape: str) -> None:
    few(given(hangs((shape,)), st.integers(1, 4))(lambda story, count: unchanged(story, count, True)))()


@pytest.mark.parametrize("shape", ["subgroup", "cpp subgroup", "grid", "chain", "order"])
def test_more_ranks_that_nobody_waits_for_change_nothing(shape: str) -> None:
    few(given(hangs((shape,)), st.integers(1, 4))(lambda story, count: unchanged(story, count, False)))()


def less_certain(before: Verdict, after: Verdict) -> bool:
    """Whether a verdict on less evidence says no more than the one before: the same ranks or fewer with no higher
    confidence, or that it does not know; and never that the wait is hopeless where it was not."""
    if after.conclusive and not before.conclusive:
        return False
    if before.culprit_ranks and not after.culprit_ranks:
        return after.code in (before.code, "SL399")  # another code that blames nobody is a claim too
    return set(after.culprit_ranks) <= set(before.culprit_ranks) and SURE[after.confidence] <= SURE[before.confidence]


@pytest.mark.parametrize("kind", [*LOST, "groups", "source"])
@pytest.mark.parametrize("shape", SHAPES + APART + NOBODY)
def test_lost_evidence_never_makes_it_more_certain(shape: str, kind: str) -> None:
    @few
    @given(hangs((shape,)))
    def holds(story: Hang) -> None:
        before = diagnose(story.case)
        for number, lost in pieces(story.case):
            if lost == kind:
                after = diagnose(without(story.case, number, kind))
                assert less_certain(before, after), (
                    f"{story.kind} of {story.culprits}, without {kind} of rank {number}: "
                    f"{before.code} {before.culprit_ranks} {before.confidence} -> "
                    f"{after.code} {after.culprit_ranks} {after.confidence}: {after.summary}"
                )

    holds()


@steady
@given(hangs())
def test_json_keeps_every_case_whole(story: Hang) -> None:
    assert from_json(Case, to_json(story.case)) == story.case
