"""What `safelaunch explain` says of a code: of that code alone, in sentences that can be read, with a true example."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from frozen import FILE
from golden import golden
from scenes import lost_peer, raised, rank
from test_gpu_mapping import ORDINAL, failing, on
from test_known_exceptions import MESSAGES, SHIPPED, told

from safelaunch.cli.explain import text
from safelaunch.cli.main import internal_error
from safelaunch.codec import from_json
from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import diagnose, infra, logs
from safelaunch.evidence.logs import read
from safelaunch.launch.plan import without_recorder
from safelaunch.model import AgentEnd, ColdStart, Exit, Finding, Preempted, Verdict
from safelaunch.model.nodes import LostNode, Node
from safelaunch.report import verdict as terminal
from safelaunch.report.text import diagnostic
from safelaunch.run.stops import stopped
from safelaunch.watch.cold_starts import ColdStarts
from safelaunch.watch.hang import Notice, slow

OF_A_JOB = [code for code in CATALOGUE if code.startswith(("SL3", "SL4", "SL5", "SL6", "SL9"))]
LONGEST = 30  # words of a sentence
PARTS = ("Example:", "How it was concluded:", "What to do:", "What it is not:")
EXAMPLE = re.compile(r"^    \w+\[SL\d{3}\]: .+(?:\n {8}.+)*$", re.MULTILINE)


def headline(verdict: Verdict) -> str:
    """As the terminal shows it."""
    shown = (str(line) for line in terminal.lines(verdict, ""))
    return next(line for line in shown if f"[{verdict.code}]: " in line)


def wait_that_ended() -> Verdict:
    waiting, _ = golden()["hang-checkpoint"]
    return slow(Notice(diagnose(waiting), 6.0, 0.0, {}), 42.0)


def of_log(line: str) -> Verdict:
    with TemporaryDirectory() as folder:
        log = Path(folder, "slurm-9.out")
        log.write_text(line)
        return logs.diagnose(read([str(log)], SHIPPED))


def change_that_came_too_late() -> Finding:
    change = ColdStart("sets PYTORCH_JIT", "torch", "train.py", 4, "it had written something before")
    told = ColdStarts(lambda _: change, "{}:{}".format, print, print)
    (found,) = told.poll(SimpleNamespace(workers=[None]))  # type: ignore[arg-type]
    return found


TIME_LIMIT = "slurmstepd: error: *** JOB 9 ON node1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***\n"
NO_STORE = "The connection to the C10d store has failed. See inner exception for details."

NODES = {0: Node(0, "node-a", ranks=16), 1: Node(1, "node-c", first_rank=16, ranks=8), 2: Node(2, "node-d")}

# What no golden case comes to: its headline, made by what makes it in a run.
MADE: dict[str, Callable[[], str]] = {
    "SL425": lambda: headline(diagnose(told(on(0), failing(1, ORDINAL, chosen=7)))),
    "SL427": lambda: headline(diagnose(told(lost_peer(rank(0)), raised(rank(1), *MESSAGES["SL427"])))),
    "SL498": lambda: headline(of_log("step 1\nstep 2\n")),
    "SL501": lambda: headline(wait_that_ended()),
    "SL601": lambda: headline(infra.judge(AgentEnd(exit=Exit(-9, 1.0)))),
    "SL602": lambda: headline(infra.judge(AgentEnd("rendezvous", "RendezvousConnectionError", NO_STORE))),
    "SL604": lambda: headline(infra.node_lost((LostNode(1, 9.0, step=812),), NODES, 0)),
    "SL605": lambda: headline(
        infra.spare_ended(AgentEnd("spare", "", "SL401: rank 3 raised ValueError: a bad sample"))
    ),
    "SL603": lambda: headline(of_log(TIME_LIMIT)),
    "SL606": lambda: str(diagnostic(stopped(Preempted("SIGUSR1", 0.0, 812, stopped=True, exit_code=75), 75))[0]),
    "SL901": lambda: str(diagnostic(internal_error(KeyError("rank")))[0]),
    "SL902": lambda: without_recorder({"TORCH_FR_BUFFER_SIZE": "0"}),
    "SL903": lambda: str(diagnostic(change_that_came_too_late())[0]),
}


@pytest.fixture(scope="module")
def headlines() -> set[str]:
    """What the golden cases and their variants are told with, and what was made beside them."""
    with lzma.open(FILE) as stream:
        frozen = json.load(stream)
    by_words = {(one["code"], one["summary"]): one for case in frozen.values() for one in case["verdicts"]}
    verdicts = [from_json(Verdict, one) for one in by_words.values()]
    return {*map(headline, verdicts), *(make() for make in MADE.values())}


@pytest.mark.parametrize("code", OF_A_JOB)
def test_it_has_all_parts(code: str) -> None:
    explanation = text(CATALOGUE[code])

    assert [part for part in PARTS if part not in explanation] == []


@pytest.mark.parametrize("code", OF_A_JOB)
def test_its_example_is_what_a_verdict_says(code: str, headlines: set[str]) -> None:
    examples = [" ".join(found.split()) for found in EXAMPLE.findall(text(CATALOGUE[code]))]

    assert len(examples) == 1
    assert f"[{code}]: " in examples[0]
    assert set(examples) <= headlines


@pytest.mark.parametrize("code", CATALOGUE)
def test_its_sentences_can_be_read(code: str) -> None:
    prose = EXAMPLE.sub("", text(CATALOGUE[code]))
    sentences = re.split(r"[.;:](?:\s|$)|\n\s*-\s|\n\n", prose)
    long = [" ".join(sentence.split()) for sentence in sentences if len(sentence.split()) > LONGEST]

    assert long == []


@pytest.mark.parametrize("code", CATALOGUE)
def test_it_speaks_to_operators_and_not_of_arguments(code: str) -> None:
    assert re.findall(r"^(?:Args|Returns|Raises):", text(CATALOGUE[code]), re.MULTILINE) == []
