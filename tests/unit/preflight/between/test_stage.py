"""The stage with real probes that meet on this machine, and what a node says of itself."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_host import FakeHost, gpus, write
from harness import environment

from safelaunch.codec import to_json
from safelaunch.model import Finding, Job
from safelaunch.preflight.between.facts import Dial, Facts, Pair, Picture, Place, Silent, Task
from safelaunch.preflight.between.judges import CODES
from safelaunch.preflight.between.stage import Meeting, compare, conclude_probe, gather
from safelaunch.preflight.between.store import MeetingStore, reach
from safelaunch.preflight.between.tasks import Tasks
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import Host


def meet(port: int, *ranks: int | None, nodes: int, fault: str = "", arrive_s: float = 30.0) -> list[list[Finding]]:
    """The faults that each node found; they must come to the same."""
    host = Host(Job(nproc=1, max_nodes=nodes), environ={**os.environ, "SAFELAUNCH_PROBE_FAULT": fault})

    def one(rank: int | None) -> tuple[Finding, ...]:
        meeting = Meeting("127.0.0.1", port, nodes, rank, arrive_s=arrive_s)
        return compare(host, meeting, 60.0, False)

    with ThreadPoolExecutor(len(ranks)) as pool:
        found = list(pool.map(one, ranks))
    assert all(findings == found[0] for findings in found), found
    return [[finding for finding in findings if finding.severity != "ok"] for findings in found]


def test_nodes_that_are_all_right(free_port: int) -> None:
    assert meet(free_port, 0, 1, 2, nodes=3) == [[], [], []]
    # torch's own store can listen there at once.
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", free_port))


def test_agents_on_one_machine_without_ranks(free_port: int) -> None:
    """Each of them owns the endpoint's address; the first one there holds the meeting."""
    assert meet(free_port, None, None, nodes=2) == [[], []]


def test_two_nodes_with_one_rank(free_port: int) -> None:
    (finding,), *_ = meet(free_port, 0, 1, 1, nodes=3)
    assert finding.summary == "two nodes came as rank 1: " + " and ".join([socket.gethostname()] * 2)


