"""Bundles as they lie on disk, and the verdict that each must come to, on any machine and in any later version."""

from __future__ import annotations

import json
import re

import pytest
from expected import Expected, place
from golden import golden
from golden_file import FOLDERS, lines, load, names

from safelaunch.codec import from_json, to_json
from safelaunch.codes import CATALOGUE, EXIT_HANG, EXIT_OK, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis import diagnose
from safelaunch.model import Case, Verdict

OF_OLDER_VERSIONS = {folder.name: folder for folder in FOLDERS}


@pytest.mark.parametrize("name", names())
def test_the_verdict_is_what_a_person_would_say(name: str) -> None:
    verdict = diagnose(load(name))

    expected = from_json(Expected, lines()[name]["expected"])
    told = " / ".join((verdict.summary, *verdict.because, verdict.remedy))
    said = Expected(
        verdict.code,
        verdict.culprit_ranks,
        place(verdict.location) if verdict.location else None,
        verdict.secondary,
        verdict.confidence,
        verdict.conclusive if expected.conclusive is not None else None,
        tuple(text for text in expected.mentions if text in told),
    )
    assert said == expected, told


@pytest.mark.parametrize("name", names())
def test_a_verdict_is_fit_to_print(name: str) -> None:
    case = load(name)
    verdict = diagnose(case)

    assert verdict.slug == CATALOGUE[verdict.code].slug
    ends = {"hang": EXIT_HANG, "slow": EXIT_OK, "none": EXIT_OK}
    assert verdict.exit_code == ends.get(verdict.kind, EXIT_SCRIPT_FAILED)
    assert verdict.summary
    assert verdict.remedy or verdict.kind == "none"
    assert not any("\n" in line for line in (verdict.summary, verdict.remedy, *verdict.because))
    assert not set(verdict.culprit_ranks) & set(verdict.secondary)
    if verdict.culprit_ranks:
        # That of a rank which had ended before anybody looked is not known; none is told with another rank's line.
        assert (verdict.pid or 0) in {0} | {facts.pid for facts in case.ranks if facts.rank in verdict.culprit_ranks}


@pytest.mark.parametrize("name", names())
def test_json_keeps_case_and_verdict_whole(name: str) -> None:
    case = load(name)
    verdict = diagnose(case)

    assert from_json(Case, json.loads(json.dumps(to_json(case)))) == case
    assert from_json(Verdict, json.loads(json.dumps(to_json(verdict)))) == verdict


def test_a_newer_bundle_still_reads() -> None:
    document = json.loads((FOLDERS[0] / "case.json").read_text())
    document["from_the_future"] = {"a": 1}
    document["ranks"][0]["gpu"] = [1, 2]

    assert from_json(Case, document) == load(FOLDERS[0].name)


def test_every_code_of_a_hang_or_a_crash_has_a_golden_case() -> None:
    proved = {line["expected"]["code"] for line in lines().values()}

    # Those that words lead to, of a log or of an exception, are proved by tests/unit/logs/log_corpus.py.
    words = ("diagnosis.logs", "diagnosis.crash.known", "diagnosis.refine.gpu_faults")
    of_words = {entry.code for entry in CATALOGUE.values() if any(place in entry.text for place in words)}
    slow = {entry.code for entry in CATALOGUE.values() if "diagnosis.slow" in entry.text}
    told = {code for code in CATALOGUE if code.startswith(("SL3", "SL4"))} | slow
    assert proved - of_words - {"SL502"} == told - of_words


def test_the_file_holds_what_is_written_in_golden() -> None:
    assert {name: load(name) for name in names()} == {name: case for name, (case, _) in golden().items()}


@pytest.mark.parametrize("name", OF_OLDER_VERSIONS)
def test_what_an_older_version_wrote_is_read_for_ever(name: str) -> None:
    case = from_json(Case, json.loads((OF_OLDER_VERSIONS[name] / "case.json").read_text()))

    assert case == load(name)


# `ranks 0 and 1 was`, `rank 2 were`, `1 peers`.
DISAGREES = re.compile(
    r"\branks \d[\d, and-]* (?:was|is|has|waits|does|sleeps|never enters)\b"
    r"|(?<!of )\brank \d+ (?:were|are|have|wait|do)\b"
    r"|\b1 (?:ranks|peers|processes)\b|\bpeers (?:is|waits|was)\b|\ba peer (?:wait|are)\b|\w\(s\)"
)


@pytest.mark.parametrize("name", names())
def test_verbs_agree_with_the_number_of_ranks(name: str) -> None:
    verdict = diagnose(load(name))

    assert [text for text in (verdict.summary, *verdict.because, verdict.remedy) if DISAGREES.search(text)] == []
    if len(verdict.culprit_ranks) > 1:
        assert not verdict.summary.endswith(("waits for it", "wait for it", "cannot end without it"))
        assert " it with " not in verdict.summary
