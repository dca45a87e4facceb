"""Where spare nodes can be asked for, and what is said where they can take nobody's place."""

from __future__ import annotations

import pytest

from safelaunch.launch import spares
from safelaunch.model import SafelaunchError
from safelaunch.settings.resolve import resolve

C10D = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node-a:29400"]


def test_a_job_of_several_nodes_may_have_spares() -> None:
    settings = resolve([*C10D, "--spare-nodes", "1", "--max-restarts", "3", "train.py"], {})
    spares.check(settings)
    assert spares.without_restarts(settings) == ""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nnodes", "1"], "several nodes"),
        (["--nnodes", "2", "--node-rank", "0", "--master-addr", "node-a"], "numbers the nodes"),
    ],
)
def test_where_nobody_is_kept_they_are_refused(argv: list[str], words: str) -> None:
    with pytest.raises(SafelaunchError, match=words):
        spares.check(resolve([*argv, "--spare-nodes", "1", "train.py"], {}))


def test_without_restarts_it_is_said_that_they_take_no_place() -> None:
    assert "max-restarts" in spares.without_restarts(resolve([*C10D, "--spare-nodes", "1", "train.py"], {}))


def test_without_spares_nothing_changes() -> None:
    settings = resolve(["--nnodes", "2", "train.py"], {})
    spares.check(settings)
    assert spares.without_restarts(settings) == ""
