"""Which verdict stands when ranks end that had been seen to hang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.cli.stages import Run
from safelaunch.model import Incident, Verdict, WorkerGroup


def verdict(code: str, *culprits: int) -> Verdict:
    return Verdict(code=code, slug="s", kind="crash", summary="it timed out", culprit_ranks=culprits)


TOLD = verdict("SL307", 3)


@pytest.mark.parametrize(
    ("found", "told", "stands"),
    [
        (verdict("SL414", 1), TOLD, TOLD),  # the same wait, and it was looked at while it lasted
        (verdict("SL414", 1), None, verdict("SL414", 1)),
        (verdict("SL412"), TOLD, TOLD),
        (verdict("SL401", 1), TOLD, verdict("SL401", 1)),
    ],
)
def test_what_was_told_of_a_wait_stands_where_the_wait_timed_out(
    found: Verdict, told: Verdict | None, stands: Verdict
) -> None:
    reasons: list[str] = []

    def last_word(because: str) -> Verdict | None:
        reasons.append(because)
        return told

    run = SimpleNamespace(
        _oom_before=None,
        _host="node-a",
        _diagnose=lambda facts: found,  # noqa: ARG005
        _keep=lambda facts, verdict, *rest: verdict,  # noqa: ARG005
        _dying=None,
        _explained=lambda facts: facts,
        hangs=SimpleNamespace(last_word=last_word, folder="incident-0"),
        endings=SimpleNamespace(told=None),
        bundles={},
    )
    ended = Run._conclude(cast("Any", run), Incident("exit", 0, (0,), 1.0), WorkerGroup(0, 2, 2), ())

    assert (ended.code, ended.culprit_ranks) == (stands.code, stands.culprit_ranks)
    assert reasons == ([] if found.code == "SL401" else ["the wait ended when it timed out"])
