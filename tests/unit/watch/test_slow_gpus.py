"""What is suspected of runs whose calls end on GPUs, where hosts run ahead."""

from __future__ import annotations

import pytest
from paced import Program
from test_slow_watch import MINUTE, program, slow_for_all, slow_rank

from safelaunch.watch.slow import HOSTS_AHEAD


def on_gpus(*args: object, **facts: object) -> Program:
    return program(*args, on_device=True, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", ["steps", "collectives"])
def test_a_host_that_comes_later_than_those_that_run_ahead_is_not_late(counts: str) -> None:
    """Who looks at each loss waits there for its GPU, while the others have long enqueued what follows."""
    assert on_gpus(slow_rank(0), counts=counts).run(MINUTE) == []


def test_that_no_rank_comes_later_is_not_concluded_from_hosts() -> None:
    (slower,) = on_gpus(slow_for_all(60)).run(MINUTE)
    (below,) = on_gpus(expect=0.02).run(2 * MINUTE)

    assert (slower.kind, slower.unknown) == ("slower", HOSTS_AHEAD)
    assert (below.kind, below.unknown) == ("below", HOSTS_AHEAD)
