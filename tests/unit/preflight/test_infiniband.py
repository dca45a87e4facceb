from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost, gpus, only, write

from safelaunch.model import Finding, Job
from safelaunch.preflight.machine import infiniband
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.network.gpudirect import gpudirect
from safelaunch.preflight.network.infiniband import ports
from safelaunch.preflight.node.memlock import memlock

TWO_NODES = Job(nproc=8, max_nodes=2, uses_gpu=True)
UP = ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
# Rate and words of a port without a cable, as ConnectX cards show them.
POLLING = ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")
DISABLED = ("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)")
UNMANAGED = ("2: INIT", "5: LinkUp", "400 Gb/sec (4X NDR)")
ETHERNET = ("4: ACTIVE", "5: LinkUp", "100 Gb/sec (4X EDR)")
NO_CARRIER = ("1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)")

IFF_UP = "0x1003\n"
IFF_DOWN = "0x1002\n"


def port(
    root: Path,
    device: str,
    state: tuple[str, str, str] = UP,
    *,
    number: int = 1,
    layer: str = "InfiniBand",
    board: str = "MT_0000000838",
    function: int = 0,
    interface: str = "",
) -> None:
    """A port as sysfs shows it: the folder of an HCA with `device` leading to its PCI folder."""
    folder = f"/sys/class/infiniband/{device}"
    values = dict(zip(("state", "phys_state", "rate"), state, strict=True))
    write(root, {f"{folder}/ports/{number}/{name}": f"{text}\n" for name, text in values.items()})
    write(root, {f"{folder}/ports/{number}/link_layer": f"{layer}\n", f"{folder}/board_id": f"{board}\n"})
    slot = sum(device.encode()) % 32
    pci = f"0000:{slot:02x}:00.{function}"
    write(root, {f"/sys/devices/{pci}/vendor": "0x15b3\n"})
    if interface:
        write(root, {f"/sys/devices/{pci}/net/eth_{device}/flags": interface})
    link = root / folder.lstrip("/") / "device"
    if not link.is_symlink():
        link.symlink_to(f"../../../devices/{pci}")


def rails(root: Path, **changes: tuple[str, str, str]) -> None:
    """Eight HCAs of one port, as an HGX node has them; `mlx5_3=POLLING` changes one."""
    for index in range(8):
        port(root, f"mlx5_{index}", changes.get(f"mlx5_{index}", UP))


def check(root: Path, job: Job = TWO_NODES, **environ: str) -> Finding:
    return only(ports(FakeHost(root, job, environ=environ)))


def test_the_reader_knows_each_port_in_order(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_10")
    port(tmp_path, "mlx5_2", POLLING, number=2)
    port(tmp_path, "mlx5_2", number=1)
    found = infiniband.read(Root(str(tmp_path)))
    assert list(map(str, found)) == ["mlx5_2:1", "mlx5_2:2", "mlx5_10:1"]
    assert [(p.state, p.physical, p.rate) for p in found[:2]] == [("ACTIVE", "LinkUp", 400), ("DOWN", "Polling", 10)]
    assert found[0].pci.startswith("0000:")
    assert infiniband.read(Root(str(tmp_path / "nothing"))) == ()


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        ("", "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1"),
        ("mlx5", "mlx5_0:1 mlx5_1:1 mlx5_1:2 mlx5_10:1"),
        ("mlx5_1", "mlx5_1:1 mlx5_1:2 mlx5_10:1"),  # beginnings of names
        ("=mlx5_1", "mlx5_1:1 mlx5_1:2"),
        ("=mlx5_0,mlx5_1:2", "mlx5_0:1 mlx5_1:2"),
        ("^mlx5_1", "mlx5_0:1"),
        ("^=mlx5_1:1", "mlx5_0:1 mlx5_1:2 mlx5_10:1"),
        ("ibp", ""),
    ],
)
def test_ports_are_chosen_as_nccl_does(tmp_path: Path, setting: str, chosen: str) -> None:
    for device, number in (("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)):
        port(tmp_path, device, number=number)
    found = infiniband.selected(infiniband.read(Root(str(tmp_path))), {"NCCL_IB_HCA": setting})
    assert " ".join(map(str, found)) == chosen


def test_a_machine_without_devices_and_a_healthy_one_are_fine(tmp_path: Path) -> None:
    assert "no InfiniBand" in check(tmp_path).summary
    rails(tmp_path)
    finding = check(tmp_path)
    assert (finding.severity, finding.summary) == ("ok", "8 of 8 ports up at 400 Gb/s")


def test_a_port_down_beside_its_peers_is_named_and_refuses_a_job_on_several_nodes(tmp_path: Path) -> None:
    rails(tmp_path, mlx5_3=POLLING)
    finding = check(tmp_path)
    assert finding.severity == "error"
    assert finding.summary == "mlx5_3:1 is down, while 7 peers are up"
    assert "Polling: no signal from the other end" in finding.because[0]
    assert "mlx5_3 port 1, PCI 0000:" in finding.where
    assert "NCCL_IB_HCA=^=mlx5_3:1" in finding.remedy


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job(nproc=8, max_nodes=1, uses_gpu=True), "it runs on one node"),
        (Job(nproc=8, max_nodes=2, uses_gpu=False), "it does not use GPUs"),
    ],
)
def test_a_job_that_does_without_the_network_is_not_refused(tmp_path: Path, job: Job, reason: str) -> None:
    rails(tmp_path, mlx5_3=POLLING)
    finding = check(tmp_path, job)
    assert finding.severity == "warning"
    assert reason in finding.because[1]


