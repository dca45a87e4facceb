from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_host import FakeHost, check_named

from safelaunch.codes import CATALOGUE
from safelaunch.model import Finding, PreflightReport
from safelaunch.preflight import CHECKS
from safelaunch.preflight.check import Check, ok
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.runner import run, select


def good(host: Host) -> Iterator[Finding]:
    yield ok("SL105", f"well on {host.name()}")


def bad(_: Host) -> Iterator[Finding]:
    yield Finding(code="SL105", severity="warning", summary="bad")


def broken(_: Host) -> Iterator[Finding]:
    yield ok("SL105", "so far")
    raise KeyError("gone")


def leaving(_: Host) -> Iterator[Finding]:
    sys.exit(3)
    yield


def silent(_: Host) -> Iterator[Finding]:
    yield from ()


def check_all(tmp_path: Path, *checks: Check, **options: object) -> PreflightReport:
    settings: dict[str, object] = {"deadline_s": 60.0, "severity": {}, **options}
    return run(FakeHost(tmp_path), checks=checks, **settings)  # type: ignore[arg-type]


def test_findings_come_in_the_order_of_the_checks_and_know_their_check(tmp_path: Path) -> None:
    report = check_all(tmp_path, check_named("one", good), check_named("two", bad))
    assert [(finding.check, finding.severity) for finding in report.findings] == [("one", "ok"), ("two", "warning")]
    assert report.host == "node-a"
    assert not report.refused


@pytest.mark.parametrize(("function", "word"), [(broken, "KeyError"), (leaving, "SystemExit")])
def test_a_check_that_raises_is_unchecked_with_the_reason(tmp_path: Path, function: object, word: str) -> None:
    report = check_all(tmp_path, check_named("x", function))
    assert report.findings[-1].severity == "unchecked"
    assert word in report.findings[-1].because[0]
    assert not report.refused


def test_a_check_that_says_nothing_is_no_pass(tmp_path: Path) -> None:
    assert check_all(tmp_path, check_named("x", silent)).findings[0].severity == "unchecked"


def test_a_check_that_hangs_is_left_behind_and_what_it_found_is_kept(tmp_path: Path) -> None:
    release = threading.Event()

    def hanging(_: Host) -> Iterator[Finding]:
        yield ok("SL105", "so far")
        release.wait()

    try:
        report = check_all(
            tmp_path,
            check_named("x", hanging, deadline_s=0.05),
            check_named("driver", hanging, deadline_s=0.05, late="error"),
            check_named("y", good),
        )
    finally:
        release.set()
    assert [finding.severity for finding in report.findings] == ["ok", "unchecked", "ok", "error", "ok"]
    assert report.refused


def test_the_deadline_of_the_whole_preflight_holds_for_each_check(tmp_path: Path) -> None:
    release = threading.Event()

    def hanging(_: Host) -> Iterator[Finding]:
        release.wait()
        yield ok("SL105", "late")

    try:
        report = check_all(tmp_path, check_named("x", hanging), check_named("y", hanging), deadline_s=0.05)
    finally:
        release.set()
    assert [finding.severity for finding in report.findings] == ["unchecked", "unchecked"]


def test_severity_of_a_profile(tmp_path: Path) -> None:
    checks = (check_named("one", good), check_named("two", bad), check_named("three", broken))
    raised = check_all(tmp_path, *checks, severity={"SL105": "error"})
    assert [finding.severity for finding in raised.findings] == ["ok", "error", "ok", "unchecked"]
    assert check_all(tmp_path, *checks, severity={"SL105": "off"}).findings == ()


def test_slow_checks_run_when_asked_for_and_after_the_others(tmp_path: Path) -> None:
    order: list[str] = []

    def slow(_: Host) -> Iterator[Finding]:
        order.append("slow")
        yield ok("SL105", "")

    def quick(_: Host) -> Iterator[Finding]:
        order.append("quick")
        yield ok("SL105", "")

    checks = (check_named("slow", slow, full_only=True), check_named("quick", quick))
    check_all(tmp_path, *select(checks, full=False))
    assert order == ["quick"]
    order.clear()
    check_all(tmp_path, *select(checks, full=True))
    assert order == ["quick", "slow"]


def selected(*, full: bool = False, only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> str:
    checks = (
        Check("SL105", "disk", "limits", good),
        Check("SL102", "port-in-use", "network", good),
        Check("SL111", "collective", "limits", good, full_only=True),
    )
    return " ".join(check.name for check in select(checks, full=full, only=only, skip=skip))


def test_checks_are_chosen_by_code_name_or_group() -> None:
    assert selected() == "disk port-in-use"
    assert selected(full=True) == "disk port-in-use collective"
    assert selected(only=("sl105",)) == "disk"
    assert selected(only=("limits", "port-in-use")) == "disk port-in-use"
    assert selected(only=("limits",), full=True) == "disk collective"
    assert selected(skip=("limits",), full=True) == "port-in-use"
    assert selected(only=("limits",), skip=("SL105",)) == ""


def test_a_slow_check_that_is_named_runs_without_full() -> None:
    assert selected(only=("collective",)) == "collective"
    assert selected(only=("SL111",)) == "collective"


def test_a_word_that_names_no_check_is_an_error() -> None:
    with pytest.raises(ValueError, match="dsk"):
        selected(skip=("dsk",))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_explain_finds_the_text_of_each_check(check: Check) -> None:
    entry = CATALOGUE[check.code]
    module, _, name = entry.text.partition(":")
    assert getattr(importlib.import_module(f"safelaunch.{module}"), name) is check.function
    assert check.name == entry.slug
    text = check.function.__doc__ or ""
    assert "How it is concluded: " in text
    assert "What to do: " in text
