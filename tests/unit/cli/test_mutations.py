"""Real input of each kind, changed at random, is read or refused; `tests/rigs/mutations.py` makes more of it."""

from __future__ import annotations

import pytest
from mutations import KINDS, faults


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_at_random_is_no_fault_of_ours(kind: str) -> None:
    assert list(faults(kind, 40, seed=5)) == []
