"""Real pynvml in a real child, against a library of our own."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_host import GIB

from safelaunch.model import Finding, Job
from safelaunch.preflight.gpu.driver import driver
from safelaunch.preflight.machine.clock_reasons import REASONS
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.machine.nvml_probe import HELD_BACK


def ask(nvml_library: str, faults: str, deadline_s: float = 60.0, **environ: str) -> Snapshot:
    return host(nvml_library, faults, deadline_s, **environ).nvml()


def host(nvml_library: str, faults: str, deadline_s: float = 60.0, **environ: str) -> Host:
    variables = {**os.environ, "LD_LIBRARY_PATH": nvml_library, "FAKE_NVML": faults, **environ}
    return Host(Job(nproc=8, uses_gpu=True), environ=variables, wanted=Wanted(thresholds={"nvml_deadline": deadline_s}))


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


def test_an_older_driver_shows_processes_by_an_older_function(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "nvmlDeviceGetComputeRunningProcesses_v3.ret=13;proc@1=4242")
    assert snapshot.answers
    assert [entry.pid for entry in snapshot.gpus[1].processes] == [4242]
    assert not any(gpu.unread for gpu in snapshot.gpus)


def test_a_function_that_the_driver_does_not_have_is_a_reading_that_is_missing(nvml_library: str) -> None:
    """pynvml has an exception of its own for some of them, which is no NVMLError."""
    snapshot = ask(nvml_library, "proc.ret=13")
    assert snapshot.answers
    (entry,) = snapshot.gpus[1].unread
    assert (entry.reading, entry.unsupported, entry.text) == ("processes", True, "the driver is too old for it")


def test_a_gpu_without_a_name_can_be_used(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "driver.ret=3;name.ret@3=3;pci.ret@4=3;uuid.ret@5=999;handle.ret@6=4")
    assert snapshot.answers
    assert snapshot.driver == ""
    assert [gpu.index for gpu in snapshot.gpus if gpu.failure] == [6]
    assert [(gpu.index, entry.reading) for gpu in snapshot.gpus for entry in gpu.unread] == [
        (3, "name"),
        (4, "address"),
        (5, "uuid"),
    ]
    assert (snapshot.gpus[3].name, snapshot.gpus[3].address, snapshot.gpus[3].temperature) == ("", "0000:13:00.0", 34)


def test_an_active_display(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "display@1=1;display.ret@2=3")
    assert [gpu.display for gpu in snapshot.gpus[:4]] == [False, True, None, False]


def test_clocks_held_back_for_a_moment_are_looked_at_twice(nvml_library: str) -> None:
    faults = "clk.reasons.first@1=0x88;clk.reasons@2=0x81;clk.reasons.first@2=0x89;clk.reasons.first@3=0x4;clk.ret@4=13"
    snapshot = ask(nvml_library, faults + ";clk.reasons.first@4=0x40;clk.reasons@4=0x41")
    assert snapshot.answers
    assert [gpu.clock_reasons for gpu in snapshot.gpus] == [1, 0, 0x81, 4, 0x40, 1, 1, 1]
    assert len({gpu.uuid for gpu in snapshot.gpus}) == 8
    bits = {bit.bit for bit in REASONS}
    assert {1 << place for place in range(64) if HELD_BACK >> place & 1} == bits


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


@pytest.mark.long
def test_a_hang_in_any_call_of_a_gpu_names_it_and_keeps_what_was_read_before(nvml_library: str) -> None:
    calls = host(nvml_library, "").run_probe("machine/nvml_probe", deadline_s=60.0).stderr.splitlines()
    functions = sorted({call.split(" of ")[0] for call in calls if re.search(r" of .*\b2\b", call)})
    assert len(functions) > 25

    def hang(function: str) -> tuple[str, Snapshot, Finding]:
        machine = host(nvml_library, f"hang@2={function}", 15.0)
        return function, machine.nvml(), next(iter(driver(machine)))

    with ThreadPoolExecutor(len(functions)) as pool:
        ends = list(pool.map(hang, functions))
    for function, snapshot, finding in ends:
        assert snapshot.stuck_in.startswith(f"{function} of GPU"), snapshot.stuck_in
        assert 2 in snapshot.stuck_gpus
        assert [gpu.uuid for gpu in snapshot.gpus[:2]] == [
            f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(2)
        ]
        named = function in (
            "nvmlDeviceGetHandleByIndex",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetName",
            "nvmlDeviceGetPciInfo",
        )
        pair = " and " in snapshot.stuck_in
        assert len(snapshot.read) == (0 if named else 8 if pair else 2)
        assert (finding.code, finding.severity) == ("SL108", "error")
        assert finding.summary.startswith("GPUs 0, 2 did not answer within 15 s" if pair else "GPU 2 did not answer")
        assert "GPU 2" in finding.where
        assert named or "GPU-00000000-0000-0000-0000-000000000002, 0000:12:00.0" in finding.where


def test_a_reading_is_a_value_or_has_a_reason(nvml_library: str) -> None:
    faults = (
        "remap.ret@1=3;temp.ret@2=4;temp.new.ret@2=4;fv.230.ret@3=2;clk.ret@4=13;fabric.version@5=1;nvlink.ret@6=999"
    )
    gpus = ask(nvml_library, faults).gpus
    assert {(gpu.index, entry.reading, entry.code) for gpu in gpus for entry in gpu.unread} == {
        (1, "remapped", 3),
        (2, "temperature", 4),
        (3, "recovery_action", 2),
        (6, "links", 999),
    }
    assert [entry.text for entry in gpus[2].unread] == ["Insufficient Permissions"]
    assert gpus[4].clock_reasons == 1  # by the name it had before driver 535
    assert (gpus[5].fabric.state, gpus[5].fabric.summary) == (3, None)
    assert (gpus[0].fabric.state, gpus[0].fabric.summary, gpus[0].fabric.mask) == (3, 1, 0xAA)
    assert not any(gpu.failure for gpu in gpus)


def test_a_gpu_lost_at_any_reading_has_failed(nvml_library: str) -> None:
    gpus = ask(nvml_library, "pcie.width.ret@3=15;fv.ret@4=16").gpus
    assert [gpu.failure.code if gpu.failure else None for gpu in gpus] == [None, None, None, 15, 16, None, None, None]


def test_links_and_pairs(nvml_library: str) -> None:
    snapshot = ask(nvml_library, "nvlink.down@2=3;p2p@5=4;topo@1=10")
    assert [gpu.active_links for gpu in snapshot.gpus] == [18, 18, 15, 18, 18, 18, 18, 18]
    assert (snapshot.gpus[2].links[5].kind, snapshot.gpus[2].links[0].kind) == ("switch", "")
    assert len(snapshot.pairs) == 28
    assert {(pair.a, pair.b) for pair in snapshot.pairs if pair.p2p == 4} == {
        (0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 6), (5, 7)
    }  # fmt: skip
    assert {pair.ancestor for pair in snapshot.pairs if 1 in (pair.a, pair.b)} == {10}


def test_faults_are_switched_by_a_file(nvml_library: str, tmp_path: Path) -> None:
    switch = tmp_path / "faults"
    switch.write_text("count=2\n")
    assert len(ask(nvml_library, "", FAKE_NVML_FILE=str(switch)).gpus) == 2
    switch.write_text("count=4\ntemp@1=80\n")
    snapshot = ask(nvml_library, "", FAKE_NVML_FILE=str(switch))
    assert [gpu.temperature for gpu in snapshot.gpus] == [34, 80, 34, 34]


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
