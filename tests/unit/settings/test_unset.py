"""`unset` takes away what earlier profiles set and what the shell has; a later profile may set it again."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch import codes
from safelaunch.launch import plan as planning
from safelaunch.model import SafelaunchError, Settings
from safelaunch.run import redact
from safelaunch.settings import profile
from safelaunch.settings.resolve import resolve


def with_profiles(environ: dict[str, str], *paths: str) -> Settings:
    return resolve([*(word for path in paths for word in ("--profile", path)), "train.py"], environ)


def test_what_the_shell_has_is_gone_and_told(write: Any, environ: dict[str, str]) -> None:
    path = write("description = 'x'\nunset = ['NCCL_ALGO', 'NCCL_PROTO']\n")
    environ["NCCL_ALGO"] = "ring"
    settings = with_profiles(environ, path)
    assert "NCCL_ALGO" not in settings.environment(environ)
    (note,) = settings.notes
    assert (note.code, note.severity) == ("SL207", "note")
    assert note.summary == f"{path}:2 unsets NCCL_ALGO=ring of the shell"
    assert list(settings.unset) == ["NCCL_ALGO", "NCCL_PROTO"]


def test_what_an_earlier_profile_sets_is_gone(write: Any, environ: dict[str, str]) -> None:
    first = write("[env]\nA = 1\nB = 1\n", "first")
    settings = with_profiles(environ, first, write("unset = 'A'\n"))
    assert "A" not in settings.env
    assert settings.env["B"].value == "1"
    assert settings.notes == ()


def test_what_a_base_sets_can_be_taken_away(write: Any, environ: dict[str, str]) -> None:
    settings = with_profiles(environ, write("extends = 'infiniband'\nunset = ['NCCL_NET', 'TORCH_FR_BUFFER_SIZE']\n"))
    assert not {"NCCL_NET", "TORCH_FR_BUFFER_SIZE"} & set(settings.env)


def test_a_later_profile_sets_it_again_and_the_shell_stays_out(write: Any, environ: dict[str, str]) -> None:
    first, last = write("unset = ['A']\n", "first"), write("[env]\nA = 'mine'\n", "last")
    environ["A"] = "shell"
    settings = with_profiles(environ, first, last)
    assert settings.environment(environ)["A"] == settings.env["A"].value == "mine"
    assert [note.code for note in settings.notes] == ["SL207"]
    reversed_ = with_profiles(environ, last, first)
    assert "A" not in reversed_.environment(environ)


def test_an_old_spelling_that_is_unset_beats_nothing(write: Any, environ: dict[str, str]) -> None:
    environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "7"
    settings = with_profiles(environ, write("unset = ['TORCH_NCCL_TRACE_BUFFER_SIZE']\n"))
    assert settings.env["TORCH_FR_BUFFER_SIZE"].value == "2000"


def test_a_secret_is_not_told(write: Any, environ: dict[str, str]) -> None:
    environ["WANDB_API_KEY"] = "hunter2"
    settings = with_profiles(environ, write("unset = ['WANDB_API_KEY']\n"))
    assert "hunter2" not in "".join([settings.notes[0].summary, *redact.environment(settings, environ)])


@pytest.mark.parametrize(("weight", "severities"), [("off", []), ("warning", ["warning"]), ("error", ["error"])])
def test_the_note_has_the_severity_that_a_profile_gives_it(
    weight: str, severities: list[str], write: Any, environ: dict[str, str]
) -> None:
    environ["A"] = "1"
    settings = with_profiles(environ, write(f"unset = ['A']\n[lint.severity]\nSL207 = '{weight}'\n"))
    assert [note.severity for note in settings.notes] == severities


def test_the_plan_and_env_txt_know(
    write: Any, environ: dict[str, str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    first, last = write("unset = ['A', 'B']\n", "first"), write("[env]\nB = '1'\n", "last")
    environ |= {"A": "0", "B": "0", "C": "0"}
    settings = with_profiles(environ, first, last)
    assert planning.build(settings, environ).unset == ("A",)
    lines = redact.environment(settings, environ)
    assert f"# A is unset by profile {first}:1" in lines
    assert f"B=1  # profile {last}:2" in lines
    assert "C=0  # shell" in lines
    assert not [line for line in lines if line.startswith("A=")]


BAD = {
    "of the launcher": ("unset = ['RANK']\n", "SL203", "'RANK' cannot be unset", "the launcher sets"),
    "ours": ("unset = ['SAFELAUNCH_JSON']\n", "SL203", "SAFELAUNCH_JSON", "from the shell"),
    "option": ("unset = ['PET_NNODES']\n", "SL203", "PET_NNODES", "[launch]"),
    "no name": ("unset = ['A=1']\n", "SL203", "A=1", "name"),
    "a command": ("unset = ['A;touch x']\n", "SL203", "'A;touch x' cannot be unset", "letters, digits"),
    "empty": ("unset = ['']\n", "SL203", "''", "name"),
    "both": ("unset = ['A']\n[env]\nA = 1\n", "SL204", "unset takes A away, and ", "extends"),
    "no list": ("unset = 3\n", "SL204", "unset = 3: expected a string or a list of strings", ""),
    "below a table": ("[hang]\nunset = ['A']\n", "SL203", "unknown key unset in [hang]", "above the first [table]"),
    "below env": ("[env]\nunset = ['A']\n", "SL204", "[env] unset", "above the first [table]"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_unset_is_refused(case: Any, write: Any, environ: dict[str, str]) -> None:
    text, code, summary, remedy = case
    path = write(text)
    with pytest.raises(SafelaunchError) as caught:
        profile.load(path, environ)
    assert str(caught.value).startswith(f"{path}:")
    assert summary in str(caught.value)
    assert remedy in caught.value.diagnostic.remedy
    assert (caught.value.diagnostic.code, caught.value.exit_code) == (code, codes.EXIT_PROFILE)


def test_lists_of_known_names_and_severities_add_up(write: Any, environ: dict[str, str]) -> None:
    first = write("[lint]\ndebugging = true\nknown = ['A', 'B']\n[lint.severity]\nSL206 = 'off'\n", "first")
    last = write("[lint]\nknown = 'B,C'\nseverity = { SL207 = 'error' }\n", "last")
    table = {name: value.value for name, value in with_profiles(environ, first, last).lint.items()}
    assert table == {
        "debugging": True,
        "known": ["A", "B", "C"],
        "severity": {"SL206": "off", "SL207": "error"},
    }


@pytest.mark.parametrize("code", ["SL201", "SL203", "SL204", "SL101", "SL301"])
def test_faults_of_the_profile_itself_have_no_severity(code: str, write: Any, environ: dict[str, str]) -> None:
    with pytest.raises(SafelaunchError, match=rf"unknown key {code} in \[lint.severity\]"):
        profile.load(write(f"[lint.severity]\n{code} = 'off'\n"), environ)
