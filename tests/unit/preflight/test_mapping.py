"""Which GPU a rank gets, from what the preflight has seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake_host import gpus

from safelaunch.model import Device, Place
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.mapping import Started, places

NODE = {index: Device(f"GPU{index}", "H100", numa_node=index // 4) for index in range(8)}


def started(local_rank: int, **environ: str) -> Started:
    return Started(8 + local_rank, local_rank, 4100 + local_rank, environ, frozenset({0, 1, 2, 3, 8}))


def place(local_rank: int, snapshot: Snapshot | None, /, uses_gpu: bool = True, **environ: str) -> Place:
    (found,) = places("node-b", [started(local_rank, **environ)], snapshot, NODE, uses_gpu=uses_gpu)
    return found


def known(found: Place) -> tuple[Any, ...]:
    return found.gpu_index, found.uuid, found.address, found.numa_node, found.unknown


def test_a_rank_takes_the_gpu_of_its_local_rank() -> None:
    assert place(5, gpus(8)) == Place(
        rank=13,
        host="node-b",
        local_rank=5,
        pid=4105,
        gpu_index=5,
        uuid="GPU-00000005",
        address="0000:15:00.0",
        numa_node=1,
        cpus="0-3,8",
    )


@pytest.mark.parametrize(
    ("local_rank", "visible", "index"),
    [(0, "6,2", 6), (1, "6,2", 2), (1, "GPU-00000003,GPU-00000007", 7), (1, "0,9,1", None), (0, "2,5,2", None)],
)
def test_visible_devices_are_counted_as_cuda_does(local_rank: int, visible: str, index: int | None) -> None:
    found = place(local_rank, gpus(8), CUDA_VISIBLE_DEVICES=visible)

    assert found.gpu_index == index
    assert (index is None) == found.unknown.startswith("no GPU: ")


def test_a_rank_that_was_given_one_gpu_of_its_own() -> None:
    # --virtual-local-rank: the agent counts it as 3, its environment as 0.
    assert place(3, gpus(8), LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="3").gpu_index == 3


def test_without_the_driver_the_index_is_all_there_is() -> None:
    assert known(place(1, None)) == (1, "", "", None, "NVML was not asked")
    assert known(place(1, None, CUDA_VISIBLE_DEVICES="4,5")) == (5, "", "", None, "NVML was not asked")
    assert known(place(0, Snapshot(stuck_in="nvmlInit"))) == (0, "", "", None, "the driver does not answer")
    named = place(0, None, CUDA_VISIBLE_DEVICES="GPU-8f")
    assert (named.gpu_index, named.unknown) == (None, "CUDA_VISIBLE_DEVICES=GPU-8f, and NVML was not asked")


def test_a_job_on_cpus_has_no_gpus() -> None:
    assert known(place(1, gpus(8), uses_gpu=False)) == (None, "", "", None, "")


def test_what_cannot_be_told_is_not_told() -> None:
    mixed = gpus(2, g1=dataclasses.replace(gpus(2).gpus[1], name="T4"))
    assert known(place(0, mixed))[0] is None
    assert place(1, mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID").gpu_index == 1
    assert place(0, mixed, CUDA_VISIBLE_DEVICES="GPU-00000001").gpu_index == 1
    divided = gpus(2, g0=dataclasses.replace(gpus(2).gpus[0], mig=True))
    assert place(0, divided).unknown == "MIG instances"


def test_a_rank_whose_cpus_cannot_be_read() -> None:
    (found,) = places("a", [Started(0, 0, 1, {})], None, {}, uses_gpu=False)

    assert found.cpus == ""
