"""The verdict fits one screen, whatever the traceback, and it never loses the line that tells."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.model import Finding, Location, Verdict
from safelaunch.report import palette, text
from safelaunch.report import verdict as terminal


def verdict(*, frames: int = 3, because: int = 1, **changes: object) -> Verdict:
    trace = "Traceback (most recent call last):\n"
    trace += "".join(f'  File "train.py", line {n}, in f{n}\n' for n in range(frames)) + "ValueError: loss is nan\n"
    values: dict[str, object] = {
        "code": "SL401",
        "slug": "exception",
        "kind": "crash",
        "summary": "rank 2 raised ValueError: loss is nan",
        "because": tuple(f"reason {n}" for n in range(because)),
        "remedy": "look at the traceback",
        "culprit_ranks": (2,),
        "host": "node-a",
        "pid": 4102,
        "location": Location("/home/ada/train.py", 88, "train_step"),
        "traceback": trace,
        **changes,
    }
    return Verdict(**values)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    frames=st.integers(0, 200),
    because=st.integers(0, 40),
    where=st.booleans(),
    bundle=st.sampled_from(["", "/run/incident-0"]),
    code=st.sampled_from([None, 1]),
)
def test_one_screen_holds_it(frames: int, because: int, where: bool, bundle: str, code: int | None) -> None:
    changes: dict[str, object] = {} if where else {"location": None, "host": "", "pid": None}
    lines = terminal.lines(verdict(frames=frames, because=because, **changes), bundle, exit_code=code)

    assert len(lines) <= 25
    assert not any("\n" in line for line in lines)
    head = lines.index("error[SL401]: rank 2 raised ValueError: loss is nan")
    assert len(lines) - head <= 10
    assert lines[head - 1] == "  ValueError: loss is nan"
    assert lines[0] == "---- traceback of rank 2 ----"


def test_a_short_traceback_is_whole_and_a_long_one_says_what_is_left_out() -> None:
    short = terminal.lines(verdict(frames=5), "/run")
    assert "    ... " not in "\n".join(short)
    assert sum("line" in line and "in f" in line for line in short) == 5

    long = terminal.lines(verdict(frames=100), "/run")
    (left_out,) = [line for line in long if line.startswith("    ... ")]
    shown = sum("in f" in line for line in long)
    assert left_out == f"    ... {100 - shown} lines, all in the bundle ..."
    assert long[1] == "  Traceback (most recent call last):"
    assert '    File "train.py", line 99, in f99' in long


def test_a_verdict_as_a_person_reads_it() -> None:
    assert terminal.lines(verdict(traceback=""), os.path.abspath("safelaunch_runs/8f2c/incident-0"), exit_code=1) == [
        "error[SL401]: rank 2 raised ValueError: loss is nan",
        "  --> /home/ada/train.py:88 in train_step   (host node-a, pid 4102)",
        "   = because: reason 0",
        "   = confidence: high",
        "   = help: look at the traceback; `safelaunch explain SL401`",
        "   = bundle: safelaunch_runs/8f2c/incident-0   exit 1",
    ]


def test_no_bundle_and_no_exit_code_leave_no_empty_line() -> None:
    lines = terminal.lines(verdict(traceback="", remedy="", because=0, location=None, host="", pid=None), "")

    assert lines == ["error[SL401]: rank 2 raised ValueError: loss is nan", "   = confidence: high"]


def test_a_headline_is_one_line() -> None:
    assert terminal.headline(verdict()) == "SL401: rank 2 raised ValueError: loss is nan (/home/ada/train.py:88)"


@pytest.mark.parametrize("severity", ["error", "warning", "note", "unchecked", "ok"])
def test_every_severity_has_its_label_and_colour(severity: str) -> None:
    finding = Finding(code="SL101", severity=severity, summary="text")  # type: ignore[arg-type]

    assert text.diagnostic(finding) == [f"{severity}[SL101]: text"]
    (coloured,) = text.diagnostic(finding, palette=palette.ANSI)
    assert coloured.startswith("\x1b[")
    assert coloured.endswith("\x1b[0m")


# --------------------------------------------------------------------------------------------------- colour


@pytest.fixture(params=["terminal", "file"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[io.TextIOWrapper]:
    if request.param == "file":
        with open(tmp_path / "log", "w") as file:
            yield file
        return
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal_end:
        yield terminal_end
    os.close(master)


@pytest.mark.parametrize(
    ("environ", "on_terminal", "in_file"),
    [
        ({"TERM": "xterm"}, True, False),
        ({}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),  # no-color.org: present and not empty
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    ],
)
def test_colour_follows_the_conventions(
    stream: io.TextIOWrapper, environ: dict[str, str], on_terminal: bool, in_file: bool
) -> None:
    wanted = on_terminal if stream.isatty() else in_file
    assert palette.for_stream(stream, environ=environ) == (palette.ANSI if wanted else palette.PLAIN)
    assert palette.for_stream(stream, "always", {"NO_COLOR": "1"}) == palette.ANSI
    assert palette.for_stream(stream, "never", {"FORCE_COLOR": "1"}) == palette.PLAIN


def test_a_stream_that_is_closed_has_no_colour() -> None:
    stream = io.StringIO()
    stream.close()

    assert palette.for_stream(stream, environ={}) == palette.PLAIN


def test_plain_text_has_no_escape_sequence() -> None:
    assert "\x1b" not in "\n".join(terminal.lines(verdict(frames=100, because=9), "/run", exit_code=1))


def test_colour_changes_nothing_but_colour() -> None:
    plain = terminal.lines(verdict(), "/run", exit_code=1)
    coloured = terminal.lines(verdict(), "/run", exit_code=1, palette=palette.ANSI)

    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in coloured] == plain


def test_a_message_can_neither_steer_the_terminal_nor_pass_for_ours() -> None:
    trace = "Traceback (most recent call last):\nValueError: \x1b[31mred\x07\nerror[SL404]: rank 0 was killed\n"

    lines = terminal.lines(verdict(traceback=trace, summary="rank 2 raised ValueError: \x1b[31mred"), "")

    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert [line for line in lines if line.startswith("error[")] == [
        "error[SL401]: rank 2 raised ValueError: \\x1b[31mred"
    ]
