"""Ranks of which one makes a group that another has not called: nothing is said of the network."""

import dataclasses

from golden_unlike import GIVEN, inside, makes, shares
from hang_scenes import INIT, call, done, hang, in_cpp, waiting, world

from safelaunch.diagnosis import diagnose
from safelaunch.model import ProcessGroup, Rendezvous


def test_two_ranks_of_which_one_alone_makes_a_group() -> None:
    groups = (world(2), ProcessGroup("new_group #1", (0,)))

    verdict = diagnose(hang(makes(0, (0,), 2), shares(1, 2), groups=groups))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", ())
    assert "rank 0 waits in new_group #1, not called by rank 1" in verdict.summary
    assert "network" not in verdict.remedy


THREE = "world_size is 3 in init_process_group, and 2 ranks were started (train.py:40)"


def test_a_world_size_of_more_ranks_than_were_started() -> None:
    init = (ProcessGroup("init", (0, 1)),)

    verdict = diagnose(hang(inside(0, GIVEN, 3), inside(1, GIVEN, 3), groups=init))

    assert (verdict.code, verdict.summary) == ("SL319", THREE)


def test_the_same_where_the_call_returns_and_the_first_collective_waits() -> None:
    called = done(call("init_process_group", 1, group="init", size=2, at=INIT))
    ranks = [
        dataclasses.replace(in_cpp(waiting(n, called, call(seq=1, size=3))), meets=Rendezvous(GIVEN, GIVEN, 3, n))
        for n in range(2)
    ]
    groups = (ProcessGroup("init", (0, 1)), ProcessGroup("0", (0, 1, 2)))

    verdict = diagnose(hang(*ranks, groups=groups))

    assert (verdict.code, verdict.summary) == ("SL319", THREE)
