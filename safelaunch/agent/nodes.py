"""Runs in: agent. The nodes of each rendezvous round learn where the others' supervisors listen, in the round's store.

A node that runs torchrun writes nothing there: it is left out after a while. The store is asked without waiting, on a
connection of its own where this torch can make one: a thread that waits in a store holds up all others.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch.distributed.elastic.agent.server.api as agent_api

from safelaunch.agent.channel import Channel
from safelaunch.codec import checked, to_json
from safelaunch.model.nodes import Node, Nodes

PREFIX = "safelaunch/nodes/"
ALL_S = 10.0  # for all to write: they have just met
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
    rounds = iter(range(1 << 30))

    def _rendezvous(self: Any, worker_group: Any) -> None:
        original(self, worker_group)
        attempt = next(rounds)
        if worker_group.group_world_size == 1:
            return
        ranks = [worker.global_rank for worker in worker_group.workers]
        node = Node(worker_group.group_rank, first_rank=min(ranks, default=0), ranks=len(ranks), **address)
        arguments = (channel, worker_group.store, node, worker_group.group_world_size, attempt)
        threading.Thread(target=_meet, args=arguments, name="safelaunch-nodes", daemon=True).start()

    agent_api.SimpleElasticAgent._rendezvous = _rendezvous


def _meet(channel: Channel, store: Any, node: Node, count: int, attempt: int) -> None:
    try:
        store = store.clone() if hasattr(store, "clone") else store
        nodes = _written(store, node, count)
        key = _read(store, "key") if nodes else b""
        if key:
            found = Nodes(attempt, node.node_rank, nodes, key.decode())
            channel.post("nodes", nodes=to_json(found))
            return
        reason = "the first node has no supervisor of ours"
    except Exception as error:  # a store of another kind, or one that is gone
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    channel.post("degraded", missing=f"the nodes of this job are diagnosed separately: {reason[:200]}")


def _written(store: Any, node: Node, count: int) -> tuple[Node, ...]:
    """What the nodes have written, this one's among it."""
    if node.node_rank == 0:
        store.set(PREFIX + "key", secrets.token_hex(32))
    store.set(f"{PREFIX}{node.node_rank}", json.dumps(to_json(node)))
    names = [PREFIX + "key", *(f"{PREFIX}{number}" for number in range(count))]
    until = time.monotonic() + ALL_S
    while not store.check(names):
        if time.monotonic() > until:
            names = [name for name in names if store.check([name])]
            break
        time.sleep(POLL_S)
    documents = (store.get(name) for name in names if name != PREFIX + "key")
    return tuple(checked(Node, json.loads(document)) for document in documents)


def _read(store: Any, name: str) -> bytes:
    return bytes(store.get(PREFIX + name)) if store.check([PREFIX + name]) else b""
