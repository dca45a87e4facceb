"""What is told, once, of ranks that can only be watched for their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.pulse import HAS_TORCH, USES_GROUPS
from safelaunch.watch.unseen import TELL_UNSEEN_S, TELL_UNUSED_S, Unseen

START = 1000.0


def pulse(state: int = 0, beat: float = 0.0) -> Any:
    return SimpleNamespace(state=state, beat=beat)


@pytest.fixture
def unseen() -> Unseen:
    found = Unseen()
    found.restart(START)
    return found


def test_ranks_without_a_heartbeat_are_told_of_once(unseen: Unseen) -> None:
    assert unseen.poll((0, 1), {0: pulse()}, START + TELL_UNSEEN_S) == ""
    assert unseen.poll((0, 1), {0: pulse()}, START + TELL_UNSEEN_S + 1.0) == "unseen"
    assert unseen.unseen == 1
    assert unseen.poll((0, 1), {0: pulse()}, START + TELL_UNSEEN_S + 2.0) == ""


def test_the_time_without_groups_counts_from_the_import_of_torch(unseen: Unseen) -> None:
    assert unseen.poll((0,), {0: pulse()}, START + 100.0) == ""
    assert unseen.poll((0,), {0: pulse(HAS_TORCH)}, START + 100.0 + TELL_UNUSED_S) == ""
    assert unseen.poll((0,), {0: pulse(HAS_TORCH)}, START + 101.0 + TELL_UNUSED_S) == "unused"


def test_ranks_that_use_groups_are_no_news(unseen: Unseen) -> None:
    assert unseen.poll((0,), {0: pulse(HAS_TORCH | USES_GROUPS)}, START + 1.0) == ""
    assert unseen.poll((0,), {0: pulse(HAS_TORCH)}, START + 1000.0) == ""
