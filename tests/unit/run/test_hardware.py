"""What is read of the hardware at an incident: nothing without GPUs, and never for more than a second."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_nvml
import pytest

from safelaunch import black_box, procfs
from safelaunch.model import Case, Incident, Job, WorkerProcess
from safelaunch.preflight import gpu_state_now
from safelaunch.preflight.machine.host import Host
from safelaunch.run import hardware as gpus

CASE = Case(Incident("hang", 0, (), 1.0), "node-a", 1, ())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("no C compiler")
    return str(folder)


@pytest.fixture
def rank(tmp_path: Path) -> Callable[..., WorkerProcess]:
    """A rank, played by this process, that says this of its GPUs."""

    def make(number: int = 0, **said: Any) -> WorkerProcess:
        path = str(tmp_path / "black_box")
        process = procfs.read(os.getpid())
        assert process is not None
        if said:
            facts = {"pid": process.pid, "local_rank": number, "local_size": 1, **said}
            Path(black_box.beside(path, number, "device")).write_text(json.dumps(facts))
        return WorkerProcess(number, number, process.pid, process.start, "", path)

    return make


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def host(library: str, faults: str = "") -> Host:
    return Host(Job(nproc=1), environ={**os.environ, "LD_LIBRARY_PATH": library, "FAKE_NVML": faults})


NCCL = {"count": 8, "backend": "nccl", "device": 3}


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"backend": "gloo"},
        {"backend": "gloo", "count": 8},
        {"backend": "nccl", "count": 0},
        {"chosen": 1, "count": 0},
        {"chosen": 1, "count": 8, "refused": True},
    ],
)
def test_a_job_without_gpus_costs_no_process(rank: Callable[..., WorkerProcess], said: dict[str, Any]) -> None:
    """Also where the machine has some: a rank that sees them need not use them."""
    worker = rank(**said)
    assert gpus.read([worker]) == ()
    assert gpus.Hardware([worker], None, waits=True).add_to(CASE) == CASE


@pytest.mark.parametrize("said", [NCCL, {"count": 8, "chosen": 3}, {"count": 8, "bound": 3, "backend": "nccl"}])
def test_a_rank_that_uses_a_gpu(library: str, rank: Callable[..., WorkerProcess], said: dict[str, Any]) -> None:
    (state,) = gpus.read([rank(**said)], host(library, "util@3=40"), deadline_s=30.0)
    assert (state.index, state.ranks, state.busy_percent) == (3, (0,), 40)


def test_a_driver_that_does_not_answer_costs_one_second_at_most(
    library: str, rank: Callable[..., WorkerProcess]
) -> None:
    """It never does: without a deadline this would not end."""
    found = gpus.Hardware([rank(**NCCL)], host(library, "hang=nvmlInitWithFlags"), waits=True).add_to(CASE)
    (state,) = found.gpus
    match = re.match(r"NVML did not answer within ([\d.]+) s", state.missing)
    assert match is not None, state.missing
    assert float(match[1]) <= gpus.DEADLINE_S


def test_a_preflight_that_is_over_does_not_matter(library: str, rank: Callable[..., WorkerProcess]) -> None:
    known = host(library)
    known.end_children()
    assert [state.index for state in gpus.read([rank(**NCCL)], known, deadline_s=30.0)] == [3]


def test_a_fault_of_ours_is_kept_as_a_gap(
    library: str, rank: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(gpu_state_now, "gpus", fail)
    assert gpus.read([rank(**NCCL)], host(library)) == ()
    hardware = gpus.Hardware([rank(**NCCL)], host(library), waits=False)
    assert hardware.add_to(CASE) == CASE
    (gap,) = hardware.evidence()
    assert "of ours" in gap.unavailable
