"""What is written of incidents: folders with numbers, and pages that cost themselves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_file import load
from said import Said

from safelaunch.diagnosis import diagnose
from safelaunch.run.findings import Findings
from safelaunch.run.incidents import Incidents

CASE = load("hang-sleep")
VERDICT = diagnose(CASE)


@pytest.fixture
def console() -> Said:
    return Said()


@pytest.fixture
def incidents(tmp_path: Path, console: Said) -> Incidents:
    return Incidents(str(tmp_path), console, Findings())


def test_each_incident_has_a_folder_of_its_own_and_the_last_word_lies_beside_the_first(
    tmp_path: Path, incidents: Incidents, console: Said
) -> None:
    first = incidents.write(CASE, VERDICT, (), name="notice")
    incidents.write_verdict(first, CASE, VERDICT)
    second = incidents.write(CASE, VERDICT, ())
    assert [first, second] == [str(tmp_path / "incident-0"), str(tmp_path / "incident-1")]
    assert {"notice.json", "verdict.json", "why.txt"} <= {path.name for path in Path(first).iterdir()}
    assert console.lines == []


def test_the_folder_of_a_verdict_is_known_by_the_verdict_itself(incidents: Incidents) -> None:
    other = diagnose(CASE)
    incidents.concluded(VERDICT, "incident-0")
    assert incidents.folder_of(VERDICT) == "incident-0"
    assert incidents.folder_of(other) == ""


def test_a_verdict_that_cannot_be_written_is_told(tmp_path: Path, incidents: Incidents, console: Said) -> None:
    (tmp_path / "file").write_text("")
    incidents.write_verdict(str(tmp_path / "file"), CASE, VERDICT)
    (line,) = console.lines
    assert line.startswith("safelaunch: warning[SL902]: the verdict cannot be written: ")


def test_a_page_that_cannot_be_made_is_one_line(
    tmp_path: Path, incidents: Incidents, console: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    incidents.page_later(str(tmp_path / "file"), CASE, VERDICT)
    incidents.write_pages()
    (line,) = console.lines
    assert line.startswith("safelaunch: warning[SL902]: report.html cannot be written to")
    monkeypatch.setattr("safelaunch.report.page.build", lambda *_: 1 / 0)
    incidents.page_later(str(tmp_path / "incident-0"), CASE, VERDICT)
    incidents.write_pages()
    assert "ZeroDivisionError" in console.lines[1]
    incidents.write_pages()
    assert len(console.lines) == 2


def test_a_fault_of_ours_while_an_incident_is_written_costs_its_folder_alone(
    incidents: Incidents, console: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelaunch.report.bundle.write", lambda *_: 1 / 0)
    assert incidents.write(CASE, VERDICT, ()) == ""
    (line,) = console.lines
    assert "the incident is not written" in line
