"""Bundles of older versions say what they said: their documents are read in today's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safelaunch.codec import ShapeError, checked, from_json, to_json
from safelaunch.model import Condition, Gap, RankFacts, SourceLine

READERS = pytest.mark.parametrize("read", [checked, from_json])
LINE = SourceLine("train.py", 7, conditions=(Condition(5, "rank == 0"), Condition(6, "steps > 0", holds=False)))
RANK = RankFacts(1, 1, 11, missing=(Gap("stack", "py-spy: not permitted"), Gap("", "it has ended")))


@READERS
def test_conditions_that_were_pairs(read: Callable[..., Any]) -> None:
    older = to_json(LINE) | {"conditions": [[5, "rank == 0"], [6, "else of: steps > 0"]]}

    assert read(SourceLine, older) == LINE


@READERS
def test_gaps_that_were_texts(read: Callable[..., Any]) -> None:
    older = to_json(RANK) | {"missing": ["stack: py-spy: not permitted", "it has ended"]}

    assert read(RankFacts, older) == RANK


@READERS
@pytest.mark.parametrize("value", [LINE, RANK])
def test_todays_documents(read: Callable[..., Any], value: Any) -> None:
    assert read(type(value), to_json(value)) == value


@pytest.mark.parametrize("condition", [[5], ["5", "rank == 0"], [5, 6], [5, "rank == 0", True], "rank == 0", None, {}])
def test_what_no_version_wrote_is_refused(condition: Any) -> None:
    with pytest.raises(ShapeError, match=r"conditions\[\]"):
        checked(SourceLine, to_json(LINE) | {"conditions": [condition]})
