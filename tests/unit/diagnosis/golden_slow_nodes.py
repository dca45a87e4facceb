"""Golden cases of slow runs of several nodes, the ranks of all of which were compared."""

from __future__ import annotations

import dataclasses

from expected import Expected
from golden_slow import case, one, straggler, waiting

from safelaunch.model import Case
from safelaunch.model.slow import NodeUsage, RanksOfNode, SlowLink, Slowness


def nodes(*late: int, throttled: float = 0.0, source: str = "calls") -> Slowness:
    """Of two nodes with two ranks each, all of which are known, these are late."""
    slow = straggler(late[0])
    late_paces = tuple(
        dataclasses.replace(slow.paces[late[0]], rank=pace.rank) if pace.rank in late else pace for pace in slow.paces
    )
    of = (
        RanksOfNode("node-a", (0, 1), usage=NodeUsage(10.0, 8, 0.5, 0.0)),
        RanksOfNode("node-b", (2, 3), late, NodeUsage(10.0, 8, 0.5, throttled)),
    )
    return dataclasses.replace(slow, ranks=late, paces=late_paces, nodes=of, source=source)


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    cores = nodes(2, 3)
    more = tuple(dataclasses.replace(one, cpu=0.95) if one.rank in (2, 3) else one for one in cores.usage)
    queued = tuple(dataclasses.replace(one, queued=0.7) if one.rank in (2, 3) else one for one in cores.usage)
    compared = nodes(2).nodes
    all_ = tuple(dataclasses.replace(one, late=()) for one in compared)
    links = SlowLink("node-b", 0.07, 0.004)
    return {
        "slow-rank-of-another-node": (
            case(one(nodes(2), cpu=0.95), world_size=8),
            Expected("SL503", (2,), confidence="high", mentions=("rank 2 on node-b is slow since step 41",)),
        ),
        "slow-node-that-computes-more": (
            case(dataclasses.replace(cores, usage=more)),
            Expected(
                "SL503",
                (2, 3),
                confidence="medium",
                mentions=("all ranks of node-b (2 and 3) are slow", "computes more"),
            ),
        ),
        "slow-node-without-cpus": (
            case(dataclasses.replace(cores, usage=queued)),
            Expected("SL503", (2, 3), confidence="medium", mentions=("all ranks of node-b", "does not get the CPU")),
        ),
        "slow-node-at-its-cpu-limit": (
            case(nodes(2, 3, throttled=0.6)),
            Expected(
                "SL503", (2, 3), confidence="medium", mentions=("the cgroup's CPU limit is reached", "on node-b", "60%")
            ),
        ),
        "slow-node-or-its-link": (
            case(nodes(2, 3, source="recorder")),
            Expected("SL503", (2, 3), confidence="low", mentions=("by its work or by its link cannot be told",)),
        ),
        "slower-by-the-link-of-a-node": (
            case(dataclasses.replace(waiting(), nodes=all_, link=links), world_size=8),
            Expected("SL504", mentions=("the link of node-b is slow", "those without it 4.0 ms")),
        ),
        "slower-by-the-network-of-all-nodes": (
            case(dataclasses.replace(waiting(), nodes=all_), world_size=8),
            Expected("SL504", mentions=("collectives themselves take longer", "which link cannot be told")),
        ),
    }
