"""Hangs of GPU jobs on the fake GPUs, with both of torch's NCCL backends: the host is back from its call, and waits
elsewhere or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import NCCL, FakeGpus, by_turns
from harness import FAULTS, Ended

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(240)]

SAFELAUNCH = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 4)
CULPRIT = 2

# Program, its mistake, how its steps end -> what is said.
HANGS = {
    ("loop", "late", "item"): "SL301",
    ("ddp", "late", "none"): "SL301",
    ("fsdp2", "late", "item"): "SL301",
    ("pipeline", "late", "item"): "SL301",
    ("halo", "late", "item"): "SL301",
    ("loop", "skip", "synchronize"): "SL302",
    ("fsdp2", "extra", "item"): "SL302",
    ("mesh", "size", "item"): "SL410",
    ("ddp", "extra", "item"): "SL410",
    ("loop", "order", "item"): "SL311",
    ("pipeline", "nosend", "item"): "SL311",
    ("mesh", "skip", "item"): "SL311",
    ("ddp", "early", "barrier"): "SL408",
}


def run(fake_gpus: FakeGpus, program: str, backend: str, tmp_path: Path, *options: object, **faults: str) -> Ended:
    environ = fake_gpus.environment(backend=backend, FAULT_RANK=str(CULPRIT), **faults)
    script = FAULTS / "gpu" / f"{program}.py"
    return fake_gpus.run(*SAFELAUNCH, *options, script, cwd=tmp_path, environ=environ, timeout=200)


def verdict(ended: Ended) -> dict[str, Any]:
    assert ended.run_dir is not None, ended.err
    found: dict[str, Any] = json.loads((ended.run_dir / "incident-0/verdict.json").read_text())
    return found


@pytest.mark.parametrize(("program", "fault", "sync", "backend"), by_turns(HANGS))
def test_the_rank_that_makes_the_mistake_is_named(
    program: str, fault: str, sync: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    options = ("--hang-abort-after", "20s")
    ended = run(fake_gpus, program, backend, tmp_path, *options, FAULT=fault, SYNC=sync)

    told = verdict(ended)
    assert (told["code"], told["culprit_ranks"]) == (HANGS[program, fault, sync], [CULPRIT]), ended.err
    assert "safelaunch: SL" in ended.err  # it was told while the ranks still waited


@pytest.mark.parametrize("backend", NCCL)
def test_the_ranks_that_the_watchdog_aborts_are_victims(backend: str, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    ended = run(fake_gpus, "loop", backend, tmp_path, FAULT="late", PG_TIMEOUT="15")

    told = verdict(ended)
    assert (told["code"], told["culprit_ranks"]) == ("SL301", [CULPRIT]), ended.err
    assert any(line.startswith("the wait ended when") for line in told["because"])
    assert "progress returned" not in ended.err


@pytest.mark.parametrize(
    ("program", "fault", "code", "backend"), by_turns([("loop", "late", "SL301"), ("ddp", "skip", "SL408")])
)
def test_so_they_are_where_it_comes_before_anything_was_told(
    program: str, fault: str, code: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    soon = {"PG_TIMEOUT": "1", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}
    ended = run(fake_gpus, program, backend, tmp_path, FAULT=fault, **soon)

    told = verdict(ended)
    assert (told["code"], told["culprit_ranks"]) == (code, [CULPRIT]), ended.err


@pytest.mark.parametrize("backend", NCCL)
def test_nobody_else_is_blamed_where_all_are_aborted_and_one_gpu_is_the_cause(
    backend: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    ended = run(fake_gpus, "loop", backend, tmp_path, FAULT="kernel", PG_TIMEOUT="1")

    # How far each stream had come only a living rank says, and they end at once.
    told = verdict(ended)
    assert (told["code"], told["culprit_ranks"]) in (("SL318", [CULPRIT]), ("SL310", [])), ended.err


@pytest.mark.parametrize(("program", "backend"), by_turns([("loop",), ("ddp",), ("fsdp2",)]))
def test_a_kernel_that_does_not_end_is_of_the_rank_that_enqueued_it(
    program: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    ended = run(fake_gpus, program, backend, tmp_path, "--hang-abort-after", "20s", FAULT="kernel")

    told = verdict(ended)
    assert (told["code"], told["culprit_ranks"], told["confidence"]) == ("SL318", [CULPRIT], "medium"), ended.err
    assert f"a kernel on the GPU of rank {CULPRIT} does not end" in told["summary"]
