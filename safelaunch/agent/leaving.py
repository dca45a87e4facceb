"""Runs in: agent. A node that is to blame for the second time leaves the job, ahead of the next rendezvous, where the
others can go on without it.

Its ranks have ended by then, as for any restart. It takes itself off the list of participants at once: a node that only
ends is missed after 15 s. Others restart when their own ranks fail. Where these wait for ours (NCCL), they restart as
they do for any node: because one waits for the next round.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous import utils as rendezvous_utils
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.launcher.api import LaunchConfig

from safelaunch.agent.channel import Channel

OWN_ACCORD_S = 3.0  # for the ranks of others to fail, and for their agents to restart them
OTHERS_S = 60.0  # for them to do so where they have to be asked
NO_WAY = "this torch's rendezvous lets no node leave"
ON_IT = "the store of the rendezvous is on it"


class Leaving:
    """Whether this node leaves, once the supervisor has asked for it.

    Args:
        channel: to the supervisor, which says `leave`, and is told by the event `leaves` what comes of it.
        config: of the launch.
    """

    def __init__(self, channel: Channel, config: LaunchConfig) -> None:
        self._channel = channel
        self._config = config
        self._asked = False
        self._nodes = self._round = 0  # of the latest rendezvous
        channel.on_command("leave", self._ask)
        original, leaving = DynamicRendezvousHandler.next_rendezvous, self

        @functools.wraps(original)
        def next_rendezvous(self: Any) -> Any:
            leaving.decide(self)
            found = original(self)
            leaving.joined(self)
            return found

        DynamicRendezvousHandler.next_rendezvous = next_rendezvous

    def _ask(self) -> None:
        self._asked = True

    def joined(self, handler: Any) -> None:
        """A rendezvous is complete."""
        state = getattr(getattr(handler, "_state_holder", None), "state", None)
        self._nodes, self._round = len(getattr(state, "participants", ())), getattr(state, "round", 0)

    def decide(self, handler: Any) -> None:
        """Leave, where that is asked for and the others can go on; else say why not, and go on."""
        if not self._asked:
            return
        self._asked = False
        try:
            why_not = self._why_not(handler)
            if not why_not:
                self._channel.post("leaves", stays="")
                handler._stop_heartbeats()
                handler._op_executor.run(Leave(self._round), handler._get_deadline(handler._settings.timeout.join))
        except AttributeError:
            why_not = NO_WAY
        except Exception as error:  # the store is gone, or does not answer
            why_not = f"the rendezvous says {type(error).__name__}"
        if why_not:
            self._channel.post("leaves", stays=why_not)
            return
        os._exit(1)  # torch's own end would close the rendezvous for all

    def _why_not(self, handler: Any) -> str:
        if self._hosts_store():
            return ON_IT
        handler._state_holder.sync()
        spares, fewest = len(handler._state_holder.state.redundancy_list), handler._settings.min_nodes
        turn = handler._store.add(f"safelaunch/leaving/{handler.get_run_id()}/{self._round}", 1)
        if self._nodes - turn + spares >= fewest:  # others may leave after the same attempt
            return ""
        return f"no spare node waits, and the job needs {fewest} nodes"

    def _hosts_store(self) -> bool:
        """Whether the others would lose their store with this node, by torch's own way to tell."""
        config = self._config
        if config.rdzv_backend != "c10d" or config.rdzv_configs.get("store_type", "tcp") == "file":
            return False
        said = config.rdzv_configs.get("is_host")
        if said is not None:
            return str(said).lower() in ("1", "true", "t", "yes", "y")
        host, _ = rendezvous_utils.parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=0)
        return bool(rendezvous_utils._matches_machine_hostname(host))


class Leave:
    """A step out of the rendezvous for good, as torch's own operations of it are.

    Args:
        of_round: the round that this node was in: those who are in another one have restarted without it.
    """

    def __init__(self, of_round: int) -> None:
        self._round = of_round
        self._begun = time.monotonic()

    def __call__(self, ctx: Any, deadline: float) -> Any:
        """What to do next, by the state of the rendezvous."""
        state, node, action = ctx.state, ctx.node, dynamic_rendezvous._Action
        if node in state.participants:
            return action.REMOVE_FROM_PARTICIPANTS
        since = time.monotonic() - self._begun
        others_stay = state.complete and state.participants and state.round == self._round and not state.closed
        if others_stay and since < OTHERS_S and time.monotonic() < deadline:
            if since > OWN_ACCORD_S and node not in state.wait_list:
                return action.ADD_TO_WAIT_LIST
            return action.KEEP_ALIVE if dynamic_rendezvous._should_keep_alive(ctx) else action.SYNC
        return action.REMOVE_FROM_WAIT_LIST if node in state.wait_list else action.FINISH
