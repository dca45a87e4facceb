"""Ranks of which one makes a group that another has not called: nothing is said of the network."""

from golden_unlike import makes, shares
from hang_scenes import hang, world

from safelaunch.diagnosis import diagnose
from safelaunch.model import ProcessGroup


def test_two_ranks_of_which_one_alone_makes_a_group() -> None:
    groups = (world(2), ProcessGroup("new_group #1", (0,)))

    verdict = diagnose(hang(makes(0, (0,), 2), shares(1, 2), groups=groups))

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", ())
    assert "rank 0 waits in new_group #1, not called by rank 1" in verdict.summary
    assert "network" not in verdict.remedy
