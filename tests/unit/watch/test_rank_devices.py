"""What is told of the GPUs that ranks take."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from safelaunch.model import Changed, Finding, Location, RankDevice
from safelaunch.model.devices import gpu_of
from safelaunch.watch.devices import judge

TRAIN = Location("train.py", 12, "main")


def ranks(nproc: int, /, gpus: int | None = None, **same: Any) -> list[RankDevice]:
    """Ranks of a node that follow LOCAL_RANK in an NCCL group, but for what is said of all of them."""
    return [
        RankDevice(
            **{
                "rank": 8 + number,  # the second node
                "local_rank": number,
                "local_size": nproc,
                "chosen": number,
                "chosen_at": TRAIN,
                "count": nproc if gpus is None else gpus,
                "backend": "nccl",
                **same,
            }
        )
        for number in range(nproc)
    ]


def judged(found: list[RankDevice], *, mps: bool = False) -> list[Finding]:
    return judge(found, lambda gpu: f"GPU {gpu} (GPU-8f)", mps=mps)


def one(found: list[RankDevice]) -> Finding:
    (finding,) = judged(found)
    return finding


def with_rank(found: list[RankDevice], number: int, **changes: Any) -> list[RankDevice]:
    return [dataclasses.replace(r, **changes) if r.local_rank == number else r for r in found]


@pytest.mark.parametrize(
    "healthy",
    [
        ranks(4),
        ranks(4, chosen=None, chosen_at=None),  # `.to(f"cuda:{local_rank}")`
        ranks(4, chosen=None, chosen_at=None, count=None, backend="gloo"),
        [dataclasses.replace(rank, chosen=0, count=1, visible=str(rank.local_rank)) for rank in ranks(4)],
        [dataclasses.replace(rank, chosen=2 * rank.local_rank) for rank in ranks(4, gpus=8)],
        [],
    ],
)
def test_nothing_is_said_of_ranks_that_are_fine(healthy: list[RankDevice]) -> None:
    assert judged(healthy) == []


# ------------------------------------------------------------------------------------------------ SL230


def test_two_ranks_on_one_gpu() -> None:
    finding = one(with_rank(ranks(4), 3, chosen=2))

    assert (finding.code, finding.severity, finding.where) == ("SL230", "warning", "train.py:12")
    assert finding.summary == (
        "ranks 10 and 11 of this node both use GPU 2 (GPU-8f): rank 10: LOCAL_RANK 2, set_device(2) at train.py:12"
    )
    assert finding.because[1] == "rank 11: LOCAL_RANK 3, set_device(2) at train.py:12"
    assert "set_device(int(os.environ" in finding.remedy


def test_fewer_gpus_than_ranks() -> None:
    finding = one(ranks(2, gpus=1, chosen=None, chosen_at=None))

    assert finding.code == "SL230"
    assert finding.summary.endswith("both use GPU 0 (GPU-8f): 1 GPU is visible for 2 ranks of this node")
    assert finding.remedy == "start no more ranks than GPUs (--nproc-per-node 1)"


def test_all_ranks_on_gpu_0_is_one_finding() -> None:
    assert one(ranks(4, chosen=0)).summary.startswith("ranks 8, 9, 10 and 11 of this node all use GPU 0")


def test_the_gpu_behind_the_number_counts() -> None:
    assert [gpu_of(dataclasses.replace(rank, visible="3,GPU-ab")) for rank in ranks(2)] == ["3", "GPU-ab"]
    assert gpu_of(dataclasses.replace(ranks(4)[3], visible="0,1")) is None
    # What was set after CUDA had been initialised does not count.
    late = dataclasses.replace(ranks(2)[1], started_with="4,5", visible="0", changed=Changed("0", late=True))
    assert gpu_of(late) == "5"


def test_the_device_of_the_group_comes_before_a_choice() -> None:
    assert gpu_of(dataclasses.replace(ranks(4)[1], bound=3)) == "3"


def test_sharing_may_be_meant() -> None:
    assert judged(ranks(2, gpus=1, chosen=None), mps=True) == []
    assert one(ranks(2, gpus=1, chosen=None, backend="gloo")).severity == "note"


# ------------------------------------------------------------------------------------------------ SL231


def changed(value: str, **changes: Any) -> dict[str, Any]:
    return {"visible": value, "changed": Changed(value, location=TRAIN, **changes), "chosen": None, "count": None}


def picking(*values: str, **same: Any) -> list[RankDevice]:
    """Ranks of which each sets a list of its own."""
    return [
        dataclasses.replace(rank, **{**changed(value), **same})
        for rank, value in zip(ranks(len(values)), values, strict=True)
    ]


def test_visible_devices_set_again() -> None:
    finding = one(ranks(2, started_with="2,3", **changed("3")))

    assert (finding.code, finding.severity, finding.where) == ("SL231", "warning", "train.py:12")
    assert finding.summary == (
        "ranks 8 and 9 set CUDA_VISIBLE_DEVICES=3 in the script at train.py:12, after the start with '2,3': "
        "all of them now see the same GPU 3"
    )
    assert "LOCAL_RANK 1 of rank 9 now points to no GPU, 1 visible" in finding.because
    assert "LOCAL_RANK 0 of rank 8 now points to GPU 3 instead of 2" in finding.because


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
@pytest.mark.parametrize("late", [False, True])
def test_a_script_that_keeps_off_the_gpus_is_left_alone(value: str, late: bool) -> None:
    assert judged(ranks(2, **{**changed(value, late=late), "backend": "gloo", "count": 0})) == []
    assert judged(ranks(2, **{**changed(value, late=late), "backend": ""})) == []


def test_a_list_without_a_gpu_for_nccl() -> None:
    finding = one(with_rank(ranks(2), 1, **changed("")))

    assert finding.severity == "warning"
    assert finding.summary.endswith("NCCL is left without a GPU")


def test_too_late_to_act() -> None:
    finding = one(with_rank(ranks(2), 1, **changed("0", late=True)))

    assert "it changes nothing in this process" in finding.summary
    assert finding.severity == "warning"


@pytest.mark.parametrize("before", [None, "0,1", "1,0", "0,1,2,3", "GPU-8f,GPU-9a"])
def test_a_gpu_for_each_rank_is_a_note(before: str | None) -> None:
    found = judged(picking("0", "1", started_with=before, chosen=0, count=1))

    assert [(finding.code, finding.severity) for finding in found] == [("SL231", "note")] * 2
    assert "torch calls it cuda:0" in found[1].summary


def test_several_gpus_for_each_rank_are_a_note() -> None:
    found = judged(picking("0,1", "2,3", started_with="0,1,2,3"))

    assert [finding.severity for finding in found] == ["note", "note"]
    assert "sees GPUs 2, 3 alone, and torch calls them cuda:0 to cuda:1" in found[1].summary


def test_a_gpu_of_its_own_that_local_rank_does_not_find() -> None:
    finding = judged(picking("0", "1", chosen=1, refused=True))[1]

    assert finding.severity == "warning"
    assert finding.summary.endswith("set_device(1) of rank 9 failed, 1 GPU is visible")


def test_a_gpu_that_the_job_was_not_given() -> None:
    found = judged(picking("0", "1", started_with="2,3"))

    assert [finding.severity for finding in found] == ["warning", "warning"]
    assert found[0].summary.endswith("GPU 0 is not in the list that the rank was started with")


@pytest.mark.parametrize("before", [None, "0,1,2,3", "0,1,3"])
def test_a_list_of_which_nothing_follows(before: str | None) -> None:
    assert judged(ranks(2, started_with=before, **changed("0,1"))) == []


def test_other_gpus_for_all_ranks_are_a_note() -> None:
    finding = one(ranks(2, **changed("2,3")))

    assert finding.severity == "note"
    assert finding.summary.endswith("LOCAL_RANK 0 of rank 8 now points to GPU 2 instead of 0")


def test_ranks_that_use_no_gpu_may_set_what_they_like() -> None:
    assert judged(ranks(2, started_with="0,1", **{**changed("1"), "backend": "gloo"})) == []


# ------------------------------------------------------------------------------------------------ SL232


def test_a_rank_on_another_device() -> None:
    finding = one(with_rank(ranks(4, gpus=8), 1, chosen=5))

    assert (finding.code, finding.severity, finding.where) == ("SL232", "warning", "train.py:12")
    assert finding.summary == "rank 9 called set_device(5), and its LOCAL_RANK is 1 at train.py:12"


def test_ranks_that_go_backwards_are_one_finding() -> None:
    finding = one([dataclasses.replace(rank, chosen=3 - rank.local_rank) for rank in ranks(4)])

    assert finding.code == "SL232"
    assert "rank 8 (LOCAL_RANK 0) on cuda:3, rank 9 (LOCAL_RANK 1) on cuda:2" in finding.summary


def test_a_call_that_failed_is_no_choice() -> None:
    assert judged(with_rank(ranks(4), 3, chosen=7, refused=True)) == []