COMES = """
import sys
from safelaunch.model import Job
from safelaunch.preflight.between.stage import Meeting, compare
from safelaunch.preflight.machine.host import Host
port, rank = int(sys.argv[1]), None if sys.argv[2] == "None" else int(sys.argv[2])
compare(Host(Job(nproc=1, max_nodes=3)), Meeting("127.0.0.1", port, 3, rank, arrive_s=60.0), 90.0, False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(0, 1, 2), pytest.param((None, None, None), marks=pytest.mark.long)])
def test_a_node_that_is_killed_and_started_again(free_port: int, ranks: tuple[int | None, ...]) -> None:
    """Its probe ends with it, and who comes in its place from the same host is no second node."""
    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(meet, free_port, ranks[0], nodes=3, arrive_s=60.0)
        reach("127.0.0.1", free_port, time.monotonic() + 30.0)
        store = MeetingStore("127.0.0.1", free_port, master=False, name="")
        killed = subprocess.Popen([sys.executable, "-c", COMES, str(free_port), str(ranks[1])], env=environment())
        assert store.wait(Facts, "facts/1", time.monotonic() + 30.0)
        probe, *_ = psutil.Process(killed.pid).children()
        killed.kill()
        killed.wait()
        probe.wait(timeout=30.0)

        assert meet(free_port, *ranks[1:], nodes=3, arrive_s=60.0) == [[], []]
        assert holder.result() == [[]]


def test_a_variable_that_one_node_has_alone(free_port: int) -> None:
    (finding,), *_ = meet(free_port, 0, 1, 2, nodes=3, fault="env@2")
    assert (finding.code, finding.severity, finding.check) == ("SL162", "warning", "env-differs")
    assert finding.where.endswith("(rank 2)")


@pytest.mark.parametrize(
    "facts",
    [{"host": "n1", "versions": 5}, {"host": ["n1"], "left_s": "long"}, [1, 2]],
    ids=["number", "texts", "list"],
)
def test_a_node_that_says_what_nobody_understands_counts_as_silent(free_port: int, facts: object) -> None:
    """Its words cost itself: the others are compared."""
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(meet, free_port, 0, 2, nodes=3, arrive_s=10.0)
        reach("127.0.0.1", free_port, time.monotonic() + 30.0)
        store = MeetingStore("127.0.0.1", free_port, master=False, name="")
        store.add("joined")
        seat = store.add("seats")
        store.post(f"facts/{seat}", facts)
        store.post(f"came/{seat}", {"host": "n1", "rank": 1})
        (finding,), _ = others.result()
    assert finding.summary == "node n1 (rank 1) came and then did not answer"


def test_nobody_comes(free_port: int) -> None:
    ((finding,),) = meet(free_port, 0, nodes=2, arrive_s=1.0)
    assert finding.summary == "node of rank 1 never came"


# -------------------------------------------------------------------------------- what the probe leaves


def ended(*lines: object, returncode: int | None = 0, stderr: str = "") -> Ended:
    text = "".join(json.dumps(to_json(line)) + "\n" for line in lines)
    return Ended(returncode, text, stderr, 30.0, timed_out=returncode is None)


def test_a_probe_that_was_killed_has_told_what_it_knew() -> None:
    nodes = tuple(Facts(rank, f"n{rank}") for rank in range(2))
    found = conclude_probe(ended(Picture(2), Picture(2, nodes), returncode=None, stderr="import torch\n"))
    assert {finding.code for finding in found if finding.severity == "ok"} == set(CODES[:7])
    assert found[-1].severity == "unchecked"
    assert found[-1].because == ("the probe had no end after 30 s; its last words: import torch",)


def test_a_meeting_that_was_lost_is_no_pass() -> None:
    nodes = tuple(Facts(rank, f"n{rank}") for rank in range(2))
    found = conclude_probe(ended(Picture(2, nodes, unfinished="the meeting was lost while computing: reset by peer")))
    assert found[0].severity == "unchecked"
    assert found[0].because == ("the meeting was lost while computing: reset by peer",)
    assert not {"SL165", "SL166", "SL167"} & {finding.code for finding in found}


def test_a_probe_that_said_nothing_is_no_pass() -> None:
    (finding,) = conclude_probe(ended(returncode=-11))
    assert (finding.code, finding.severity) == ("SL160", "unchecked")
    assert "ended with -11" in finding.because[0]


def test_a_name_that_does_not_resolve_is_not_told_twice(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, names={"nowhere": OSError("Name or service not known")})
    (finding,) = compare(host, Meeting("nowhere", 29400, 2, 0), 10.0, False)
    assert (finding.severity, finding.because) == ("unchecked", ("Name or service not known",))


# ------------------------------------------------------------------------------- what a node says of itself


@pytest.mark.parametrize(("name", "kept"), [("NCCL_PROTO", True), ("TORCH_NCCL_BLOCKING_WAIT", True),
                                            ("GLOO_SOCKET_IFNAME", True), ("HOME", False),
                                            ("TORCH_HOME", False), ("NCCL_DEBUG_FILE", False),
                                            ("WANDB_API_KEY", False)])  # fmt: skip
def test_which_variables_are_compared(tmp_path: Path, name: str, kept: bool) -> None:
    host = FakeHost(tmp_path, environ={name: "value"})
    assert gather(host, (), ["MINE"], False).env == ({name: "value"} if kept else {})


@pytest.mark.parametrize(("name", "value"), [("MY_TOKEN", "s3cret"), ("HTTPS_PROXY", "http://bob:s3cret@proxy:8080"),
                                             ("DATABASE_URL", "postgres://u:s3cret@db"), ("FI_COOKIE", "s3cret"),
                                             ("MINE", "s3cret"), ("UCX_AUTH", "s3cret"),
                                             ("TORCH_STORE", "https://u:s3cret@store")])  # fmt: skip
def test_secrets_do_not_leave_the_node(tmp_path: Path, name: str, value: str) -> None:
    host = FakeHost(tmp_path, environ={name: value})
    (told,) = gather(host, (), [name], False).env.values()
    assert told.startswith("sha256:")
    assert "s3cret" not in told


def test_adapters_that_are_down_or_may_not_be_opened_do_not_count(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, {f"/sys/class/infiniband/mlx5_{number}/ports/1/state": "4: ACTIVE\n",
                         f"/sys/class/infiniband/mlx5_{number}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
                         f"/sys/class/infiniband/mlx5_{number}/ports/1/link_layer": "InfiniBand\n",
                         f"/sys/class/infiniband_verbs/uverbs{number}/ibdev": f"mlx5_{number}\n"})  # fmt: skip
    write(tmp_path, {f"/dev/infiniband/uverbs{number}": "" for number in (1, 2, 3)})
    write(tmp_path, {"/sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN\n"})
    job, environ = Job(nproc=2, uses_gpu=True), {"NCCL_IB_HCA": "^mlx5_2"}
    facts = gather(FakeHost(tmp_path, job, environ=environ, snapshot=gpus(2)), (), [], True)
    assert facts.hcas == {"mlx5_1:1": "InfiniBand 400 Gb/s"}
    assert facts.gpus == ("H100", "H100")
    assert facts.versions == {"driver": "570.1"}


def test_a_job_on_the_cpu_has_no_gpus_to_compare(tmp_path: Path) -> None:
    facts = gather(FakeHost(tmp_path, snapshot=gpus(2)), (), [], False)
    assert (facts.gpus, facts.hcas, facts.uses_gpu) == ((), {}, False)


@pytest.mark.parametrize(
    "forged",
    [
        {"expected": 10**9},
        {"dials": tuple(Dial(src, 1) for src in range(2, 5000))},
        {"dials": (Dial(0, 1),) * 5000},
        {"silent": tuple(Silent(n % 2, "x", "?", 1.0) for n in range(5000))},
        {"pairs": (Pair(0, 1),) * 5000},
        {"nodes": tuple(Facts(rank) for rank in (0, 1, 2))},
    ],
)
def test_a_picture_that_cannot_be_of_this_job_is_told(forged: dict[str, Any]) -> None:
    """The node that holds the check posts it, or whoever reaches its port: judging it must not take without end."""
    honest = Picture(2, nodes=(Facts(0), Facts(1)), dials=(Dial(0, 1), Dial(1, 0)), silent=(Silent(1, "b", "?", 1.0),))

    assert honest.is_of(2)
    assert not dataclasses.replace(honest, **forged).is_of(2)


def test_a_node_starts_no_more_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the task says: it is posted where others of the network can post."""
    asked: list[dict[str, Any]] = []
    child = types.SimpleNamespace(ask=lambda what: asked.append(what) or (1.0, ""))
    monkeypatch.setattr("safelaunch.preflight.between.tasks.PairChild", lambda: child)
    output = types.SimpleNamespace(doing="")
    tasks = Tasks(output, Facts(1, gpus=("a", "b"), nproc=2), ("localhost", 1), "m")  # type: ignore[arg-type]
    tasks.rank, tasks.roster = 1, {0: Place(0, 0, "127.0.0.1", 1), 1: Place(1, 1, "127.0.0.1", 1)}

    tasks.do(Task("pairs", 1e9, backend="nccl", pairs=((0, 1, 3000),)))
    tasks.do(Task("pairs", 1e9, backend="ucc:x", pairs=((0, 1, 3000),)))

    assert [(one["nlocal"], one["backend"], one["deadline_s"]) for one in asked] == [(2, "nccl", 60), (1, "gloo", 60)]
