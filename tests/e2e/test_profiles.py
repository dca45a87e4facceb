"""What profiles say is what the ranks have: variables taken away, values computed from the launch, and every shipped
profile on this machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, REPOSITORY, TORCHRUN, environment, launch

SHIPPED = [
    # CI has time for the two that change most of what a CPU job sees.
    pytest.param(path.stem, marks=() if path.stem in ("debug", "cpu") else pytest.mark.long)
    for path in sorted((REPOSITORY / "profiles").glob("*.toml"))
]

# Two ranks that have met (gloo) write down their environment.
SHOW = """\
import json, os
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
with open(f"env-{os.environ['RANK']}.json", "w") as file:
    json.dump({**os.environ, "exists": os.path.isdir(os.environ.get("WHERE", ""))}, file)
dist.destroy_process_group()
"""


def seen(cwd: Path, ranks: int = 2) -> list[dict[str, Any]]:
    return [json.loads((cwd / f"env-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture
def show(tmp_path: Path) -> Path:
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


def test_what_a_profile_unsets_is_absent_in_the_ranks(show: Path) -> None:
    # torch elastic sets the last two by itself where it does not find them.
    gone = ["BAKED_IN", "TORCH_FR_BUFFER_SIZE", "OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"]
    (show / "clean.toml").write_text(f"unset = {json.dumps([*gone, 'AGAIN'])}\n")
    (show / "again.toml").write_text("[env]\nAGAIN = 'profile'\n")
    arguments = ("--nproc-per-node", 2, "--profile", "./clean.toml", "--profile", "./again.toml", "show.py")
    shell = {"BAKED_IN": "image", "OMP_NUM_THREADS": "3", "AGAIN": "shell", "KEPT": "shell"}

    ended = launch(*arguments, cwd=show, **shell)

    assert ended.code == 0, ended.err
    for environ in seen(show):
        assert not set(gone) & set(environ)
        assert (environ["AGAIN"], environ["KEPT"]) == ("profile", "shell")
    assert "note[SL207]: ./clean.toml:1 unsets BAKED_IN=image of the shell" in ended.err
    assert set(ended.read("run.json")["settings"]["unset"]) == {*gone, "AGAIN"}
    assert ended.run_dir is not None
    text = (ended.run_dir / "env.txt").read_text()
    assert "BAKED_IN=" not in text
    assert "# BAKED_IN is unset by profile ./clean.toml:1\n" in text


def test_values_are_computed_from_the_launch(show: Path) -> None:
    (show / "mine.toml").write_text(
        "[env]\nWHERE = '{run_dir}'\nWHICH = '{run_id}'\nSHAPE = '{nnodes}x{local_world_size}'\n"
        "OMP_NUM_THREADS = '{cpus_per_rank}'\nAS_IT_IS = '{{run_dir}} {\"a\": {}}'\n"
    )

    ended = launch("--nproc-per-node", 2, "--profile", "./mine.toml", "show.py", cwd=show)

    assert ended.code == 0, ended.err
    assert ended.run_dir is not None
    for environ in seen(show):
        assert Path(environ["WHERE"]) == ended.run_dir
        assert environ["exists"], "the folder is there before the ranks start"
        assert environ["WHICH"] == ended.read("run.json")["run_id"]
        assert environ["SHAPE"] == "1x2"
        assert 1 <= int(environ["OMP_NUM_THREADS"]) <= max(1, len(os.sched_getaffinity(0)) // 2)
        assert environ["AS_IT_IS"] == '{run_dir} {"a": {}}'
    settings = ended.read("run.json")["settings"]
    assert settings["env"]["WHERE"]["value"] == str(ended.run_dir)
    assert settings["env"]["WHERE"]["origin"] == {"source": "profile", "where": "./mine.toml:2"}
    assert settings["computed"]["WHERE"] == "{run_dir}"
    assert f"WHERE={ended.run_dir}  # profile ./mine.toml:2\n" in (ended.run_dir / "env.txt").read_text()


@pytest.mark.long
def test_ranks_that_the_launch_counts_are_counted_for_the_profile(show: Path) -> None:
    (show / "mine.toml").write_text("[env]\nSHAPE = '{local_world_size}'\n")

    ended = launch("--nproc-per-node", "cpu", "--profile", "./mine.toml", "show.py", cwd=show)

    assert ended.code == 0, ended.err
    cpus = len(os.sched_getaffinity(0))
    assert {environ["SHAPE"] for environ in seen(show, cpus)} == {str(cpus)}
    assert {environ["LOCAL_WORLD_SIZE"] for environ in seen(show, cpus)} == {str(cpus)}


def test_ranks_that_cannot_be_counted_start_nothing(show: Path) -> None:
    (show / "mine.toml").write_text("[env]\nSHAPE = '{local_world_size}'\n")

    ended = launch("--nproc-per-node", "xpu", "--profile", "./mine.toml", "show.py", cwd=show)

    assert ended.code == 2
    assert "./mine.toml:2: [env] SHAPE needs the number of ranks" in ended.err
    assert "--nproc-per-node N" in ended.err
    assert not (show / "safelaunch_runs").exists()


@pytest.mark.long
def test_the_torchrun_line_of_a_dry_run_starts_the_same(show: Path) -> None:
    (show / "mine.toml").write_text(
        "unset = ['GONE', 'TORCH_FR_BUFFER_SIZE']\n[env]\nSHAPE = '{local_world_size}'\nWHERE = '{run_dir}'\n"
    )
    arguments = ("--standalone", "--nproc-per-node", 2, "--profile", "./mine.toml", "show.py")

    dry = launch("--dry-run", *arguments, cwd=show, GONE="1")

    assert dry.code == 0, dry.err
    lines = dry.out.splitlines()
    assert "  WHERE={run_dir}  # profile ./mine.toml:4" in lines
    assert "  SHAPE=2  # profile ./mine.toml:3" in lines
    assert "  GONE  # profile ./mine.toml:1" in lines
    line = next(line for line in lines if line.startswith("torchrun ")).removeprefix("torchrun").strip()
    assert line.startswith("env -u GONE -u TORCH_FR_BUFFER_SIZE SHAPE=2 torchrun --nproc-per-node 2 ")
    assert "              without TORCH_FR_DUMP_TEMP_FILE, WHERE, computed at the start" in lines
    words = shlex.split(line)
    at = words.index("torchrun")
    words[at : at + 1] = TORCHRUN  # torchrun itself need not be on PATH
    environ = environment(GONE="1", TORCH_FR_BUFFER_SIZE="7")
    subprocess.run(words, cwd=show, env=environ, check=True, capture_output=True, timeout=90)
    for found in seen(show):
        assert not {"GONE", "TORCH_FR_BUFFER_SIZE"} & set(found)
        assert found["SHAPE"] == "2"


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_trains_on_cpus(name: str, tmp_path: Path) -> None:
    script = REPOSITORY / "examples" / "train_ddp.py"

    # Without the slow checks of `debug`, which are looked at elsewhere.
    ended = launch("--preflight", "off", "--nproc-per-node", 2, "--profile", name, script, "--steps", 6, cwd=tmp_path)

    assert ended.code == 0, ended.err
    settings = ended.read("run.json")["settings"]
    assert settings["profiles"] == list(dict.fromkeys(["default", name]))
    assert not [value for value in settings["env"].values() if "{" in value["value"]]


def test_the_debug_profile_writes_where_the_run_is(tmp_path: Path) -> None:
    ended = launch("--preflight", "off", "--profile", "debug", FAULTS / "hello.py", cwd=tmp_path)

    env = ended.read("run.json")["plan"]["env"]
    assert env["NCCL_DEBUG_FILE"] == f"{ended.run_dir}/nccl.%h.%p.log"
    assert env["TORCH_FR_DUMP_TEMP_FILE"] == f"{ended.run_dir}/fr_rank_"


def test_what_a_run_writes_and_shows_holds_no_secret(show: Path) -> None:
    (show / "secret.toml").write_text("[env]\nWANDB_API_KEY = 'sekrit'\nHTTPS_PROXY = 'http://me:sekrit@proxy:1'\n")
    (show / "show.py").write_text("import os\nassert os.environ['WANDB_API_KEY'] == 'sekrit'\n")

    ended = launch("--profile", "./secret.toml", "show.py", cwd=show)

    assert ended.code == 0, ended.err
    assert ended.run_dir is not None
    assert not [path for path in ended.run_dir.rglob("*.*") if path.is_file() and "sekrit" in path.read_text()]
    assert ended.read("run.json")["settings"]["env"]["WANDB_API_KEY"]["value"] == "<redacted>"
    assert "sekrit" not in launch("--profile", "./secret.toml", "--dry-run", "show.py", cwd=show).out
