"""Files in the manner of real ones, written with what is wrong in them before the lint was tried on them."""

from __future__ import annotations

import pytest
from files_of_jobs import EXAMPLES_OF_ALL, Example


@pytest.mark.parametrize("example", EXAMPLES_OF_ALL, ids=lambda example: example.name)
def test_what_is_wrong_is_told_and_nothing_else(example: Example) -> None:
    told = example.told()
    assert example.wanted - told == set(), "missed"
    assert told - example.wanted - example.allowed == set(), "not wrong"


def test_there_are_enough_of_them() -> None:
    assert len(EXAMPLES_OF_ALL) >= 90
    codes = {code for example in EXAMPLES_OF_ALL for _, code in example.wanted}
    assert {f"SL{number}" for number in range(240, 250)} <= codes
