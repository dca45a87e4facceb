"""What a training script sets and reads, told from its text."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from safelaunch.settings.lint import script
from safelaunch.settings.lint.script import assignments, names


def found(text: str) -> list[tuple[str, str | None, set[str]]]:
    return [(item.name, item.value, set(item.after or ())) for item in assignments(dedent(text), "train.py")]


def test_the_ways_to_set_a_variable() -> None:
    text = """
        import os
        from os import environ
        os.environ["NCCL_A"] = "1"
        environ["NCCL_C"] = str(2)
        os.environ.setdefault("E_F", "3")
        os.environ.update({"G_H": "4", **more}, I_J="5")
        os.putenv("K_L", "6")
        os.environ[name] = "7"
        other["NCCL_M"] = "8"
    """
    assert [item[:2] for item in found(text)] == [
        ("NCCL_A", "1"), ("NCCL_C", None), ("E_F", "3"), ("G_H", "4"), ("I_J", "5"), ("K_L", "6"),
    ]  # fmt: skip
    items = assignments(dedent(text), "train.py")
    assert [item.weak for item in items] == [False, False, True, False, False, False]
    assert (items[0].origin.source, items[0].origin.where) == ("file", "train.py:4")


@pytest.mark.parametrize(
    "line",
    ["import torch", "import torch.nn as nn", "from torch.utils import data", "import os, torch"]
    + ["try:\n    import torch\nexcept ImportError:\n    pass"],
)
def test_an_import_of_torch_above(line: str) -> None:
    assert found(f'import os\n{line}\nos.environ["X_Y"] = "1"\n') == [("X_Y", "1", {"torch"})]
    assert found(f'import os\nos.environ["X_Y"] = "1"\n{line}\n') == [("X_Y", "1", set())]


@pytest.mark.parametrize(
    "line",
    ["import torchvision", "from .torch import x", "def f():\n    import torch"]
    + ["from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"],
)
def test_what_is_no_import_of_torch(line: str) -> None:
    assert found(f'import os\n{line}\nos.environ["X_Y"] = "1"\n') == [("X_Y", "1", set())]


def test_a_function_counts_where_it_stands() -> None:
    before = 'import os\ndef f():\n    os.environ["X_Y"] = "1"\nf()\nimport torch\n'
    after = 'import os, torch\ndef f():\n    os.environ["X_Y"] = "1"\n'
    assert (found(before), found(after)) == ([("X_Y", "1", set())], [("X_Y", "1", {"torch"})])


@pytest.mark.parametrize(
    ("call", "started"),
    [
        ("torch.cuda.set_device(0)", True),
        ("torch.cuda.is_available()", False),
        ("model.cuda()", True),
        ('model.to("cuda:0")', True),
        ("model.to(device)", False),
        ('torch.empty(3, device="cuda")', True),
        ('torch.device("cuda")', False),
        ("def f():\n    torch.cuda.set_device(0)", False),
    ],
)
def test_a_call_that_may_have_started_cuda(call: str, started: bool) -> None:
    ((_, _, after),) = found(f'import os, torch\n{call}\nos.environ["X_Y"] = "1"\n')
    assert after == ({"torch", "cuda"} if started else {"torch"})


def test_names_that_the_script_may_read() -> None:
    text = """
        timeout = int(os.environ.get("NCCL_TIMEOUT", "1800"))
        READS = ["MY_SWITCH", "lower_case", "TWO WORDS", "WORD"]
        os.environ["ONLY_SET"] = "1"
        os.environ["SET_AND_READ"] = os.environ["SET_AND_READ"] + ":x"
        os.environ.setdefault("ONLY_DEFAULT", "1")
    """
    assert names(dedent(text)) == {"NCCL_TIMEOUT", "MY_SWITCH", "SET_AND_READ"}


@pytest.mark.parametrize("text", ["import (", "\0", "print 'old python'", "", "(" * 500])
def test_what_is_no_python_gives_nothing(text: str) -> None:
    assert (assignments(text, "train.py"), names(text)) == ((), frozenset())


def test_reading_a_script_and_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text('import os\nos.environ["NCCL_A"] = os.environ["NCCL_C"]\n')
    (tmp_path / "package" / "__main__.py").write_text('import os\nos.environ["NCCL_M"] = "1"\n')

    told = script.read("package/train.py")
    assert [item.name for item in told.assignments] == ["NCCL_A"]
    assert told.names == {"NCCL_C"}
    assert told.assignments[0].origin.where == "package/train.py:2"
    assert script.read("package.train", module=True) == told
    assert [item.name for item in script.read("package", module=True).assignments] == ["NCCL_M"]
    assert script.read("there/is/none.py") == script.Script()
    assert script.read(str(tmp_path)) == script.Script()


def test_a_timeout_that_torch_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch.distributed.distributed_c10d as c10d\nc10d._DEFAULT_PG_TIMEOUT = 7\n"
        "self._DEFAULT_PG_TIMEOUT = 7\nc10d.default_pg_timeout = 7\nprint(c10d._DEFAULT_PG_TIMEOUT)\n"
    )
    assert script.read(str(path)).dead_timeouts == (f"{path}:2",)
