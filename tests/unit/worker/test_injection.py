"""A script must not see that safelaunch was there, and must run whatever happens to safelaunch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks import INJECT, bare, run

WITNESS = "import os, sys\nprint(repr(os.environ.get('PYTHONPATH')), sys.path, sys.argv, __name__, sys.flags)\n"


def stripped(tmp_path: Path, pythonpath: str) -> str:
    """`PYTHONPATH` relative to the test's folder made absolute; an empty entry stays one."""
    return os.pathsep.join(str(tmp_path / entry) if entry else "" for entry in pythonpath.split(os.pathsep))


@pytest.mark.parametrize("pythonpath", [None, "lib", "lib:more"])
def test_path_and_environment_are_as_without_us(tmp_path: Path, pythonpath: str | None) -> None:
    pythonpath = stripped(tmp_path, pythonpath) if pythonpath else None
    rank = run(tmp_path, WITNESS, pythonpath=pythonpath)

    assert rank.out == bare(tmp_path, WITNESS, pythonpath=pythonpath)
    assert INJECT not in rank.out
    assert rank.fault == ""  # it was armed


@pytest.mark.parametrize("pythonpath", ["lib:", "lib::more", ":lib"])
def test_empty_entries_of_pythonpath_are_kept(tmp_path: Path, pythonpath: str) -> None:
    pythonpath = stripped(tmp_path, pythonpath)

    assert run(tmp_path, WITNESS, pythonpath=pythonpath).out == bare(tmp_path, WITNESS, pythonpath=pythonpath)


def test_a_python_below_the_rank_is_a_stranger_to_us(tmp_path: Path) -> None:
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise ValueError'])"
    rank = run(tmp_path, source)

    assert (rank.code, rank.errors()) == (0, [])
    assert len(list(rank.folder.glob("fault-*"))) == 1


def test_a_sitecustomize_of_the_environment_still_runs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = __name__\nANSWER = 42\n")
    source = "import os, sitecustomize\nprint(os.environ['THEIRS'], sitecustomize.ANSWER)"

    rank = run(tmp_path, source, pythonpath=str(site))

    assert rank.out == "sitecustomize 42\n"
    assert rank.fault == ""


def test_a_broken_sitecustomize_breaks_no_more_than_without_us(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")

    rank = run(tmp_path, "print('ran')", pythonpath=str(site))

    assert (rank.code, rank.out) == (0, "ran\n")
    assert "theirs" in rank.err


def test_a_module_of_the_script_may_have_our_names(tmp_path: Path) -> None:
    for name in ("errors", "bootstrap", "black_box"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")

    rank = run(tmp_path, "import errors, bootstrap, black_box\nprint(errors.MINE, bootstrap.MINE, black_box.MINE)")

    assert rank.out == "True True True\n"


BROKEN = {
    "no black box file": {"SAFELAUNCH_BLACK_BOX": "/nowhere/black_box"},
    "a black box that is no file": {"SAFELAUNCH_BLACK_BOX": "/"},
    "an empty black box": {"SAFELAUNCH_BLACK_BOX": "/dev/null"},
    "a slot beyond the end": {"SAFELAUNCH_SLOT": "7"},
    "a slot that is no number": {"SAFELAUNCH_SLOT": "seven"},
    "no slot": {"SAFELAUNCH_SLOT": None},
    "an unwritable rank directory": {"SAFELAUNCH_RANK_DIR": "/proc/self/nothing"},
    "a rank directory that is a file": {"SAFELAUNCH_RANK_DIR": "/etc/hostname"},
    "no rank directory": {"SAFELAUNCH_RANK_DIR": None},
    "an agent that is no number": {"SAFELAUNCH_AGENT": "someone"},
    "a supervisor that is no number": {"SAFELAUNCH_SUPERVISOR": ""},
    "a timeout that is no number": {"SAFELAUNCH_PG_TIMEOUT": "soon"},
    "nothing at all": dict.fromkeys(("SAFELAUNCH_RANK_DIR", "SAFELAUNCH_AGENT", "SAFELAUNCH_BLACK_BOX")),
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_the_script_runs_whatever_is_broken(tmp_path: Path, changes: dict[str, str | None]) -> None:
    rank = run(tmp_path, f"{WITNESS}raise SystemExit(5)", **changes)

    assert (rank.code, rank.err) == (5, "")
    assert INJECT not in rank.out


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_a_failing_script_fails_as_ever_whatever_is_broken(tmp_path: Path, changes: dict[str, str | None]) -> None:
    rank = run(tmp_path, "raise ValueError('mine')", **changes)

    assert rank.code == 1
    assert rank.err.splitlines()[0] == "Traceback (most recent call last):"
    assert rank.err.splitlines()[-1] == "ValueError: mine"
    assert "safelaunch" not in rank.err


def test_the_rest_is_armed_when_the_black_box_is_not(tmp_path: Path) -> None:
    rank = run(tmp_path, "raise ValueError('mine')", SAFELAUNCH_BLACK_BOX="/nowhere")

    assert rank.error["type"] == "ValueError"


def test_what_is_off_is_said_on_request(tmp_path: Path) -> None:
    rank = run(tmp_path, "print('ran')", SAFELAUNCH_BLACK_BOX="/nowhere", SAFELAUNCH_DEBUG="1")

    assert rank.out == "ran\n"
    assert "_open_black_box is off in this worker" in rank.err
