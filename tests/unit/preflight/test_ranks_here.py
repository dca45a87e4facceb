from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_host import NO_DRIVER, FakeHost, gpus

from safelaunch.model import SafelaunchError
from safelaunch.preflight import local_world_size
from safelaunch.preflight.local_world_size import ranks_here, torch_build, uses_gpu
from safelaunch.preflight.machine.nvml import Failure, Gpu, Snapshot

CPUS = len(os.sched_getaffinity(0))
SICK = Snapshot(failure=Failure("nvmlInit", 18, "Driver/library version mismatch"))


@pytest.fixture(autouse=True)
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_world_size, "torch_build", lambda: "cuda")


@pytest.mark.parametrize(
    ("asked", "snapshot", "ranks"),
    [
        ("3", NO_DRIVER, 3),
        ("cpu", gpus(8), CPUS),
        ("auto", gpus(8), 8),
        ("auto", NO_DRIVER, CPUS),
        ("auto", gpus(0), CPUS),
        ("gpu", gpus(8), 8),
    ],
)
def test_ranks(tmp_path: Path, asked: str, snapshot: Snapshot, ranks: int) -> None:
    assert ranks_here(asked, FakeHost(tmp_path, snapshot=snapshot)) == ranks


def test_only_visible_gpus_count(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, snapshot=gpus(8), environ={"CUDA_VISIBLE_DEVICES": "4,5"})
    assert ranks_here("gpu", host) == 2


@pytest.mark.parametrize(
    ("asked", "snapshot", "code", "exit_code"),
    [
        ("gpu", NO_DRIVER, "SL107", 69),
        ("gpu", SICK, "SL108", 69),
        ("auto", SICK, "SL108", 69),
        ("auto", gpus(1, g0=Gpu(0, "GPU-00000000", mig=True)), "SL107", 69),
        ("0", NO_DRIVER, "SL001", 2),
        ("-1", NO_DRIVER, "SL001", 2),
        ("xpu", NO_DRIVER, "SL001", 2),
    ],
)
def test_what_cannot_be_told(tmp_path: Path, asked: str, snapshot: Snapshot, code: str, exit_code: int) -> None:
    with pytest.raises(SafelaunchError) as raised:
        ranks_here(asked, FakeHost(tmp_path, snapshot=snapshot))
    assert (raised.value.diagnostic.code, raised.value.exit_code) == (code, exit_code)
    assert raised.value.diagnostic.remedy


def test_a_torch_for_cpu_alone_sees_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_world_size, "torch_build", lambda: "cpu")
    host = FakeHost(tmp_path, snapshot=gpus(8))
    assert ranks_here("auto", host) == CPUS
    assert not uses_gpu("4", host)
    with pytest.raises(SafelaunchError, match="no GPU is visible"):
        ranks_here("gpu", host)


@pytest.mark.parametrize(
    ("asked", "snapshot", "expected"),
    [("4", gpus(8), True), ("4", SICK, True), ("4", NO_DRIVER, False), ("cpu", gpus(8), False), ("gpu", SICK, True)],
)
def test_a_job_uses_gpus_where_there_are_any(tmp_path: Path, asked: str, snapshot: Snapshot, expected: bool) -> None:
    assert uses_gpu(asked, FakeHost(tmp_path, snapshot=snapshot)) is expected


def test_the_build_of_torch_is_read_without_importing_it() -> None:
    import torch

    expected = "hip" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    assert torch_build() == expected
