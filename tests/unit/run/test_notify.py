"""Commands of a profile are told what becomes of a run, and are never in its way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.model import Origin, Settings, Value, Verdict
from safelaunch.run import notify, redact
from safelaunch.run.notify import Notifier

VERDICT = Verdict(
    code="SL401", slug="exception", kind="crash", summary="rank 2 raised ValueError: token=hunter2hunter2"
)


def notifier(said: list[str], *, speaks: bool = True, **table: Any) -> Notifier:
    values = {name: Value(value, Origin("profile", "mine.toml:3")) for name, value in table.items()}
    return Notifier(values, {"run_id": "r1"}, said.append, lambda: speaks)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_verdict_comes_as_json_and_in_the_environment(here: Path) -> None:
    said: list[str] = []
    made = notifier(
        said, on_verdict='cat >message; printf %s "$SAFELAUNCH_VERDICT" >verdict; echo "$SAFELAUNCH_HEADLINE" >head'
    )

    made.verdict(VERDICT)
    made.finish(interrupted=False)

    message = json.loads((here / "message").read_text())
    assert (message["event"], message["run_id"], message["verdict"]["code"]) == ("on_verdict", "r1", "SL401")
    assert json.loads((here / "verdict").read_text()) == message["verdict"]
    assert (here / "head").read_text().startswith("SL401: rank 2 raised ValueError")
    assert "hunter2hunter2" not in (here / "message").read_text() + (here / "verdict").read_text()
    assert said == []


def test_each_event_has_its_command_and_the_end_comes_last(here: Path) -> None:
    log = 'echo "$SAFELAUNCH_EVENT" >>log'
    made = notifier([], on_notice=log, on_verdict=log, on_end=log)

    made.notice(VERDICT)
    made.notice(VERDICT)  # told again, as "ending the other ranks"
    made.verdict(VERDICT)
    made.notice(VERDICT)
    made.verdict_once(VERDICT)
    made.end(VERDICT, exit_code=1)
    made.finish(interrupted=False)

    assert (here / "log").read_text().split() == ["on_notice", "on_verdict", "on_end"]


def test_a_good_end_is_told_without_a_verdict(here: Path) -> None:
    made = notifier([], on_end="cat >message")

    made.end(None, exit_code=0)
    made.finish(interrupted=False)

    message = json.loads((here / "message").read_text())
    assert (message["exit_code"], message["verdict"]) == (0, None)


def test_a_command_that_fails_is_named_with_what_it_said(here: Path) -> None:  # noqa: ARG001
    said: list[str] = []
    made = notifier(said, on_end="echo cannot reach the server >&2; exit 7")

    made.end(VERDICT)
    made.finish(interrupted=False)

    assert said == ["on_end of the profile failed: exit 7: cannot reach the server"]


def test_a_command_that_hangs_is_ended_with_all_that_it_has_started(here: Path) -> None:
    said: list[str] = []
    made = notifier(said, on_end="(sleep 3; touch late) & sleep 1000", deadline=0.3)

    begin = time.monotonic()
    made.end(VERDICT)
    made.finish(interrupted=False)
    made.finish(interrupted=False)

    assert time.monotonic() - begin < 100
    deadline = time.monotonic() + 20
    while not said and time.monotonic() < deadline:
        time.sleep(0.02)
    assert said == ["on_end of the profile failed: no end after 0.3 s"]
    assert not (here / "late").exists()


def test_one_node_of_a_job_tells_it(here: Path) -> None:
    made = notifier([], speaks=False, on_verdict="touch told")

    made.verdict(VERDICT)
    made.finish(interrupted=False)

    assert not (here / "told").exists()


def test_a_verdict_that_is_too_long_for_a_variable_is_whole_on_stdin(here: Path) -> None:
    verdict = Verdict(code="SL401", slug="x", kind="crash", summary="s", traceback="line\n" * 40_000)
    made = notifier([], on_verdict='cat >message; printf %s "$SAFELAUNCH_VERDICT" >verdict')

    made.verdict(verdict)
    made.finish(interrupted=False)

    assert len(json.loads((here / "message").read_text())["verdict"]["traceback"]) == 200_000
    assert json.loads((here / "verdict").read_text())["code"] == "SL401"


def test_what_a_run_writes_down_of_a_command_is_without_its_secrets() -> None:
    hook = "https://hooks.slack.com/services/T00000000/B00000000/abcdefabcdefabcdefabcdef"
    table = {"on_end": Value(f"curl -H 'Authorization: Bearer abcdef0123456789' {hook}", Origin("profile", "p.toml:2"))}

    shown = str(redact.without_secrets(Settings({}, {}, notify=table)).notify["on_end"].value)

    assert "abcdef" not in shown
    assert shown.startswith("curl ")


def test_the_headline_is_one_line() -> None:
    verdict = {"code": "SL401", "summary": "rank 0: E\nBcc: attacker@evil.example\u2028X\x1b[31m"}
    variables = notify._variables({"event": "on_end", "verdict": verdict})
    assert variables["SAFELAUNCH_HEADLINE"] == "SL401: rank 0: E Bcc: attacker@evil.example X [31m"
