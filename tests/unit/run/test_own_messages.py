"""The user's own messages: read once, at the start of a run, however dead their disk is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from said import Said

from safelaunch import user_files
from safelaunch.evidence.logs import signatures
from safelaunch.model import Case, Incident, PyError, RankFacts, Settings
from safelaunch.run import messages
from safelaunch.run.judge import Judge

OWN = """
[[signature]]
name = "loader"
pattern = "shard is gone"
role = "cause"
means = "a shard was moved"
"""
CASE = Case(
    Incident("exit", 0, (0,), 1.0),
    "node-a",
    1,
    (RankFacts(0, 0, 1, error=PyError("OSError", "shard is gone", "", 1.0)),),
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "safelaunch" / "signatures.toml"
    path.parent.mkdir()
    return path


def read(folder: Path, *named: str) -> Any:
    return messages.at_start(named, {"XDG_CONFIG_HOME": str(folder)})


def test_nothing_is_read_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "load", None)
    assert read(tmp_path) == (None, ())


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, own: Path) -> None:
    own.write_text(OWN)
    found, told = read(tmp_path, str(tmp_path / "gone.toml"))
    assert found[0].known.name == "loader"
    assert [(finding.code, finding.severity) for finding in told] == [("SL290", "warning")]


def test_a_disk_that_does_not_answer_costs_no_run(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(own)  # who opens it waits for ever
    monkeypatch.setattr(user_files, "ANSWER_S", 0.1)
    with pytest.raises(TimeoutError):
        read(tmp_path)


def test_at_the_incident_nothing_of_the_user_is_read(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text(OWN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    console = Said()
    judge = Judge(console)
    assert judge.read_signatures(Settings({}, {})) == ()
    own.unlink()
    os.mkfifo(own)
    (rank,) = judge.explained(CASE).ranks
    assert console.lines == []
    assert rank.error is not None
    assert rank.error.known is not None
    assert rank.error.known.name == "loader"
