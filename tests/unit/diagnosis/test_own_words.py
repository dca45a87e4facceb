"""Ranks that raise the same at one line within a moment: each is quoted with its own words, and no other's."""

from __future__ import annotations

import pytest
from scenes import LOOP, T, case, lost_peer, raised, rank

from safelaunch.diagnosis import diagnose
from safelaunch.model import Case, Verdict


def fails(messages: dict[int, str], *, lost: tuple[int, ...] = ()) -> Verdict:
    """Ranks that raise in this order of time, and others that lose them."""
    ranks = [raised(rank(n), "ValueError", said, t=T + i / 50, at=LOOP) for i, (n, said) in enumerate(messages.items())]
    built: Case = case(*sorted([*ranks, *(lost_peer(rank(n)) for n in lost)], key=lambda facts: facts.rank))
    return diagnose(built)


def test_two_ranks_are_quoted_each() -> None:
    verdict = fails({4: "sample 284", 2: "sample 282"}, lost=(0, 1, 3, 5))
    assert verdict.summary == "rank 2 raised ValueError: sample 282; rank 4 raised ValueError: sample 284"
    assert verdict.culprit_ranks == (2, 4)


def test_traceback_and_pid_are_of_the_rank_that_is_named_first() -> None:
    verdict = fails({4: "sample 284", 2: "sample 282"}, lost=(0, 1, 3, 5))
    assert "sample 282" in verdict.traceback
    assert verdict.pid == rank(2).pid


def test_of_more_ranks_the_first_is_quoted_and_others_beneath() -> None:
    verdict = fails({4: "sample 284", 2: "sample 282", 3: "sample 283", 5: "sample 285"}, lost=(0, 1))
    assert verdict.summary == "ranks 2-5 failed alike; rank 2 raised ValueError: sample 282"
    assert verdict.because[:2] == ("rank 3 raised ValueError: sample 283", "rank 4 raised ValueError: sample 284")


@pytest.mark.parametrize(
    ("one", "other"), [("a bad sample", "a bad sample"), ("<Shard at 0x7f01a2>", "<Shard at 0x7f99b0>")]
)
def test_words_that_are_the_same_are_said_once(one: str, other: str) -> None:
    verdict = fails({2: one, 4: other}, lost=(0, 1, 3, 5))
    assert verdict.summary == f"ranks 2 and 4 raised ValueError: {one}"


def test_long_words_are_not_cut_to_fit_a_headline() -> None:
    long = "no label for " + "x" * 120
    verdict = fails({2: f"{long} 2", 4: f"{long} 4"}, lost=(0, 1, 3, 5))
    assert verdict.summary == f"ranks 2 and 4 failed alike; rank 2 raised ValueError: {long} 2"
    assert verdict.because[0] == f"rank 4 raised ValueError: {long} 4"


def test_where_every_rank_raised_the_words_are_said_to_be_of_one() -> None:
    verdict = fails({1: "sample 281", 0: "sample 280"})
    assert (verdict.code, verdict.summary) == (
        "SL402",
        "every rank failed alike; rank 1 raised ValueError: sample 281",
    )
    assert "rank 0 raised ValueError: sample 280" in verdict.because


def test_where_another_may_be_to_blame_too() -> None:
    ranks = [raised(rank(n), "ValueError", f"sample 28{n}", at=LOOP) for n in (1, 3)]
    verdict = diagnose(case(*ranks, rank(2, inside=())))
    assert verdict.code == "SL499"
    assert verdict.summary.startswith(
        "rank 1 raised ValueError: sample 281; rank 3 raised ValueError: sample 283; the cause may lie with rank 2"
    )


def test_of_one_node_alone_it_is_not_said_of_all() -> None:
    ranks = [raised(rank(n), "ValueError", "a bad sample", at=LOOP) for n in (2, 3)]
    verdict = diagnose(case(*ranks, world_size=4))
    assert verdict.summary == "every rank of node-a raised ValueError: a bad sample"
