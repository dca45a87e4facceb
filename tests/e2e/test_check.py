"""`safelaunch check` as a person runs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "rigs"))

import fake_nvml


def check(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "safelaunch", "check", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environ},
        timeout=110,
    )


@pytest.fixture
def cuda_node(tmp_path: Path) -> dict[str, str]:
    """The environment of a node with eight GPUs and a torch that is built for them, as far as a check looks."""
    libraries = tmp_path / "lib"
    torch = tmp_path / "site/torch"
    libraries.mkdir()
    torch.mkdir(parents=True)
    if fake_nvml.build(libraries) is None:
        pytest.skip("no C compiler")
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("cuda = '12.8'\nhip = None\n")
    return {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": str(tmp_path / "site")}


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
    assert "error[SL109]: 37.3 GiB of 80 GiB of GPU 1 are in use" in result.stdout
