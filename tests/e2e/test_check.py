"""`safelaunch check` as a person runs it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY

from safelaunch.preflight import CHECKS
from safelaunch.preflight.between import JUDGES


def check(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "safelaunch", "check", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environ},
        timeout=110,
    )


def test_a_healthy_node_is_one_line(tmp_path: Path) -> None:
    result = check("--nproc-per-node", "1", "--run-dir", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("\n") == 1 or "warning" in result.stdout
    assert "can run 1 rank on CPU" in result.stdout
    assert result.stderr == ""


def test_verbose_lists_every_check() -> None:
    result = check("-v", "--nproc-per-node", "1")
    for name in ("nofile", "port-in-use", "name-resolution", "shm", "disk", "memory-limit", "gpu-driver"):
        assert name in result.stdout


def test_a_port_in_use_refuses_the_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = check("--nproc-per-node", "1", "--master-port", str(port), "--master-addr", "127.0.0.1")
    assert result.returncode == 69
    assert f"error[SL102]: port {port} is in use on this node" in result.stdout
    assert f"pid {os.getpid()} (" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("refused: ")


def test_json_alone_on_stdout() -> None:
    result = check("--json", "--nproc-per-node", "1", "--master-addr", "no-such-host.invalid")
    assert result.returncode == 69
    report = json.loads(result.stdout)
    assert (report["schema_version"], report["refused"]) == (1, True)
    assert "SL103" in [entry["code"] for entry in report["findings"] if entry["severity"] == "error"]


def test_full_runs_real_collectives() -> None:
    result = check("--full", "-v", "--nproc-per-node", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 ranks exchanged the right values over gloo" in result.stdout


def test_a_profile_turns_a_check_off_and_another_up(tmp_path: Path) -> None:
    profile = tmp_path / "strict.toml"
    profile.write_text('[preflight]\nmin_shm = "8000GiB"\n[preflight.severity]\nSL104 = "error"\nSL103 = "off"\n')
    result = check("--profile", str(profile), "-v", "--nproc-per-node", "1")
    assert result.returncode == 69
    assert "error[SL104]" in result.stdout
    assert "name-resolution" not in result.stdout


def test_eight_gpus_are_eight_ranks(cuda_node: dict[str, str]) -> None:
    result = check("-v", **cuda_node)
    assert "8 GPUs visible for 8 ranks" in result.stdout
    assert "NVIDIA driver 570.124.06, 8 GPUs" in result.stdout


def test_too_few_visible_gpus_refuse_the_node(cuda_node: dict[str, str]) -> None:
    result = check("--nproc-per-node", "4", **cuda_node, CUDA_VISIBLE_DEVICES="0,9,1")
    assert result.returncode == 69
    assert "error[SL107]: 4 ranks asked for, 1 GPU visible" in result.stdout


def test_a_driver_that_does_not_match_its_library(cuda_node: dict[str, str]) -> None:
    result = check(**cuda_node, FAKE_NVML="init.ret=18")
    assert result.returncode == 69
    assert "error[SL108]" in result.stdout
    assert "reload the nvidia module, or reboot" in result.stdout


def test_a_busy_gpu_refuses_the_node(cuda_node: dict[str, str]) -> None:
    result = check("--nproc-per-node", "2", **cuda_node, FAKE_NVML=f"mem.used@1=40000000000;proc@1={os.getpid()}")
    assert result.returncode == 69
    assert "error[SL109]: GPU 1: 37.3 GiB of 80 GiB are in use" in result.stdout


# ------------------------------------------------------------------------------------------- which checks


def test_the_list_names_every_check_with_code_and_group() -> None:
    result = check("--list")
    assert result.returncode == 0
    for check_ in (*CHECKS, *JUDGES):
        assert f"{check_.code}  {check_.name} " in result.stdout
    assert len(result.stdout.splitlines()) == len(CHECKS) + len(JUDGES)


def test_only_and_skip() -> None:
    report = json.loads(check("--json", "--only", "limits", "--skip", "shm,SL105").stdout)
    assert {entry["check"] for entry in report["findings"]} >= {"nofile", "memory-limit"}
    assert not {"shm", "disk", "name-resolution"} & {entry["check"] for entry in report["findings"]}


def test_an_unknown_check_is_an_error_of_the_user() -> None:
    result = check("--skip", "nofiles")
    assert result.returncode == 2
    assert result.stderr == "error[SL001]: no check is called nofiles\n   = help: did you mean `nofile`?\n"


# ----------------------------------------------------------------------------------------------- prolog


def prolog(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """As slurmd starts it: no PATH, no HOME, no terminal."""
    command = [sys.executable, "-m", "safelaunch", "check", "--prolog", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environ, stdin=subprocess.DEVNULL, cwd="/", timeout=60
    )


def test_a_good_node_says_nothing_in_a_prolog() -> None:
    result = prolog(PYTHONPATH=str(REPOSITORY))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_bad_node_says_why_in_one_line(cuda_node: dict[str, str]) -> None:
    path = f"{cuda_node['PYTHONPATH']}:{REPOSITORY}"
    result = prolog(**{**cuda_node, "PYTHONPATH": path}, FAKE_NVML="lost@3=1;lost@5=1")
    assert result.returncode == 69
    assert result.stdout.startswith("safelaunch: SL108 GPU 3 does not answer: ")
    assert result.stdout.endswith(" (+1 more)\n")
    assert len(result.stdout) <= 121


def test_the_gpus_of_other_jobs_are_left_alone_in_a_prolog(cuda_node: dict[str, str]) -> None:
    path = f"{cuda_node['PYTHONPATH']}:{REPOSITORY}"
    environ = {**cuda_node, "PYTHONPATH": path, "FAKE_NVML": "mem.used@1=40000000000"}
    assert prolog(**environ, SLURM_JOB_GPUS="2,3").returncode == 0
    assert prolog(**environ, SLURM_JOB_GPUS="1").returncode == 69


@pytest.mark.parametrize("mistake", [("--profile", "no-such-profile"), ("--no-such-option",), ("--node-rank", "5")])
def test_a_mistake_in_the_prolog_drains_no_node(mistake: tuple[str, ...]) -> None:
    result = prolog(*mistake, PYTHONPATH=str(REPOSITORY))
    assert (result.returncode, result.stdout) == (0, "")
    assert mistake[-1] in result.stderr


def test_running_jobs_drain_no_node(cuda_node: dict[str, str]) -> None:
    """HealthCheckProgram runs beside them, and knows of no job's GPUs."""
    path = f"{cuda_node['PYTHONPATH']}:{REPOSITORY}"
    assert prolog(**{**cuda_node, "PYTHONPATH": path}, FAKE_NVML="mem.used@1=40000000000").returncode == 0


