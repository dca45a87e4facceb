"""The two processes of `scale.py`: the hub of a job, which is the product's own, and all its other nodes in one.

`scale_nodes.py hub N` and `scale_nodes.py nodes N PORT KEY` read words on stdin, one a line, and answer each with a
line of JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import json
import random
import resource
import selectors
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import scale_job
from daylong import said_by

from safelaunch.cluster.frames import FrameError, Session, Unread, packed
from safelaunch.cluster.link import BEAT_S, REDIAL_S
from safelaunch.cluster.messages import Answer, Beat, Hello, Judged, Suspect
from safelaunch.codec import to_json
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.model.nodes import Node, Nodes
from safelaunch.run.digest import digest
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge

HOST = "127.0.0.1"
SPREAD_S = 0.3  # between the first and the last node that notices a hang


def answer(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def words() -> Any:
    return (line.split() for line in sys.stdin)


def memory_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def hub(count: int) -> None:
    """Node 0, with the class that a run has."""
    console = said_by()
    own = scale_job.case(0, count)
    workers = tuple(WorkerProcess(rank, rank, 1, 0, "", "") for rank in range(scale_job.RANKS))
    nodes = JobNodes(HOST, Judge(console), console, lambda _: own)
    nodes.open()
    assert nodes.address is not None
    nodes.follow(WorkerGroup(0, count * scale_job.RANKS, scale_job.RANKS, workers), 11)
    answer(port=nodes.address["port"])
    for word, *arguments in words():
        if word == "meet":
            others = tuple(Node(n, f"node-{n}", HOST, 1, scale_job.RANKS * n, scale_job.RANKS) for n in range(count))
            nodes.meet(to_json(Nodes(0, 0, others, arguments[0])))
        link = nodes._link
        assert link is not None
        begun = time.perf_counter(), time.process_time()
        verdict = nodes.verdict(own) if word == "suspect" else None
        answer(
            linked=len(link.peers.linked),
            lost=len(link.peers.lost),
            cpu_s=time.process_time(),
            took_s=time.perf_counter() - begun[0],
            rss_mib=memory_mib("VmRSS"),
            peak_mib=memory_mib("VmHWM"),
            ranks=verdict.culprit_ranks if verdict else (),
            said=console.lines,
        )


@dataclasses.dataclass(eq=False)
class Other:
    """A node that is not the hub: its connection, and what has come over it."""

    rank: int
    line: socket.socket
    session: Session
    out: bytearray = dataclasses.field(default_factory=bytearray)
    greeted: bool = False
    answered: bool = False


class Others:
    """All nodes but the hub. They speak by the link's own sessions and messages; their cases are packed beforehand."""

    def __init__(self, count: int, port: int, key: bytes) -> None:
        self.traffic = {"messages": 0, "bytes": 0}
        self.silent_s = 0.0  # the longest time for which the hub has not answered
        self.sizes: list[int] = []
        self.verdicts: dict[int, float] = {}
        self.ranks: tuple[int, ...] = ()
        self.dropped = 0
        self.suspected = 0.0
        self._cases = {}
        for rank in range(1, count):
            self._cases[rank] = packed(Suspect(1, digest(scale_job.case(rank, count), 0.0)))
        self.sizes = [len(payload) for payload in self._cases.values()]
        self._port, self._key, self._count = port, key, count
        self._due: list[tuple[float, int, str]] = []
        self._others: dict[int, Other] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        for rank in range(1, self._count):
            self._dial(rank)
        while True:
            for key, _ in self._selector.select(0.02):
                self._ready(key.data)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, rank, what = heapq.heappop(self._due)
                {"beat": self._beat, "suspect": self._suspect, "dial": self._dial}[what](rank)

    @property
    def linked(self) -> int:
        return sum(other.answered for other in list(self._others.values()))

    def suspect(self) -> None:
        """All notice that their ranks wait. From another thread."""
        self.suspected = time.monotonic()
        for rank in range(1, self._count):
            heapq.heappush(self._due, (self.suspected + random.random() * SPREAD_S, rank, "suspect"))

    def _later(self, seconds: float, rank: int, what: str) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, rank, what))

    def _dial(self, rank: int) -> None:
        line = socket.socket()
        line.setblocking(False)
        line.connect_ex((HOST, self._port))
        other = self._others[rank] = Other(rank, line, Session(self._key, dialled=True))
        other.out += other.session.greeting
        self._selector.register(line, selectors.EVENT_READ | selectors.EVENT_WRITE, other)

    def _ready(self, other: Other) -> None:
        try:
            self._flush(other)
            with contextlib.suppress(BlockingIOError):
                data = other.line.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                self.traffic["bytes"] += len(data)
                for message in other.session.feed(data):
                    self.traffic["messages"] += 1
                    self._take(other, message)
                if other.session.is_open and not other.greeted:
                    other.greeted = True
                    self._send(other, Hello(other.rank))
                    self._send(other, Beat(time.monotonic(), 11))
                    self._later(random.random() * BEAT_S, other.rank, "beat")
        except (OSError, FrameError):
            self.dropped += other.greeted
            self._selector.unregister(other.line)
            other.line.close()
            other.greeted = False
            self._later(REDIAL_S, other.rank, "dial")

    def _take(self, other: Other, message: Any) -> None:
        if isinstance(message, Answer):
            other.answered = True
            self.silent_s = max(self.silent_s, time.monotonic() - message.asked)
        elif isinstance(message, Unread):
            self.verdicts[other.rank] = time.monotonic() - self.suspected
            if len(self.verdicts) == 1:  # real nodes each read their own, at the same time
                judged = message.read()
                assert isinstance(judged, Judged)
                self.ranks = judged.verdict.culprit_ranks

    def _beat(self, rank: int) -> None:
        other = self._others[rank]
        if other.greeted:
            self._send(other, Beat(time.monotonic(), 11))
            self._later(BEAT_S, rank, "beat")

    def _suspect(self, rank: int) -> None:
        self._send(self._others[rank], self._cases[rank])

    def _send(self, other: Other, message: Any) -> None:
        frame = other.session.seal(message)
        self.traffic["messages"] += 1
        self.traffic["bytes"] += len(frame)
        other.out += frame
        self._flush(other)

    def _flush(self, other: Other) -> None:
        with contextlib.suppress(BlockingIOError):
            while other.out:
                del other.out[: other.line.send(other.out)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if other.out else 0)
        if self._selector.get_key(other.line).events != events:
            self._selector.modify(other.line, events, other)


def others(count: int, port: int, key: str) -> None:
    them = Others(count, port, bytes.fromhex(key))
    answer(largest=max(them.sizes))
    for word, *_ in words():
        if word == "dial":
            threading.Thread(target=them.run, daemon=True).start()
        elif word == "suspect":
            them.suspect()
        elif word == "health":
            them.silent_s = 0.0
        answer(
            **them.traffic,
            linked=them.linked,
            dropped=them.dropped,
            silent_s=them.silent_s,
            verdicts=len(them.verdicts),
            last_s=max(them.verdicts.values(), default=0.0),
            cpu_s=time.process_time(),
            ranks=them.ranks,
        )


if __name__ == "__main__":
    if sys.argv[1] == "hub":
        hub(int(sys.argv[2]))
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        others(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
