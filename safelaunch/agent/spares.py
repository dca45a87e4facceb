"""Runs in: agent. Nodes beyond those of the job, which wait in torch's rendezvous until one is lost.

Torch's dynamic rendezvous keeps who comes when it is complete and full in a redundancy list, and lets it in when a
participant is gone. Three things are missing there for a job with spares (2.13):

- A restart takes the nodes out and in again. A spare joins at once then, in the place of one that is there.
- Who comes between goes to the list of those that wait, and stays there when the round is full. The agents of the round
  take it for a new node and restart their ranks, for ever.
- A spare is not told how the job has ended: its agent fails in the one case (`run` returns None), or waits on in the
  other. So the nodes that end leave a word in the rendezvous store, and wait a moment until the spares have read it:
  that store may go with them.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from safelaunch.agent.channel import Channel

NEEDED = ("_RendezvousJoinOp", "_Action", "_should_keep_alive")
MISSING_S = 3.0  # a node that restarts is back within a second or two: one that is missing for so long is lost
JOINS, LEAVES = "_add_to_redundancy_list", "_remove_from_redundancy_list"
LOOK_S = 0.5  # between two looks of a spare at how the job has ended
LAST_S = 3.0  # for the word of the end, where the rendezvous is closed, or its store is gone
HEARD_S = 2.0  # for the spares to hear it
LONGEST = 400  # characters of it
NO_LIST = (
    "--spare-nodes: this torch's rendezvous keeps no spare nodes; leave it out, or use a torch that does (2.13 does)"
)
GONE = "the store of the rendezvous is gone, and nobody has said how the job ended"


class Spares:
    """What this agent does for spare nodes, as one of them or as a node of the job.

    Args:
        channel: to the supervisor.

    Raises:
        ValueError: torch's rendezvous keeps no spare nodes.
    """

    def __init__(self, channel: Channel) -> None:
        executor = getattr(dynamic_rendezvous, "_DistributedRendezvousOpExecutor", None)
        known = all(hasattr(dynamic_rendezvous, name) for name in NEEDED)
        if not known or not all(hasattr(executor, name) for name in (JOINS, LEAVES)):
            raise ValueError(NO_LIST)
        self._channel = channel
        self._store: Any = None
        self._prefix = ""
        self._waits: threading.Event | None = None  # while this node is a spare; set when it is none any more
        self._missing_since: float | None = None
        self._hook(executor, JOINS, self._begin)
        self._hook(executor, LEAVES, self._called)
        self._see_store()
        self._join_for_lost_nodes_alone()
        _count_nobody_in_a_full_round()

    @staticmethod
    def _hook(owner: Any, name: str, action: Callable[[], None]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(self, *args, **kwargs)
            self._state.wait_list.discard(self._node)
            action()
            return found

        setattr(owner, name, hooked)

    def _see_store(self) -> None:
        original, spares = DynamicRendezvousHandler.next_rendezvous, self

        @functools.wraps(original)
        def next_rendezvous(self: Any) -> Any:
            spares._store = self._store
            spares._prefix = f"safelaunch/spares/{self.get_run_id()}/"
            try:
                found = original(self)
            except Exception:
                if spares._waits is not None:
                    spares._end_by_last_word()
                raise
            spares._called()
            return found

        DynamicRendezvousHandler.next_rendezvous = next_rendezvous

    def _join_for_lost_nodes_alone(self) -> None:
        operation, action = dynamic_rendezvous._RendezvousJoinOp, dynamic_rendezvous._Action
        original, spares = operation.__call__, self

        @functools.wraps(original)
        def join(self: Any, ctx: Any, deadline: float) -> Any:
            state, most = ctx.state, ctx.settings.max_nodes
            if not state.closed and ctx.node in state.redundancy_list:
                if spares._is_not_needed(len(state.participants) + len(state.wait_list), most):
                    return action.KEEP_ALIVE if dynamic_rendezvous._should_keep_alive(ctx) else action.SYNC
            elif state.complete and ctx.node in state.wait_list and len(state.participants) >= most:
                return action.ADD_TO_REDUNDANCY_LIST
            return original(self, ctx, deadline)

        operation.__call__ = join

    # -------------------------------------------------------------------------------------------- as a spare

    def _is_not_needed(self, there: int, nodes: int) -> bool:
        """Whether a spare stays one: all nodes of the job are there, or one is missing for a moment (a restart)."""
        now = time.monotonic()
        if there >= nodes:
            self._missing_since = None
            return True
        self._missing_since = self._missing_since or now
        return now - self._missing_since < MISSING_S

    def _begin(self) -> None:
        if self._waits is not None:
            return  # the rendezvous writes it again, where another node has written in between
        self._waits = threading.Event()
        self._store.add(self._prefix + "waiting", 1)
        self._channel.post("spare", waits=True)
        threading.Thread(target=self._follow, args=(self._waits,), name="safelaunch-spare", daemon=True).start()

    def _called(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.set()
            self._store.add(self._prefix + "waiting", -1)
            self._channel.post("spare", waits=False)

    def _follow(self, waits: threading.Event) -> None:
        try:
            store = self._store.clone() if hasattr(self._store, "clone") else self._store
            while not waits.wait(LOOK_S):
                self._look(store)
        except Exception:
            time.sleep(LAST_S)  # the rendezvous notices as well, and its word is better
            if not waits.is_set():
                self._end({"code": None, "line": GONE})

    def _look(self, store: Any) -> None:
        if store.check([self._prefix + "end"]):
            said = json.loads(store.get(self._prefix + "end"))
            store.add(self._prefix + "heard", 1)
            self._end(said)

    def _end_by_last_word(self) -> None:
        """The rendezvous is closed, or has failed: the word of the end is there soon, or never."""
        until = time.monotonic() + LAST_S
        try:
            while time.monotonic() < until:
                self._look(self._store)
                time.sleep(0.1)
        except Exception:
            pass  # the store is gone
        self._end({"code": None, "line": GONE})

    def _end(self, said: Any) -> None:
        """End this agent as the job has ended; its main thread may be blocked in the rendezvous."""
        code, line = said.get("code"), str(said.get("line"))[:LONGEST]
        if code == 0:
            self._channel.post("succeeded")
        else:
            code = code if code in range(1, 256) else 0
            self._channel.post("failed", phase="spare", type="JobEnded", message=line, code=code)
        os._exit(0 if code == 0 and not line else 1)

    # -------------------------------------------------------------------------------- as a node of the job

    def tell_end(self, error: BaseException | None) -> None:
        """The job has ended on this node, for good: leave a word for the spares, and wait until they have heard it.

        Args:
            error: for which it ended; None where it ended well.
        """
        store, end = self._store, {"code": 0, "line": ""}
        if error is not None:
            told = str(error).splitlines() or [""]
            end = {"code": 1, "line": f"{type(error).__name__}: {told[0][:LONGEST]}", **(self._channel.end or {})}
        try:
            if store is None or store.add(self._prefix + "waiting", 0) <= 0:
                return
            if error is not None or not store.check([self._prefix + "end"]):
                store.set(self._prefix + "end", json.dumps(end))
            until = time.monotonic() + HEARD_S
            while time.monotonic() < until:
                if store.add(self._prefix + "heard", 0) >= store.add(self._prefix + "waiting", 0):
                    return
                time.sleep(0.05)
        except Exception:
            pass  # whoever had the store is gone, and the spares with it


def _count_nobody_in_a_full_round() -> None:
    """Have no agent restart its ranks for nodes that wait while the round is full: they could not join."""
    original = DynamicRendezvousHandler.num_nodes_waiting

    @functools.wraps(original)
    def num_nodes_waiting(self: Any) -> int:
        waiting: int = original(self)
        full = len(self._state_holder.state.participants) >= self._settings.max_nodes
        return 0 if full else waiting

    DynamicRendezvousHandler.num_nodes_waiting = num_nodes_waiting
