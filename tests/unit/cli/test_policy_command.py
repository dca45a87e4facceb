"""`safelaunch policy`: each snippet retries the codes that are worth it, says where it is from, and is well formed."""

from __future__ import annotations

import re
import subprocess

import pytest

from safelaunch.cli import policy
from safelaunch.codes import EXIT_INFRASTRUCTURE, EXIT_PROFILE, EXIT_REFUSED, EXIT_SCRIPT_FAILED, EXIT_USAGE
from safelaunch.model import SafelaunchError
from safelaunch.schedulers.policies import POLICIES

RETRIED, FINAL = {EXIT_REFUSED, EXIT_INFRASTRUCTURE}, {EXIT_SCRIPT_FAILED, EXIT_USAGE, EXIT_PROFILE}


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert policy.run([name]) == 0
    return capsys.readouterr().out


def lists(text: str) -> list[set[int]]:
    return [set(map(int, found.split(","))) for found in re.findall(r"(?:values|exit_codes): \[([\d, ]+)\]", text)]


@pytest.mark.parametrize("name", POLICIES)
def test_each_says_where_its_rules_are_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(name, capsys)

    assert "# Source: " in text
    assert "69 and 75 are tried again" in text
    assert not re.search(r"[{}]\w+_(words|list|shell)", text)


def test_kubernetes_ends_the_job_for_the_one_and_counts_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert lists(printed("k8s", capsys)) == [FINAL, RETRIED]
    assert lists(printed("jobset", capsys)) == [FINAL]
    assert lists(printed("skypilot", capsys)) == [RETRIED]


@pytest.mark.parametrize(("code", "requeued"), [(0, 0), (1, 0), (2, 0), (69, 1), (75, 1), (78, 0), (124, 0)])
def test_the_line_for_a_batch_script_requeues_after_these_only(
    code: int, requeued: int, capsys: pytest.CaptureFixture[str]
) -> None:
    commented = [line[4:] for line in printed("slurm", capsys).splitlines() if line.startswith("#   ")]
    fakes = f"srun() {{ return {code}; }}\nscontrol() {{ echo requeued; }}\n"
    script = fakes + "\n".join(commented)

    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)

    assert (ended.stdout.count("requeued"), ended.returncode) == (requeued, code)


@pytest.mark.parametrize(("code", "final"), [(0, False), (1, True), (69, False), (75, False), (78, True), (143, False)])
def test_on_beaker_a_failure_for_good_ends_the_next_job_at_once(
    code: int, final: bool, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    lines = printed("beaker", capsys).splitlines()
    begin = next(number for number, line in enumerate(lines) if "failed=" in line)
    script = "\n".join(lines[begin:]).replace("/weka/OURS", str(tmp_path))
    script = f"safelaunch() {{ echo ran; return {code}; }}\n{script}"

    first, second = (
        subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False) for _ in range(2)
    )

    assert (first.returncode, first.stdout) == (code, "ran\n")
    assert second.stdout == ("" if final else "ran\n")


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SafelaunchError) as refused:
        policy.run(["slum"])
    assert "slurm" in refused.value.diagnostic.remedy
    policy.run([])
    assert all(name in capsys.readouterr().out or name for name in POLICIES)
