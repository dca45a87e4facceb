"""The template of what `--tee` writes before each line, with every torch as torch 2.15 has it."""

from __future__ import annotations

import socket
from string import Template

import pytest

from safelaunch.agent.elastic import prefix_template

HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${hostname}:${rank}: ", f"{HOST}:3: "),
        ("$hostname/$local_rank ", f"{HOST}/1 "),
        ("$${hostname} ${role_name}", "${hostname} trainer"),
        ("$hostnames ${nobody}", "$hostnames ${nobody}"),
    ],
)
def test_every_macro_is_replaced_once(template: str, expected: str) -> None:
    made = prefix_template(template, None)
    assert made is not None
    assert Template(made).safe_substitute(role_name="trainer", rank=3, local_rank=1) == expected


def test_the_option_comes_before_the_variable() -> None:
    assert prefix_template("a", "b") == "a"
    assert prefix_template("", "b") == "b"
    assert prefix_template("", None) is None
