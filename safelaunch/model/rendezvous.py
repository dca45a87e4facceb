"""Where a rank looks for the others of its job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rendezvous:
    """What a rank has called `init_process_group` with last, by its arguments or else its environment.

    `where` is `MASTER_ADDR:MASTER_PORT`, or the URL that was passed (`init_method`), "" where a store was passed;
    `given` is what MASTER_ADDR and MASTER_PORT were when the rank was started. `size` is the world size, `rank` the
    number of the rank; -1 where it is not known.
    """

    where: str
    given: str
    size: int = -1
    rank: int = -1