def test_a_port_that_nccl_is_told_to_leave_out_is_left_out(tmp_path: Path) -> None:
    rails(tmp_path, mlx5_3=POLLING)
    finding = check(tmp_path, NCCL_IB_HCA="^=mlx5_3")
    assert (finding.severity, finding.summary) == ("ok", "7 of 7 ports up at 400 Gb/s; 1 left out by NCCL_IB_HCA")
    assert check(tmp_path, NCCL_IB_DISABLE="1").severity == "skipped"


def test_a_filter_that_names_no_port_is_told(tmp_path: Path) -> None:
    rails(tmp_path)
    finding = check(tmp_path, NCCL_IB_HCA="ibp")
    assert finding.severity == "warning"
    assert "NCCL_IB_HCA=ibp names no port of this machine" in finding.summary
    assert check(tmp_path, NCCL_IB_HCA="^mlx5").severity == "skipped"


def test_second_ports_that_nobody_uses_are_no_fault(tmp_path: Path) -> None:
    for device in ("mlx4_0", "mlx4_1"):
        port(tmp_path, device, number=1)
        port(tmp_path, device, POLLING, number=2)
    finding = check(tmp_path)
    assert (finding.severity, finding.summary) == ("ok", "2 of 4 ports up at 400 Gb/s, the others unused by design")


