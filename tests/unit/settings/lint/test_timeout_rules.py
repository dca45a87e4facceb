"""SL220 to SL222: timeouts that do not fit together, and silence where they do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from safelaunch.model import Finding, Origin, Value
from safelaunch.settings.lint import timeouts
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.installed import Installed, Library

PROFILE = Origin("profile", "mine.toml:3")
SLURM = Origin("file", "/etc/slurm/slurm.conf:2")
POD = Origin("default", "of Kubernetes' terminationGracePeriodSeconds")


def context(backend: str = "", hang: dict[str, Any] | None = None, **seconds: Any) -> LintContext:
    """A context with these timeouts: seconds of a profile, or a whole `Value`."""
    tables = [
        {name: value if isinstance(value, Value) else Value(value, PROFILE) for name, value in table.items()}
        for table in (seconds, hang or {})
    ]
    return LintContext((), timeouts=tables[0], hang=tables[1], backend=backend)


def one(found: Any) -> Finding:
    (finding,) = found
    assert isinstance(finding, Finding)
    assert finding.because
    assert finding.remedy
    return finding


def test_a_scene_without_timeouts_gives_nothing() -> None:
    for backend in ("", "gloo", "nccl"):
        for rule in (timeouts.loader_timeout, timeouts.late_hang_limit, timeouts.short_kill_wait):
            assert list(rule(context(backend))) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (context(loader=599.0, process_group=600.0), False),
        (context(loader=600.0, process_group=600.0), True),
        (context(loader=0.0, process_group=600.0), False),
        (context("nccl", loader=900.0), True),
        (context("gloo", loader=900.0), False),
        (context("", loader=900.0), False),  # the script may name gloo, or no backend
        (context("", loader=1800.0), True),
        (context("nccl", loader=900.0, process_group=1200.0), False),
    ],
)
def test_a_loader_that_waits_longer_than_a_collective(given: LintContext, told: bool) -> None:
    found = list(timeouts.loader_timeout(given))
    assert [finding.code for finding in found] == ["SL220"] * told
    if told:
        finding = one(found)
        assert finding.severity == "warning"
        assert finding.where == "mine.toml:3"


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (context("nccl", {"abort_after": 540.0}), ""),
        (context("nccl", {"abort_after": 600.0}), "note"),
        (context("nccl", {"abort_after": 601.0}), "warning"),
        (context("gloo", {"abort_after": 1200.0}), ""),
        (context("", {"abort_after": 540.0}), ""),
        (context("", {"abort_after": 1200.0}), "warning"),  # if the ranks use NCCL
        (context("", {"abort_after": 1200.0}, process_group=1500.0), ""),
        (context("", {"abort_after": 3600.0}), "warning"),
        (context("nccl", {"abort_after": 1200.0}, process_group=1800.0), ""),
        (context("gloo", {"abort_after": 90.0}, process_group=60.0), "warning"),
        (context("gloo", {"abort_after": None, "on_hang": "abort"}, process_group=300.0), "warning"),
        (context("gloo", {"abort_after": None, "on_hang": "auto"}, process_group=300.0), ""),
        (context("gloo", {"abort_after": 900.0, "on_hang": "report"}, process_group=300.0), ""),
    ],
)
def test_a_limit_for_hangs_that_the_group_is_ahead_of(given: LintContext, severity: str) -> None:
    found = list(timeouts.late_hang_limit(given))
    assert [(finding.code, finding.severity) for finding in found] == ([("SL221", severity)] if severity else [])


@pytest.mark.parametrize(
    ("wait", "shutdown", "severity"),
    [
        (Value(30.0, SLURM), 30.0, ""),
        (Value(29.0, SLURM), 30.0, "warning"),
        (Value(30.0, SLURM), 120.0, "warning"),
        (Value(30.0, POD), 120.0, "note"),
        (Value(30.0, POD), 30.0, ""),
        (Value(300.0, PROFILE), 120.0, ""),
        (Value(10.0, PROFILE), None, "warning"),
    ],
)
def test_a_scheduler_that_kills_during_the_shutdown(wait: Value, shutdown: float | None, severity: str) -> None:
    given = context(kill_wait=wait) if shutdown is None else context(kill_wait=wait, shutdown=shutdown)
    found = list(timeouts.short_kill_wait(given))
    assert [(finding.code, finding.severity) for finding in found] == ([("SL222", severity)] if severity else [])
    if severity == "note":
        assert "may kill" in one(found).summary
        assert any("cannot be seen" in reason for reason in one(found).because)
    elif severity:
        assert wait.origin.where in one(found).summary


def test_profiles_travel_to_nodes_with_nccl() -> None:
    given = context("", {"abort_after": 900.0})
    here = dataclasses.replace(given, installed=Installed(Library("2.13.0", "/torch")))
    gpu = dataclasses.replace(given, installed=Installed(Library("2.13.0", "/torch", other_gpu=True)))
    found = [one(timeouts.late_hang_limit(each)) for each in (given, gpu, here)]
    assert [finding.severity for finding in found] == ["warning", "warning", "note"]
    assert all("10m with NCCL" in finding.summary for finding in found)
