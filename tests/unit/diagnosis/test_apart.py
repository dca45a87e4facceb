"""How much work it is to find the call that some ranks made and others did not."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.diagnosis.blame import apart
from safelaunch.model import Case, Collective, Incident, Location, RankFacts

RANKS = 24


def call(seq: int, line: int) -> Collective:
    place = Location("/train.py", line, "train")
    return Collective("barrier", "0", seq, 0, "", done=True, t=float(seq), location=place, group_size=RANKS)


def test_ranks_that_came_apart_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs of 256 ranks take a minute, in which the ranks wait for the verdict."""
    fewer = tuple(call(seq, 10) for seq in range(1, 9))
    more = (*fewer[:4], call(5, 99), *(call(seq, 10) for seq in range(6, 10)))
    ranks = tuple(RankFacts(r, r, 100 + r, collectives=more if r < RANKS // 2 else fewer) for r in range(RANKS))
    compared: list[object] = []
    extra = apart._extra

    def counted(*pair: Any) -> Any:
        compared.append(pair)
        return extra(*pair)

    monkeypatch.setattr(apart, "_extra", counted)

    found = apart.came_apart(
        Case(Incident("hang", 0, (), 1.0), "node", RANKS, ranks), range(RANKS // 2), range(RANKS // 2, RANKS), {}
    )

    assert found is not None
    assert found.extra.seq == 5
    assert len(compared) <= 2 * RANKS
