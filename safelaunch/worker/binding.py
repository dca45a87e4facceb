"""Runs in: workers. Gives `init_process_group` the GPU of this rank where the script names none (`bind_device`).

Without it, torch guesses the GPU of a barrier that comes before all other collectives ("device used by this process is
currently unknown", "Guessing device ID based on global rank"), and a wrong guess hangs. What `device_id` does (torch
2.8 to 2.13, distributed_c10d.py and ProcessGroupNCCL.cpp): the communicator of the world is made at once (a job that
uses groups of its own only gets one that it would not have, with its GPU memory), collectives of the world on any other
GPU are refused, and `new_group` and `DeviceMesh` split that communicator.

The splitting is kept from scripts that did not ask for it: `bound_device_id` is taken away from the group (the NCCL
backend keeps it), so that other groups are made as without us. A split needs every rank of the world, and hangs where
only some come: `new_group(use_local_synchronization=True)` (pytorch PR 129965), groups with processes of another job
(NVIDIA-NeMo/RL PR 3189), gloo groups beside NCCL (pytorch issue 145376); a mesh fails on "cpu:gloo,cuda:nccl" (pytorch
issue 159200). `barrier` is told the GPU by its own argument instead.

Nothing is bound, so that nothing gets worse, where
- the script passes a `device_id`, or no part of the backend is NCCL;
- not every rank has a GPU of its own: fewer are visible than ranks of this node, but more than one;
- there are more GPUs than ranks, even where the script has chosen one: a rank may use several (a model on two GPUs),
  and collectives on the others would be refused ("tensor not on device passed to init_process_group");
- torch is older than 2.8 or NCCL is made non-blocking (hangs: pytorch issue 153960), or torchcomms is in its place;
- the process is not the rank itself but below it (`torch.multiprocessing`).
"""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any, Optional

from safelaunch.worker.after_import import attempt, call_after_import
from safelaunch.worker.devices import Devices

# torch 2.15 binds the groups of these backends itself, and splits: a rank that does not, and one of another node that
# torchrun has started, would wait for each other in `new_group` for ever.
BOUND_BY_TORCH = ("ProcessGroupNCCL2", "ProcessGroupNCCLLazy")
TARGET = "torch.distributed.distributed_c10d"
OLDEST = (2, 8)
NON_BLOCKING = "TORCH_NCCL_USE_COMM_NONBLOCKING"


def install(devices: Devices, bind: bool) -> None:
    """Arrange for it.

    Args:
        devices: learns of the backend and of the GPU in any case.
        bind: whether torch is given the GPU as well.
    """
    call_after_import(TARGET, functools.partial(watch_groups, devices=devices, bind=bind))


def watch_groups(module: Any, devices: Devices, bind: bool) -> None:
    """Wrap `init_process_group` and `barrier` of torch.distributed."""
    module.init_process_group = _initialising(module, devices, bind)
    if bind:
        module.barrier = _on_own_device(module, devices)


