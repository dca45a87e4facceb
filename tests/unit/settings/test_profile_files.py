"""Profiles are found, read strictly, and refused with file, line and the nearest valid key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from safelaunch import codes
from safelaunch.model import SafelaunchError
from safelaunch.settings import profile

BAD_PROFILES = {
    "unknown table": ("\n[evn]\nA = '1'\n", "SL203", 2, "unknown key evn", "`env`"),
    "unknown key": (
        "[hang]\non_hang = 'auto'\nabort_afer = '1m'\n",
        "SL203",
        3,
        "abort_afer in [hang]",
        "`abort_after`",
    ),
    "unknown option": ("[launch]\nnproc-per-node = 2\n", "SL203", 2, "nproc-per-node in [launch]", "`nproc_per_node`"),
    "script in launch": ("[launch]\ntraining_script = 'x'\n", "SL203", 2, "training_script in [launch]", "the keys"),
    "dotted key": ("launch.nnode = 2\n", "SL203", 1, "nnode in [launch]", "`nnodes`"),
    "unknown code": ("[preflight.severity]\nSL401 = 'off'\n", "SL203", 2, "SL401 in [preflight.severity]", "SL1"),
    "key of another table": ("[launch]\non_hang = 'abort'\n", "SL203", 2, "on_hang in [launch]", "[hang]"),
    "shutdown in launch": ("[launch]\nshutdown_timeout = 3\n", "SL203", 2, "shutdown_timeout", "[timeouts]"),
    "variable of the launcher": ("[env]\nRANK = 0\n", "SL203", 2, "RANK in [env]", "the launcher sets"),
    "option as variable": ("[env]\nPET_NNODES = 2\n", "SL203", 2, "PET_NNODES", "[launch]"),
    "our variable": ("[env]\nSAFELAUNCH_JSON = '-'\n", "SL203", 2, "SAFELAUNCH_JSON", "the shell"),
    "no variable name": ("[env]\n'A=B' = '1'\n", "SL203", 2, "A=B", "name"),
    "a command as a variable": ("[env]\n'A b;touch x' = '1'\n", "SL203", 2, "A b;touch x in [env]", "letters, digits"),
    "letters of others": ("[env]\n'Ä' = '1'\n", "SL203", 2, "Ä in [env]", "letters, digits"),
    "a sign before dots": ("[env]\n'#'" + ".a" * 40 + " = 1\n", "SL202", 2, "more than 32 parts", ""),
    "quotes that are not closed": ("[env]\n" + "." * 40 + '"' + '\\"' * 400_000, "SL202", 2, "not valid TOML", ""),
    "a list in lists": ("[env]\nA = " + "[" * 200 + "]" * 200, "SL204", 2, "[env] A = [[[[[[[...]]]]]]]", ""),
    "a long value": ("[timeouts]\nloader = '" + "a" * 5000 + "'\n", "SL204", 2, "a...: expected", ""),
    "bool in env": ("[env]\n\nNCCL_X = true\n", "SL204", 3, "[env] NCCL_X = true", '"true"'),
    "list in env": ("[env]\nNCCL_X = [\n 1]\n", "SL204", 2, "[env] NCCL_X = [1]", ""),
    "NUL in env": ('[env]\nA = "\\u0000"\n', "SL204", 2, "[env] A", ""),
    "table in env": ("[env.A]\nB = 1\n", "SL204", 1, "[env] A", ""),
    "not a table": ("timeouts = 3\n", "SL204", 1, "timeouts = 3: expected a table", "[timeouts]"),
    "bool as duration": ("[timeouts]\nprocess_group = true\n", "SL204", 2, "expected a duration", ""),
    "endless timeout": ("[timeouts]\nprocess_group = '200000d'\n", "SL204", 2, "3650 days at most", ""),
    "endless loader": ("[timeouts]\nloader = '10000000000d'\n", "SL204", 2, "3650 days at most", ""),
    "endless hang": ("[hang]\nabort_after = 1e300\n", "SL204", 2, "3650 days at most", ""),
    "bad step": ("[slow]\nexpect_step = 'quick'\n", "SL204", 2, "[slow] expect_step = 'quick': expected a dur", ""),
    "no time for a step": ("[slow]\nexpect_step = 0\n", "SL204", 2, "expected a duration above 0", ""),
    "bad duration": ("[timeouts]\nshutdown = 'soon'\n", "SL204", 2, "expected a duration", ""),
    "negative duration": ("[hang]\nabort_after = -5\n", "SL204", 2, "abort_after = -5: expected a duration", ""),
    "wrong word": ("[preflight]\nmode = 'ful'\n", "SL204", 2, "expected one of auto, full, off", "`full`"),
    "wrong level": ("[preflight.severity]\nSL104 = 'warn'\n", "SL204", 2, "SL104 = 'warn'", "`warning`"),
    "bad size": ("[preflight]\nmin_shm = '1 elephant'\n", "SL204", 2, "expected a size", ""),
    "text for a number": ("[launch]\nmax_restarts = '3'\n", "SL204", 2, "expected a whole number, 0 or more", ""),
    "number out of range": ("[launch]\nmax_restarts = -1\n", "SL204", 2, "expected a whole number, 0 or more", ""),
    "number for a flag": ("[launch]\nstandalone = 1\n", "SL204", 2, "expected true or false", ""),
    "bad nodes": ("[launch]\nnnodes = '3:1'\n", "SL204", 2, "MIN:MAX", ""),
    "bad limit": ("[limits]\nnofile = 'all'\n", "SL204", 2, "nofile = 'all'", ""),
    "bad extends": ("extends = 3\n", "SL204", 1, "expected a string or a list of strings", ""),
    "bad description": ("description = 3\n", "SL204", 1, "expected a string", ""),
    "syntax": ("[env]\nA = 1\nB = yes\n", "SL202", 3, "not valid TOML: Invalid value", "quotes"),
    "key twice": ("[env]\nA = 1\nA = 2\n", "SL202", 3, "not valid TOML", ""),
    "unfinished": ("[env]\nA = '''\n\n", "SL202", 2, "not valid TOML", ""),
    "missing base": ("\nextends = 'debgu'\n", "SL201", 2, "there is no profile 'debgu'", "`debug`"),
    "missing base file": ("extends = ['./other.toml']\n", "SL201", 1, "other.toml", ""),
}


@pytest.mark.parametrize("case", BAD_PROFILES.values(), ids=BAD_PROFILES)
def test_a_bad_profile_is_refused_at_its_line(case: Any, write: Any, environ: dict[str, str]) -> None:
    text, code, line, summary, remedy = case
    path = write(text)
    with pytest.raises(SafelaunchError) as caught:
        profile.load(path, environ)
    error = caught.value
    assert str(error).startswith(f"{path}:{line}: ")
    assert summary in str(error)
    assert remedy in error.diagnostic.remedy
    assert "\n" not in str(error)
    assert (error.diagnostic.code, error.exit_code) == (code, codes.EXIT_PROFILE)


def test_a_file_that_is_not_text(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SafelaunchError, match="UTF-8"):
        profile.load(str(path), environ)


@pytest.mark.parametrize("name", ["missing.toml", "./missing", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path, environ: dict[str, str]) -> None:
    path = os.path.join(tmp_path, name)
    with pytest.raises(SafelaunchError) as caught:
        profile.load(path, environ)
    assert path in str(caught.value)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL201", codes.EXIT_PROFILE)


def test_an_unknown_name_is_answered_with_the_nearest(environ: dict[str, str]) -> None:
    with pytest.raises(SafelaunchError, match="there is no profile 'prodction'") as caught:
        profile.find("prodction", environ)
    assert "`production`" in caught.value.diagnostic.remedy


# ------------------------------------------------------------------------------------------------ finding


def test_the_users_own_profile_hides_the_shipped_one(write: Any, environ: dict[str, str]) -> None:
    path = write("", "debug", own=True)
    assert profile.find("debug", environ) == path
    assert profile.available(environ)["debug"] == path


def test_the_users_own_profile_may_extend_the_shipped_one(write: Any, environ: dict[str, str]) -> None:
    path = write("extends = 'debug'\n", "debug", own=True)
    shipped, own = profile.load("debug", environ)
    assert shipped.path == os.path.join(profile.shipped_folder(), "debug.toml")
    assert own.path == path


def test_own_profiles_lie_in_the_home_folder_by_default() -> None:
    assert profile.user_folder({"HOME": "/home/ada"}) == "/home/ada/.config/safelaunch/profiles"


# ------------------------------------------------------------------------------------------------ extends


def test_bases_come_first_and_each_once(write: Any, environ: dict[str, str]) -> None:
    write("", "common")
    write("extends = 'common.toml'\n", "left")
    write("extends = 'common.toml'\n", "right")
    top = write("extends = ['left.toml', './right.toml']\n", "top")
    assert [layer.name for layer in profile.load(top, environ)] == ["common", "left", "right", "top"]


def test_a_circle_is_shown(write: Any, environ: dict[str, str]) -> None:
    write("\nextends = 'c.toml'\n", "b")
    closing = write("\n\nextends = 'a.toml'\n", "c")
    with pytest.raises(SafelaunchError) as caught:
        profile.load(write("extends = 'b.toml'\n", "a"), environ)
    assert str(caught.value) == f"{closing}:3: extends makes a circle: a -> b -> c -> a.toml"
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL205", codes.EXIT_PROFILE)


def test_a_profile_that_extends_itself(write: Any, environ: dict[str, str]) -> None:
    path = write("extends = 'mine'\n", own=True)
    with pytest.raises(SafelaunchError, match="mine -> mine") as caught:
        profile.load("mine", environ)
    assert str(caught.value).startswith(f"{path}:1: ")


# ------------------------------------------------------------------------------------------------- values


def test_values_are_converted_and_know_their_line(write: Any, environ: dict[str, str]) -> None:
    path = write(
        """\
