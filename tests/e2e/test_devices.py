"""Which GPU a rank gets and takes: `run.json`, the start banner, and what is told by name."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from harness import Ended, launch

# A torch that says it is built for CUDA, and is the installed one as soon as somebody imports it.
PROXY = """
import os, sys
sys.path.remove(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
del sys.modules["torch"]
import torch
"""

# torch.cuda of a node with four GPUs, for ranks that need no more of torch.
CUDA = """
def set_device(device): pass
def is_initialized(): return False
def device_count(): return 4
"""


# What real GPUs are needed for.
NO_REAL_GPU = "".join(f'SL{number} = "note"\n' for number in (111, *range(150, 158)))


@pytest.fixture
def gpu_node(cuda_node: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Eight GPUs, of which NVML tells, and a torch that can run ranks."""
    site = tmp_path / "proxy"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text(PROXY)
    (site / "torch/version.py").write_text("cuda = '12.8'\nhip = None\n")
    paths = os.pathsep.join([str(site), str(Path(__file__).parents[2])])
    return {"LD_LIBRARY_PATH": cuda_node["LD_LIBRARY_PATH"], "PYTHONPATH": paths}


def written(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "train.py"
    path.write_text(source)
    return path


def told(ended: Ended, code: str) -> list[str]:
    return [line for line in ended.err.splitlines() if f"[{code}]" in line]


GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def test_the_banner_of_debug_and_the_mapping_of_a_cpu_job(tmp_path: Path) -> None:
    script = written(tmp_path, GLOO)
    ended = launch(*("--profile", "debug", "--preflight", "off", "--nproc-per-node", 2, script), cwd=tmp_path)

    assert ended.code == 0, ended.err
    lines = ended.err.splitlines()
    begin = lines.index("safelaunch: 2 ranks started")
    banner = "\n".join(lines[begin : begin + 24])
    assert "world size 2 (1 node x 2 ranks)" in banner
    assert f"safelaunch_runs/{ended.run_dir.name}" in banner if ended.run_dir else False
    assert re.search(r"torch \d+\.\d+", banner)
    assert "process group 30m (torch's default)" in banner
    assert "hang limit 2m (profile debug.toml:" in banner
    assert re.search(r"interfaces +gloo (\S+ \(|unknown: )", banner)
    assert not re.search(r"interfaces.*NCCL", banner)  # a CUDA build of torch has its version, and no use for it here
    assert re.search(r"open files \d+", banner)
    host = socket.gethostname()

    assert re.search(rf"^  1 +{re.escape(host)} +1 +[\d,.-]+$", banner, re.MULTILINE), banner
    (attempt,) = ended.read("run.json")["mapping"]
    assert attempt["attempt"] == 0
    assert [(rank["rank"], rank["host"], rank["local_rank"]) for rank in attempt["ranks"]] == [
        (0, host, 0),
        (1, host, 1),
    ]
    assert all(rank["gpu_index"] is None and rank["cpus"] for rank in attempt["ranks"])


@pytest.mark.long
def test_without_debug_there_is_a_mapping_and_no_banner(tmp_path: Path) -> None:
    script = written(tmp_path, "import sys\nsys.exit('RESTART' not in __import__('os').environ and 1)\n")
    ended = launch("--preflight", "off", "--max-restarts", 1, script, cwd=tmp_path)

    assert "rank started" not in ended.err
    attempts = ended.read("run.json")["mapping"]
    assert [attempt["attempt"] for attempt in attempts] == [0, 1]
    assert attempts[0]["ranks"][0]["pid"] != attempts[1]["ranks"][0]["pid"]


@pytest.mark.parametrize(("option", "shown"), [("-v", True), ("-q", False)])
@pytest.mark.long
def test_who_wants_the_banner(tmp_path: Path, option: str, shown: bool) -> None:
    profile = ("--profile", "debug") if option == "-q" else ()
    script = written(tmp_path, "pass")
    ended = launch(option, *profile, "--preflight", "off", script, cwd=tmp_path)

    assert ended.code == 0
    assert ("safelaunch: 1 rank started" in ended.err) == shown


def test_the_mapping_has_what_nvml_said(tmp_path: Path, gpu_node: dict[str, str]) -> None:
    (tmp_path / "quick.toml").write_text("[launch]\nbanner = true\n[preflight.severity]\n" + NO_REAL_GPU)
    ended = launch(
        *("--profile", "./quick.toml", "--nproc-per-node", 2, written(tmp_path, "pass")),
        cwd=tmp_path,
        **gpu_node,
        CUDA_VISIBLE_DEVICES="6,2",
    )

    assert ended.code == 0, ended.err
    (attempt,) = ended.read("run.json")["mapping"]
    first, second = attempt["ranks"]
    assert (first["gpu_index"], second["gpu_index"]) == (6, 2)
    assert first["uuid"].startswith("GPU-")
    assert first["address"] == "0000:16:00.0"
    assert f"{first['uuid']}  {first['address']}" in ended.err
    assert "driver 5" in ended.err


def ranks_of(tmp_path: Path, source: str) -> Path:
    """A script whose ranks find the made-up torch.cuda; the agent must not."""
    cuda = tmp_path / "job/torch/cuda"
    cuda.mkdir(parents=True)
    (cuda.parent / "__init__.py").touch()
    (cuda / "__init__.py").write_text(CUDA)
    path = tmp_path / "job/train.py"
    path.write_text("import os\nLOCAL_RANK = int(os.environ['LOCAL_RANK'])\n" + source)
    return path


def run(tmp_path: Path, source: str, **environ: str | None) -> Ended:
    script = ranks_of(tmp_path, source)
    return launch("--preflight", "off", "--nproc-per-node", 2, script, cwd=tmp_path, **environ)


def test_visible_devices_set_by_the_script_are_told_by_name(tmp_path: Path) -> None:
    source = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\nimport torch.cuda\ntorch.cuda.set_device(0)\n"
    ended = run(tmp_path, source, CUDA_VISIBLE_DEVICES="0,1")

    assert ended.code == 0, ended.err
    (line,) = told(ended, "SL231")
    assert (
        "ranks 0 and 1 set CUDA_VISIBLE_DEVICES=1 in the script at job/train.py:3, after the start with '0,1'" in line
    )
    assert "all of them now see the same GPU 1" in line
    (finding,) = [finding for finding in ended.read("result.json")["findings"] if finding["code"] == "SL231"]
    assert "LOCAL_RANK 1 of rank 1 now points to no GPU, 1 visible" in finding["because"]


@pytest.mark.parametrize(
    ("value", "before"), [("''", None), ("os.environ['LOCAL_RANK']", "0,1"), ("'0,1'", None), ("'0,1'", "0,1,2,3")]
)
def test_visible_devices_set_as_scripts_do_it_are_not_talked_about(
    tmp_path: Path, value: str, before: str | None
) -> None:
    device, count = ("LOCAL_RANK", 2) if "," in value else (0, 1)
    source = f"os.environ['CUDA_VISIBLE_DEVICES'] = {value}\nimport torch.cuda\n"
    if value != "''":
        source += f"torch.cuda.device_count = lambda: {count}\ntorch.cuda.set_device({device})\n"
    ended = run(tmp_path, source, CUDA_VISIBLE_DEVICES=before)

    assert ended.code == 0, ended.err
    assert "SL23" not in ended.err


def test_ranks_on_one_gpu_are_told_by_name(tmp_path: Path) -> None:
    ended = run(tmp_path, "import torch.cuda\ntorch.cuda.set_device(1)\n")

    (line,) = told(ended, "SL230")
    assert "ranks 0 and 1 of this node both use GPU 1" in line
    assert "set_device(1) at job/train.py:4" in line
    assert not told(ended, "SL232")


@pytest.mark.long
def test_set_device_that_disagrees_with_local_rank_is_told_by_name(tmp_path: Path) -> None:
    ended = run(tmp_path, "import torch.cuda\ntorch.cuda.set_device(1 - LOCAL_RANK)\n")

    (line,) = told(ended, "SL232")
    assert "rank 0 (LOCAL_RANK 0) on cuda:1, rank 1 (LOCAL_RANK 1) on cuda:0 at job/train.py:4" in line


def test_ranks_that_are_fine_are_not_talked_about(tmp_path: Path) -> None:
    ended = run(tmp_path, "import torch.cuda\ntorch.cuda.set_device(LOCAL_RANK)\n", CUDA_VISIBLE_DEVICES="2,3,4,5")

    assert ended.code == 0
    assert "SL23" not in ended.err


def test_an_ordinal_that_is_not_there_comes_with_the_mapping(tmp_path: Path) -> None:
    source = """
import torch.cuda
if LOCAL_RANK == 1:
    torch.cuda.device_count = lambda: 1
    raise RuntimeError("CUDA error: invalid device ordinal")
"""
    ended = run(tmp_path, source, CUDA_VISIBLE_DEVICES="7")

    assert ended.code == 1
    assert "rank 1: LOCAL_RANK 1, CUDA_VISIBLE_DEVICES=7" in "\n".join(ended.ours())
