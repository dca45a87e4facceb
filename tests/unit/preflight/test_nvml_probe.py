"""Real pynvml in a real child, against a library of our own."""

from __future__ import annotations

import os

import pytest
from fake_host import GIB

from safelaunch.model import Job
from safelaunch.preflight.machine import host as host_module
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Snapshot


def ask(nvml_library: str, faults: str) -> Snapshot:
    environ = {**os.environ, "LD_LIBRARY_PATH": nvml_library, "FAKE_NVML": faults}
    return Host(Job(nproc=1), environ=environ).nvml()


def test_a_healthy_node(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "")
    assert snapshot.answers
    assert snapshot.driver == "570.124.06"
    assert len(snapshot.gpus) == 8
    assert snapshot.gpus[3].uuid.startswith("GPU-")
    assert snapshot.gpus[3].memory_total == 80 * GIB


def test_processes_memory_and_mig(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "proc@1=4242;mem.used@1=0x100000000;mig@2=1")
    assert [entry.pid for entry in snapshot.gpus[1].processes] == [4242]
    assert snapshot.gpus[1].memory_used == 4 * GIB
    assert [gpu.mig for gpu in snapshot.gpus] == [False, False, True, *[False] * 5]


@pytest.mark.parametrize("code", [9, 18])
def test_a_driver_that_does_not_start(nvml_library: str, code: int) -> None:
    snapshot = ask(nvml_library, f"init.ret={code}")
    assert snapshot.failure is not None
    assert (snapshot.failure.call, snapshot.failure.code) == ("nvmlInit", code)
    assert snapshot.absent == (code == 9)


def test_one_gpu_lost_leaves_the_others(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "lost@3=1;handle.ret@5=16")
    codes = [gpu.failure.code if gpu.failure else None for gpu in snapshot.gpus]
    assert codes == [None, None, None, 15, None, 16, None, None]


def test_a_call_that_hangs_is_named_and_the_child_is_gone(nvml_library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "NVML_DEADLINE_S", 3.0)
    assert ask(nvml_library, "hang@2=1").stuck_in == "nvmlDeviceGetMemoryInfo of GPU 2"


def test_no_library_is_no_driver() -> None:
    environ = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    snapshot = Host(Job(nproc=1), environ=environ).nvml()
    if snapshot.answers:
        pytest.skip("this machine has a driver")
    assert snapshot.absent


def test_a_probe_that_cannot_run_is_no_pass(nvml_library: str, tmp_path: object) -> None:
    environ = {"PYTHONHOME": str(tmp_path), "LD_LIBRARY_PATH": nvml_library}
    snapshot = Host(Job(nproc=1), environ=environ).nvml()
    assert not snapshot.answers
    assert "the NVML probe ended with" in snapshot.unknown
