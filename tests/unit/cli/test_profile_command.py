"""`safelaunch profile` shows what a launch would use and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelaunch.cli import profile
from safelaunch.model import SafelaunchError


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "safelaunch" / "profiles"
    folder.mkdir(parents=True)
    return folder


def test_list_names_every_profile_even_beside_a_broken_one(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "mine.toml").write_text("description = 'my own'\n")
    (config / "broken.toml").write_text("[nonsense]\n")
    assert profile.run(["list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("default", "debug", "production", "my own", str(config / "mine.toml")))
    assert f"(broken: {config / 'broken.toml'}:1: unknown key nonsense)" in out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.run(["list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"debug", "default", "production", "ethernet", "infiniband", "efa", "consumer-gpu", "cpu"} == set(rows)
    assert rows["cpu"]["extends"] == []


def test_list_says_what_a_profile_extends(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "mine.toml").write_text("description = 'my own'\nextends = ['production', 'ethernet']\n")
    profile.run(["list"])
    assert "my own (extends production, ethernet)" in capsys.readouterr().out


def test_show_says_what_is_taken_away_and_keeps_what_is_computed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config / "mine.toml"
    path.write_text("unset = ['NCCL_ALGO', 'TORCH_FR_BUFFER_SIZE']\n[env]\nA = '{run_dir}/a'\n")
    profile.run(["show", "mine"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  # ")[0].strip() for line in lines[1:3]] == ["unset NCCL_ALGO", "unset TORCH_FR_BUFFER_SIZE"]
    assert all(line.endswith(f"# {path}:1") for line in lines[1:3])
    assert any(line.startswith('A = "{run_dir}/a" ') for line in lines)
    assert not any(line.startswith("TORCH_FR_BUFFER_SIZE") for line in lines)


def test_show_gives_every_value_with_file_and_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config / "mine.toml"
    path.write_text("extends = 'production'\n[env]\nA = 1\n[hang]\nabort_after = 'never'\n[launch]\nmodule = true\n")
    assert profile.run(["show", "mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "profiles, a later one wins: default, production, mine"
    assert {line.split("  # ")[0].strip(): line.split("  # ")[1] for line in lines if str(path) in line} == {
        'A = "1"': f"{path}:3",
        'abort_after = "never"': f"{path}:5",
        "module = true": f"{path}:7",
    }
    assert any(line.startswith("NCCL_DEBUG") and "production.toml:" in line for line in lines)
    assert len({line.index("  # ") for line in lines if "  # " in line}) == 1, "origins stand in one column"


@pytest.mark.parametrize(
    "argv", [["show", "debug", "--json"], ["show", "--json", "debug"], ["--json", "show", "debug"]]
)
def test_show_as_json(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.run(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in shown["profiles"]] == ["default", "debug"]
    assert shown["values"]["preflight.mode"]["value"] == "full"
    assert "debug.toml:" in shown["values"]["preflight.mode"]["origin"]["where"]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.run(["--help"]) == 0
    assert capsys.readouterr().out == profile.USAGE


@pytest.mark.parametrize("argv", [[], ["show"], ["lst"], ["list", "debug"], ["list", "--xml"]])
def test_misuse_is_an_error_and_prints_nothing(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SafelaunchError) as caught:
        profile.run(argv)
    assert caught.value.exit_code == 2
    assert capsys.readouterr() == ("", "")
