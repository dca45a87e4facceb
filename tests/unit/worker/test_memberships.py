"""What a rank writes down of its call of `init_process_group`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from safelaunch import black_box
from safelaunch.worker.groups import Memberships


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Memberships, Path]:
    """A rank that the launcher has started, and where it writes."""
    for name, value in {"MASTER_ADDR": "node-a", "MASTER_PORT": "51234", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    box = SimpleNamespace(path=str(tmp_path / "box"), index=0)
    return Memberships(box, None), Path(black_box.beside(box.path, 0, "groups"))


def test_what_the_script_has_set_since_its_start(
    started: tuple[Memberships, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    members, file = started
    monkeypatch.setenv("MASTER_PORT", "29501")

    members.meet(("gloo",), {})

    assert json.loads(file.read_text()) == {
        "meets": {"where": "node-a:29501", "given": "node-a:51234", "size": 2, "rank": 1}
    }


def test_what_it_passes_goes_before_the_environment(started: tuple[Memberships, Path]) -> None:
    members, file = started

    members.meet(("nccl", "tcp://node-b:7000"), {"world_size": 3, "rank": 0})

    meets = json.loads(file.read_text())["meets"]
    assert (meets["where"], meets["size"], meets["rank"]) == ("tcp://node-b:7000", 3, 0)


def test_a_store_of_its_own_has_no_place(started: tuple[Memberships, Path]) -> None:
    members, file = started

    members.meet(("gloo",), {"store": object(), "world_size": 2, "rank": 1})

    assert json.loads(file.read_text())["meets"]["where"] == ""
