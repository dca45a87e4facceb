# ruff: noqa: E501 - lines of logs are as long as they are
"""What stands before the lines of a failure changes neither its class nor its words, but for who wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from log_pieces import MAIN, SITE, STEP, marked, traceback
from test_no_false_all_clear import judged

TORCH = (f"{SITE}/torch/nn/modules/module.py", 1511, "_wrapped_call_impl")
FAILURES = {
    "value": traceback("ValueError: the weights are odd", MAIN, STEP),
    "key": traceback("KeyError: 'blocks.3.gate.weight'", MAIN, STEP),
    "memory": traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.04 GiB is free.", MAIN, TORCH),
    "cache": traceback("ValueError: To serve at least one request with the models's max seq len (8192), (9.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.00 GiB).", MAIN, STEP),
    "kernel": traceback("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", MAIN, TORCH),
    "assert": traceback("AssertionError: 4 heads are too few", MAIN, STEP),
    "shapes": traceback("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x16 and 32x8)", MAIN, TORCH),
    "file": traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/part-9.bin'", MAIN, STEP),
    "module": traceback("ModuleNotFoundError: No module named 'odd_kernels'", MAIN, STEP),
    "state": traceback("RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: \"gate.weight\".", MAIN, STEP),
    "type": traceback("TypeError: step() takes 2 positional arguments but 3 were given", MAIN, STEP),
    "index": traceback("IndexError: list index out of range", MAIN, STEP),
    "permission": traceback("PermissionError: [Errno 13] Permission denied: '/data/out'", MAIN, STEP),
    "hip": traceback("torch.AcceleratorError: HIP error: unspecified launch failure", MAIN, TORCH),
    "dtensor": traceback("RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor", MAIN, TORCH),
}  # fmt: skip


def _records(text: str) -> str:
    lines = text.splitlines()
    return "".join(json.dumps({"event": "line", "data": f"{line}\n", "pipe": "stderr"}) + "\n" for line in lines)


PREFIXES: dict[str, Callable[[str], str]] = {
    "a time": lambda text: marked(text, "2026-01-02 10:00:00,123 "),
    "a time of ISO": lambda text: marked(text, "2026-01-02T10:00:00.123456Z "),
    "vLLM": lambda text: marked(text, "ERROR 01-02 10:00:00 [core.py:1136] "),
    "vLLM and a process": lambda text: marked(text, "(EngineCore pid=42) ERROR 01-02 10:00:00 [core.py:1136] "),
    "marks of a starter before these": lambda text: marked(
        text, "2026-01-02 10:00:00.982 [Error] (Process) (EngineCore pid=42) ERROR 01-02 10:00:00 [core.py:1136] "
    ),
    "Ray": lambda text: marked(text, "(Worker pid=42, ip=10.0.0.9) "),
    "Ray in an engine": lambda text: marked(text, "(EngineCore pid=7) (Worker pid=42, ip=10.0.0.9) "),
    "torch": lambda text: marked(text, "[rank3]: "),
    "kubectl": lambda text: marked(text, "[pod/train-worker-3/pytorch] "),
    "CRI": lambda text: marked(text, "2026-01-02T10:00:00.123456789Z stderr F "),
    "records": _records,
    "Kaggle": lambda text: marked(text, "704.7s\t7\t"),
    "a quotation": lambda text: marked(text, "> "),
    "syslog": lambda text: marked(text, "Jan  2 10:00:00 node7 train[42]: "),
}


def _core(summary: str) -> str:
    """A headline without who it speaks of, and without what is said of the rank."""
    return re.sub(r"^.*?(?=raised |failed)", "", summary.partition("; ")[0].replace(" on 10.0.0.9", "")).rstrip(".")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_prefix_changes_only_who(tmp_path: Path, failure: str, prefix: str) -> None:
    bare, dressed = (tmp_path / name for name in ("bare", "dressed"))
    bare.mkdir()
    dressed.mkdir()

    plain, other = judged(bare, FAILURES[failure]), judged(dressed, PREFIXES[prefix](FAILURES[failure]))

    assert other.code == plain.code, other.summary
    assert _core(other.summary) == _core(plain.summary)
