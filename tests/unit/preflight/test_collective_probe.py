"""Real ranks that do real collectives, hang, die and lie."""

from __future__ import annotations

import os

import pytest

from safelaunch.model import Finding, Job
from safelaunch.preflight.active.collective import conclude
from safelaunch.preflight.active.collective_run import GLOO_DEADLINE_S, run_collectives
from safelaunch.preflight.active.forked import FAULT
from safelaunch.preflight.machine.host import Host


def result(nproc: int, fault: str = "", deadline_s: float = GLOO_DEADLINE_S) -> Finding:
    return concluded(Host(Job(nproc=nproc), environ={**os.environ, FAULT: fault}), deadline_s)


def concluded(host: Host, deadline_s: float) -> Finding:
    return conclude(host, run_collectives(host, deadline_s), deadline_s)


@pytest.mark.parametrize("nproc", [1, 4])
def test_healthy_ranks(nproc: int) -> None:
    finding = result(nproc)
    assert finding.severity == "ok", finding
    assert "exchanged the right values over gloo" in finding.summary


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named() -> None:
    # All others must have reached all_reduce by the deadline, which takes them a fraction of a second when idle.
    finding = result(4, "hang@2", deadline_s=8.0)
    assert finding.severity == "error"
    assert finding.summary == "rank 2 did not reach all_reduce within 8 s"
    assert finding.because[0] == "ranks 0, 1 and 3 waited in all_reduce"


def test_a_rank_that_dies_is_named_and_not_its_victims() -> None:
    assert result(4, "die@3").summary == "rank 3 died with exit code 3 before all_reduce"


def test_a_rank_that_sends_wrong_values_is_named() -> None:
    assert result(4, "wrong@1").summary == "rank 1 sent wrong values"


def test_torch_that_cannot_be_imported_is_said(tmp_path: object) -> None:
    package = os.path.join(str(tmp_path), "torch")
    os.mkdir(package)
    with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8") as file:
        file.write("raise ImportError('libcudart.so.12: cannot open shared object file')")
    finding = concluded(Host(Job(nproc=2), environ={**os.environ, "PYTHONPATH": str(tmp_path)}), 5.0)
    assert finding.summary == "torch cannot be imported"
    assert "libcudart" in finding.because[0]
