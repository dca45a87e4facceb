"""Ranks that wait for one another in torch.distributed.rpc."""

from __future__ import annotations

import dataclasses

from hang_scenes import ASLEEP, COMPUTING, LOCKED, elsewhere, hang
from scenes import TORCH, TRAIN

from safelaunch.diagnosis import diagnose
from safelaunch.model import Kernel, Location, RankFacts, Stack, ThreadCall, Verdict

RPC = f"{TORCH}/distributed/rpc"
ASKS = Location(f"{RPC}/api.py", 842, "rpc_sync")
SERVES = Location(f"{RPC}/internal.py", 209, "_run_function")
ROUND, SCORE, FETCH = Location(TRAIN, 62, "main"), Location(TRAIN, 27, "score"), Location(TRAIN, 31, "fetch")
POLLS = dataclasses.replace(LOCKED, cpu_s=0.7, io_bytes=900, since_s=3.0)  # TensorPipe's reactor


def rank(
    number: int, *served: Location, main: tuple[Location, ...] = (ASKS, ROUND), does: Kernel = LOCKED
) -> RankFacts:
    """A rank whose main thread waits for an answer, and that serves a call, which has come to these places."""
    facts = elsewhere(number, POLLS, *main)
    thread = Stack((*served, SERVES), "py-spy", "", 9000 + number)
    more = (thread,) if served else ()
    return dataclasses.replace(
        facts, earlier=facts.stack, stacks=(*facts.stacks, *more), threads=(ThreadCall(9000 + number, does),)
    )


def verdict(*ranks: RankFacts) -> Verdict:
    return diagnose(hang(*ranks))


def test_calls_that_ask_other_ranks_again_wait_in_a_circle() -> None:
    told = verdict(rank(0, ASKS, SCORE), rank(1, ASKS, SCORE))

    assert (told.code, told.culprit_ranks, told.location) == ("SL317", (0, 1), SCORE)
    assert "in a circle" in told.summary


def test_a_served_call_that_sleeps_is_named_with_its_rank() -> None:
    told = verdict(rank(0), rank(1, FETCH, does=ASLEEP), rank(2, ASKS, SCORE))

    assert (told.code, told.culprit_ranks, told.location) == ("SL317", (1,), FETCH)
    assert "sleeps" in told.summary


def test_a_served_call_that_computes_is_no_hang() -> None:
    assert verdict(rank(0), rank(1, FETCH, does=COMPUTING)).code == "SL399"


def test_nothing_is_said_where_one_rank_does_something_else_or_nobody_serves() -> None:
    assert verdict(rank(0, ASKS, SCORE), rank(1, ASKS, SCORE, main=(FETCH,))).code == "SL399"
    assert verdict(rank(0), rank(1)).code == "SL399"


def test_a_rank_that_was_elsewhere_a_moment_ago_makes_progress() -> None:
    moved = dataclasses.replace(rank(1, ASKS, SCORE), earlier=Stack((FETCH,), "py-spy"))

    assert verdict(rank(0, ASKS, SCORE), moved).code == "SL399"
