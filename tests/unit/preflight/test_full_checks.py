"""The full checks on real children on the CPU: healthy ranks, and ranks that hang, die and compute wrongly."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_host import NO_DRIVER, FakeHost, check_named, gpus

from safelaunch.model import Finding, Job
from safelaunch.preflight import CHECKS, runner
from safelaunch.preflight.active import compute_run
from safelaunch.preflight.active.compute_run import computed
from safelaunch.preflight.active.forked import FAULT
from safelaunch.preflight.check import Check, ok
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.machine.nvml import Failure, Snapshot

FULL = tuple(check for check in CHECKS if check.full_only)
COMPUTE = tuple(check for check in FULL if check.group == "compute")
FAULTS = ("warning", "error", "unchecked")


def check(fault: str = "", nproc: int = 3, checks: tuple[Check, ...] = FULL, **changes: str) -> dict[str, Finding]:
    """The finding of each check."""
    host = Host(Job(nproc=nproc), environ={**os.environ, FAULT: fault, **changes})
    report = runner.run(host, checks=checks, deadline_s=100.0, severity={}, full=True)
    return {finding.code: finding for finding in report.findings}


def faults(found: dict[str, Finding]) -> set[tuple[str, str]]:
    return {(code, finding.severity) for code, finding in found.items() if finding.severity in FAULTS}


def test_healthy_ranks_on_the_cpu() -> None:
    found = check()
    assert faults(found) == set()
    assert set(found) == {check.code for check in FULL}
    assert found["SL152"].summary == "3 ranks computed the same product 12 times"
    assert "TFLOP/s each; not judged on the CPU" in found["SL151"].summary
    assert found["SL154"].summary == found["SL155"].summary == "the job does not use GPUs"
    assert "GB/s with 8 MiB (not judged)" in found["SL156"].summary
    assert found["SL157"].summary.startswith("import torch took")


def test_a_rank_that_computes_wrongly_is_named_and_nothing_else_turns_red() -> None:
    found = check("flip@1")
    assert faults(found) == {("SL152", "error")}
    assert found["SL152"].summary == "rank 1 computed a wrong result"


@pytest.mark.long
def test_a_rank_that_is_wrong_once_disagrees_with_itself() -> None:
    found = check("flip-once@0", 2, COMPUTE)
    assert faults(found) == {("SL152", "error")}
    assert found["SL152"].summary == "rank 0 computed different results from the same numbers"


def test_a_slow_rank_is_not_judged_on_the_cpu() -> None:
    assert faults(check("slow@0", 2, COMPUTE)) == set()


def test_a_rank_that_dies_is_one_error_and_no_collective_is_tried_with_it() -> None:
    found = check("compute-die@2")
    assert faults(found) == {("SL150", "error"), ("SL111", "unchecked"), ("SL156", "unchecked")}
    assert found["SL150"].summary == "rank 2 died with exit code 3 before the GEMM"
    assert found["SL111"].because == ("rank 2 did not even compute (see SL150)",)


@pytest.mark.long
@pytest.mark.slow
def test_a_rank_that_hangs_is_killed_at_the_deadline_and_is_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_run, "CPU_DEADLINE_S", 8.0)
    host = Host(Job(nproc=2), environ={**os.environ, FAULT: "compute-hang@0"})
    report = runner.run(host, checks=COMPUTE, deadline_s=100.0, severity={})
    assert [(finding.code, finding.summary) for finding in report.findings if finding.severity == "error"] == [
        ("SL150", "rank 0 did not reach the GEMM within 8 s")
    ]


@pytest.mark.long
def test_large_messages_that_hang_are_the_bandwidth_s_fault_alone() -> None:
    found = check("late-die@1", nproc=2)
    assert faults(found) == {("SL156", "error")}
    assert found["SL156"].summary == "rank 1 died with exit code 3 before all_reduce with large messages"


def test_torch_that_cannot_be_imported_is_one_error(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    found = check(PYTHONPATH=str(tmp_path))
    assert {code for code, severity in faults(found) if severity == "error"} == {"SL157"}
    assert "libcudart" in found["SL157"].because[0]
    assert found["SL152"].because == ("torch cannot be imported (see SL157)",)


def test_a_slow_import_is_a_warning() -> None:
    host = Host(Job(nproc=1), wanted=Wanted(thresholds={"import_torch": 0.0}))
    report = runner.run(host, checks=[one for one in FULL if one.code == "SL157"], deadline_s=100.0, severity={})
    assert report.findings[0].severity == "warning"
    assert "torch" in report.findings[0].where


# ------------------------------------------------------------------------------------- which GPUs are asked


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (NO_DRIVER, "the driver does not answer (see SL108)"),
        (gpus(0), "no GPU is left to check (see SL107 and SL108)"),
    ],
)
def test_without_gpus_nothing_is_started(tmp_path: Path, snapshot: Snapshot, reason: str) -> None:
    assert computed(FakeHost(tmp_path, Job(nproc=2, uses_gpu=True), snapshot=snapshot)).unknown == reason


def test_a_lost_gpu_is_left_out(tmp_path: Path) -> None:
    node = gpus(4)
    lost = replace(node.gpus[1], failure=Failure("nvmlDeviceGetUUID", 15, "GPU is lost"))
    host = FakeHost(
        tmp_path,
        Job(nproc=3, uses_gpu=True),
        snapshot=gpus(4, g1=lost),
        environ={"CUDA_VISIBLE_DEVICES": "3,1,0"},
    )
    healthy, unknown = compute_run._healthy_gpus(host)
    assert ([gpu.index for gpu in healthy], unknown) == ([3, 0], "")


# ---------------------------------------------------------------------------------------------- order


def test_a_later_stage_begins_when_the_earlier_one_is_done(tmp_path: Path) -> None:
    running = 0
    seen: list[tuple[str, int]] = []
    both = threading.Barrier(2, timeout=30)

    def work(name: str, barrier: threading.Barrier | None) -> Callable[[Host], Iterator[Finding]]:
        def function(_: Host) -> Iterator[Finding]:
            nonlocal running
            running += 1
            if barrier:
                barrier.wait()
            seen.append((name, running))
            if barrier:
                barrier.wait()
            running -= 1
            yield ok("SL105", name)

        return function

    checks: tuple[Check, ...] = (
        check_named("last", work("last", None), full_only=True, stage=1),
        check_named("one", work("one", both), full_only=True),
        check_named("two", work("two", both), full_only=True),
    )
    runner.run(FakeHost(tmp_path), checks=checks, deadline_s=60.0, severity={})
    assert seen[-1] == ("last", 1)
    assert {name for name, _ in seen[:2]} == {"one", "two"}


def test_what_checks_share_is_found_out_once(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    calls: list[int] = []
    answers: list[int] = []

    def find_out() -> int:
        calls.append(1)
        return len(calls)

    threads = [threading.Thread(target=lambda: answers.append(host.once("key", find_out))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1, 1, 1, 1]
    assert host.known("key") == 1
    assert host.known("other") is None
    assert host.for_job(Job(nproc=2)).known("key") is None
