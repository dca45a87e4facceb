"""The ways out of a loop, what decides how long it goes, and what catches an exception around a line, as written."""

from __future__ import annotations

from pathlib import Path

from safelaunch.evidence import source_lines
from safelaunch.model import Bound, Location, SourceLine, Stack, WayOut

PROGRAM = """\
def train(loader, stopper):
    for batch in loader:
        try:
            data = decode(batch)
        except ValueError as error:
            continue
        except OSError:
            raise
        for part in data:
            if part is None:
                break
        try:
            step(data)
        except (RuntimeError, KeyError):
            print("skipped")
        if stopper.should_stop:
            break
        elif stopper.failed:
            return

def step(data):
    dist.all_reduce(data)

def resume(run, most):
    step, first = 0, 0
    last = run.latest()
    if last is not None:
        step = saved["step"]
        seed = 1
    else:
        run.ready = True
    while step < most:
        step += 1
        forward(step)
    first = 3 if last else 0
    for number in range(first, most):
        forward(number)
    for batch in loader:
        forward(batch)
"""


def at(tmp_path: Path, line: int) -> SourceLine:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    (found,) = source_lines.describe([Stack((Location(str(program), line, "train"),), "test")], 20.0)
    return found


def test_ways_out_are_told_with_what_they_stand_below(tmp_path: Path) -> None:
    assert at(tmp_path, 13).exits == (
        WayOut(6, "continue", 2, "except ValueError"),
        WayOut(17, "break", 2, "", "stopper.should_stop"),
        WayOut(19, "return", 2, "", "stopper.failed"),
    )


def test_what_catches_an_exception_and_goes_on_is_told(tmp_path: Path) -> None:
    assert at(tmp_path, 13).caught == ((14, "except (RuntimeError, KeyError)"),)
    assert at(tmp_path, 4).caught == ((5, "except ValueError"),)  # the other one raises again
    assert at(tmp_path, 22).caught == ()


def test_what_decides_under_a_condition_where_a_counted_loop_begins_is_told(tmp_path: Path) -> None:
    assert at(tmp_path, 34).bounds == (Bound(28, "step", 'step = saved["step"]', "last is not None", 32),)
    assert at(tmp_path, 37).bounds == (Bound(35, "first", "first = 3 if last else 0", "last", 36),)
    assert at(tmp_path, 39).bounds == ()
    assert at(tmp_path, 13).bounds == ()
