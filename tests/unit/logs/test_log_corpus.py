"""What is said of small logs, written in the manner of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_corpus import CORPUS

from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.evidence.logs.signatures import load
from safelaunch.model import Verdict

SIGNATURES = load(environ={"HOME": "/nonexistent"})


def verdict_of(files: dict[str, str], folder: Path) -> Verdict:
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    return diagnose(read(paths, SIGNATURES))


@pytest.mark.parametrize("name", CORPUS)
def test_the_verdict_is_what_a_person_would_say(name: str, tmp_path: Path) -> None:
    files, expected = CORPUS[name]
    verdict = verdict_of(files, tmp_path)

    told = " / ".join((verdict.summary, *verdict.because, verdict.remedy))
    found = {key: getattr(verdict, key) for key in expected if key not in ("says", "location")}
    if "location" in expected:
        found["location"] = (verdict.location.file, verdict.location.line) if verdict.location else None
    if "says" in expected:
        found["says"] = tuple(text for text in expected["says"] if text in told)
    assert found == expected, f"{verdict.code} {verdict.culprit_ranks} {verdict.confidence}: {told}"
    assert verdict.code in CATALOGUE
    assert verdict.slug == CATALOGUE[verdict.code].slug


def test_every_code_that_a_log_leads_to_by_its_words_has_its_log() -> None:
    of_logs = {entry.code for entry in CATALOGUE.values() if "diagnosis.logs" in entry.text}
    of_words = {known.known.code for known in SIGNATURES if known.known.role == "cause" and known.known.code}

    assert of_logs | of_words <= {expected["code"] for _, expected in CORPUS.values()}
