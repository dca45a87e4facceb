"""Runs in: workers. Where the arguments of torch.distributed's calls stand that a record of them holds."""

from __future__ import annotations

import operator
from typing import Any, Tuple

# Name -> (position of the input tensor, its keyword, position of the group). Not here: the object collectives, which
# are made of these. Leaving a group is no collective, but it is the last word.
COLLECTIVES = {
    "all_reduce": (0, "tensor", 2),
    "broadcast": (0, "tensor", 2),
    "reduce": (0, "tensor", 3),
    "all_gather": (1, "tensor", 2),
    "all_gather_into_tensor": (1, "input_tensor", 2),
    "all_gather_single": (1, "input_tensor", 2),
    "reduce_scatter_tensor": (1, "input", 3),
    "reduce_scatter_single": (1, "input", 3),
    "reduce_scatter": (0, "output", 3),
    "gather": (0, "tensor", 3),
    "scatter": (0, "tensor", 3),
    "all_to_all_single": (1, "input", 4),
    "all_to_all": (-1, "", 2),
    "all_reduce_coalesced": (-1, "", 2),
    "all_gather_coalesced": (-1, "", 2),
    "barrier": (-1, "", 0),
    "destroy_process_group": (-1, "", 0),
}

# Name -> (position of the root, its keyword).
ROOTS = {"broadcast": (1, "src"), "reduce": (1, "dst"), "gather": (2, "dst"), "scatter": (2, "src")}

# Name -> keywords of the other rank: global, and within the group.
MESSAGES = {
    "send": ("dst", "group_dst"),
    "isend": ("dst", "group_dst"),
    "recv": ("src", "group_src"),
    "irecv": ("src", "group_src"),
}

# Name -> position of what is done with the elements, `op`.
REDUCTIONS = {
    "all_reduce": 1,
    "reduce": 2,
    "reduce_scatter_tensor": 2,
    "reduce_scatter_single": 2,
    "reduce_scatter": 2,
    "all_reduce_coalesced": 1,
}


def reductions(module: Any) -> Tuple[Tuple[Any, str], ...]:
    """What reductions do with elements: each object that says so, and its name. They are compared by identity: a hash
    takes torch longer. What is multiplied first (`PREMUL_SUM`) has an object of its own each time, and is not told."""
    members = getattr(getattr(getattr(module, "ReduceOp", None), "RedOpType", None), "__members__", {})
    return tuple((what, name.lower()) for name, what in members.items())


def tag_number(tag: Any) -> int:
    """A tag as torch takes it."""
    try:
        return operator.index(tag)
    except TypeError:
        return 0  # torch will say so


def rank_number(peer: Any) -> int:
    """The other rank of a call, -1 for none."""
    return peer if isinstance(peer, int) else -1
