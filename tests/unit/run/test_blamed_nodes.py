"""A node that is to blame for the second time: what is said, and who is asked to leave the job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from said import Said

from safelaunch.cluster.messages import Leaves
from safelaunch.model import Case, Incident, LaunchPlan, RankFacts, Verdict
from safelaunch.model.nodes import Node
from safelaunch.run import job_result, nodes_asked
from safelaunch.run.blamed_nodes import BlamedNodes
from safelaunch.run.restarts import Restarts

BROKEN = Verdict(
    code="SL428",
    slug="gpu-fault",
    kind="infra",
    summary="GPU 1 failed: Xid 79",
    culprit_ranks=(3,),
    host="node-b",
    exit_code=75,
)
LOST = dataclasses.replace(BROKEN, code="SL604", slug="node-lost", summary="node-b is silent", culprit_ranks=())
RAISED = dataclasses.replace(BROKEN, code="SL401", kind="crash", summary="rank 3 raised ValueError", exit_code=1)
ELASTIC = {"nnodes": "2:4", "rdzv_backend": "c10d"}
FIXED = {"nnodes": "4", "rdzv_backend": "c10d"}


class Run:
    """The attempts of a run on `host`, with ranks 2 and 3; `here` is what the rules say of its own case."""

    def __init__(self, torchrun: dict[str, Any], host: str = "node-b", here: Verdict = BROKEN, spares: int = 0) -> None:
        self.console = Said()
        self.console.aside = self.console.lines.append  # type: ignore[method-assign]
        plan = LaunchPlan(
            "id", "token", "", "", "script", "train.py", (), {"max_restarts": 3, **torchrun}, {}, 30.0,
            spare_nodes=spares, rendezvous_timeout=None,
        )  # fmt: skip
        self.restarts, self.host, self.words = Restarts(plan, self.console), host, list[str]()
        self.told: list[tuple[tuple[str, ...], bool]] = []
        self.blamed.judged = lambda _: here
        self.blamed.tell = self.words.append
        self.blamed.tell_others = lambda codes, stays: self.told.append((codes, stays))

    @property
    def blamed(self) -> BlamedNodes:
        return self.restarts.blamed

    def fails(self, *verdicts: Verdict) -> list[str]:
        """What is said after as many attempts."""
        ranks = tuple(RankFacts(rank, rank % 2, 100 + rank, step=7) for rank in (2, 3))
        for attempt, verdict in enumerate(verdicts):
            facts = Case(Incident("exit", attempt, (3,), 1.0), self.host, 8, ranks)
            self.restarts.concluded(facts, verdict)
        return self.console.lines


@pytest.mark.parametrize(("torchrun", "spares"), [(ELASTIC, 0), (FIXED, 1)])
def test_the_node_itself_is_asked_to_leave_where_others_may_go_on(torchrun: dict[str, Any], spares: int) -> None:
    run = Run(torchrun, spares=spares)
    assert run.fails(BROKEN) == []
    assert run.words == []
    assert run.fails(BROKEN) == []  # it says what comes of it
    assert run.words == ["leave"]
    run.blamed.on_leaves("")
    assert run.blamed.left
    assert run.told == [(("SL428", "SL428"), False)]
    assert run.console.lines == [
        "node-b is to blame for the second time (SL428), and leaves the job: the others go on without it"
    ]


def test_why_it_cannot_leave_is_said() -> None:
    run = Run(ELASTIC)
    run.fails(BROKEN, BROKEN)
    run.blamed.on_leaves("the store of the rendezvous is on it")
    assert not run.blamed.left
    assert run.told == [(("SL428", "SL428"), True)]
    said = "node-b is to blame for the second time (SL428), and takes part all the same: "
    assert run.console.lines == [f"{said}the store of the rendezvous is on it"]


def test_no_node_leaves_on_the_word_of_others_alone() -> None:
    run = Run(ELASTIC, here=RAISED)
    (said,) = run.fails(BROKEN, BROKEN)
    assert said.endswith("takes part all the same: its own evidence alone does not say so")
    assert (run.words, run.blamed.left) == ([], False)


def test_that_all_of_its_ranks_failed_is_evidence_too() -> None:
    run = Run(ELASTIC, here=dataclasses.replace(BROKEN, culprit_ranks=()))
    run.fails(BROKEN, BROKEN)
    assert run.words == ["leave"]


def test_what_several_nodes_have_in_common_is_no_fault_of_one() -> None:
    run = Run(ELASTIC)
    everywhere = dataclasses.replace(BROKEN, culprit_ranks=(), host="node-a, node-b")
    assert run.fails(everywhere, everywhere, everywhere) == []
    assert run.words == []


def test_a_node_that_was_lost_twice_leaves_too() -> None:
    run = Run(ELASTIC, here=RAISED)  # its supervisor knows that the others have given it up
    run.fails(LOST, BROKEN, LOST)
    assert run.words[0] == "leave"


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ((BROKEN, BROKEN), []),  # it lives, and says itself what comes of it
        ((LOST, LOST), ["node-b is to blame for the second time (SL604)"]),
        ((BROKEN, RAISED, LOST), ["node-b is to blame for the second time (SL428, SL604)"]),
        ((LOST, dataclasses.replace(LOST, host="node-c")), []),
    ],
)
def test_what_others_say_of_it(verdicts: tuple[Verdict, ...], said: list[str]) -> None:
    run = Run(ELASTIC, host="node-a")
    assert [line for line in run.fails(*verdicts) if "to blame" in line] == said
    assert run.words == []


def test_where_nobody_can_take_its_place_it_is_only_said() -> None:
    run = Run(FIXED)
    assert run.fails(BROKEN, BROKEN) == ["node-b is to blame for the second time (SL428): start again without it"]
    assert run.words == []


def test_what_programs_raise_leaves_no_node_out() -> None:
    run = Run(ELASTIC)
    assert not any("to blame" in line for line in run.fails(RAISED, RAISED, RAISED))
    assert run.words == []


class Peers:
    def __init__(self, me: int) -> None:
        self.me, self.is_hub = me, me == 0
        self.nodes = {number: Node(number, host=f"node-{number}", port=1) for number in range(3)}


class Line:
    """A link of this node."""

    def __init__(self, me: int) -> None:
        self.peers, self.passed = Peers(me), list[Leaves]()

    def to_all(self, message: Leaves) -> None:
        self.passed.append(message)


@pytest.mark.parametrize(
    ("me", "sender", "says"),
    [(0, 2, False), (0, 0, True), (1, 0, True), (2, 0, False)],
    ids=["the hub passes it on", "the hub hears it itself", "another", "who has said it"],
)
def test_each_of_the_others_says_it_once(me: int, sender: int, says: bool) -> None:
    link: Any = Line(me)
    said = nodes_asked.of_leaving(link, sender, Leaves(2, ("SL428", "SL999\n"), False))
    assert len(said) == says
    assert len(link.passed) == (me == 0 and sender == 2)
    if says:
        (line,) = said
        assert line == (
            "node-2 is to blame for the second time (SL428), and leaves the job: the others go on without it"
        )


def test_it_says_nothing_of_how_the_job_ends(tmp_path: Path) -> None:
    for name, code, left in (("node-a", 0, False), ("node-b", 75, True)):
        (tmp_path / name).mkdir()
        said = f'{{"host": "{name}", "exit_code": {code}, "rounds": ["r"], "left_out": {str(left).lower()}}}'
        (tmp_path / name / "result.json").write_text(said)
    job_result.write(str(tmp_path / "node-a"), SimpleNamespace(hosts={}, rounds={"r": None}))  # type: ignore[arg-type]
    told = (tmp_path / "result.json").read_text()
    assert '"exit_code": 0,\n "verdicts"' in told
    assert told.count('"left_out": true') == 1