description = "all there is"
[env]
TEXT = "1"
WHOLE = 16
PART = 0.5
[timeouts]
process_group = "1h"
shutdown = 0
[hang]
abort_after = "never"
[preflight]
deadline = 2.5
min_free_disk = "1GiB"
severity = { SL104 = "off" }
[launch]
nproc_per_node = 4
nnodes = "1:2"
standalone = true
duplicate_stdout_filters = ["a", "b,c"]
[limits]
nofile = 4096
"""
    )
    (mine,) = profile.load(path, environ)
    assert mine.description == "all there is"
    assert {key: (value.value, value.origin.where) for key, value in mine.values.items()} == {
        ("env", "TEXT"): ("1", f"{path}:3"),
        ("env", "WHOLE"): ("16", f"{path}:4"),
        ("env", "PART"): ("0.5", f"{path}:5"),
        ("timeouts", "process_group"): (3600.0, f"{path}:7"),
        ("timeouts", "shutdown"): (0.0, f"{path}:8"),
        ("hang", "abort_after"): (None, f"{path}:10"),
        ("preflight", "deadline"): (2.5, f"{path}:12"),
        ("preflight", "min_free_disk"): (1024**3, f"{path}:13"),
        ("preflight", "severity", "SL104"): ("off", f"{path}:14"),
        ("launch", "nproc_per_node"): ("4", f"{path}:16"),
        ("launch", "nnodes"): ("1:2", f"{path}:17"),
        ("launch", "standalone"): (True, f"{path}:18"),
        ("launch", "duplicate_stdout_filters"): (["a", "b,c"], f"{path}:19"),
        ("limits", "nofile"): (4096, f"{path}:21"),
    }
