"""Shapes of secrets in all places where they are shown or handed on, and what only looks like one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redaction_corpus import BEGIN, BODY, END, HARMLESS, HARMLESS_VARIABLES, LETTERS, SECRETS, VARIABLES
from redaction_further import FURTHER_HARMLESS, FURTHER_SECRETS
from redaction_written import WRITTEN_HARMLESS, WRITTEN_HARMLESS_VARIABLES, WRITTEN_SECRETS, WRITTEN_VARIABLES

from safelaunch import files, redaction
from safelaunch.cli import share
from safelaunch.model import Origin, Settings, Value, Verdict
from safelaunch.open_folder import OpenFolder
from safelaunch.redaction import REDACTED
from safelaunch.report import bundle, page
from safelaunch.report.page import Subject
from safelaunch.run import redact


def env_txt(text: str, folder: Path) -> str:
    files.write_lines(str(folder / "env.txt"), redact.environment(Settings({}, {}), {"NOTE": text}))
    return (folder / "env.txt").read_text()


def run_json(text: str, folder: Path) -> str:
    value = Value(text, Origin("profile", "x.toml:3"))
    files.write_json(str(folder / "run.json"), redact.without_secrets(Settings({"note": value}, {"NOTE": value})))
    return (folder / "run.json").read_text()


def verdict_files(text: str, folder: Path) -> str:
    verdict = Verdict(code="SL401", slug="x", kind="crash", summary=f"said {text}", because=(text,), traceback=text)
    bundle.write_verdict(str(folder), verdict)
    return (folder / "verdict.txt").read_text() + (folder / "verdict.json").read_text()


def report_html(text: str, folder: Path) -> str:  # noqa: ARG001
    verdict = Verdict(code="SL401", slug="x", kind="crash", summary=text, because=(text,), traceback=text)
    return page.build([Subject(verdict)], None, 0.0)


def packed_log(text: str, folder: Path) -> str:
    (folder / "stderr.log").write_text(f"step 1\n{text}\nstep 2\n")
    return (share._redacted(OpenFolder(str(folder)), str(folder / "stderr.log"), share.LOG_BYTES) or b"").decode()


def packed_json(text: str, folder: Path) -> str:
    (folder / "agent.jsonl").write_text(json.dumps({"said": {"inner": json.dumps([text])}}) + "\n")
    return (share._redacted(OpenFolder(str(folder)), str(folder / "agent.jsonl"), share.LOG_BYTES) or b"").decode()


ALL = [*SECRETS, *WRITTEN_SECRETS, *FURTHER_SECRETS]
PLACES = [env_txt, run_json, verdict_files, report_html, packed_log, packed_json]


@pytest.mark.parametrize(("text", "secret"), ALL, ids=range(len(ALL)))
@pytest.mark.parametrize("place", PLACES)
def test_no_place_shows_it(place: Callable[[str, Path], str], text: str, secret: str, tmp_path: Path) -> None:
    assert secret in text
    shown = place(text, tmp_path)
    assert secret not in shown
    assert "redacted" in shown


@pytest.mark.parametrize(("name", "value"), [*VARIABLES, *WRITTEN_VARIABLES])
def test_a_variable_that_is_a_secret(name: str, value: str) -> None:
    shown = redaction.redact(name, value)
    assert REDACTED in shown
    assert value not in shown


@pytest.mark.parametrize(("name", "value"), [*HARMLESS_VARIABLES, *WRITTEN_HARMLESS_VARIABLES])
def test_a_variable_that_is_none(name: str, value: str) -> None:
    assert redaction.redact(name, value) == value
    assert redaction.text(f"{name}={value}") == f"{name}={value}"


@pytest.mark.parametrize("text", [*HARMLESS, *WRITTEN_HARMLESS, *FURTHER_HARMLESS])
def test_a_text_that_holds_none(text: str) -> None:
    assert redaction.text(text) == text


def test_a_key_at_the_cut_of_a_log_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    key = "\n".join([BEGIN, *BODY.split("\n") * 12, END])
    for before in range(0, len(key), 97):  # the cut is wherever it is within the key
        end = "x" * 79 + "\n"
        log.write_text("step\n" * 40_000 + key + "\n" + end * ((share.LOG_BYTES - before) // 80))
        packed = share._redacted(OpenFolder(str(log.parent)), str(log), share.LOG_BYTES)
        assert packed is not None
        assert b"MIIE" not in packed
        assert len(packed) <= share.LOG_BYTES


def test_where_a_link_of_a_terminal_leads_is_gone() -> None:
    assert redaction.text("see \x1b]8;;https://a.example/?token=hunter2hunter2\x07here\x1b]8;;\x07") == "see here"


def test_a_key_over_several_records_is_gone_and_each_record_keeps_its_place(tmp_path: Path) -> None:
    key = [BEGIN, *BODY.split("\n"), END]
    texts = ["step 1", *key, "step 2", *key, "WANDB_API_KEY:", LETTERS[:40], "step 3"]
    records = [json.dumps({"t": at, "said": {"text": text}}) for at, text in enumerate(texts)]
    log = tmp_path / "agent.jsonl"
    log.write_text("\n".join([*records, "torn {", "WANDB_API_KEY:", LETTERS[:40]]) + "\n")
    packed = (share._redacted(OpenFolder(str(tmp_path)), str(log), share.LOG_BYTES) or b"").decode()
    assert "MIIE" not in packed
    assert LETTERS[:40] not in packed
    lines = packed.splitlines()
    assert len(lines) == len(texts) + 3
    told = {one["said"]["text"]: one["t"] for one in map(json.loads, lines[: len(texts)])}
    assert [told[f"step {number}"] for number in (1, 2, 3)] == [texts.index(f"step {n}") for n in (1, 2, 3)]
    assert lines[len(texts)] == "torn {"


def test_a_key_without_an_end_takes_no_log_with_it() -> None:
    shown = redaction.text(f"{BEGIN}\n{BODY}\nstep 12 loss 3.4\n" + "and so on\n" * 50)
    assert "MIIE" not in shown
    assert "step 12 loss 3.4" in shown


def test_a_command_line_of_words() -> None:
    assert redaction.arguments(["mysql", "-u", "root", "-phunter2", "app"])[3] == f"-p{REDACTED}"
    assert redaction.arguments(["curl", "-u", "ada:hunter2", "https://x.example"])[2] == f"ada:{REDACTED}"
    assert redaction.arguments(["train.py", "-p", "8080", "--tokens", "512"]) == [
        "train.py",
        "-p",
        "8080",
        "--tokens",
        "512",
    ]


def test_characters_whose_lower_case_is_two_do_not_move_the_cut() -> None:
    assert redaction.text("İİİ password=hunter2 İ") == f"İİİ password={REDACTED} İ"


def linear(text: str) -> float:
    """How much longer twice the text takes."""
    taken = []
    for part in (text[: len(text) // 2], text):
        began = time.process_time()
        redaction.text(part)
        taken.append(time.process_time() - began)
    return taken[1] / max(taken[0], 1e-3)


UNITS = [
    "password=\n", "password='", 'password="""', "a://b:", "a://", "mysql -p ", "curl ", "key is ", f"{BEGIN}\n",
    f"{END}\n", "api key of of ", "sk-", "MIIE" * 20 + "\n", "[default1]:", "token:", "name: a\n", "authorization: ",
    "0" * 40 + "=", "kind: Secret\n", '"kind":"Secret",', '{"kind": "Secret", "data": {', '"value": "', "name: A_KEY, ",
    'setenv("A_KEY", ', "password [", "password is generated for ", "password:\n\n", "create user password ", "$6$",
    "password = <<", "password = str(", 'password = "a" -> ', '"password": {"old": "a", ', "A_TOKEN    ", "\u201c",
    'token = """\n', "| api_key ", "<td>api_key</td>\n", "password\uff1a\n", "api_key \u2192 ",
    "\x1b[0mkey=\x1b[0m", "\x1b]", "token=\\\n", "--api-key\n", "echo a | ", "vault kv put a b=c ", "secrets set ",
    "a:secret@b",
    "api_key\n  input_value=", "Value 'a' full_key", "argument --token: ", "mnemonic: grab ", "key\uff1a", "'a''b'",
    "\\u001b[0",
    "aws ssm put-parameter ", "sqlplus a ", "net use ", "jwt.encode(a ", "token=''",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_twice_the_text_takes_twice_the_time(unit: str) -> None:
    assert any(linear(unit * (400_000 // len(unit))) < 4 for _ in range(3))  # a busy machine may take its time once


@pytest.mark.parametrize("blank", [" ", "\t", " \t"])
@pytest.mark.parametrize("name", ["password=", "?token=", "Authorization: ", "Cookie: "])
def test_many_blanks_behind_a_name_take_no_longer_than_other_text(name: str, blank: str) -> None:
    assert any(linear(name + blank * (100_000 // len(blank))) < 4 for _ in range(3))


def test_a_log_of_a_training_is_searched_at_once() -> None:
    line = "[rank3]:[2026-11-24 13:00:01,123] step 12 loss 3.456789 lr 1.0e-04 tokens/s 12345.6 num_tokens=512 {}\n"
    text = "".join(line.format(number) for number in range(20_000))
    began = time.process_time()
    assert redaction.text(text) == text
    assert len(text) / 1e6 / (time.process_time() - began) > 4  # MB a second; it is five times that


def test_tokens_of_issuers_are_found_beside_each_other() -> None:
    first, second = "gh" + "p_" + LETTERS[:36], "xai" + "-" + LETTERS
    assert redaction.text(f"{first},{second}") == f"{REDACTED},{REDACTED}"


def test_a_log_of_two_bytes_for_each_character_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_bytes("password=hunter2\n".encode("utf-16"))

    assert share._redacted(OpenFolder(str(tmp_path)), str(tmp_path / "stderr.log"), share.LOG_BYTES) is None
