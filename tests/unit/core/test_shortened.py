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
from safelaunch.shortened import LEFT_OUT, shortened, without_middle

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


PASSWORD = "Zk39xkQmx93kdkf02kdlslwQ"


@pytest.mark.parametrize("words", ["\n", " "], ids=["lines", "one-line"])
@pytest.mark.parametrize(
    "secret",
    [
        f"Authorization: Bearer {PASSWORD}",
        f"Authorization: {PASSWORD}",
        f"password = {PASSWORD}",
        f"--http-password {PASSWORD}",
        f"Incorrect API key provided: {PASSWORD}",
        f"password:\n  {PASSWORD}",
        TOKEN,
    ],
)
def test_wherever_the_middle_begins_or_ends_no_half_of_a_secret_is_left(secret: str, words: str) -> None:
    told = words.join(f"lr{number}=0.{number}" for number in range(40))
    for tail in range(600, 750):
        kept = without_middle(f"Trace{words}{told}{words}{secret} {words}{told[:250]} {told}", 50, tail)
        shown = redaction.text(kept)
        assert LEFT_OUT in shown
        assert shown == redaction.text(shown)
        assert not any(part in shown for part in ("a1B2", "3o4P5", "Zk39", "93kdkf02", "slwQ"))
        assert told[300:] in shown


def test_a_word_without_an_end_is_left_out_behind_a_cut() -> None:
    kept = without_middle("x" * 100_000 + "\nend", 100, 1000)

    assert kept == "x" * 100 + f"\n{LEFT_OUT}\n" + "x" * (996 - len(LEFT_OUT) - 2) + "\nend"
    assert redaction.text(kept) == "x" * 100 + f"\n{LEFT_OUT}\n<redacted>\nend"
    assert json.loads(redaction.text(json.dumps({"traceback": kept})))["traceback"] == redaction.text(kept)


def test_a_text_that_is_not_longer_than_both_ends_stays() -> None:
    assert without_middle("a b\n" * 50, 100, 100) == "a b\n" * 50


def test_the_frames_behind_a_cut_stay() -> None:
    frames = '  File "/job/train.py", line 17, in main\n    step(batch)\n' * 40
    shown = redaction.text(without_middle(frames, 200, 500))

    assert "<redacted>" not in shown or f"{LEFT_OUT}\n    <redacted>\n" in shown
    assert shown.count('  File "/job/train.py", line 17, in main') >= 8


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
