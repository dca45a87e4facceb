"""`safelaunch env` shows what a launch adds to the environment, in a form that a shell can read."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from safelaunch import limits, toml
from safelaunch.cli import env
from safelaunch.model import SafelaunchError


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "A", "B", "SAFELAUNCH_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "mine.toml"
    path.write_text('[env]\nA = "it\'s $HOME"\nB = 2\n')
    return str(path)


def test_added_variables_and_their_origin(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert env.run(["--profile", mine]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("B=2 ") and line.endswith(f"# profile {mine}:3") for line in lines)
    assert any(line.startswith("TORCH_FR_BUFFER_SIZE=2000 ") and "default.toml:" in line for line in lines)


def test_variables_of_the_shell_are_named(
    mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("B", "one\ntwo")
    assert env.run(["--profile", mine]) == 0
    assert (
        f"# B=one\\ntwo stays as in the shell; B=2 is set by profile {mine}:3" in capsys.readouterr().out.splitlines()
    )


def test_a_shell_can_source_it(mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("B", "one\ntwo")
    env.run(["--profile", mine])
    script = capsys.readouterr().out + 'printf "%s|%s" "$A" "$TORCH_FR_BUFFER_SIZE"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == "it's $HOME|2000"


def test_what_is_taken_away_is_gone_after_sourcing_it(
    mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path / "away.toml"
    away.write_text("unset = ['B', 'C', 'A']\n")
    last = tmp_path / "last.toml"
    last.write_text("[env]\nA = 'again'\n")
    for name in "ABC":
        monkeypatch.setenv(name, "shell")
    env.run(["--profile", mine, "--profile", str(away), "--profile", str(last)])
    out = capsys.readouterr().out
    assert f"# profile {away}:1" in next(line for line in out.splitlines() if line.startswith("unset C "))
    script = out + 'printf "%s|%s|%s" "$A" "${B-gone}" "${C-gone}"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == "again|gone|gone"
    env.run(["--profile", mine, "--profile", str(away), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["unset"]["C"] == {"source": "profile", "where": f"{away}:1"}
    assert not {"A", "B", "C"} & {*shown["added"], *shown["overridden"]}


@pytest.mark.usefixtures("mine")
def test_what_only_the_launch_can_compute_is_a_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "computed.toml"
    path.write_text("[env]\nA = '{run_dir}/a'\nB = '{{run_dir}}'\n")
    env.run(["--profile", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert f"# A={{run_dir}}/a is computed by the launch, as profile {path}:2 says" in lines
    assert any(line.startswith("B='{run_dir}' ") for line in lines)
    env.run(["--profile", str(path), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["computed"]["A"]["value"] == "{run_dir}/a"
    assert "A" not in shown["added"]


def test_the_profile_variable_counts(
    mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAFELAUNCH_PROFILE", mine)
    env.run([])
    assert "B=2" in capsys.readouterr().out


def test_json(mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("B", "shell")
    assert env.run(["--profile", mine, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["added"]["A"] == {"value": "it's $HOME", "origin": {"source": "profile", "where": f"{mine}:2"}}
    assert shown["overridden"]["B"]["shell"] == {"variable": "B", "value": "shell"}
    assert shown["overridden"]["B"]["profile"]["value"] == "2"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert env.run(["--help"]) == 0
    assert capsys.readouterr().out == env.USAGE


@pytest.mark.parametrize("argv", [["debug"], ["--profile"], ["--xml"]])
def test_misuse(argv: list[str]) -> None:
    with pytest.raises(SafelaunchError) as caught:
        env.run(argv)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("table", ["[env]\n'A$(touch {0})' = '1'", "unset = ['A;touch {0}']"])
def test_a_name_that_a_shell_would_run_is_refused(table: str, tmp_path: Path) -> None:
    path = tmp_path / "sent.toml"
    path.write_text(table.format(tmp_path / "made"))
    with pytest.raises(SafelaunchError, match=r"unknown key|cannot be unset"):
        env.run(["--profile", str(path)])


def test_a_profile_that_takes_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sent.toml"
    path.write_text("")
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    monkeypatch.setattr(limits, "SECONDS_PER_MIB", 0.0)
    monkeypatch.setattr(toml, "loads", lambda _: time.sleep(5))
    with pytest.raises(SafelaunchError, match="it takes longer than") as caught:
        env.run(["--profile", str(path)])
    assert caught.value.exit_code == 78
