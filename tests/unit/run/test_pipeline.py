"""The steps of a run: what follows the run itself never changes how it ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from said import Said

from safelaunch.model import Settings
from safelaunch.run import pipeline


@pytest.mark.parametrize("place", range(len(pipeline.AFTERWARDS)))
def test_a_fault_behind_the_run_costs_its_step_alone(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console, taken = Said(), []

    def supervise(job: Any) -> None:
        job.parts = SimpleNamespace(console=console)
        job.outcome = SimpleNamespace(exit_code=0)

    def step(number: int) -> Any:
        def take(_: Any) -> None:
            taken.append(number)
            if number == place:
                raise KeyError("fault")

        return take

    monkeypatch.setattr(pipeline, "RUN", (supervise,))
    monkeypatch.setattr(pipeline, "AFTERWARDS", tuple(map(step, range(len(pipeline.AFTERWARDS)))))
    signals: Any = None

    assert pipeline.run(Settings({}, {}), signals, []) == 0
    assert taken == list(range(len(pipeline.AFTERWARDS)))
    (line,) = console.lines
    assert "safelaunch's own fault" in line