def test_the_unused_second_function_of_a_single_card_is_no_fault(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", POLLING, function=1)
    assert check(tmp_path).severity == "ok"


def test_a_storage_card_of_another_kind_is_no_peer(tmp_path: Path) -> None:
    rails(tmp_path)
    port(tmp_path, "mlx5_8", POLLING, board="MT_0000000891")
    port(tmp_path, "mlx5_9", ETHERNET, board="MT_0000000359", layer="Ethernet", interface=IFF_UP)
    assert check(tmp_path).severity == "ok"


def test_one_of_two_down_may_be_meant_and_is_a_warning(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", POLLING)
    finding = check(tmp_path)
    assert finding.severity == "warning"
    assert "meant to be unused" in finding.because[1]


def test_an_infiniband_port_that_is_switched_off_is_left_out(tmp_path: Path) -> None:
    rails(tmp_path, mlx5_3=DISABLED)
    assert check(tmp_path).severity == "ok"


def test_an_ethernet_port_is_down_where_its_interface_is_on_and_not_where_it_is_off(tmp_path: Path) -> None:
    for index in range(4):
        port(tmp_path, f"mlx5_{index}", ETHERNET, layer="Ethernet", interface=IFF_UP)
    port(tmp_path, "mlx5_4", NO_CARRIER, layer="Ethernet", interface=IFF_DOWN)
    port(tmp_path, "mlx5_5", NO_CARRIER, layer="Ethernet")  # the interface of another container
    assert check(tmp_path).severity == "ok"
    port(tmp_path, "mlx5_6", NO_CARRIER, layer="Ethernet", interface=IFF_UP)
    finding = check(tmp_path)
    assert finding.severity == "error"
    assert "mlx5_6:1 is down, while 4 peers are up" in finding.summary
    assert "has no carrier" in finding.because[0]
    assert finding.where.endswith("RoCE")


def test_a_slower_port_is_a_warning(tmp_path: Path) -> None:
    rails(tmp_path, mlx5_5=("4: ACTIVE", "5: LinkUp", "200 Gb/sec (2X NDR)"))
    finding = check(tmp_path)
    assert finding.severity == "warning"
    assert finding.summary == "mlx5_5:1 runs at 200 Gb/s, 7 peers at 400 Gb/s"


def test_ethernet_cards_of_one_kind_may_serve_two_networks(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", ETHERNET, layer="Ethernet", interface=IFF_UP)
    port(tmp_path, "mlx5_1", ("4: ACTIVE", "5: LinkUp", "25 Gb/sec (1X EDR)"), layer="Ethernet", interface=IFF_UP)
    assert check(tmp_path).severity == "ok"


def test_a_linked_port_without_subnet_manager_is_told_apart(tmp_path: Path) -> None:
    rails(tmp_path, mlx5_3=UNMANAGED)
    finding = check(tmp_path)
    assert finding.severity == "error"
    assert finding.summary == "mlx5_3:1 is linked but not active, while 7 peers are up"
    assert "subnet manager" in finding.remedy


def test_a_job_on_several_nodes_whose_ports_are_all_down_is_told_that_it_will_use_tcp(tmp_path: Path) -> None:
    rails(tmp_path, **{f"mlx5_{index}": POLLING for index in range(8)})
    finding = check(tmp_path)
    assert finding.severity == "warning"
    assert "not one of 8 InfiniBand or RoCE ports is up" in finding.summary
    assert check(tmp_path, Job(nproc=8, uses_gpu=True)).severity == "ok"


# ------------------------------------------------------------------------------------------- GPUDirect

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n"


def gpu_node(
    root: Path, *, modules: str = "nvidia 1 0 - Live 0x0\n", driver: str = CLOSED, kernel: str = "5.15.0"
) -> None:
    rails(root)
    write(
        root,
        {"/proc/modules": modules, "/proc/driver/nvidia/version": driver, "/proc/sys/kernel/osrelease": kernel + "\n"},
    )


def direct(root: Path, job: Job = TWO_NODES, **environ: str) -> Finding:
    return only(gpudirect(FakeHost(root, job, snapshot=gpus(8), environ=environ)))


def test_gpudirect_by_module_by_dmabuf_and_not_at_all(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    finding = direct(tmp_path)
    assert finding.severity == "warning"
    assert "modprobe nvidia-peermem" in finding.remedy
    gpu_node(tmp_path, modules="nvidia_peermem 16384 0 - Live 0x0\n")
    assert direct(tmp_path).summary == "nvidia_peermem is loaded"
    gpu_node(tmp_path, driver=OPEN)
    assert "dma-buf" in direct(tmp_path).summary
    gpu_node(tmp_path, driver=OPEN, kernel="5.4.0-150-generic")
    assert "older than 5.12" in direct(tmp_path).because[1]


def test_gpudirect_is_asked_for_only_where_it_would_be_used(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    assert direct(tmp_path, Job(nproc=8, uses_gpu=True)).severity == "skipped"
    assert direct(tmp_path, Job(nproc=8, max_nodes=2)).severity == "skipped"
    assert direct(tmp_path, NCCL_IB_DISABLE="1").severity == "skipped"
    assert direct(tmp_path, NCCL_NET_GDR_LEVEL="LOC").severity == "skipped"


def test_gpudirect_that_cannot_be_told_is_no_pass(tmp_path: Path) -> None:
    rails(tmp_path)
    assert direct(tmp_path).severity == "unchecked"


# -------------------------------------------------------------------------------------------- memlock


def test_a_small_limit_of_locked_memory_refuses_a_job_on_infiniband(tmp_path: Path) -> None:
    rails(tmp_path)
    finding = only(memlock(FakeHost(tmp_path, TWO_NODES, memlock=(8 << 20, 8 << 20))))
    assert finding.severity == "error"
    assert "only 8 MiB of memory may be locked" in finding.summary
    assert "LimitMEMLOCK" in finding.remedy
    may_raise = only(memlock(FakeHost(tmp_path, TWO_NODES, memlock=(8 << 20, 2**63 - 1))))
    assert may_raise.remedy == "ulimit -l unlimited"


def test_a_limit_that_does_not_hold_is_no_fault(tmp_path: Path) -> None:
    rails(tmp_path)
    assert only(memlock(FakeHost(tmp_path, TWO_NODES, memlock=(2**63 - 1, 2**63 - 1)))).severity == "ok"
    assert only(memlock(FakeHost(tmp_path, TWO_NODES, memlock=(256 << 30, 256 << 30)))).severity == "ok"
    assert only(memlock(FakeHost(tmp_path, Job(nproc=8, uses_gpu=True)))).severity == "skipped"
    write(tmp_path, {"/proc/self/status": "Name:\tx\nCapEff:\t0000000000004000\n"})  # CAP_IPC_LOCK
    assert only(memlock(FakeHost(tmp_path, TWO_NODES))).severity == "ok"
