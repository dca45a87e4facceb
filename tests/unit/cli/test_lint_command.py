"""`safelaunch lint` of profiles and `safelaunch env --check`: what they look at, what they say, how they end."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import dry_run, env, profile
from safelaunch.cli import lint as command
from safelaunch.model import Finding, SafelaunchError
from safelaunch.printable import WIDTH
from safelaunch.report import text
from safelaunch.run import lint as wiring
from safelaunch.settings.lint.installed import Installed, Library
from safelaunch.settings.resolve import resolve

OUT_OF_RANGE = "[env]\n# a comment\nNCCL_IB_TIMEOUT = 1000\n"
ONLY_A_WARNING = "[env]\nNCCL_TIMEOUT = 3600\n"


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with nothing to say about, and the user's own profiles."""
    for name in [name for name in os.environ if name.startswith(("NCCL_", "TORCH", "PYTORCH_", "CUDA_", "OMP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SAFELAUNCH_PROFILE", raising=False)
    folder = tmp_path / "safelaunch" / "profiles"
    folder.mkdir(parents=True)
    return folder


def lint(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = command.run([*argv, *([] if argv else ["--profiles"])])
    return code, capsys.readouterr().out


def check(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = env.run(["--check", *argv])
    return code, capsys.readouterr().out


def test_the_shipped_profiles_have_nothing_to_be_said_about(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = lint(capsys)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "of 8 profiles" in out
    assert out.endswith(": nothing found\n")


def test_what_is_wrong_is_told_with_its_line_and_fails(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plain / "mine.toml"
    path.write_text(OUT_OF_RANGE)
    code, out = lint(capsys, "mine")
    assert code == 1
    assert out.startswith("error[SL213]: NCCL_IB_TIMEOUT=1000 ")
    assert f"--> {path}:3" in out
    assert out.splitlines()[-1].endswith(": 1 error")


def test_a_warning_fails_and_a_note_does_not(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plain / "mine.toml").write_text(ONLY_A_WARNING)
    assert lint(capsys, "mine")[0] == 1
    assert lint(capsys, "mine", "--exit-zero")[0] == 0
    (plain / "mine.toml").write_text(ONLY_A_WARNING + "[lint.severity]\nSL211 = 'note'\n")
    assert lint(capsys, "mine")[0] == 0


def test_without_a_name_all_profiles_are_linted_and_a_broken_one_hides_none(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain / "broken.toml").write_text("[nonsense]\n")
    (plain / "mine.toml").write_text(OUT_OF_RANGE)
    (plain / "heir.toml").write_text("extends = 'mine'\n")
    code, out = lint(capsys)
    assert code == 1
    assert f"error[SL203]: {plain / 'broken.toml'}:1: unknown key nonsense" in out
    assert out.count("NCCL_IB_TIMEOUT=1000") == 1, "the heir has it from its base"


def test_a_profile_can_say_how_grave_a_finding_is_and_what_its_script_reads(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain / "hard.toml").write_text(ONLY_A_WARNING + "[lint.severity]\nSL211 = 'error'\n")
    (plain / "deaf.toml").write_text(OUT_OF_RANGE + "[lint.severity]\nSL213 = 'off'\n")
    (plain / "known.toml").write_text(ONLY_A_WARNING + "[lint]\nknown = ['NCCL_TIMEOUT']\n")
    assert lint(capsys, "hard")[0] == 1
    assert "nothing found" in lint(capsys, "deaf")[1]
    assert "nothing found" in lint(capsys, "known")[1]


def test_a_program_gets_the_same_as_a_person(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plain / "mine.toml"
    path.write_text(OUT_OF_RANGE)
    code, out = lint(capsys, "mine", "--format", "json")
    document = json.loads(out)
    assert code == 1
    assert document["failed"] is True
    assert document["torch"].startswith("2.")
    [finding] = document["findings"]
    assert (finding["code"], finding["severity"], finding["where"]) == ("SL213", "error", f"{path}:3")


def test_the_environment_is_checked_as_a_launch_would_have_it(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys)[1].endswith(": nothing found\n")
    monkeypatch.setenv("NCCL_IB_TIMEOUT", "1000")
    code, out = check(capsys)
    assert code == 78
    assert "--> the environment" in out
    (plain / "cured.toml").write_text("unset = ['NCCL_IB_TIMEOUT']\n")
    assert check(capsys, "--profile", "cured")[0] == 0


def test_a_shell_that_wins_over_a_profile_is_what_is_checked(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain / "mine.toml").write_text(OUT_OF_RANGE)
    monkeypatch.setenv("NCCL_IB_TIMEOUT", "22")
    assert check(capsys, "--profile", "mine")[0] == 0


def test_the_configuration_files_of_nccl_are_part_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".nccl.conf").write_text("# by the admin\nNCCL_IB_TIMEOUT=1000\n")
    code, out = check(capsys)
    assert code == 78
    assert f"--> {tmp_path / '.nccl.conf'}:2" in out


def test_only_what_acts_on_this_machine_is_held_against_its_interfaces(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "ens9")])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ens9")
    assert check(capsys)[1].endswith(": nothing found\n")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    code, out = check(capsys)
    assert code == 0
    assert "warning[SL213]: GLOO_SOCKET_IFNAME=eth7 names an interface that this machine does not have" in out
    assert "it has ens9, lo" in out
    (plain / "mine.toml").write_text("[env]\nGLOO_SOCKET_IFNAME = 'eth7'\n")
    assert "nothing found" in lint(capsys, "mine")[1], "a profile travels"


def test_options_of_the_lint_go_with_the_lint() -> None:
    with pytest.raises(SafelaunchError, match="checked by `safelaunch lint`"):
        profile.run(["lint", "default"])
    with pytest.raises(SafelaunchError, match="--strict goes with --check"):
        env.run(["--strict"])


def test_the_torch_of_this_python_says_nothing_about_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_NCCL_ABORT_IN_DESTROY_PG", "1")  # gone since torch 2.4
    assert "SL212" in check(capsys)[1]
    monkeypatch.setenv("PYTHON_EXEC", "/elsewhere/python")
    out = check(capsys)[1]
    assert "SL212" not in out
    assert "another Python runs the ranks" in out.splitlines()[-1]


# ------------------------------------------------------------------------------------------------- of a launch


CPU = Installed(Library("2.13.0", "/torch"))
GPU = Installed(Library("2.13.0", "/torch", cuda=True), Library("2.29.7", "/libnccl.so.2"))


def launched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, *argv: str, installed: Installed = GPU, **environ: str
) -> list[tuple[str, str]]:
    """Code and severity of what a launch with this profile finds."""
    (tmp_path / "mine.toml").write_text(text)
    monkeypatch.setattr(wiring, "look", lambda *_, **__: installed)
    environ = {"HOME": str(tmp_path), **environ}
    settings = resolve(["--profile", str(tmp_path / "mine.toml"), *argv, "train.py"], environ)
    return [(found.code, found.severity) for found in wiring.of_settings(settings, environ)]


LATE = "[hang]\nabort_after = '15m'\n"


@pytest.mark.parametrize(
    ("installed", "environ", "told"),
    [
        (CPU, {}, False),
        (GPU, {}, True),
        (GPU, {"CUDA_VISIBLE_DEVICES": "0"}, True),
        (GPU, {"CUDA_VISIBLE_DEVICES": ""}, False),
        (GPU, {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        (GPU, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
        (Installed(Library("2.13.0", "/torch", other_gpu=True)), {}, True),
    ],
)
def test_ranks_without_a_gpu_have_the_timeout_of_gloo(
    installed: Installed, environ: dict[str, str], told: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = launched(monkeypatch, tmp_path, LATE, installed=installed, **environ)
    assert found == [("SL221", "warning")] * told


def test_a_profile_is_judged_for_the_nodes_that_it_may_travel_to(
    plain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain / "mine.toml").write_text(LATE)
    monkeypatch.setattr(wiring, "look", lambda *_, **__: CPU)
    code, out = lint(capsys, "mine")
    assert code == 0
    assert out.startswith("note[SL221]: the limit for hangs is 15m, ")


@pytest.mark.parametrize(("nnodes", "told"), [("1", False), ("2", True), ("1:2", True), ("1:1", False)])
def test_a_network_that_one_node_does_not_need(
    nnodes: str, told: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv = ("--nnodes", nnodes)
    assert launched(monkeypatch, tmp_path, "[env]\nNCCL_IB_DISABLE = 1\n", *argv) == [("SL216", "note")] * told


def test_without_a_python_of_ours_its_torch_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = "[env]\nTORCH_NCCL_ABORT_IN_DESTROY_PG = 1\n"
    assert launched(monkeypatch, tmp_path, gone) == [("SL212", "warning")]
    assert launched(monkeypatch, tmp_path, gone, "--no-python") == []
    assert launched(monkeypatch, tmp_path, gone, PYTHON_EXEC="/elsewhere/python") == []


@pytest.mark.parametrize(("severity", "code"), [("error", 78), ("warning", 0)])
def test_a_dry_run_ends_as_the_lint_would_let_the_launch_end(
    severity: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "mine.toml").write_text(ONLY_A_WARNING + f"[lint.severity]\nSL211 = '{severity}'\n")
    monkeypatch.setattr(wiring, "look", lambda *_, **__: GPU)
    argv = ["--profile", str(tmp_path / "mine.toml"), "--dry-run", str(tmp_path / "train.py")]
    assert dry_run.show(resolve(argv, {"HOME": str(tmp_path)})) == code
    assert f"{severity}[SL211]: NCCL_TIMEOUT=3600" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- in a line


def found(**more: Any) -> Finding:
    return Finding(**{"code": "SL211", "severity": "warning", "summary": "X=1 does nothing", **more})


def test_a_line_has_the_place_where_it_is_a_file() -> None:
    assert text.short(found(remedy="use Y", where="a.toml:3")) == "warning[SL211]: X=1 does nothing; use Y (a.toml:3)"
    assert text.short(found(remedy="use Y", where="the environment")) == "warning[SL211]: X=1 does nothing; use Y"
    assert text.short(found()) == "warning[SL211]: X=1 does nothing"


def test_a_long_line_is_shortened_and_keeps_its_place() -> None:
    told = text.short(found(summary="X=\n" + "x" * 500, remedy="word " * 100, where="a.toml:3"))
    assert told.endswith("... (a.toml:3)")
    assert "\n" not in told
    assert len(told) < WIDTH + 40
    told = text.short(found(remedy="word " * 100))
    assert told.endswith("word ...")


def test_a_fault_of_ours_is_not_lost_among_many() -> None:
    many = [found(code="SL210")] * 20 + [found(code="SL902"), found(severity="error")]
    shown, rest = wiring.at_launch(many, verbose=False)
    assert [each.code for each in shown[:2]] == ["SL211", "SL902"]
    assert rest.startswith("14 more")
