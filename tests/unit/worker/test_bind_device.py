"""Which GPU `init_process_group` receives, with a torch whose GPUs are made up."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.worker import binding
from safelaunch.worker.devices import Devices


@dataclass
class Cuda:
    """As much of torch.cuda as is asked."""

    count: int = 4
    initialised: bool = False
    current: int = 0

    def device_count(self) -> int:
        return self.count

    def is_initialized(self) -> bool:
        return self.initialised

    def current_device(self) -> int:
        assert self.initialised, "asking for the current device initialises CUDA"
        return self.current


@dataclass
class Group:
    bound_device_id: Any = None


@dataclass
class C10d:
    """torch.distributed.distributed_c10d with functions that note how they are called."""

    version: str = "2.13.0+cu128"
    calls: list[dict[str, Any]] = field(default_factory=list)
    barriers: list[dict[str, Any]] = field(default_factory=list)
    world: Group = field(default_factory=Group)
    backends: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.torch = SimpleNamespace(__version__=self.version, device=lambda kind, index: f"{kind}:{index}")
        self.init_process_group: Any = self._init
        self.barrier: Any = self._barrier

    def _init(
        self, backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, rank: int = -1,
        store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None, _ranks: Any = None,
    ) -> str:  # fmt: skip
        kept = ("backend", "device_id", "store", "rank")
        self.calls.append({name: value for name, value in locals().items() if name in kept})
        self.world.bound_device_id = device_id
        return "made"

    def _barrier(self, group: Any = None, async_op: bool = False, device_ids: Any = None) -> None:
        self.barriers.append({"group": group, "async_op": async_op, "device_ids": device_ids})

    def _get_default_group(self) -> Group:
        return self.world

    def get_backend(self, group: Any) -> str:
        return self.backends.get(id(group), "nccl")


Notes = list[dict[str, Any]]


@dataclass
class Rank:
    c10d: C10d
    devices: Devices
    notes: Notes

    def init(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        assert self.c10d.init_process_group(*args, **kwargs) == "made"
        return self.c10d.calls[-1]


def rank(
    monkeypatch: pytest.MonkeyPatch,
    cuda: Cuda | None,
    *,
    local_rank: int = 2,
    local_size: int = 4,
    chosen: int | None = None,
    bind: bool = True,
    **torch: Any,
) -> Rank:
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_size))
    monkeypatch.delenv(binding.NON_BLOCKING, raising=False)
    if cuda is None:
        monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)  # type: ignore[arg-type]
    devices = Devices(None)
    devices.chosen = chosen
    notes: Notes = []
    monkeypatch.setattr(devices, "note", lambda **facts: notes.append(facts))
    c10d = C10d(**torch)
    binding.watch_groups(c10d, devices, bind)
    return Rank(c10d, devices, notes)


@pytest.mark.parametrize(
    ("cuda", "local_rank", "local_size", "chosen", "device"),
    [
        (Cuda(4), 2, 4, None, "cuda:2"),
        (Cuda(1), 3, 4, None, "cuda:0"),  # CUDA_VISIBLE_DEVICES of its own
        (Cuda(4, initialised=True, current=3), 2, 4, None, "cuda:3"),
        (Cuda(4, initialised=True, current=0), 2, 4, None, "cuda:2"),  # 0 may be no choice
        (Cuda(4, initialised=True, current=3), 2, 4, 3, "cuda:3"),
        (Cuda(4, initialised=True, current=0), 2, 4, 0, "cuda:0"),  # set_device(0) is one
        (Cuda(8, initialised=True, current=4), 2, 4, 4, None),  # the rank may use GPUs 4 and 5
        (Cuda(8, initialised=True, current=1), 0, 1, 1, None),
        (Cuda(8, initialised=True, current=4), 2, 4, None, None),
        (Cuda(8), 2, 4, None, None),
        (Cuda(2), 2, 4, None, None),
        (Cuda(2), 0, 4, None, None),  # as on its peers
        (Cuda(0), 0, 1, None, None),
    ],
)
def test_the_gpu_of_a_rank(
    monkeypatch: pytest.MonkeyPatch,
    cuda: Cuda,
    local_rank: int,
    local_size: int,
    chosen: int | None,
    device: str | None,
) -> None:
    here = rank(monkeypatch, cuda, local_rank=local_rank, local_size=local_size, chosen=chosen)

    assert here.init("nccl")["device_id"] == device


@pytest.mark.parametrize("backend", ["nccl", "NCCL", "cuda:nccl", "cpu:gloo,cuda:nccl", None])
def test_every_backend_with_nccl_in_it_is_bound(monkeypatch: pytest.MonkeyPatch, backend: str | None) -> None:
    call = rank(monkeypatch, Cuda()).init(backend)

    assert call["device_id"] == "cuda:2"
    # With a device_id and None, torch would make an NCCL group alone.
    assert call["backend"] == ("undefined" if backend is None else backend)


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", "cpu:gloo,cuda:gloo", "mpi", "xccl", "fake"])
def test_other_backends_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    here = rank(monkeypatch, Cuda())

    assert here.init(backend) == {"backend": backend, "device_id": None, "store": None, "rank": -1}
    here.c10d.barrier()
    assert here.c10d.barriers == [{"group": None, "async_op": False, "device_ids": None}]
    assert here.notes == [{"backend": backend}]


def test_without_cuda_none_is_not_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rank(monkeypatch, Cuda(0)).init()["backend"] is None
    assert rank(monkeypatch, None).init()["backend"] is None


def test_arguments_may_be_given_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    call = rank(monkeypatch, Cuda()).init("nccl", None, None, 4, 3, store="a store")

    assert call == {"backend": "nccl", "device_id": "cuda:2", "store": "a store", "rank": 3}


def test_what_the_script_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())
    device = SimpleNamespace(index=1)

    assert here.init("nccl", device_id=device)["device_id"] is device
    assert here.c10d.world.bound_device_id is device, "the script may split its group"
    assert here.notes[-1]["bound"] == 1
    here.c10d.barrier()
    assert here.c10d.barriers[-1]["device_ids"] is None


def test_off_is_off_and_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda(), bind=False)

    assert here.init("nccl")["device_id"] is None
    assert here.notes == [{"backend": "nccl", "count": 4, "device": None, "bound": None}]


@pytest.mark.parametrize("version", ["2.7.1", "1.13.1", "strange"])
def test_a_torch_that_may_hang_with_it_is_left_alone(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    assert rank(monkeypatch, Cuda(), version=version).init("nccl")["device_id"] is None


def test_non_blocking_nccl_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())
    monkeypatch.setenv(binding.NON_BLOCKING, "1")

    assert here.init("nccl")["device_id"] is None


def test_a_count_that_torch_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda(4))
    here.c10d.torch.accelerator = SimpleNamespace(device_count=lambda: 2)

    assert here.init("nccl")["device_id"] is None


def test_groups_of_the_script_are_made_as_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())
    here.init("nccl")

    # What makes new_group and DeviceMesh split the communicator of the world.
    assert here.c10d.world.bound_device_id is None


class Nccl2:
    pass


@pytest.mark.parametrize("wrapped", [False, True])
def test_where_torch_binds_the_world_itself_other_groups_are_split_as_it_does(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks of a job have to, whoever has started them: some may run under torchrun, on other nodes."""
    here = rank(monkeypatch, Cuda())
    backend: object = SimpleNamespace(wrapped_pg=Nccl2()) if wrapped else Nccl2()
    monkeypatch.setattr(here.c10d, "ProcessGroupNCCL2", Nccl2, raising=False)
    monkeypatch.setattr(here.c10d.world, "_get_backend", {"cuda:2": backend}.get, raising=False)
    here.init("nccl")

    assert here.c10d.world.bound_device_id == "cuda:2"


