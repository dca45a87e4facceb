"""The commands for `[notify]` in examples/ send what their services take."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from harness import REPOSITORY

NOTIFY = REPOSITORY / "examples" / "notify"
MESSAGE = {
    "event": "on_verdict", "run_id": "r1", "run_dir": "/runs/r1", "host": "node-a",
    "verdict": {"code": "SL401", "summary": "rank 2 raised ValueError: 100 %", "remedy": "look above"},
}  # fmt: skip


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """What curl or sendmail was given: here it is all in a file."""
    for name in ("curl", "sendmail"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\ncat >{tmp_path}/sent\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path / "sent"


def run(script: str, *words: str, folder: Path, message: object = MESSAGE) -> None:
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SAFELAUNCH_HEADLINE": "SL401: rank 2 raised"}
    environ["SLACK_WEBHOOK_FILE"] = str(folder / "webhook")
    (folder / "webhook").write_text("https://hooks.example.org/T0/B0\n")
    subprocess.run(
        [str(NOTIFY / script), *words], input=json.dumps(message), text=True, env=environ, check=True, timeout=30
    )


def test_a_webhook_gets_the_headline_and_the_advice(sent: Path) -> None:
    run("slack.sh", folder=sent.parent)

    text = json.loads(sent.read_text())["text"]
    assert text == "*SL401* rank 2 raised ValueError: 100 %\nrun r1 on node-a: `/runs/r1`\nlook above"
    assert (sent.parent / "words").read_text().rstrip().endswith("https://hooks.example.org/T0/B0")


def test_a_webhook_is_told_of_a_good_end_as_well(sent: Path) -> None:
    run("slack.sh", folder=sent.parent, message={**MESSAGE, "verdict": None, "exit_code": 0})

    assert json.loads(sent.read_text())["text"].startswith("*done* exit 0\n")


def test_a_mail_has_the_headline_as_its_subject_and_the_message_as_text(sent: Path) -> None:
    run("mail.sh", "me@example.org", folder=sent.parent)

    head, _, body = sent.read_text().partition("\n\n")
    assert "Subject: [safelaunch] SL401: rank 2 raised" in head.splitlines()
    assert json.loads(body) == MESSAGE
