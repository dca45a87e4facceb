"""What the GPUs do at an incident: real pynvml in a real child, against a library of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fake_host import FakeHost, write

from safelaunch.model import GpuState, Job, RankDevice
from safelaunch.preflight import gpu_state_now
from safelaunch.preflight.gpu_state_now import LocalRank
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import FIRST_PID_NAMESPACE, Host

NOW_S = 5000.0
# Pids of processes that are there, and are no ranks.
STRANGER = os.getppid()


class Node(Host):
    """This machine with GPUs, and a kernel log of our own. In a container NVML has other numbers for processes."""

    def __init__(self, library: str, faults: str, log: Sequence[str] | None = (), *, container: bool = False) -> None:
        super().__init__(Job(nproc=1), environ={**os.environ, "LD_LIBRARY_PATH": library, "FAKE_NVML": faults})
        self._log = log
        self._container = container

    def pid_namespace(self, pid: int | str = "self") -> str:  # noqa: ARG002
        return "pid:[4026532000]" if self._container else FIRST_PID_NAMESPACE


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel log is that of the node."""

    def read(root: object, run: object) -> gpu_state_now.kernel_log.Log:  # noqa: ARG001
        log = CURRENT[-1]._log
        if log is None:
            return gpu_state_now.kernel_log.Log(unreadable="/dev/kmsg: Operation not permitted")
        lines = [gpu_state_now.kernel_log.Message(NOW_S + place, text) for place, text in enumerate(log)]
        return gpu_state_now.kernel_log.Log(tuple(lines))

    monkeypatch.setattr(gpu_state_now.kernel_log, "read", read)


CURRENT: list[Node] = []


def look(
    node: Node, local_ranks: Sequence[LocalRank], *, since_s: float = NOW_S - 100, deadline_s: float = 30.0
) -> dict[int, GpuState]:
    CURRENT.append(node)
    return {
        state.index: state for state in gpu_state_now.gpus(node, local_ranks, since_s, time.monotonic() + deadline_s)
    }


def seat(rank: int, pid: int, device: RankDevice | None = None, **environ: str) -> LocalRank:
    return LocalRank(rank, rank, pid, {"LOCAL_RANK": str(rank), **environ}, device)


def says(rank: int, chosen: int | None, visible: str | None = None) -> RankDevice:
    return RankDevice(rank, rank, started_with=visible, visible=visible, chosen=chosen, count=8, backend="nccl")


def test_ranks_are_known_by_their_processes(nvml_library: str) -> None:
    me = os.getpid()
    faults = f"proc@2={me};mem.used@2=0x400000000;util@2=97;clock.sm@2=345;clk.reasons@2=0x41;temp@2=83;nvlink.down@2=2"
    found = look(Node(nvml_library, faults), [seat(0, me)])
    assert list(found) == [2]
    gpu = found[2]
    assert (gpu.ranks, gpu.busy_percent, gpu.clock_mhz, gpu.clock_max_mhz) == ((0,), 97, 345, 1980)
    assert (gpu.memory_used, gpu.memory_total) == (16 << 30, 80 << 30)
    assert (gpu.held_back, gpu.temperature) == (("hardware thermal slowdown",), 83)
    assert (gpu.links_down, gpu.links, gpu.ecc_errors) == (2, 18, 0)
    assert [(tenant.pid, tenant.rank, tenant.memory_bytes) for tenant in gpu.tenants] == [(me, 0, 4 << 30)]
    assert (gpu.missing, gpu.lost, gpu.address) == ("", False, "0000:12:00.0")


