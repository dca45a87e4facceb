"""Real input of each kind, changed at random, is read or refused; `tests/rigs/mutations.py` makes more of it."""

from __future__ import annotations

import datetime

import pytest
from mutations import KINDS, faults


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_at_random_is_no_fault_of_ours(kind: str) -> None:
    # Others each day: what is found can be had again, and what is found in a year is more than one seed finds.
    seed = datetime.date.today().toordinal()

    assert [(kind, seed, *fault) for fault in faults(kind, 400, seed)] == []
