"""Runs in: agent. What torch's dynamic rendezvous does otherwise here than under torchrun: less of the same.

Each change is made where this torch has what it changes, and left out where it has not.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler


def use_a_fresh_store_each_round() -> None:
    """Give the workers of each rendezvous round a store of their own.

    Torch's handler shares one TCPStore with the workers and keeps it over restarts (2.4 to 2.13), although its
    workers count on a new one for every retry (`rendezvous._create_c10d_store`). The second attempt then reads the
    first one's gloo addresses, and `init_process_group` fails with "Connection refused". Forgetting the store before
    a round makes the handler build another; a torch without these attributes is left as it is.
    """
    original = DynamicRendezvousHandler.next_rendezvous

    @functools.wraps(original)
    def next_rendezvous(self: Any) -> Any:
        for name in ("_bootstrap_store_info", "_shared_tcp_store_server"):
            if hasattr(self, name):
                setattr(self, name, None)
        return original(self)

    DynamicRendezvousHandler.next_rendezvous = next_rendezvous


def age_heartbeats_by_our_own_clock() -> None:
    """Let no node be dead to this one because their clocks differ.

    A participant writes its own clock's time into the rendezvous, and torch (2.4 to 2.13) takes it for dead where that
    is 15 s behind the reader's. A node whose clock is so far ahead then joins a world of itself alone, with ranks that
    the others have given it; at the end both sides may wait 300 s for each other in `_exit_barrier`. Here a node is
    dead when torch says so, and its heartbeat has not changed for as long on this node's CLOCK_MONOTONIC.
    """
    holder = getattr(dynamic_rendezvous, "_BackendRendezvousStateHolder", None)
    original = getattr(holder, "_sanitize", None)
    if holder is None or original is None:
        return

    @functools.wraps(original)
    def _sanitize(self: Any) -> None:
        state, settings = self._state, self._settings
        written, now = dict(state.last_heartbeats), time.monotonic()
        before = vars(self).get("_safelaunch_changed", {})
        changed = {node: before[node] if node in before and before[node][0] == t else (t, now)
                   for node, t in written.items()}  # fmt: skip
        vars(self)["_safelaunch_changed"] = changed
        patience = (settings.keep_alive_interval * settings.keep_alive_max_attempt).total_seconds()
        state.last_heartbeats = {node: t for node, t in written.items() if now - changed[node][1] > patience}
        original(self)
        dead = set(self._dead_nodes)
        state.last_heartbeats = {node: t for node, t in written.items() if node not in dead}

    holder._sanitize = _sanitize


def name_methods_at_once() -> None:
    """Have the rendezvous name its methods in its events without `inspect.stack()`.

    Torch asks that for the caller's name eighteen times in a launch (`dynamic_rendezvous.get_method_name`, 2.8 to
    2.13). It looks up the source of every frame, which takes 0.05 s each where Python's own start is below them.
    """
    if hasattr(dynamic_rendezvous, "get_method_name"):
        dynamic_rendezvous.get_method_name = _method_name


def _method_name(depth: int = 2) -> str:
    try:
        return sys._getframe(depth).f_code.co_name
    except ValueError:  # the stack is not that deep
        return "no_method_name"


def join_at_once() -> None:
    """Join the first round without torch's random delay of up to 0.3 s, which keeps many nodes from coming to the store
    together: for jobs of one node."""
    original = getattr(dynamic_rendezvous, "_delay", None)
    if original is None:
        return

    @functools.wraps(original)
    def delay(seconds: Any) -> None:
        if not isinstance(seconds, tuple):  # a pair is a range to choose from
            original(seconds)

    dynamic_rendezvous._delay = delay
