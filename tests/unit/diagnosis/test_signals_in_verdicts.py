"""Signals that somebody has sent, to ranks and to the agent, in words."""

from __future__ import annotations

import pytest
from scenes import T, case, exited, rank

from safelaunch.diagnosis import diagnose, infra
from safelaunch.model import AgentEnd


def test_several_ranks_that_were_killed_are_told_of_in_good_english() -> None:
    one = diagnose(case(rank(0), exited(rank(1), -15, T)))
    several = diagnose(case(exited(rank(0), -15, T), exited(rank(1), -15, T)))

    assert one.summary == "rank 1 was killed by SIGTERM"
    assert several.summary == "ranks 0 and 1 were killed by SIGTERM"


@pytest.mark.parametrize("phase", ["import", "config", "launch"])
def test_a_signal_to_an_agent_without_ranks_is_told_as_that(phase: str) -> None:
    verdict = infra.judge(AgentEnd(phase, "KeyboardInterrupt", "", signal=2))

    assert (verdict.code, verdict.exit_code) == ("SL601", 75)
    assert verdict.summary == "the agent got SIGINT before it had started a rank"
