from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_host import FakeHost, gpus, only
from pci_tree import address, attach, card, hgx

from safelaunch.codec import from_json, to_json
from safelaunch.model import Job, Topology
from safelaunch.preflight.gpu.affinity import numa_affinity
from safelaunch.preflight.gpu.peers import alike
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu, Link, Pair, Snapshot
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.machine.topology import topology
from safelaunch.report.topology import draw

GPU_JOB = Job(nproc=8, uses_gpu=True)


def real(nvml_library: str, faults: str = "") -> Snapshot:
    environ = {**os.environ, "LD_LIBRARY_PATH": nvml_library, "FAKE_NVML": faults}
    return Host(Job(nproc=1), environ=environ).nvml()


def matrix(root: Path, snapshot: Snapshot) -> Topology:
    found = topology(Root(str(root)), snapshot)
    assert found is not None
    return found


def link(found: Topology, one: str, other: str) -> str:
    labels = [device.label for device in found.devices]
    return found.links[labels.index(one)][labels.index(other)]


def test_a_node_with_switches_and_network_cards(nvml_library: str, tmp_path: Path) -> None:
    hgx(tmp_path)
    found = matrix(tmp_path, real(nvml_library))

    assert len(found.devices) == 16
    assert {link(found, "GPU0", f"GPU{other}") for other in range(1, 8)} == {"NV18"}
    assert [link(found, "GPU2", f"NIC{card}") for card in range(8)] == ["NODE", "NODE", "PIX", "NODE"] + ["SYS"] * 4
    assert link(found, "NIC2", "GPU2") == "PIX"
    assert link(found, "NIC0", "NIC7") == "SYS"
    gpu = found.device("GPU5")
    assert gpu is not None
    assert (gpu.numa_node, gpu.cpus, gpu.address) == (1, "32-63,96-127", "0000:15:00.0")


def test_direct_links_count_between_their_ends_alone(nvml_library: str, tmp_path: Path) -> None:
    snapshot = real(
        nvml_library, "count=4;nvlink.count=4;nvlink.peer@0=1;nvlink.peer@1=0;nvlink.peer@2=3;nvlink.peer@3=2;topo@0=30"
    )
    found = matrix(tmp_path, snapshot)
    assert found.links == (
        ("X", "NV4", "PHB", "PHB"),
        ("NV4", "X", "NODE", "NODE"),
        ("PHB", "NODE", "X", "NV4"),
        ("PHB", "NODE", "NV4", "X"),
    )


def test_links_whose_other_end_is_hidden(tmp_path: Path) -> None:
    two = tuple(Gpu(i, links=(Link(True),) * 12) for i in range(2))
    assert matrix(tmp_path, Snapshot(two, pairs=(Pair(0, 1, 50, 0),))).links[0][1] == "NV12"
    assert matrix(tmp_path, Snapshot(two, pairs=(Pair(0, 1, 50, 5),))).links[0][1] == "SYS"


def test_the_pci_path_stands_in_for_what_nvml_does_not_say(tmp_path: Path) -> None:
    attach(tmp_path, 0, socket=0, bridge="pci0000:01")
    attach(tmp_path, 1, socket=0, bridge="pci0000:01", switches=0)
    attach(tmp_path, 2, socket=1)
    attach(tmp_path, 3, socket=1, switches=2)
    card(tmp_path, "mlx5_0", 0, socket=1, bridge="pci0000:09")
    found = matrix(tmp_path, gpus(5))
    assert [link(found, "GPU0", f"GPU{other}") for other in range(1, 5)] == ["PXB", "SYS", "SYS", "?"]
    assert link(found, "GPU2", "NIC0") == "NODE"


def test_no_gpu_is_no_topology(tmp_path: Path) -> None:
    assert FakeHost(tmp_path).topology() is None