def test_a_child_belongs_to_its_rank_and_a_stranger_to_nobody(nvml_library: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        faults = f"proc@1={os.getpid()},{child.pid},{STRANGER}"
        tenants = look(Node(nvml_library, faults), [seat(3, os.getpid())])[1].tenants
    finally:
        child.communicate(b"\n")
    assert [tenant.rank for tenant in tenants] == [3, 3, None]
    assert tenants[2].command
    assert tenants[0].command == ""


def test_gpus_of_others_are_left_out(nvml_library: str) -> None:
    assert look(Node(nvml_library, f"proc@1={STRANGER}"), [seat(0, os.getpid(), says(0, 4))]).keys() == {4}
    assert look(Node(nvml_library, "count=0"), [seat(0, os.getpid())]) == {}


def test_in_a_container_the_numbers_of_nvml_are_of_others(nvml_library: str) -> None:
    """The number that NVML says may be that of a rank by chance."""
    me = os.getpid()
    node = Node(nvml_library, f"proc@5={me},4242;proc@0=99", container=True)
    found = look(node, [seat(0, me, says(0, 5)), seat(1, 999_999, says(1, 1, "7,6"))])
    assert {index: gpu.ranks for index, gpu in found.items()} == {5: (0,), 6: (1,)}
    assert [(tenant.rank, tenant.command) for tenant in found[5].tenants] == [(None, ""), (None, "")]


def test_where_proc_is_that_of_the_host_it_tells_its_numbers(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/12/status": "Name:\tpython\nNSpid:\t4711\t12\n"})
    host = FakeHost(tmp_path)
    assert gpu_state_now._number_on_host(host, 12, on_host=False) == 4711
    write(tmp_path, {"/proc/12/status": "Name:\tpython\nNSpid:\t12\n"})
    assert gpu_state_now._number_on_host(host, 12, on_host=False) is None


def test_ranks_without_a_process_on_a_gpu_are_placed_by_what_they_were_started_with(nvml_library: str) -> None:
    found = look(Node(nvml_library, ""), [seat(n, 999_000 + n, CUDA_VISIBLE_DEVICES="4,5") for n in range(2)])
    assert {index: gpu.ranks for index, gpu in found.items()} == {4: (0,), 5: (1,)}


# ------------------------------------------------------------------------------------- NVML in trouble


@pytest.mark.parametrize("call", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetNvLinkState"])
def test_a_gpu_that_does_not_answer_costs_the_deadline_and_no_other_gpu(nvml_library: str, call: str) -> None:
    local_ranks = [seat(n, 999_000 + n, says(n, n)) for n in range(8)]
    found = look(Node(nvml_library, f"hang@3={call}"), local_ranks, deadline_s=2.0)  # without it, this would not end
    assert [gpu.index for gpu in found.values() if gpu.missing] == [3]
    assert "NVML did not answer within" in found[3].missing
    assert found[3].missing.endswith(call)
    assert (found[3].ranks, found[3].uuid[-1], found[2].busy_percent) == ((3,), "3", 0)


def test_a_driver_that_does_not_answer_at_all_is_said_of_each_gpu(nvml_library: str) -> None:
    local_ranks = [seat(n, 999_000 + n, says(n, n)) for n in range(2)]
    found = look(Node(nvml_library, "hang=nvmlInitWithFlags"), local_ranks, deadline_s=2.0)
    assert {index: gpu.ranks for index, gpu in found.items()} == {0: (0,), 1: (1,)}
    assert all(gpu.missing.startswith("NVML did not answer within") for gpu in found.values())
    assert all(gpu.missing.endswith("nvmlInit") for gpu in found.values())


def test_a_gpu_that_is_lost(nvml_library: str) -> None:
    found = look(Node(nvml_library, "lost@1=1"), [seat(n, 999_000 + n, says(n, n)) for n in range(2)])
    assert (found[1].lost, found[1].ranks, "GPU is lost" in found[1].missing) == (True, (1,), True)
    assert not found[0].lost


@pytest.mark.parametrize("code", [9, 18])
def test_a_driver_that_does_not_start(nvml_library: str, code: int) -> None:
    (gpu,) = look(Node(nvml_library, f"init.ret={code}"), [seat(0, 999_000, says(0, 0))]).values()
    assert gpu.missing.startswith("nvmlInit: ")


def test_readings_that_a_gpu_does_not_give_are_none(nvml_library: str) -> None:
    found = look(Node(nvml_library, "util.ret=3;clock.max.ret=13;ecc.mode=0"), [seat(0, 999_000, says(0, 0))])[0]
    assert (found.busy_percent, found.clock_max_mhz, found.ecc_errors, found.clock_mhz) == (None, None, None, 1755)


def test_a_machine_without_a_driver() -> None:
    host = Host(Job(nproc=1), environ={**os.environ, "LD_LIBRARY_PATH": "/nowhere"})
    if host.nvml().answers:
        pytest.skip("this machine has a driver")
    CURRENT.append(Node("/nowhere", ""))
    assert gpu_state_now.gpus(host, [seat(0, os.getpid(), says(0, 0))], 0.0, time.monotonic() + 30.0) == ()


def test_what_was_cut_in_the_middle_of_a_line_is_left_out() -> None:
    printed = '{"gpu": {"index": 0, "busy": 5}, "done": true}\n{"gpu": {"index": 1, "bu'
    ended = Ended(-9, printed, "nvmlDeviceGetUUID of GPU 0\nnvmlDeviceGetUUID of GPU 1\n", 1.0, timed_out=True)
    found = dict(gpu_state_now.reading(ended, 1.0).gpus)
    assert {gpu.index: missing for gpu, missing in found.items()} == {
        0: "",
        1: "NVML did not answer within 1.0 s: nvmlDeviceGetUUID",
    }


# ------------------------------------------------------------------------------------------- kernel log


def xid(gpu: int, message: str) -> str:
    return f"NVRM: Xid (PCI:0000:{0x10 + gpu:02x}:00): {message}"


def test_xids_go_to_their_gpu(nvml_library: str) -> None:
    log = ["eth0: link up", xid(1, "79, GPU has fallen off the bus."), xid(6, "31, MMU Fault")]
    found = look(Node(nvml_library, "", log), [seat(n, 999_000 + n, says(n, n)) for n in range(2)])
    assert found[1].xids == (f"[{NOW_S + 1:.3f}] {log[1]}",)
    assert found[0].xids == ()
    assert found[0].log_unread == ""


def test_xids_from_before_the_run_and_of_other_jobs_are_left_out(nvml_library: str) -> None:
    log = [xid(0, "31, pid=1, name=other, MMU Fault"), xid(0, f"31, pid={STRANGER}, MMU Fault"), xid(0, "48, DBE")]
    later = look(Node(nvml_library, "", log), [seat(0, 999_000, says(0, 0))], since_s=NOW_S + 60)
    assert later[0].xids == ()
    found = look(Node(nvml_library, "", log), [seat(0, 999_000, says(0, 0))])
    assert [text.rpartition(": ")[2] for text in found[0].xids] == ["48, DBE"]


def test_a_log_that_may_not_be_read_is_said(nvml_library: str) -> None:
    found = look(Node(nvml_library, "", None), [seat(0, 999_000, says(0, 0))])
    assert (found[0].xids, found[0].log_unread) == ((), "/dev/kmsg: Operation not permitted")


# ---------------------------------------------------------------------------------------- network ports


def port(name: str, state: str, physical: str) -> Mapping[str, str]:
    folder = f"/sys/class/infiniband/{name}"
    return {
        f"{folder}/ports/1/state": state,
        f"{folder}/ports/1/phys_state": physical,
        f"{folder}/ports/1/link_layer": "InfiniBand",
        f"{folder}/ports/1/rate": "400 Gb/sec",
        f"{folder}/board_id": "MT_0",
    }


def test_a_port_that_is_down_while_its_like_are_up(tmp_path: Path) -> None:
    up, down = ("4: ACTIVE", "5: LinkUp"), ("1: DOWN", "2: Polling")
    write(tmp_path, {**port("mlx5_0", *up), **port("mlx5_1", *down), **port("mlx5_2", *up)})
    host = FakeHost(tmp_path)
    assert [found.name for found in gpu_state_now.ports_down(host, {})] == ["mlx5_1:1"]
    assert gpu_state_now.ports_down(host, {"NCCL_IB_HCA": "=mlx5_0,mlx5_2"}) == ()
    assert gpu_state_now.ports_down(host, {"NCCL_IB_DISABLE": "1"}) == ()
