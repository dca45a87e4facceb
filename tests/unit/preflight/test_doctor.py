from __future__ import annotations

from safelaunch.model import Finding, PreflightReport
from safelaunch.report import doctor

GOOD = Finding(code="SL104", severity="ok", summary="1 GiB free in /dev/shm", check="shm")
NOTE = Finding(code="SL101", severity="note", summary="raised", because=("why",), check="nofile")
DOUBT = Finding(code="SL106", severity="unchecked", summary="not read", because=("no file",), check="memory-limit")
FAULT = Finding(
    code="SL102", severity="error", summary="port 1 is in use", because=("pid 7",), remedy="kill 7", check="port"
)


def render(*findings: Finding, verbose: bool = False) -> list[str]:
    return doctor.render(PreflightReport(findings, "node-a", 0.123), job="2 ranks on CPU", verbose=verbose)


def test_one_happy_line() -> None:
    assert render(GOOD) == ["ready: node-a can run 2 ranks on CPU: 1 check passed in 0.12 s"]


def test_a_note_is_one_line_and_no_doubt() -> None:
    assert render(GOOD, NOTE) == [
        "note[SL101]: raised",
        "ready: node-a can run 2 ranks on CPU: all 2 checks passed in 0.12 s",
    ]


def test_faults_come_with_reason_and_remedy() -> None:
    assert render(GOOD, DOUBT, FAULT) == [
        "unchecked[SL106]: not read",
        "   = because: no file",
        "error[SL102]: port 1 is in use",
        "   = because: pid 7",
        "   = help: kill 7",
        "refused: node-a cannot run 2 ranks on CPU: 1 error, 1 unchecked; 1 of 3 checks passed in 0.12 s",
    ]


def test_what_could_not_be_checked_is_a_doubt() -> None:
    assert render(GOOD, DOUBT)[-1] == (
        "ready, with doubts: node-a can run 2 ranks on CPU: 1 unchecked; 1 of 2 checks passed in 0.12 s"
    )


def test_verbose_lists_what_passed() -> None:
    assert render(GOOD, NOTE, verbose=True)[:3] == [
        "ok  shm  1 GiB free in /dev/shm",
        "note[SL101]: raised",
        "   = because: why",
    ]