def test_it_is_drawn_as_nvidia_smi_does_with_the_symbols_that_occur(nvml_library: str, tmp_path: Path) -> None:
    attach(tmp_path, 0, socket=0)
    attach(tmp_path, 1, socket=1)
    card(tmp_path, "mlx5_0", 0, socket=0, bridge="pci0000:01", beside=0)
    assert draw(matrix(tmp_path, real(nvml_library, "count=2"))) == [
        "      GPU0  GPU1  NIC0  CPU affinity  NUMA node",
        "GPU0  X     NV18  PIX   0-31,64-95    0",
        "GPU1  NV18  X     SYS   32-63,96-127  1",
        "NIC0  PIX   SYS   X",
        "",
        "Legend:",
        "  X    = the device itself",
        "  NV#  = # NVLinks",
        "  PIX  = one PCIe switch at most",
        "  SYS  = PCIe and the interconnect between NUMA nodes",
        "",
        "Network cards:",
        "  NIC0 = mlx5_0",
    ]


def test_json_holds_it(nvml_library: str, tmp_path: Path) -> None:
    hgx(tmp_path)
    found = matrix(tmp_path, real(nvml_library))
    assert from_json(Topology, to_json(found)) == found


# ------------------------------------------------------------------------------------------- the checks that use it


def test_ranks_may_run_next_to_their_gpus(tmp_path: Path) -> None:
    hgx(tmp_path)
    host = FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8), allowed=frozenset({3, 40}))
    assert only(numa_affinity(host)).severity == "ok"


def test_an_affinity_that_leaves_out_a_socket_names_its_gpus(tmp_path: Path) -> None:
    hgx(tmp_path)
    host = FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8), allowed=frozenset(range(8)))
    finding = only(numa_affinity(host))
    assert (finding.code, finding.severity) == ("SL128", "warning")
    assert finding.summary == "GPUs 4-7: no CPU next to it may be used"
    assert finding.because == ("it is next to NUMA node 1, CPUs 32-63,96-127; this process may use CPUs 0-7",)
    assert f"GPU 4 (GPU-00000004, {address(4)})" in finding.where

    fewer = FakeHost(tmp_path, Job(nproc=4, uses_gpu=True), snapshot=gpus(8), allowed=frozenset(range(8)))
    assert only(numa_affinity(fewer)).severity == "ok"


def test_binding_needs_to_know_the_node(tmp_path: Path) -> None:
    attach(tmp_path, 0, socket=0, node=-1)
    unbound = Job(nproc=1, uses_gpu=True)
    assert only(numa_affinity(FakeHost(tmp_path, unbound, snapshot=gpus(1)))).severity == "ok"
    bound = Job(nproc=1, uses_gpu=True, numa_binding="node")
    finding = only(numa_affinity(FakeHost(tmp_path, bound, snapshot=gpus(1))))
    assert (finding.severity, "--numa-binding" in finding.summary) == ("warning", True)

    away = only(numa_affinity(FakeHost(tmp_path, bound, snapshot=gpus(1), allowed=frozenset({40}))))
    assert "--numa-binding node has no CPU to bind its rank to" in away.because


@pytest.mark.parametrize("job", [Job(nproc=8), GPU_JOB])
def test_a_machine_without_sysfs_is_no_fault(tmp_path: Path, job: Job) -> None:
    assert only(numa_affinity(FakeHost(tmp_path, job, snapshot=gpus(8)))).severity == "skipped"


def test_a_gpu_attached_in_another_way_is_a_note_where_there_are_switches(nvml_library: str, tmp_path: Path) -> None:
    for gpu in range(8):
        attach(tmp_path, gpu, socket=gpu // 4, switches=2 if gpu == 5 else 1)
    finding = only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=real(nvml_library))))
    assert (finding.severity, finding.summary) == ("note", "GPU 5: not like the other GPUs")
    assert finding.because == ("7 steps down the PCI bus; all others: 5 steps down the PCI bus",)
    assert only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8)))).severity == "ok"
