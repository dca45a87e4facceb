"""The scanner finds the line of every key that tomllib finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safelaunch.settings.toml_lines import key_lines, line_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENT = '''\
# [not.a.table] = "in a comment"
title = "a = b # [c]"   # trailing = comment

[env]
A = "1"
"B C" = '# no comment'
long = """
[fake]
fake = 1
quoted \\""" " ""
"""
raw = \'\'\'
fake = "2"\'\'\'
list = [
  1,  # ] = [
  "x = y",
]
last = 1

[ preflight . "severity" ]
SL104 = "off"

[launch]
a.b = 1
inline = { x = 1, y = { z = 2 } }
[empty]
[[array]]
k = 1
'''


def paths(data: dict[str, object], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in data.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += paths(value, (*prefix, key))
    return found


def test_lines_of_a_hard_document() -> None:
    assert key_lines(DOCUMENT) == {
        ("title",): 2,
        ("env",): 4,
        ("env", "A"): 5,
        ("env", "B C"): 6,
        ("env", "long"): 7,
        ("env", "raw"): 12,
        ("env", "list"): 14,
        ("env", "last"): 18,
        ("preflight",): 20,
        ("preflight", "severity"): 20,
        ("preflight", "severity", "SL104"): 21,
        ("launch",): 23,
        ("launch", "a"): 24,
        ("launch", "a", "b"): 24,
        ("launch", "inline"): 25,
        ("empty",): 26,
        ("array",): 27,
        ("array", "k"): 28,
    }


def test_every_key_of_tomllib_gets_a_line_that_holds_it() -> None:
    lines = key_lines(DOCUMENT)
    text = DOCUMENT.splitlines()
    for path in paths(tomllib.loads(DOCUMENT)):
        assert path[-1] in text[line_of(lines, path) - 1]


def test_a_key_of_an_inline_table_has_the_line_of_the_table() -> None:
    assert line_of(key_lines(DOCUMENT), ("launch", "inline", "y", "z")) == 25


def test_an_unknown_key_has_the_line_of_what_is_around_it() -> None:
    assert line_of(key_lines(DOCUMENT), ("env", "missing")) == 4
    assert line_of({}, ("missing",)) == 1


@pytest.mark.parametrize("name", ["default", "debug", "production"])
def test_keys_of_the_shipped_profiles_stand_on_their_lines(name: str) -> None:
    text = (Path(__file__).parents[3] / "profiles" / f"{name}.toml").read_text()
    lines = key_lines(text)
    for path in paths(tomllib.loads(text)):
        assert path[-1] in text.splitlines()[lines[path] - 1]
