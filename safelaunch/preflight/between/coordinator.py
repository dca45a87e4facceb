"""Runs in: the probe of the node that holds the meeting. Waits for all to come, then asks them one thing after the
other, and last posts the picture that comes of it."""

from __future__ import annotations

import dataclasses
import time
from typing import TypeVar

from safelaunch.codec import checked, to_json
from safelaunch.preflight.between import pairs
from safelaunch.preflight.between.dialing import DIAL_S
from safelaunch.preflight.between.facts import Dial, Pair, PairReport, Place, Request, Silent, Speed, Task
from safelaunch.preflight.between.gathering import Gathering
from safelaunch.preflight.between.progress_output import ProgressOutput
from safelaunch.preflight.between.rank_assignment import RankAssignment
from safelaunch.preflight.between.reach import unreachable, unreachable_pairs
from safelaunch.preflight.between.store import MeetingStore
from safelaunch.preflight.between.tasks import Tasks

# How long an answer may take beyond the task itself.
ANSWER_S = 5.0
# `import torch` in the child for pairs, and a kernel on every GPU.
COMPUTE_S = 60.0
# Seconds for a pair. Contexts and the first collective of NCCL take 5 to 15 s; gloo is done in two.
PAIR_S = {"gloo": 15.0, "nccl": 60.0}
# How long the holder of the meeting waits for the others to leave before it closes the port.
LEAVE_S = 3.0

A = TypeVar("A")


class Coordinator:
    """Holds a meeting to its end. `until` is on the monotonic clock."""

    def __init__(
        self, request: Request, output: ProgressOutput, tasks: Tasks, store: MeetingStore, until: float
    ) -> None:
        self._request = request
        self._output = output
        self._tasks = tasks
        self._store = store
        self._until = until
        self._number = 0

    def hold(self, arrive_until: float) -> None:
        """Wait for all to come, until then at the latest, and go through with it. Raises LostError."""
        store, output = self._store, self._output
        self._tasks.take(0, 0)
        store.post("open", True)
        output.doing = "waiting for the others to come"
        gathering = Gathering(store, self._request.nodes, self._tasks.facts)
        gathering.wait(arrive_until)
        assigned, self._number = gathering.assigned, gathering.rolls
        self._until = min(self._until, gathering.until)
        output.tell(nodes=gathering.nodes, silent=gathering.silent, clashes=assigned.clashes)
        output.doing = "asking the others"
        if len(output.picture.nodes) > 1:
            self._dials(assigned)
            nodes = output.picture.nodes
            if any(node.full for node in nodes) and not any(node.refused for node in nodes):
                self._pairs()
        output.tell()
        store.post(f"task/{self._number}", to_json(Task("end", picture=output.picture)))
        stay = store.add("joined", 0) - len(output.picture.silent) - assigned.replaced
        store.count("left", stay, min(self._until, time.monotonic() + LEAVE_S))

    def _ask(self, task: Task, answer: type[A], question: str, ranks: set[int]) -> dict[int, A]:
        """Post a task, do it as well, and gather the answers. Who gives none is silent from now on."""
        number, self._number = self._number, self._number + 1
        until = min(self._until - LEAVE_S, time.monotonic() + task.seconds + ANSWER_S)
        begin = time.monotonic()
        self._store.post(f"task/{number}", to_json(task))
        mine = self._tasks.do(task)
        answers = self._store.collect(answer, f"done/{number}", ranks - {0}, until)
        late = sorted(ranks - {0} - set(answers))
        if late:
            picture = self._output.picture
            hosts = {node.rank: node.host for node in picture.nodes}
            after = time.monotonic() - begin
            self._output.tell(
                silent=(*picture.silent, *(Silent(rank, hosts[rank], question, after) for rank in late)),
                nodes=tuple(node for node in picture.nodes if node.rank not in late),
            )
        return {**({0: checked(answer, mine)} if 0 in ranks else {}), **answers}

    def _ranks(self) -> set[int]:
        return {node.rank for node in self._output.picture.nodes}

    def _dials(self, assigned: RankAssignment) -> None:
        """Tell all where the others are, and no more than that: there may be a thousand."""
        nodes = self._output.picture.nodes
        roster = [Place(node.rank, assigned.seats[node.rank], node.ip, node.port) for node in nodes]
        self._tasks.learn(roster)
        task = Task("dial", 3 * DIAL_S, tuple(roster))
        answers = self._ask(task, tuple[Dial, ...], "a connection to each of the others", self._ranks())
        # A silent node may still accept connections; it is told of once.
        known = self._ranks()
        # What a node says of others is not its own to say, nor is one connection worth more than one.
        dials = {
            (rank, dial.dst): dial
            for rank in sorted(answers)
            for dial in answers[rank]
            if dial.src == rank and dial.dst in known
        }
        self._output.tell(dials=tuple(dials.values()))

    def _pairs(self) -> None:
        """Let pairs exchange data, round after round, as `pairs.next_round` says."""
        output = self._output
        if len(self._ranks() - unreachable(output.picture)) < 2:
            return
        gpus = {node.rank: len(node.gpus) if node.uses_gpu else 0 for node in output.picture.nodes}
        backend = "nccl" if all(gpus.values()) else "gloo"
        compute = Task("compute", COMPUTE_S, backend=backend)
        answers = self._ask(compute, Speed, "a multiplication of matrices", self._ranks())
        speeds = (dataclasses.replace(answers[rank], rank=rank) for rank in sorted(answers))
        output.tell(speeds=tuple(speeds), tried_pairs=True)
        seconds = PAIR_S[backend]
        tried: list[Pair] = []
        for done in range(pairs.MAX_ROUNDS):
            picture = output.picture
            ranks = self._ranks() - unreachable(picture)
            chosen = pairs.next_round(sorted(ranks), tried, picture.limits, unreachable_pairs(picture))
            if not chosen:
                return
            if time.monotonic() + seconds + ANSWER_S + LEAVE_S > self._until:
                output.tell(unfinished=f"the time was up after {done} rounds of pairs")
                return
            counted = tuple((a, b, min(gpus[a], gpus[b]) if backend == "nccl" else 1) for a, b in chosen)
            busy = {rank for both in chosen for rank in both}
            names = {rank: picture.name(rank) for rank in busy}
            task = Task("pairs", seconds, backend=backend, pairs=counted)
            reports = self._ask(task, PairReport, "an exchange of data", busy)
            tried += [pairs.merge(both, reports, names.__getitem__) for both in chosen]
            output.tell(pairs=tuple(pair for pair in tried if set(pair.both) <= self._ranks()))
