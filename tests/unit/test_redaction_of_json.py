"""Secrets in documents of JSON, as lines of logs: by fields, in command lines, in texts within texts."""

from __future__ import annotations

import json

import pytest

from safelaunch import redaction

DRAWN = "Zq7vR2mXw9Lk4TpB8s"
CHOSEN = "correct-horse-battery"

SHAPES = {
    "an option in a list": {"args": ["--token", DRAWN]},
    "an option with its value": {"args": [f"--token={DRAWN}"]},
    "a command within": {"cmd": {"argv": ["python", "t.py", "--api-key", DRAWN, "--x", "1"]}},
    "an option of mysql": {"argv": ["mysql", "-u", "a", f"-p{CHOSEN}"]},
    "an option of curl": {"argv": ["curl", "-u", f"ada:{CHOSEN}", "https://x"]},
    "a header of curl": {"argv": ["curl", "-H", f"Authorization: Bearer {DRAWN}"]},
    "a document as a text": {"message": json.dumps({"password": CHOSEN})},
    "twice a text": {"m": json.dumps({"m": json.dumps({"password": CHOSEN})})},
    "an option in a text": {"message": json.dumps({"args": ["--token", DRAWN]})},
    "headers as a list": {"headers": [["X-Api-Key", DRAWN]]},
    "headers by name": {"headers": [{"name": "X-Api-Key", "value": DRAWN}]},
    "variables by name": {"env": [{"name": "HF_TOKEN", "value": DRAWN}]},
    "variables as texts": {"env": [f"HF_TOKEN={DRAWN}"]},
    "variables as lists": {"env": [["DB_PASSWORD", CHOSEN]]},
    "k and v": {"k": "password", "v": CHOSEN},
    "key and val": {"key": "password", "val": CHOSEN},
    "Key and Value": {"Key": "password", "Value": CHOSEN},
    "a list of passwords": {"passwords": [f"one-{CHOSEN}", CHOSEN]},
    "a map of secrets": {"secrets": {"wandb": DRAWN, "hf": CHOSEN}},
    "an attribute of OpenTelemetry": {"attributes": [{"key": "db.password", "value": {"stringValue": CHOSEN}}]},
    "a value with its type": {"fields": {"password": {"stringValue": CHOSEN}}},
    "a command over two lines": {"exc": f"run --api-key \\\n {DRAWN}\n"},
    "a number": {"password": 8372916455},
    "an option alone": {"options": [{"--token": DRAWN}]},
    "a list in a list": {"args": [["--password", CHOSEN]]},
}
WRITTEN = {
    "a name in escapes": f'{{"pass\\u0077ord": "{CHOSEN}"}}',
    "slashes in escapes": f'{{"url": "postgres:\\/\\/ada:{CHOSEN}@db\\/x"}}',
    "behind a time": f'2026-01-01 INFO {{"args": ["--password", "{CHOSEN}"]}}',
    "cut off": f'{{"a": 1, "password": "{CHOSEN}',
}


def is_shown(text: str) -> bool:
    return any(secret in text for secret in (DRAWN, CHOSEN, "8372916455"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("separators", [None, (",", ":")], ids=["with blanks", "without"])
def test_no_line_shows_it(shape: str, separators: tuple[str, str] | None) -> None:
    line = json.dumps(SHAPES[shape], separators=separators)

    assert not is_shown(redaction.text(f"step 1\n{line}\nstep 2"))
    assert not is_shown(json.dumps(redaction.document(SHAPES[shape])))
    assert not is_shown(json.dumps(redaction.document({"last_lines": ["step 1", line]})))


@pytest.mark.parametrize("shape", WRITTEN)
def test_no_spelling_shows_it(shape: str) -> None:
    assert not is_shown(redaction.text(WRITTEN[shape]))


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 3,  "loss": 2.5, "tokens": 4096}',
        '{"required": ["API_KEY", "DB_PASSWORD"]}',
        '{"columns": ["password", "username"], "key": "loss", "value": 2.5}',
        '{"key":"tokens_per_s","value":"1200.25","path":"a\\/b"}',
        "[[0, 1], [2, 3]] token ids",
        '{"name": "tokenizer", "value": "llama"}',
    ],
)
def test_a_document_without_one_keeps_its_spelling(line: str) -> None:
    assert redaction.text(line) == line
