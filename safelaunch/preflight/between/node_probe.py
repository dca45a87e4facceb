"""Runs in: a child process, one on each node. Meets the probes of the other nodes and prints Pictures.

The node that owns the endpoint holds the meeting: it waits for all to come, then posts one task after the other, which
all nodes do and answer, and last the picture that comes of it. Each line on stdout is a whole Picture, the last one
counts: so a probe that is killed has told what it knew.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

from safelaunch.codec import from_json, to_json
from safelaunch.preflight.between import pairs
from safelaunch.preflight.between.dialing import DIAL_S, Listener, dial_all
from safelaunch.preflight.between.facts import (
    Clash,
    Dial,
    Facts,
    Pair,
    PairReport,
    Picture,
    Request,
    Silent,
    Speed,
)
from safelaunch.preflight.between.pair_child import PairChild
from safelaunch.preflight.between.reach import dial_plan, unreachable, unreachable_pairs
from safelaunch.preflight.between.room import OPEN_S, LostError, Room, reach
from safelaunch.preflight.between.stage import REQUEST

# For tests: KIND@RANK. `version` and `env` give that node another fact, `clock` shifts its clock, `mute` makes it
# silent once it has come, `mute-later` when it is to dial the others, `hang-pair` stops it in its pairs.
FAULT = "SAFELAUNCH_PROBE_FAULT"

# How long a node that came may take for its facts, which it has ready.
FACTS_S = 5.0
# How long an answer may take beyond the task itself.
ANSWER_S = 5.0
# `import torch` in the child for pairs, and a kernel on every GPU.
COMPUTE_S = 60.0
# Seconds for a pair. Contexts and the first collective of NCCL take 5 to 15 s; gloo is done in two.
PAIR_S = {"gloo": 15.0, "nccl": 60.0}
# How long the holder of the meeting waits for the others to leave before it closes the port.
LEAVE_S = 3.0


class Node:
    """This node, at the meeting."""

    def __init__(self, request: Request, answer: Any) -> None:
        self.request = request
        self.begin = time.monotonic()
        self.until = self.begin + request.deadline_s
        self.picture = Picture(
            request.nodes, ranked=request.rank is not None, waited_s=request.arrive_s, limits=request.limits
        )
        self.facts = request.facts
        self.doing = "import torch"
        self._answer = answer
        self._lock = threading.Lock()
        self._pair_child: PairChild | None = None
        self._store = ("localhost", request.port)
        self._endpoint_ip = ""
        self._fault = ""
        self._listener: Listener
        self._room: Room

    # ------------------------------------------------------------------------------------- what all do

    def run(self) -> None:
        """Take part in the meeting to its end, or to the deadline."""
        watchdog = threading.Timer(self.request.deadline_s, self.give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            self.facts = dataclasses.replace(self.facts, versions={**self.facts.versions, **_versions()}, own=_own())
        except Exception as error:
            self.tell(unlooked=f"torch cannot be imported: {type(error).__name__}: {error}")
            return
        self._listener = Listener()
        holds = self.request.rank == 0 if self.request.rank is not None else self.request.owner
        try:
            if not (holds and self._hold()):
                self._join()
        except LostError as error:
            if self.picture.nodes:
                self.tell(unfinished=f"the meeting was lost while {self.doing}: {error}")
            else:
                self.tell(unmet=str(error))

    def tell(self, **news: Any) -> None:
        """Add to the picture and print it."""
        with self._lock:
            self.picture = dataclasses.replace(self.picture, **news)
            print(json.dumps(to_json(self.picture)), file=self._answer, flush=True)

    def give_up(self) -> NoReturn:
        """The deadline of the whole stage."""
        reason = f"the time was up while {self.doing}"
        if self.picture.nodes:
            self.tell(unfinished=reason)
        else:
            self.tell(unmet=reason)
        self.close()

    def close(self) -> NoReturn:
        """End at once: the kernel closes the store's port, whatever torch's threads wait for."""
        if self._pair_child is not None:
            self._pair_child.end()
        self._answer.flush()
        os._exit(0)

    def _take_rank(self, rank: int) -> None:
        name, _, number = os.environ.get(FAULT, "").partition("@")
        self._fault = name if number == str(rank) else ""
        self._listener.rank = rank
        changes: dict[str, Any] = {}
        if self._fault == "version":
            changes["versions"] = {**self.facts.versions, "torch": "0.0.1"}
        if self._fault == "env":
            changes["env"] = {**self.facts.env, "NCCL_PROTO": "LL"}
        if self._fault == "clock":
            self._listener.shift_s = 5.0
        self.facts = dataclasses.replace(
            self.facts, rank=rank, port=self._listener.port, left_s=self.until - time.monotonic(), **changes
        )

    def _mute(self, kind: str) -> None:
        while self._fault == kind:
            signal.pause() if threading.current_thread() is threading.main_thread() else time.sleep(60)

    def _do(self, task: dict[str, Any]) -> Any:
        """Do one task; the answer is JSON."""
        kind = task["task"]
        self.doing = {"dial": "dialling the others", "compute": "computing", "pairs": "exchanging data"}[kind]
        if kind == "dial":
            self._mute("mute-later")
            roster = self.picture.nodes
            plan = dial_plan([node.rank for node in roster], self.facts.rank)
            places = {node.rank: (self._address(node), node.port) for node in roster if node.rank in plan}
            return to_json(dial_all(self.facts.rank, places, self._listener.shift_s))
        if self._pair_child is None:
            self._pair_child = PairChild()
        nodes = {node.rank: node for node in self.picture.nodes}
        backend = "nccl" if all(node.uses_gpu and node.gpus for node in nodes.values()) else "gloo"
        common = {"backend": backend, "deadline_s": task["seconds"], "hang": False}
        if kind == "compute":
            count = min(len(self.facts.gpus), self.facts.nproc) if backend == "nccl" else 1
            value, error = self._pair_child.ask({**common, "kind": "compute", "nlocal": count})
            return to_json(Speed(self.facts.rank, value, error))
        for a, b in task["pairs"]:
            if self.facts.rank in (a, b):
                peer = nodes[b if self.facts.rank == a else a]
                count = min(len(nodes[a].gpus), len(nodes[b].gpus)) if backend == "nccl" else 1
                common |= {"hang": self._fault == "hang-pair", "role": int(self.facts.rank == b), "nlocal": count}
                common |= {"kind": "pair", "peer_ip": self._address(peer), "store": self._store}
                value, error = self._pair_child.ask({**common, "key": f"{self._prefix()}/pair/{a}-{b}"})
                return to_json(PairReport(self.facts.rank, peer.rank, value, error))
        return None

    def _prefix(self) -> str:
        return f"safelaunch/{self.request.meeting}"

    def _address(self, node: Facts) -> str:
        return node.ip or self._endpoint_ip

    # ---------------------------------------------------------------------------------- those who come

    def _join(self) -> None:
        request = self.request
        self.doing = "connecting to the endpoint"
        self._endpoint_ip, mine = reach(request.host, request.port, self.begin + request.arrive_s)
        self._store = (request.host, request.port)
        self._room = room = Room(request.host, request.port, master=False, name=request.meeting)
        if room.wait("open", time.monotonic() + OPEN_S) is None:
            raise LostError(f"something listens at {request.host}:{request.port}, but holds no check between nodes")
        room.add("joined")
        self.doing = "waiting for the others to come"
        rank = request.rank if request.rank is not None else room.add("ranks")
        if room.add(f"taken/{rank}") > 1:
            room.post("clash", {"rank": rank, "host": self.facts.host})
            rank = -1
        self._take_rank(rank)
        if rank >= 0:
            room.post(f"here/{rank}", self.facts.host)
            self._mute("mute")
            self.facts = dataclasses.replace(self.facts, ip=mine)
            room.post(f"facts/{rank}", to_json(self.facts))
        number = 0
        while (task := room.wait(f"task/{number}", self.until)) is not None:
            if task["task"] == "end":
                self.tell(**vars(from_json(Picture, task["picture"])))
                room.add("left")
                return
            if task["task"] == "dial":
                self.tell(nodes=tuple(from_json(Facts, node) for node in task["nodes"]))
            if rank >= 0 and any(node.rank == rank for node in self.picture.nodes):
                room.post(f"done/{number}/{rank}", self._do(task) or {})
            self.doing = "waiting for the node that holds the meeting"
            number += 1

    # ------------------------------------------------------------------------------ the one who holds

    def _hold(self) -> bool:
        """Hold the meeting; False where another node on this machine does so already."""
        request = self.request
        self.doing = "opening the endpoint's port"
        try:
            self._room = room = Room("localhost", request.port, master=True, name=request.meeting)
        except LostError as error:
            if request.rank is None:
                return False
            self.tell(unlooked=f"port {request.port} cannot be opened on this node: {error}")
            return True
        self._take_rank(0)
        room.add("taken/0")
        room.post("open", True)
        self.doing = "waiting for the others to come"
        self._gather()
        self.doing = "asking the others"
        number = 0
        if len(self.picture.nodes) > 1:
            number = self._dials(number)
            nodes = self.picture.nodes
            if any(node.full for node in nodes) and not any(node.refused for node in nodes):
                number = self._pairs(number)
        self.tell()
        room.post(f"task/{number}", {"task": "end", "picture": to_json(self.picture)})
        silent = len(self.picture.silent)
        room.count("left", room.add("joined", 0) - silent, min(self.until, time.monotonic() + LEAVE_S))
        return True

    def _gather(self) -> None:
        """Wait until all have said what they are; for those that came and are silent, a little longer."""
        nodes, here, came_at = {0: self.facts}, {0: self.facts.host}, {0: time.monotonic()}
        until = self.begin + self.request.arrive_s
        ranks = range(1, self.request.nodes)
        while time.monotonic() < until:
            for rank, host in self._room.collect("here", set(ranks) - set(here), 0).items():
                here[rank], came_at[rank] = host, time.monotonic()
            for rank, facts in self._room.collect("facts", set(here) - set(nodes), 0).items():
                nodes[rank] = from_json(Facts, facts)
                self.until = min(self.until, time.monotonic() + nodes[rank].left_s)
            waiting = set(here) - set(nodes)
            clash = self._room.peek("clash")
            if len(here) + bool(clash) >= self.request.nodes and all(
                time.monotonic() > came_at[rank] + FACTS_S for rank in waiting
            ):
                break
            time.sleep(0.02)
        clash = self._room.peek("clash")
        self.tell(
            nodes=tuple(nodes[rank] for rank in sorted(nodes)),
            silent=tuple(Silent(rank, here[rank], "what it is", FACTS_S) for rank in sorted(set(here) - set(nodes))),
            clashes=(Clash(clash["rank"], (here.get(clash["rank"], "?"), clash["host"])),) if clash else (),
        )

    def _ask(self, number: int, task: dict[str, Any], seconds: float, question: str, ranks: set[int]) -> dict[int, Any]:
        """Post a task, do it as well, and gather the answers. Who gives none is silent from now on."""
        until = min(self.until - LEAVE_S, time.monotonic() + seconds + ANSWER_S)
        begin = time.monotonic()
        self._room.post(f"task/{number}", {**task, "seconds": seconds})
        mine = self._do(task | {"seconds": seconds})
        answers = self._room.collect(f"done/{number}", ranks - {0}, until)
        late = sorted(ranks - {0} - set(answers))
        if late:
            hosts = {node.rank: node.host for node in self.picture.nodes}
            after = time.monotonic() - begin
            self.tell(
                silent=(*self.picture.silent, *(Silent(rank, hosts[rank], question, after) for rank in late)),
                nodes=tuple(node for node in self.picture.nodes if node.rank not in late),
            )
        return {**({0: mine} if 0 in ranks else {}), **answers}

    def _ranks(self) -> set[int]:
        return {node.rank for node in self.picture.nodes}

    def _dials(self, number: int) -> int:
        task = {"task": "dial", "nodes": to_json(self.picture.nodes)}
        answers = self._ask(number, task, 3 * DIAL_S, "a connection to each of the others", self._ranks())
        # A silent node may still accept connections; it is told of once.
        known = self._ranks()
        dials = (from_json(Dial, dial) for rank in sorted(answers) for dial in answers[rank])
        self.tell(dials=tuple(dial for dial in dials if dial.dst in known))
        return number + 1

    def _pairs(self, number: int) -> int:
        """Let pairs exchange data, round after round, as `pairs.next_round` says."""
        if len(self._ranks() - unreachable(self.picture)) < 2:
            return number
        answers = self._ask(number, {"task": "compute"}, COMPUTE_S, "a multiplication of matrices", self._ranks())
        speeds = tuple(from_json(Speed, answers[rank]) for rank in sorted(answers))
        self.tell(speeds=speeds, tried_pairs=True)
        gpu = all(node.uses_gpu and node.gpus for node in self.picture.nodes)
        seconds = PAIR_S["nccl" if gpu else "gloo"]
        tried: list[Pair] = []
        for done in range(pairs.MAX_ROUNDS):
            number += 1
            ranks = self._ranks() - unreachable(self.picture)
            barred = unreachable_pairs(self.picture)
            chosen = pairs.next_round(sorted(ranks), tried, self.picture.limits, barred)
            if not chosen:
                return number
            if time.monotonic() + seconds + ANSWER_S + LEAVE_S > self.until:
                self.tell(unfinished=f"the time was up after {done} rounds of pairs")
                return number
            busy = {rank for both in chosen for rank in both}
            names = {rank: self.picture.name(rank) for rank in busy}
            answers = self._ask(number, {"task": "pairs", "pairs": chosen}, seconds, "an exchange of data", busy)
            reports = {rank: from_json(PairReport, answer) for rank, answer in answers.items() if answer}
            tried += [pairs.merge(both, reports, names.__getitem__) for both in chosen]
            self.tell(pairs=tuple(pair for pair in tried if set(pair.both) <= self._ranks()))
        return number + 1


def _versions() -> dict[str, str]:
    """What the ranks would run."""
    torch = importlib.import_module("torch")
    importlib.import_module("torch.distributed")
    known = {
        "torch": str(torch.__version__),
        "CUDA": str(torch.version.cuda or ""),
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "safelaunch": str(getattr(sys.modules["safelaunch"], "__version__", "")),
    }
    try:
        known["NCCL"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""
    except (AttributeError, RuntimeError):
        known["NCCL"] = ""
    return known


def _own() -> tuple[str, ...]:
    """The addresses of this node."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    found = {
        a.address.partition("%")[0] for all_ in psutil.net_if_addrs().values() for a in all_ if a.family in families
    }
    return tuple(sorted(found))


def main() -> None:
    # The answer has stdout for itself: what torch prints there goes to stderr.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    node = Node(from_json(Request, json.loads(os.environ[REQUEST])), answer)
    node.run()
    node.close()


if __name__ == "__main__":
    main()
