"""Crashes that come of the mapping from ranks to GPUs bring it along."""

from __future__ import annotations

import dataclasses

from scenes import STEP, case, exited, raised, rank

from safelaunch.diagnosis import diagnose
from safelaunch.model import Changed, Location, RankDevice, RankFacts
from safelaunch.report import verdict as terminal

ORDINAL = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
DUPLICATE = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, invalid usage (run with NCCL_DEBUG=WARN for "
    "details), NCCL version 2.27.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
    "Last error:\nDuplicate GPU detected : rank 2 and rank 0 both on CUDA device 1b000"
)


def on(number: int, **device: object) -> RankFacts:
    said = RankDevice(number, number, 4, visible="0,1", started_with="0,1", count=2, chosen=number)
    return dataclasses.replace(rank(number), device=dataclasses.replace(said, **device))  # type: ignore[arg-type]


def failing(number: int, message: str, kind: str = "torch.AcceleratorError", **device: object) -> RankFacts:
    return raised(on(number, **device), kind, message)


def test_a_gpu_that_is_not_there() -> None:
    verdict = diagnose(
        case(on(0), on(1), failing(2, ORDINAL, refused=True), exited(failing(3, ORDINAL, refused=True), 1))
    )

    assert verdict.code == "SL401"
    assert verdict.culprit_ranks == (2, 3)
    assert verdict.because[:2] == (
        "rank 2: LOCAL_RANK 2, CUDA_VISIBLE_DEVICES=0,1, 2 GPUs visible, set_device(2)",
        "rank 3: LOCAL_RANK 3, CUDA_VISIBLE_DEVICES=0,1, 2 GPUs visible, set_device(3)",
    )
    assert verdict.remedy.startswith("start no more ranks than GPUs (--nproc-per-node 2)")


def test_visible_devices_of_the_script_are_named() -> None:
    changed = Changed("0", location=Location("/home/ada/project/train.py", 3))
    verdict = diagnose(case(on(0), failing(1, ORDINAL, visible="0", count=1, changed=changed)))

    assert (
        "CUDA_VISIBLE_DEVICES=0 (set by the script at /home/ada/project/train.py:3), 1 GPU visible"
        in (verdict.because[0])
    )
    assert verdict.remedy.startswith("do not set CUDA_VISIBLE_DEVICES in the script")


def test_two_ranks_on_one_gpu() -> None:
    everywhere = [failing(number, DUPLICATE, "torch.distributed.DistBackendError", chosen=0) for number in range(4)]
    verdict = diagnose(case(*everywhere))

    assert verdict.code == "SL402"
    assert verdict.because[1:] == (
        "NCCL says: Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1b000",
        "rank 0: LOCAL_RANK 0, CUDA_VISIBLE_DEVICES=0,1, 2 GPUs visible, set_device(0)",
        "rank 2: LOCAL_RANK 2, CUDA_VISIBLE_DEVICES=0,1, 2 GPUs visible, set_device(0)",
    )
    assert "set_device" in verdict.remedy
    block = terminal.lines(dataclasses.replace(verdict, traceback=""), "safelaunch_runs/a/incident-0", exit_code=1)
    assert len(block) <= 10


def test_a_collective_on_another_gpu_than_the_bound_one() -> None:
    message = "Attempt to perform collective on tensor not on device passed to init_process_group"
    verdict = diagnose(case(on(0), failing(1, message, bound=1)))

    assert verdict.because[0] == "the process group of rank 1 is bound to cuda:1"
    assert "bind_device = false" in verdict.remedy


def test_a_rank_that_said_nothing() -> None:
    verdict = diagnose(case(rank(0), raised(rank(1), "RuntimeError", ORDINAL)))

    assert not [line for line in verdict.because if "LOCAL_RANK" in line]
    assert "cuda:LOCAL_RANK" in verdict.remedy


def test_other_exceptions_stay_as_they_are() -> None:
    verdict = diagnose(case(on(0), failing(1, "loss is nan", "ValueError")))

    assert verdict.location == STEP
    assert verdict.remedy == "the traceback above is where it started"
