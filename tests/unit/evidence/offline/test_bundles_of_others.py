"""Bundles that others have made: numbers that stand in commands, archives that hold more than one answer."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_file import load

from safelaunch.cli.main import main
from safelaunch.codec import to_json
from safelaunch.evidence.offline import bundle

NAME = "run/incident-0/evidence/case.json"
Members = Sequence[tuple[str, bytes]]


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(to_json(load(name))))
    return found


def packed(case: dict[str, Any]) -> bytes:
    return json.dumps(case).encode()


def tar(path: Path, members: Members) -> Path:
    with tarfile.open(path.with_suffix(".tar.gz"), "w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path.with_suffix(".tar.gz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def zipped(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path.with_suffix(".zip")


def told(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["diagnose", str(path)]) == 0
    return capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("pid", [-1, 0, 1, (1 << 22) + 1, -4100])
def test_a_pid_that_no_rank_has_leads_to_no_command(pid: int, tmp_path: Path) -> None:
    case = document("hang-stopped")
    for facts in case["ranks"]:
        facts["pid"] = pid
    (tmp_path / "case.json").write_bytes(packed(case))

    assert "no rank is" in bundle.read(str(tmp_path / "case.json")).unreadable[0]


def test_a_rank_whose_pid_nobody_knows_is_one(tmp_path: Path) -> None:
    case = document("exception-in-one-rank")
    case["ranks"][0] |= {"pid": 0, "state": "", "kernel": None}
    (tmp_path / "case.json").write_bytes(packed(case))

    assert not bundle.read(str(tmp_path / "case.json")).unreadable


# ------------------------------------------------------------------------------------------------ archives


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("pack", [tar, zipped])
def test_of_two_of_one_name_the_last_counts_as_where_it_is_unpacked(
    pack: Callable[[Path, Members], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = packed(document("hang-sleep")), packed(document("exception-in-one-rank"))

    said = told(capsys, pack(tmp_path / "x", [(NAME, first), (NAME, last)]))

    assert "error[SL401]" in said
    assert f"{NAME} is in it more than once" in said


@pytest.mark.parametrize("pack", [tar, zipped])
def test_an_archive_that_unpacks_too_far_tells_what_it_has_told(
    pack: Callable[[Path, Members], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    much = bytes(40 << 20)
    members = [(NAME, packed(document("exception-in-one-rank"))), ("b/case.json", much), ("c/case.json", much)]

    said = told(capsys, pack(tmp_path / "x", members))

    assert "error[SL401]" in said
    assert "the limit for its size" in said


# ---------------------------------------------------------------------------------------------- what is known


def test_a_code_of_another_version_costs_what_it_says_alone(tmp_path: Path) -> None:
    case = document("exception-in-one-rank")
    known = {"name": "x", "role": "cause", "code": "SL777", "means": "no memory", "remedy": ""}
    for facts in case["ranks"]:
        if facts["error"]:
            facts["error"]["known"] = known
    (tmp_path / "case.json").write_bytes(packed(case))

    run = bundle.read(str(tmp_path / "case.json"))

    assert not run.unreadable
    assert {facts.error.known for facts in run.incidents[0].case.ranks if facts.error is not None} == {None}
