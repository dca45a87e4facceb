"""What `safelaunch explain` says of a code: of that code alone, in sentences that can be read, with a true example."""

from __future__ import annotations

import json
import lzma
import re

import pytest
from frozen import FILE

from safelaunch.cli.explain import text
from safelaunch.codes import CATALOGUE

HANGS = [code for code in CATALOGUE if code.startswith("SL3")]
LONGEST = 30  # words of a sentence
PARTS = ("Example:", "How it was concluded:", "What to do:", "What it is not:")
EXAMPLE = re.compile(r"^    \w+\[(?P<code>SL\d{3})\]: (?P<headline>.+(?:\n {8}.+)*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def headlines() -> set[tuple[str, str]]:
    """What the golden cases and their variants are told with."""
    with lzma.open(FILE) as stream:
        frozen = json.load(stream)
    return {(verdict["code"], verdict["summary"]) for one in frozen.values() for verdict in one["verdicts"]}


@pytest.mark.parametrize("code", HANGS)
def test_it_has_all_parts(code: str) -> None:
    explanation = text(CATALOGUE[code])

    assert [part for part in PARTS if part not in explanation] == []


@pytest.mark.parametrize("code", HANGS)
def test_its_example_is_what_a_verdict_says(code: str, headlines: set[tuple[str, str]]) -> None:
    found = EXAMPLE.findall(text(CATALOGUE[code]))
    examples = [(code, " ".join(headline.split())) for code, headline in found]

    assert [one[0] for one in examples] == [code]
    assert set(examples) <= headlines


@pytest.mark.parametrize("code", HANGS)
def test_its_sentences_can_be_read(code: str) -> None:
    prose = EXAMPLE.sub("", text(CATALOGUE[code]))
    sentences = re.split(r"[.;:](?:\s|$)|\n\s*-\s|\n\n", prose)
    long = [" ".join(sentence.split()) for sentence in sentences if len(sentence.split()) > LONGEST]

    assert long == []
