"""Frames of stacks: which of them are the user's, and which torch.distributed's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch import user_code
from safelaunch.model import Location, Stack

_TORCH_DISTRIBUTED = re.compile(r"/torch/distributed/")
_SYNCHRONIZE = re.compile(r"/torch/(?:cuda|accelerator)/(?:__init__|streams|graphs)\.py:(?:\w+\.)*synchronize$")


def is_user_code(frame: Location) -> bool:
    """Whether a frame belongs to the user's program."""
    return user_code.is_user_code(frame.file)


def user_frame(stack: Stack | None) -> Location | None:
    """The innermost line of a stack that belongs to the user's program."""
    return first_of_user(stack.frames if stack is not None else ())


def first_of_user(frames: Iterable[Location]) -> Location | None:
    """The first of these frames that belongs to the user's program."""
    return next(filter(is_user_code, frames), None)


def is_torch_distributed(frame: Location) -> bool:
    """Whether a frame is one of torch.distributed."""
    return bool(_TORCH_DISTRIBUTED.search(frame.file))


def waits_for_gpu(frame: Location) -> bool:
    """Whether a frame is one of torch's own functions that wait for a GPU."""
    return bool(_SYNCHRONIZE.search(f"{frame.file}:{frame.function}"))
