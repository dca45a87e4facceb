"""What `safelaunch explain` says of a code: of that code alone, in sentences that can be read, with a true example."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable

import pytest
from frozen import FILE
from golden import golden
from scenes import lost_peer, raised, rank
from test_gpu_mapping import ORDINAL, failing, on
from test_known_exceptions import MESSAGES, told

from safelaunch.cli.explain import text
from safelaunch.codec import from_json
from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import diagnose, logs
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogFile
from safelaunch.report import verdict as terminal
from safelaunch.watch.hang import Notice, slow

OF_A_JOB = [code for code in CATALOGUE if code.startswith(("SL3", "SL4", "SL5"))]
LONGEST = 30  # words of a sentence
PARTS = ("Example:", "How it was concluded:", "What to do:", "What it is not:")
EXAMPLE = re.compile(r"^    \w+\[SL\d{3}\]: .+(?:\n {8}.+)*$", re.MULTILINE)


def wait_that_ended() -> Verdict:
    waiting, _ = golden()["hang-checkpoint"]
    return slow(Notice(diagnose(waiting), 6.0, 0.0, {}), 42.0)


# What no golden case comes to: a verdict of it, made by what makes it in a run.
MADE: dict[str, Callable[[], Verdict]] = {
    "SL425": lambda: diagnose(told(on(0), failing(1, ORDINAL, chosen=7))),
    "SL427": lambda: diagnose(told(lost_peer(rank(0)), raised(rank(1), *MESSAGES["SL427"]))),
    "SL498": lambda: logs.diagnose(LogFacts(files=(LogFile("rank_0.log", lines=2),))),
    "SL501": wait_that_ended,
}


def headline(verdict: Verdict) -> str:
    """As the terminal shows it."""
    shown = (str(line) for line in terminal.lines(verdict, ""))
    return next(line for line in shown if f"[{verdict.code}]: " in line)


@pytest.fixture(scope="module")
def headlines() -> set[str]:
    """What the golden cases and their variants are told with, and what was made beside them."""
    with lzma.open(FILE) as stream:
        frozen = json.load(stream)
    by_words = {(one["code"], one["summary"]): one for case in frozen.values() for one in case["verdicts"]}
    verdicts = [from_json(Verdict, one) for one in by_words.values()]
    return {headline(verdict) for verdict in (*verdicts, *(make() for make in MADE.values()))}


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


def test_what_is_made_for_an_example_is_what_it_is_made_for() -> None:
    assert {code: make().code for code, make in MADE.items()} == {code: code for code in MADE}


@pytest.mark.parametrize("code", OF_A_JOB)
def test_its_sentences_can_be_read(code: str) -> None:
    prose = EXAMPLE.sub("", text(CATALOGUE[code]))
    sentences = re.split(r"[.;:](?:\s|$)|\n\s*-\s|\n\n", prose)
    long = [" ".join(sentence.split()) for sentence in sentences if len(sentence.split()) > LONGEST]

    assert long == []
