"""Runs in: the probe. What every node does at the meeting when it is asked to: dial, compute, exchange data."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from safelaunch.codec import to_json
from safelaunch.preflight.active.forked import FAULT
from safelaunch.preflight.between.dialing import Listener, dial_all
from safelaunch.preflight.between.facts import Facts, PairReport, Place, Speed, Task
from safelaunch.preflight.between.pair_child import PairChild
from safelaunch.preflight.between.progress_output import ProgressOutput
from safelaunch.preflight.between.reach import dial_plan

# Kinds of FAULT: `version` and `env` give that node another fact, `clock` shifts its clock, `mute` makes it silent
# once it has come, `mute-later` when it is to dial the others, `hang-pair` stops it in its pairs.

DOING = {"dial": "dialling the others", "compute": "computing", "pairs": "exchanging data"}

MOST_S = 60.0  # of one task, whatever is asked for


class Tasks:
    """Does tasks, one after the other.

    `roster` is where all are, `rank` the one of this node, `store` where pairs meet, and `endpoint_ip` where the first
    node is, seen from here.
    """

    def __init__(self, output: ProgressOutput, facts: Facts, store: tuple[str, int], meeting: str) -> None:
        """Raises RuntimeError where no thread can be started."""
        self.facts = facts
        self.rank = -1
        self.roster: dict[int, Place] = {}
        self.store = store
        self.endpoint_ip = ""
        self.listener = Listener()
        self._prefix = f"safelaunch/{meeting}/pair"
        self._output = output
        self._fault = ""
        self._pair_child: PairChild | None = None

    def take(self, seat: int, rank: int | None) -> None:
        """Be so known to the others; `rank` is None where it comes with the roster."""
        self.listener.seat = seat
        self.rank = self.rank if rank is None else rank
        name, _, number = os.environ.get(FAULT, "").partition("@")
        self._fault = name if number == str(self.rank) else ""
        changes: dict[str, Any] = {}
        if self._fault == "version":
            changes["versions"] = {**self.facts.versions, "torch": "0.0.1"}
        if self._fault == "env":
            changes["env"] = {**self.facts.env, "NCCL_PROTO": "LL"}
        if self._fault == "clock":
            self.listener.shift_s = 5.0
        self.facts = dataclasses.replace(self.facts, rank=self.rank, port=self.listener.port, **changes)

    def learn(self, roster: Sequence[Place]) -> None:
        """Where all are; one that is not among them has no part in what follows."""
        self.roster = {place.rank: place for place in roster}
        self.rank = next((place.rank for place in roster if place.seat == self.listener.seat), -1)

    def do(self, task: Task) -> Any:
        """The answer is JSON; None where this node has nothing to do."""
        self._output.doing = DOING[task.task]
        if task.task == "dial":
            self.mute("mute-later")
            plan = dial_plan(self.roster, self.rank)
            places = {rank: dataclasses.replace(self.roster[rank], ip=self._address(rank)) for rank in plan}
            return to_json(dial_all(self.rank, places, self.listener.shift_s))
        if task.task == "compute":
            value, error = self._ask(task, kind="compute", nlocal=min(self._devices(task), self.facts.nproc))
            return to_json(Speed(self.rank, value, error))
        for a, b, count in task.pairs:
            if self.rank in (a, b):
                peer = b if self.rank == a else a
                value, error = self._ask(
                    task,
                    kind="pair",
                    nlocal=min(count, self._devices(task)),  # whatever the node that holds the meeting says
                    role=int(self.rank == b),
                    peer_ip=self._address(peer),
                    store=self.store,
                    key=f"{self._prefix}/{a}-{b}",
                    hang=self._fault == "hang-pair",
                )
                return to_json(PairReport(self.rank, peer, value, error))
        return None

    def _devices(self, task: Task) -> int:
        return len(self.facts.gpus) if task.backend == "nccl" else 1

    def mute(self, kind: str) -> None:
        """For tests: never come back."""
        while self._fault == kind:
            signal.pause() if threading.current_thread() is threading.main_thread() else time.sleep(60)

    def end(self) -> None:
        if self._pair_child is not None:
            self._pair_child.end()

    def _ask(self, task: Task, **rest: Any) -> tuple[float, str]:
        if self._pair_child is None:
            self._pair_child = PairChild()
        backend = "nccl" if task.backend == "nccl" else "gloo"
        return self._pair_child.ask({"backend": backend, "deadline_s": min(task.seconds, MOST_S), **rest})

    def _address(self, rank: int) -> str:
        return self.roster[rank].ip or self.endpoint_ip
