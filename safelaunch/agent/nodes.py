"""Runs in: agent. The nodes of each rendezvous round learn where the others' supervisors listen, in the round's store.

A node that runs torchrun writes nothing there: the others do not wait for it. The store is asked without waiting, on a
connection of its own where this torch can make one: a thread that waits in a store holds up all others.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.distributed.elastic.agent.server.api as agent_api

from safelaunch.agent.channel import Channel
from safelaunch.codec import checked, to_json
from safelaunch.model.nodes import Node, Nodes

PREFIX = "safelaunch/nodes/"
SOON_S = 1.0  # after this those who have written meet: torch's agents see within a second that a rendezvous is complete
SOON_NODE_S = 0.005  # ... and more for each node, since all ask the same store
AGAIN_S = 1.0  # between two looks at those who have not
ALL_S = 60.0  # for all to write, on the busiest machine
POLL_S = 0.1


def exchange(channel: Channel, address: Mapping[str, Any]) -> None:
    """After each rendezvous, post the event `nodes` with what all have written.

    Args:
        channel: to the supervisor.
        address: this node's `host`, `ip` and `port`, as `Node` has them.
    """
    original = getattr(agent_api.SimpleElasticAgent, "_rendezvous", None)
    if original is None:
        channel.post("degraded", missing="torch elastic has no rendezvous to hook: nodes are diagnosed separately")
        return
    rounds: list[int] = []

    def _rendezvous(self: Any, worker_group: Any) -> None:
        rounds.append(len(rounds))  # which ends the search for nodes of the round before
        original(self, worker_group)
        if worker_group.group_world_size == 1:
            return
        ranks = [worker.global_rank for worker in worker_group.workers]
        node = Node(worker_group.group_rank, first_rank=min(ranks, default=0), ranks=len(ranks), **address)
        arguments = (channel, worker_group.store, node, worker_group.group_world_size, rounds)
        threading.Thread(target=_meet, args=arguments, name="safelaunch-nodes", daemon=True).start()

    agent_api.SimpleElasticAgent._rendezvous = _rendezvous


def _meet(channel: Channel, store: Any, node: Node, count: int, rounds: Sequence[int]) -> None:
    attempt, met = rounds[-1], False
    try:
        store = store.clone() if hasattr(store, "clone") else store
        for nodes, key in _written(store, node, count):
            if rounds[-1] != attempt:
                return
            channel.post("nodes", nodes=to_json(Nodes(attempt, node.node_rank, nodes, key)))
            met = True
    except Exception as error:  # a store of another kind, or one that is gone
        if not met:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            channel.post("degraded", missing=f"the nodes of this job are diagnosed separately: {reason[:200]}")


def _written(store: Any, node: Node, count: int) -> Iterator[tuple[tuple[Node, ...], str]]:
    """The nodes and the job's key, as soon as all have written; before that, whenever there are more of those who have.
    The others have no port."""
    if store.add(PREFIX + "turns", 1) == 1:  # whoever comes first, as any node may run torchrun
        store.set(PREFIX + "key", secrets.token_hex(32))
    store.set(_name(node.node_rank), json.dumps(to_json(node)))
    nodes = {number: Node(number) for number in range(count)} | {node.node_rank: node}
    told, begun = 1, time.monotonic()
    while (since := time.monotonic() - begun) < ALL_S:
        late = since > SOON_S + SOON_NODE_S * count
        nodes |= _found(store, [number for number, one in nodes.items() if not one.port], singly=late)
        written = sum(one.port > 0 for one in nodes.values())
        if written > told and store.check([PREFIX + "key"]):
            told = written
            yield tuple(nodes.values()), bytes(store.get(PREFIX + "key")).decode()
        if told == count:
            return
        time.sleep(AGAIN_S if late else POLL_S)


def _found(store: Any, missing: list[int], *, singly: bool) -> dict[int, Node]:
    """What those have written who had not: nothing before all have, but where each is asked for by itself."""
    if not store.check([_name(number) for number in missing]):
        missing = [number for number in missing if singly and store.check([_name(number)])]
    return {number: checked(Node, json.loads(store.get(_name(number)))) for number in missing}


def _name(number: int) -> str:
    return f"{PREFIX}{number}"
