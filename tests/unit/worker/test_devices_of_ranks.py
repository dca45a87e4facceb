"""What a rank tells of its GPUs, from a process that is started as the agent starts one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ranks import Rank, run

from safelaunch.evidence import devices
from safelaunch.model import Changed, Location, RankDevice, WorkerProcess
from safelaunch.watch.devices import judge

# torch.cuda as far as a rank is concerned: the last two calls of `set_device` fail as CUDA does it.
CUDA = """
_current = None

def set_device(device):
    global _current
    number = int(device.split(":")[1]) if isinstance(device, str) else device
    if number >= 4:
        raise RuntimeError("CUDA error: invalid device ordinal")
    _current = number

def is_initialized():
    return _current is not None

def device_count():
    return 4
"""


def told(rank: Rank, tmp_path: Path) -> RankDevice:
    worker = WorkerProcess(3, 0, rank.pid, 0, str(rank.folder), str(tmp_path / "black_box"))
    found = devices.read(worker)
    assert found is not None, rank.err
    assert rank.err == ""
    return found


def with_cuda(tmp_path: Path, source: str, **changes: str | None) -> RankDevice:
    package = tmp_path / "site/torch/cuda"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(CUDA)
    rank = run(tmp_path, source, pythonpath=str(tmp_path / "site"), LOCAL_RANK="3", LOCAL_WORLD_SIZE="4", **changes)
    return told(rank, tmp_path)


def test_a_rank_that_does_nothing(tmp_path: Path) -> None:
    rank = run(tmp_path, "pass", CUDA_VISIBLE_DEVICES="2,3", LOCAL_WORLD_SIZE="2")

    assert told(rank, tmp_path) == RankDevice(3, 0, 2, started_with="2,3", visible="2,3")


def test_visible_devices_set_by_the_script(tmp_path: Path) -> None:
    source = "import os\nos.environ['OTHER'] = '1'\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
    found = told(run(tmp_path, source, CUDA_VISIBLE_DEVICES="0,1"), tmp_path)

    line = Location(str(tmp_path / "script.py"), 3, "<module>")
    assert (found.started_with, found.visible) == ("0,1", "1")
    assert found.changed == Changed("1", late=False, location=line)


@pytest.mark.parametrize(
    "source",
    [
        "os.environ.update(CUDA_VISIBLE_DEVICES='1')",
        "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')",
        "os.environb[b'CUDA_VISIBLE_DEVICES'] = b'0'; os.environ['CUDA_VISIBLE_DEVICES'] = '1'",
    ],
)
def test_however_it_is_set(tmp_path: Path, source: str) -> None:
    found = told(run(tmp_path, "import os\n" + source, CUDA_VISIBLE_DEVICES=None), tmp_path)

    assert found.changed is not None
    assert (found.changed.value, found.visible) == ("1", "1")


def test_the_same_value_is_no_change(tmp_path: Path) -> None:
    source = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '3'\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n"

    assert told(run(tmp_path, source, CUDA_VISIBLE_DEVICES="0,1"), tmp_path).changed is None


def test_a_forked_child_says_nothing(tmp_path: Path) -> None:
    source = "import os\nif os.fork() == 0:\n    os.environ['CUDA_VISIBLE_DEVICES'] = '7'\n    os._exit(0)\nos.wait()\n"

    assert told(run(tmp_path, source, CUDA_VISIBLE_DEVICES="0"), tmp_path).changed is None


def test_the_device_that_a_script_chooses(tmp_path: Path) -> None:
    found = with_cuda(tmp_path, "import torch.cuda\ntorch.cuda.set_device(0)\ntorch.cuda.set_device('cuda:1')\n")

    assert (found.chosen, found.refused, found.count) == (1, False, 4)
    assert found.chosen_at == Location(str(tmp_path / "script.py"), 3, "<module>")


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    source = "import torch.cuda\ntry:\n    torch.cuda.set_device(5)\nexcept RuntimeError as error:\n    print(error)\n"
    found = with_cuda(tmp_path, source)

    assert (found.chosen, found.refused, found.count) == (5, True, 4)


def test_visible_devices_set_too_late(tmp_path: Path) -> None:
    source = "import os, torch.cuda\ntorch.cuda.set_device(0)\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
    found = with_cuda(tmp_path, source)

    assert found.changed is not None
    assert found.changed.late


def test_a_script_that_goes_from_gpu_to_gpu_pays_for_the_first_calls_only(tmp_path: Path) -> None:
    source = "import torch.cuda\nfor step in range(1000):\n    torch.cuda.set_device(step % 4)\n"

    found = with_cuda(tmp_path, source)

    # Which one it will end with is not known, and the 16th must not pass for it.
    assert (found.chosen, found.refused, found.chosen_at, found.count) == (None, False, None, 4)


def test_a_script_that_looks_at_all_gpus_and_then_takes_its_own_is_fine(tmp_path: Path) -> None:
    source = (
        "import os, torch.cuda\nfor device in [*range(4)] * 5:\n    torch.cuda.set_device(device)\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    )
    found = with_cuda(tmp_path, source)

    others = [dataclasses.replace(found, rank=number, local_rank=number) for number in range(4)]
    assert judge(others, str) == []


def test_a_rank_of_an_earlier_attempt_is_not_mistaken(tmp_path: Path) -> None:
    rank = run(tmp_path, "pass")
    worker = WorkerProcess(0, 0, rank.pid + 1, 0, str(rank.folder), str(tmp_path / "black_box"))

    assert devices.read(worker) is None


def test_gloo_on_a_real_torch_is_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
group = dist.new_group(backend="gloo")
dist.barrier(group)
assert dist.group.WORLD.bound_device_id is None
assert not torch.cuda.is_initialized()
dist.destroy_process_group()
"""
    rank = run(tmp_path, source, SAFELAUNCH_BIND_DEVICE="1")
    assert rank.code == 0, rank.err
    found = told(dataclasses.replace(rank, err=""), tmp_path)
    assert (found.backend, found.count, found.bound) == ("gloo", None, None)
