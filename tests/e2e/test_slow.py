"""Runs that are slow are told of while they run, with the right rank and step, and end as if nothing had been said."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, Ended, environment, launch, newest_run, start

SLOW = FAULTS / "slow.py"
NO_CHECK = ("--preflight", "off")
PATIENCE_S = 100.0  # of the program, for a verdict; a busy machine makes all steps longer
QUIET_S = 45.0  # for which a healthy run is watched


@dataclass(frozen=True)
class Fault:
    kind: str
    shape: str
    code: str
    ranks: tuple[int, ...] = (1,)
    since: int | None = 40
    function: str | None = None
    reason: str = ""
    first: int = 40
    size: int = 2
    slow: bool = True
    profile: str = ""


FAULTS_TOLD = (
    Fault("sleeps_longer", "ddp", "SL503", function="sleeps_longer", reason="sleeps or waits", size=3, slow=False),
    Fault("sleeps_longer", "flag", "SL503", function="sleeps_longer", reason="sleeps or waits", size=3),
    Fault("sleeps_longer", "plain", "SL503", function="sleeps_longer", reason="sleeps or waits"),
    Fault("sleeps_longer", "optimizer", "SL503", function="sleeps_longer", reason="sleeps or waits", size=4),
    Fault("computes_more", "optimizer", "SL503", function="compute", reason="computes more"),
    Fault("pinned", "optimizer", "SL503", since=None, reason="may only use CPU"),
    Fault("loader_one_0", "plain", "SL503", since=None, function="prepare", reason="num_workers=0"),
    Fault("loader_one_2", "ddp", "SL503", since=None, function="prepare", reason="num_workers=2"),
    Fault("loader_all_2", "optimizer", "SL506", (), None, "prepare", "num_workers=2"),
    Fault("loader_all_0", "ddp", "SL506", (), None, "prepare", "num_workers=0"),
    Fault("all_sleep_longer", "optimizer", "SL504", (), 80, first=80),
    Fault("all_sleep_longer", "ddp", "SL504", (), 80, first=80),
    Fault("all_sleep_longer", "optimizer", "SL505", (), None, first=0, profile='[slow]\nexpect_step = "20ms"\n'),
)


def cases() -> list[object]:
    return [
        pytest.param(fault, id=f"{fault.kind}-{fault.shape}-{fault.code}", marks=[pytest.mark.long] * fault.slow)
        for fault in FAULTS_TOLD
    ]


def told_while_it_runs(fault: Fault, tmp_path: Path) -> tuple[Ended, list[str]]:
    """The run, ended by us once it has said what is wrong, and what it had said until then."""
    profile: list[object] = []
    if fault.profile:
        (tmp_path / "own.toml").write_text(fault.profile)
        profile = ["--profile", "./own.toml"]
    words = (fault.kind, fault.shape, 1, fault.first, PATIENCE_S)
    process = start(*NO_CHECK, *profile, "--nproc-per-node", fault.size, SLOW, *words, cwd=tmp_path)
    said: list[str] = []
    assert process.stderr is not None
    try:
        for line in process.stderr:
            said.append(line.rstrip("\n"))
            if "= bundle: " in line and process.poll() is None:
                break
        (tmp_path / "enough").touch()
        rest = process.stderr.read()
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
    return Ended(code, "", rest, newest_run(tmp_path)), said


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", cases())
def test_what_makes_a_run_slow_is_told(fault: Fault, tmp_path: Path) -> None:
    ended, said = told_while_it_runs(fault, tmp_path)

    text = "\n".join(said)
    assert ended.code == 0, text + ended.err
    assert f"warning[{fault.code}]" in text, text + ended.err
    verdict = ended.verdict
    assert (verdict["code"], tuple(verdict["culprit_ranks"])) == (fault.code, fault.ranks), text
    if fault.function is not None:
        assert verdict["location"]["function"].rpartition(".")[2] == fault.function
    assert fault.reason in text
    slow = ended.read("incident-0/evidence/case.json")["slow"]
    if fault.since is not None:
        assert slow["since"] == pytest.approx(fault.since, abs=8)
    assert sum(line.startswith(("   =", "  -->", "warning[")) for line in said) <= 10
    assert f"the run was slow: {fault.code}" in ended.err
    assert fault.code in [verdict["code"] for verdict in ended.read("result.json")["verdicts"]]


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", ["evaluates", "varies", "crowded"])
@pytest.mark.parametrize("shape", ["plain", "ddp"])
def test_a_healthy_run_is_left_alone(kind: str, shape: str, tmp_path: Path) -> None:
    ended = launch(*NO_CHECK, "--nproc-per-node", 4, SLOW, kind, shape, 1, 40, QUIET_S, cwd=tmp_path, timeout=180)

    assert ended.code == 0, ended.err
    told = ended.read("result.json")["verdicts"]
    # What else runs on this machine may begin meanwhile, and that is true of all ranks.
    assert [verdict for verdict in told if "do not get the CPU" not in verdict["summary"]] == []
    assert {verdict["code"] for verdict in told} <= {"SL504"}


def test_nothing_is_told_of_a_short_run(tmp_path: Path) -> None:
    ended = launch(*NO_CHECK, "--nproc-per-node", 2, SLOW, "sleeps_longer", "plain", 1, 5, 2, cwd=tmp_path)

    assert (ended.code, ended.read("result.json")["verdicts"]) == (0, [])


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_profile_can_keep_it_quiet(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[slow]\nwatch = false\n")
    words = (SLOW, "sleeps_longer", "plain", 1, 10, 20)
    ended = launch(*NO_CHECK, "--profile", "./own.toml", "--nproc-per-node", 2, *words, cwd=tmp_path)

    assert (ended.code, ended.read("result.json")["verdicts"]) == (0, [])


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_offline_diagnosis_says_the_same(tmp_path: Path) -> None:
    fault = Fault("sleeps_longer", "optimizer", "SL503")
    ended, _ = told_while_it_runs(fault, tmp_path)
    assert ended.run_dir is not None
    text = subprocess.run(
        [*SAFELAUNCH, "diagnose", str(ended.run_dir / "incident-0")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert ended.verdict["summary"] in text
    assert "the run itself concluded" not in text
