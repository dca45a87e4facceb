"""What is known of torch's collectives by their names."""

from __future__ import annotations

# Operations in which every rank must bring the same number of elements. Gathers and all_to_all may be uneven.
SAME_SIZE = {
    "all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor",
    "reduce_scatter_single",
}  # fmt: skip
