"""The examples are real: the training learns and resumes, and faults do to a run what their names say."""

import importlib
import os
import re
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
STEP = re.compile(r"^step (\d+): loss ([\d.]+), validation ([\d.]+), lr (\S+)$", re.MULTILINE)


def torchrun(script: str, *args: object) -> tuple[int, str]:
    """Exit code and output of an example on two ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*command, str(EXAMPLES / script), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            output, _ = process.communicate(timeout=100)
        finally:
            process.terminate()  # torchrun then ends its ranks
    return process.returncode, output


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """examples/faulty.py, imported as it imports train_ddp: from its folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("faulty")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(330)
def test_training_learns_and_resumes_after_a_crash_as_if_nothing_had_happened(tmp_path: Path) -> None:
    # 64 steps are an epoch: the crash and the resume are in the second.
    options = ["--steps=80", "--batch-size=16", "--eval-every=10", "--checkpoint-every=70"]
    exit_code, whole = torchrun("train_ddp.py", *options)
    assert exit_code == 0, whole
    losses = [float(validation) for _, _, validation, _ in STEP.findall(whole)]
    assert len(losses) == 8
    assert losses[-1] < 0.6 * losses[0]

    checkpoint = tmp_path / "model.pt"
    options.append(f"--checkpoint={checkpoint}")
    exit_code, crashed = torchrun("faulty.py", *options, "--fault=exception@75:all")
    assert exit_code != 0, crashed
    exit_code, resumed = torchrun("train_ddp.py", *options)
    assert exit_code == 0, resumed
    assert f"resumed from {checkpoint} after step 70\n" in resumed
    assert STEP.findall(resumed) == STEP.findall(whole)[-1:]
    assert os.listdir(tmp_path) == [checkpoint.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sign"),
    [
        ("exception", "ValueError: shard 17 is truncated: expected 4096 tokens, found 1024"),
        pytest.param("oom", "MemoryError", marks=pytest.mark.long),
        pytest.param("segfault", "Signal 11 (SIGSEGV)", marks=pytest.mark.long),
        pytest.param("leave", "Connection closed by peer", marks=pytest.mark.long),
        pytest.param("small-tensor", "gloo::EnforceNotMet", marks=pytest.mark.long),
    ],
)
def test_fault_ends_the_run(kind: str, sign: str) -> None:
    exit_code, output = torchrun("faulty.py", f"--fault={kind}@3:last")
    assert exit_code == 1, output
    assert f"faulty: {kind} on rank 1 at step 3\n" in output
    assert sign in output


def test_every_kind_is_parsed_and_explained(faulty: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        faulty.argument_parser().parse_args(["--list-faults"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(faulty.FAULTS) == 17
    for line in lines:
        kind, explanation = line.split(maxsplit=1)
        assert faulty.Fault.parse(f"{kind}@20:last") == (kind, 20, "last")
        assert explanation != "None"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sleep",
        "sleep@",
        "sleep@3",
        "sleep@0:1",
        "sleep@x:1",
        "sleep@3:-1",
        "sleep@3:first",
        "nap@3:1",
        "wrong-op@3:all",
    ],
)
def test_anything_else_is_refused(faulty: ModuleType, text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        faulty.Fault.parse(text)
