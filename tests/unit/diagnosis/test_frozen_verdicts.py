"""No word of a verdict changes unless it is meant to (`frozen.py`)."""

from __future__ import annotations

import pytest
from frozen import SHOWN, differences, now, read


def test_every_verdict_is_what_it_was() -> None:
    found = list(differences(read(), now()))

    if found:
        pytest.fail(
            f"{len(found)} verdicts differ; where that is meant, `frozen.py --write` takes them:\n"
            + "\n".join(found[:SHOWN])
        )


def test_a_verdict_that_differs_is_shown() -> None:
    case = {"verdicts": [{"code": "SL301", "summary": "rank 1 is late"}], "variants": {"as it is": 0}}
    other = {"verdicts": [{"code": "SL301", "summary": "rank 2 is late"}], "variants": {"as it is": 0}}

    (told,) = differences({"a": case}, {"a": other})

    assert told.startswith("a, as it is:\n")
    assert '-"summary": "rank 1 is late"' in told.replace("- ", "-")
    assert list(differences({"a": case}, {})) == ["a: gone"]
    assert list(differences({"a": case}, {"a": case})) == []