def _initialising(module: Any, devices: Devices, bind: bool) -> Any:
    import inspect  # torch has loaded it by now

    function = module.init_process_group
    signature = inspect.signature(function)

    @functools.wraps(function)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        devices.bound = None
        try:
            call = signature.bind_partial(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says what is wrong
        index = attempt(bind_device, call, module, devices, bind)
        if index is None:
            return function(*args, **kwargs)
        result = function(*call.args, **call.kwargs)
        devices.bound = index
        attempt(unbind_group, module)
        return result

    return init_process_group


def bind_device(call: Any, module: Any, devices: Devices, bind: bool) -> Optional[int]:
    """Note what is known, and put the GPU of this rank into the call: its number, or None where nothing is bound."""
    cuda = sys.modules.get("torch.cuda")
    backend = call.arguments.get("backend")
    if cuda is None or not uses_nccl(backend, cuda):
        devices.note(backend=_text(backend) or "gloo")
        return None
    given = call.arguments.get("device_id")
    count = cuda.device_count()
    current = cuda.current_device() if cuda.is_initialized() else None
    index = None
    takes_one = given is None and "device_id" in call.signature.parameters
    if bind and takes_one and _is_sound(module) and _counts_alike(module, count):
        index = own_device(count, devices.local_rank, devices.local_size, devices.chosen, current)
    bound = index if given is None else getattr(given, "index", given)
    devices.note(backend=_text(backend) or "nccl", count=count, device=current, bound=bound)
    if index is not None:
        # With a device_id and no backend, torch would take the backend of that device alone.
        call.arguments.update(backend="undefined" if backend is None else backend, device_id=_device(module, index))
        call.arguments = _in_order(call)
    return index


def own_device(
    count: int, local_rank: int, local_size: int, chosen: Optional[int], current: Optional[int]
) -> Optional[int]:
    """The GPU of a rank, as torch numbers those it sees; None where it cannot be told.

    Args:
        count: GPUs that torch sees in this rank.
        local_rank, local_size: of the rank, and how many of them this node has.
        chosen: what the script has called `set_device` with.
        current: torch's current device, None while CUDA is not initialised; 0 may be no choice.
    """
    if count == 1:
        return 0
    if count != local_size:
        return None
    if chosen is not None:
        return chosen
    return current or local_rank


def uses_nccl(backend: Any, cuda: Any) -> bool:
    """Whether `init_process_group(backend)` makes an NCCL group, of all tensors or of those on GPUs."""
    text = _text(backend)
    if not text or text == "undefined":
        return bool(cuda.device_count() > 0)
    return any(part.strip() in ("nccl", "cuda:nccl") for part in text.split(","))


def _text(backend: Any) -> str:
    return "" if backend is None else str(backend).lower()


def _device(module: Any, index: int) -> Any:
    return module.torch.device("cuda", index)


def _in_order(call: Any) -> Any:
    """`BoundArguments.args` takes arguments in the order in which they were put in."""
    names = [name for name in call.signature.parameters if name in call.arguments]
    return type(call.arguments)((name, call.arguments[name]) for name in names)


def _is_sound(module: Any) -> bool:
    version = re.match(r"(\d+)\.(\d+)", str(module.torch.__version__))
    if version is None or tuple(map(int, version.groups())) < OLDEST:
        return False
    if os.environ.get(NON_BLOCKING, "0") not in ("", "0"):
        return False
    torchcomms = getattr(module, "_use_torchcomms_enabled", None)
    return torchcomms is None or not torchcomms()


def _counts_alike(module: Any, count: int) -> bool:
    """Whether torch.accelerator counts as many: `init_process_group` goes by that, and torch.cuda may go by NVML."""
    accelerator = getattr(module.torch, "accelerator", None)
    return accelerator is None or accelerator.device_count() == count


def unbind_group(module: Any) -> None:
    """Let other groups be made as without us: where torch binds none itself, the world's is not to be split."""
    world = module._get_default_group()
    if not _is_bound_by_torch(module, world):
        world.bound_device_id = None


def _is_bound_by_torch(module: Any, world: Any) -> bool:
    kinds = tuple(kind for kind in (getattr(module, name, None) for name in BOUND_BY_TORCH) if isinstance(kind, type))
    if not kinds:
        return False
    backend = world._get_backend(world.bound_device_id)
    while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        backend = backend.wrapped_pg
    return isinstance(backend, kinds)


def _on_own_device(module: Any, devices: Devices) -> Any:
    function = module.barrier

    @functools.wraps(function)
    def barrier(*args: Any, **kwargs: Any) -> Any:
        if devices.bound is not None and len(args) < 3 and kwargs.get("device_ids") is None:
            index = attempt(device_of_barrier, module, devices, args[0] if args else kwargs.get("group"))
            if index is not None:
                kwargs = dict(kwargs, device_ids=[index])
        return function(*args, **kwargs)

    return barrier


def device_of_barrier(module: Any, devices: Devices, group: Any) -> Optional[int]:
    """The GPU of a barrier; None for groups without NCCL, and for ranks that are no members."""
    if isinstance(group, int):
        return None
    if not uses_nccl(module.get_backend(group), sys.modules["torch.cuda"]):
        return None
    world = group is None or group is module._get_default_group()
    return devices.bound if world or devices.chosen is None else devices.chosen
