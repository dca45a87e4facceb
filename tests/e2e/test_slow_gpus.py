"""Slow runs on the fake GPUs, with both of torch's NCCL backends: a slow GPU, a slow host and a slow link are told
apart, whether the steps wait for the GPU or the hosts run ahead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus
from harness import FAULTS, Ended, newest_run

pytestmark = [pytest.mark.rig, pytest.mark.timeout(280)]

SAFELAUNCH = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 4)
CULPRIT = 2
PATIENCE_S = "120"  # of the program, for a verdict
QUIET_S = "60"  # for which a healthy run is watched
HEALTHY = ("logs", "ddp", "none", "nccl2")  # the one that is watched in every run of the tests
LATER = 700  # a step before which GPUs have been followed once: they are asked 15 s after the first steps


@dataclass(frozen=True)
class Fault:
    kind: str
    shape: str
    sync: str
    backend: str
    code: str = "SL503"
    ranks: tuple[int, ...] = (CULPRIT,)
    says: str = ""
    nvml: str = ""
    first: int = 0
    long: bool = True


FAULTS_TOLD = (
    Fault("gpu", "loop", "item", "nccl2", says="GPU 2 of rank 2 is slow", long=False),
    Fault("gpu", "loop", "none", "nccl", says="GPU 2 of rank 2 is slow"),
    Fault("gpu", "ddp", "item", "nccl", says="in its forward passes", nvml="clk.reasons@2=0x40"),
    Fault("gpu", "ddp", "none", "nccl2", says="in its forward passes"),
    Fault("gpu", "loop", "item", "nccl", says="software power cap", nvml="clk.reasons@2=4;clock.sm@2=500"),
    Fault("host", "loop", "item", "nccl", says="its GPU waits for its host"),
    Fault("host", "loop", "none", "nccl2", says="its GPU waits for its host"),
    Fault("host", "ddp", "item", "nccl2", says="its GPU waits for its host", long=False),
    Fault("host", "ddp", "none", "nccl", says="its GPU waits for its host"),
    Fault("link", "loop", "item", "nccl2", "SL504", (), "the GPUs are longer in the calls", first=LATER),
    Fault("link", "loop", "none", "nccl", "SL504", (), "the GPUs are longer in the calls", first=LATER),
    Fault("link", "ddp", "item", "nccl", "SL504", (), "backward passes and the calls in them", first=LATER),
    Fault("link", "ddp", "none", "nccl2", "SL504", (), "backward passes and the calls in them", first=LATER),
)


def cases() -> list[object]:
    return [
        pytest.param(
            fault,
            id="-".join((fault.kind, fault.shape, fault.sync, fault.backend, *["nvml"] * bool(fault.nvml))),
            marks=pytest.mark.long if fault.long else pytest.mark.slow,
        )
        for fault in FAULTS_TOLD
    ]


def told_while_it_runs(fake_gpus: FakeGpus, fault: Fault, tmp_path: Path) -> tuple[Ended, str]:
    """The run, ended by us once it has said what is wrong, and what it had said until then."""
    environ = fake_gpus.environment(
        backend=fault.backend, SYNC=fault.sync, FROM=str(fault.first), SECONDS=PATIENCE_S, FAKE_NVML=fault.nvml or None
    )
    script = FAULTS / "gpu" / "slow.py"
    process = fake_gpus.start(*SAFELAUNCH, script, fault.shape, fault.kind, cwd=tmp_path, environ=environ)
    said: list[str] = []
    assert process.stderr is not None
    try:
        for line in process.stderr:
            said.append(line)
            if "= bundle: " in line:
                break
        (tmp_path / "enough").touch()
        rest = process.stderr.read()
        code = process.wait(60)
    finally:
        process.terminate()
        process.wait()
    return Ended(code, "", rest, newest_run(tmp_path)), "".join(said)


@pytest.mark.parametrize("fault", cases())
def test_what_makes_it_slow_is_told(fault: Fault, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    ended, said = told_while_it_runs(fake_gpus, fault, tmp_path)

    assert ended.code == 0, said + ended.err
    assert f"warning[{fault.code}]" in said, said + ended.err
    verdict = ended.verdict
    assert (verdict["code"], tuple(verdict["culprit_ranks"])) == (fault.code, fault.ranks), said
    assert fault.says in verdict["summary"], said
    if fault.nvml:
        assert verdict["confidence"] == "high", said


@pytest.mark.parametrize(
    ("kind", "shape", "sync", "backend"),
    [
        pytest.param(*case, backend, marks=pytest.mark.slow if (*case, backend) == HEALTHY else pytest.mark.long)
        for case in (("evaluates", "loop", "item"), ("logs", "ddp", "none"), ("logs", "loop", "none"))
        for backend in NCCL
    ],
)
def test_a_healthy_run_is_left_alone(
    kind: str, shape: str, sync: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    environ = fake_gpus.environment(backend=backend, SYNC=sync, SECONDS=QUIET_S)
    script = FAULTS / "gpu" / "slow.py"
    ended = fake_gpus.run(*SAFELAUNCH, script, shape, kind, cwd=tmp_path, environ=environ, timeout=240)

    assert ended.code == 0, ended.err
    told = ended.read("result.json")["verdicts"]
    # What else runs on this machine may begin meanwhile, and that is true of all ranks.
    assert [verdict for verdict in told if "do not get the CPU" not in verdict["summary"]] == []
