"""Texts that are cut: no half of a word is left, since half a secret is not recognised as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_file import load

from safelaunch import redaction
from safelaunch.cli.main import main
from safelaunch.codec import to_json
from safelaunch.diagnosis.wording import one_line
from safelaunch.shortened import shortened

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
URL = "postgresql://trainer:Zk39xkQmx93kdkf02kdlslwQ@db.internal/x"


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("one two", 7, "one two"),
        ("one two three", 10, "one two..."),
        ("one two three", 12, "one two ..."),
        ("one two three", 9, "one ..."),
        ('{"a":"bcdefgh"}', 10, '{"a":"...'),
        ("x" * 30, 10, "..."),
        ("see /data/shards/17.tar", 20, "see /data/shards/..."),
        ("see https://a/b/c/d/e", 20, "see ..."),
    ],
)
def test_the_word_that_is_cut_is_dropped(text: str, most: int, shown: str) -> None:
    assert shortened(text, most) == shown


@pytest.mark.parametrize("secret", [TOKEN, URL, f"--api-key={TOKEN}", f'{{"token":"{TOKEN}"}}'])
def test_wherever_a_cut_goes_no_half_of_a_secret_is_left(secret: str) -> None:
    for before in range(130, 201):
        shown = redaction.text(one_line(f"{'x' * before} could not clone with {secret} and more of it {'y' * 99}"))
        assert "a1B2" not in shown
        assert "Zk39" not in shown


@pytest.mark.parametrize("before", range(330, 400, 7))
def test_a_line_of_a_log_is_cut_likewise(before: int, tmp_path: Path) -> None:
    said = f"RuntimeError: {'x' * before} could not clone with {TOKEN} and so on"
    (tmp_path / "job.log").write_text(f'Traceback (most recent call last):\n  File "a.py", line 1, in main\n{said}\n')

    main(["diagnose", str(tmp_path / "job.log"), "--html", str(tmp_path / "p.html")])

    assert "a1B2" not in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize("before", [20, 150, 170])
def test_no_half_of_a_secret_is_on_a_page(before: int, tmp_path: Path) -> None:
    case = json.loads(json.dumps(to_json(load("exception-in-one-rank"))))
    for facts in case["ranks"]:
        if facts["error"]:
            facts["error"]["message"] = f"{'x' * before} could not clone with {URL}"
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "case.json").write_text(json.dumps(case))

    main(["diagnose", str(tmp_path), "--html", str(tmp_path / "p.html")])

    assert "Zk39" not in (tmp_path / "p.html").read_text()
