"""GPUs at an incident of a real run: real ranks, real pynvml, and a libnvidia-ml.so.1 of our own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, Ended, environment, launch

from safelaunch.run.hardware import DEADLINE_S

PROGRAM = FAULTS / "on_gpus.py"
ASIDE = ("--preflight", "off", "--nproc-per-node", 2)


def run(node: dict[str, str], tmp_path: Path, mode: str, faults: str, *more: object) -> Ended:
    return launch(*ASIDE, *more, PROGRAM, mode, cwd=tmp_path, LD_LIBRARY_PATH=node["LD_LIBRARY_PATH"], FAKE_NVML=faults)


@pytest.mark.timeout(120)
def test_a_hang_whose_culprit_has_lost_its_gpu(cuda_node: dict[str, str], tmp_path: Path) -> None:
    ended = run(cuda_node, tmp_path, "sleeps", "lost@1=1;util@0=100", "--hang-abort-after", "8s")

    verdict = ended.verdict
    assert (verdict["code"], verdict["culprit_ranks"]) == ("SL428", [1])
    assert ended.code == verdict["exit_code"] == 75
    assert verdict["location"]["line"] == 1 + PROGRAM.read_text().splitlines().index(
        "        time.sleep(0.2)  # the line of the culprit"
    )
    assert "run on another node" in ended.err
    gpus = ended.read("incident-0/evidence/case.json")["gpus"]
    assert [(gpu["index"], gpu["ranks"], gpu["lost"]) for gpu in gpus] == [(0, [0], False), (1, [1], True)]
    assert gpus[0]["busy_percent"] == 100
    assert ended.run_dir is not None
    assert "<h2>GPUs</h2>" in (ended.run_dir / "incident-0/report.html").read_text()

    again = subprocess.run(
        [*SAFELAUNCH, "diagnose", "--json", str(ended.run_dir / "incident-0")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=True,
    )
    told = json.loads(again.stdout)["conclusions"][0]["verdict"]
    assert {key: told[key] for key in ("code", "culprit_ranks", "summary", "because", "confidence", "remedy")} == {
        key: verdict[key] for key in ("code", "culprit_ranks", "summary", "because", "confidence", "remedy")
    }


@pytest.mark.timeout(120)
def test_a_crash_is_not_held_up_by_a_driver_that_does_not_answer(cuda_node: dict[str, str], tmp_path: Path) -> None:
    ended = run(cuda_node, tmp_path, "raises", "hang=nvmlInitWithFlags")

    assert ended.verdict["culprit_ranks"] == [1]
    gpus = ended.read("incident-0/evidence/case.json")["gpus"]
    waited = [re.match(r"NVML did not answer within ([\d.]+) s", gpu["missing"]) for gpu in gpus]
    assert all(match is not None and float(match[1]) <= DEADLINE_S for match in waited), gpus
    assert [gpu["ranks"] for gpu in gpus] == [[0], [1]]


@pytest.mark.timeout(120)
@pytest.mark.long
def test_healthy_gpus_leave_the_verdict_as_it_is(cuda_node: dict[str, str], tmp_path: Path) -> None:
    ended = run(cuda_node, tmp_path, "sleeps", "", "--hang-abort-after", "8s")

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"], ended.code) == ("SL301", [1], 124)
    assert len(ended.read("incident-0/evidence/case.json")["gpus"]) == 2
