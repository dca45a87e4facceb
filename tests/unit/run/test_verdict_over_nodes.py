"""Several nodes come to one verdict, over the loopback interface."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnosis"))
from hang_scenes import ASLEEP, call, elsewhere, hang, waiting, world
from scenes import STEP, T

from safelaunch.codec import to_json
from safelaunch.model import Case, GpuState, Verdict, WorkerGroup, WorkerProcess
from safelaunch.model.nodes import Node, Nodes
from safelaunch.report.palette import PLAIN
from safelaunch.run import nodes_asked
from safelaunch.run.console import Console
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge

KEY = "ab" * 32
COUNT = 3
PATIENCE_S = 30.0


class Silent(Console):
    def __init__(self) -> None:
        self.loud, self.palette = 0, PLAIN
        self.lines: list[str] = []

    def print(self, lines: object) -> None:
        self.lines.append(str(lines))


def seen(node: int) -> Case:
    """Two ranks a node; of the last one the second sleeps."""
    size = 2 * COUNT
    ranks = [waiting(rank, call(size=size)) for rank in (2 * node, 2 * node + 1)]
    if node == COUNT - 1:
        ranks[1] = elsewhere(size - 1, ASLEEP, STEP)
    case = hang(*ranks, groups=(world(size),), world_size=size)
    return dataclasses.replace(case, host=f"node-{node}")


def with_hardware(case: Case) -> Case:
    """With what a node reads of the GPU of its second rank: where that sleeps, it has fallen off the bus. That machine
    was booted a quarter of an hour after the others."""
    last = case.ranks[-1].rank
    gpu = GpuState(1, address="0000:3b:00.0", ranks=(last,))
    if last == 2 * COUNT - 1:
        fault = f"[{T + 0.5 - 900.0:.3f}] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."
        gpu = dataclasses.replace(gpu, xids=(fault,), ahead_s=900.0)
    return dataclasses.replace(case, gpus=(gpu,))


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)


@pytest.fixture
def job() -> Iterator[list[JobNodes]]:
    console = Silent()
    looks: list[int] = []

    def looking(node: int) -> Callable[[WorkerGroup, bool], Case]:
        def look(_: WorkerGroup, hardware: bool) -> Case:
            looks.append(node)
            return with_hardware(seen(node)) if hardware else seen(node)

        return look

    nodes = [JobNodes("127.0.0.1", Judge(console), console, looking(node)) for node in range(COUNT)]
    for one in nodes:
        one.open()
    met = tuple(Node(n, f"node-{n}", "127.0.0.1", one.address["port"], 2 * n, 2) for n, one in enumerate(nodes))  # type: ignore[index]
    for number, one in enumerate(nodes):
        workers = tuple(WorkerProcess(rank, rank % 2, 1, 0, "", "") for rank in (2 * number, 2 * number + 1))
        one.meet(to_json(Nodes(0, number, met, KEY)))
        one.follow(WorkerGroup(0, 2 * COUNT, 2, workers), 11)
    links = [one._link for one in nodes]
    eventually(lambda: all(link and link.peers.linked for link in links))
    eventually(lambda: links[0] and links[0].peers.linked == (1, 2))
    nodes[0].looks = looks  # type: ignore[attr-defined]
    yield nodes
    for one in nodes:
        one.close()


def gist(verdict: Verdict | None) -> tuple[object, ...]:
    assert verdict is not None
    return verdict.code, verdict.culprit_ranks, verdict.host, verdict.summary


def at_once(job: list[JobNodes]) -> list[Verdict | None]:
    found: list[Verdict | None] = [None] * COUNT

    def ask(node: int) -> None:
        found[node] = job[node].verdict(seen(node))

    threads = [threading.Thread(target=ask, args=(node,)) for node in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_who_ask_hear_the_same_rank_of_another_node(job: list[JobNodes]) -> None:
    for verdict in at_once(job):
        assert verdict is not None
        assert (verdict.code, verdict.culprit_ranks, verdict.host) == ("SL301", (5,), "node-2")


def test_who_asks_a_little_later_hears_the_same_without_another_look(
    job: list[JobNodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_asked, "AGAIN_S", 1000.0)
    first = job[1].verdict(seen(1))
    looks = list(job[0].looks)  # type: ignore[attr-defined]
    assert sorted(looks) == [0, 2]
    assert gist(job[2].verdict(seen(2))) == gist(first) == gist(job[0].verdict(seen(0)))
    assert job[0].looks == looks  # type: ignore[attr-defined]


def test_who_asks_for_another_kind_of_incident_is_looked_at_anew(job: list[JobNodes]) -> None:
    job[1].verdict(seen(1))
    looks = len(job[0].looks)  # type: ignore[attr-defined]
    failed = seen(2)
    job[2].verdict(dataclasses.replace(failed, incident=dataclasses.replace(failed.incident, kind="exit")))
    assert len(job[0].looks) > looks  # type: ignore[attr-defined]


def test_a_gpu_of_another_node_is_looked_at_where_who_asks_has_looked_at_its_own(job: list[JobNodes]) -> None:
    without = job[0].verdict(seen(0))
    verdict = job[0].verdict(with_hardware(seen(0)))  # at once: what was concluded without hardware is no answer

    assert without is not None
    assert without.code == "SL301"
    assert verdict is not None
    assert (verdict.code, verdict.culprit_ranks, verdict.host) == ("SL428", (5,), "node-2")
    assert verdict.summary.startswith("GPU 1 of node-2 failed: Xid 79")
    assert "GPU 1 of node-2: reboot" in verdict.remedy