def test_a_barrier_is_told_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())
    here.init("nccl")
    pair, background = Group(), Group()
    here.c10d.backends[id(background)] = "gloo"

    here.c10d.barrier()
    here.c10d.barrier(pair, async_op=True)
    here.c10d.barrier(group=background)
    here.c10d.barrier(device_ids=[1])
    here.c10d.barrier(-100)  # GroupMember.NON_GROUP_MEMBER

    assert [call["device_ids"] for call in here.c10d.barriers] == [[2], [2], None, [1], None]
    assert here.c10d.barriers[1] == {"group": pair, "async_op": True, "device_ids": [2]}


def test_a_wrong_call_fails_as_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())

    with pytest.raises(TypeError, match="no_such"):
        here.c10d.init_process_group("nccl", no_such=1)


def test_a_fault_of_ours_costs_the_binding_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Cuda):
        def device_count(self) -> int:
            raise RuntimeError("no driver")

    assert rank(monkeypatch, Broken()).init("nccl")["device_id"] is None
    assert "no driver" in capsys.readouterr().err


def test_an_error_of_torch_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rank(monkeypatch, Cuda())
    here.c10d.world = None  # type: ignore[assignment]

    with pytest.raises(AttributeError):
        here.c10d.init_process_group("nccl")
    assert here.devices.bound is None