def test_mig_cannot_be_counted_and_is_no_reason_to_refuse(cuda_node: dict[str, str]) -> None:
    result = check(**cuda_node, FAKE_NVML="mig@0=1")
    assert result.returncode == 0
    assert "unchecked[SL107]: the number of GPUs cannot be told" in result.stdout
    path = f"{cuda_node['PYTHONPATH']}:{REPOSITORY}"
    assert prolog(**{**cuda_node, "PYTHONPATH": path}, FAKE_NVML="mig@0=1").returncode == 0


# ------------------------------------------------------------------------------------------ time and place


def test_a_driver_that_hangs_does_not_outlast_the_deadline(cuda_node: dict[str, str]) -> None:
    result = check("--deadline", "2s", **cuda_node, FAKE_NVML="hang@2=nvmlDeviceGetTemperature")
    assert result.returncode == 69
    seconds = re.search(r"GPU 2 did not answer within ([\d.]+) s", result.stdout)
    assert seconds is not None, result.stdout
    assert float(seconds[1]) < 2


def test_another_node_on_this_machine_is_no_stranger_on_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        endpoint = f"127.0.0.1:{first.getsockname()[1]}"
        result = check("--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", endpoint, "--only", "port-in-use")
    assert "SL102" not in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize("options", [("--only", "nodes"), ("--nnodes", "0"), ("--node-rank", "1")])
def test_what_cannot_be_checked_is_an_error_of_the_user(options: tuple[str, ...]) -> None:
    result = check(*options)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error[SL001]: ")
