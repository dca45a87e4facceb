"""A fault of ours is told once, and the run goes on; what is to end the process is no fault."""

from __future__ import annotations

import pytest

from safelaunch.run.own_faults import contained


def test_a_fault_is_told_and_what_follows_the_block_runs() -> None:
    said: list[str] = []
    went_on = False
    with contained(said.append, "ranks are not watched"):
        raise ZeroDivisionError("by zero")
    went_on = True
    assert went_on
    assert said == ["safelaunch's own fault, ranks are not watched: ZeroDivisionError('by zero')"]


def test_without_a_fault_nothing_is_said() -> None:
    with contained(pytest.fail, "nothing"):
        pass


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_is_to_end_the_process_passes(end: type[BaseException]) -> None:
    with pytest.raises(end), contained(pytest.fail, "nothing"):
        raise end


def test_a_fault_that_holds_all_that_it_was_about_is_told_in_short() -> None:
    said: list[str] = []
    with contained(said.append, "no metrics are written"):
        ("row of metrics\n" * 10_000 + "\udcff").encode()

    assert said[0].startswith("safelaunch's own fault, no metrics are written: UnicodeEncodeError('utf-8', 'row of")
    assert len(said[0]) < 400
