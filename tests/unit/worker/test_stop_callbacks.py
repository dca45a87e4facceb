"""The callbacks of the examples, on stand-ins for the frameworks that a test does not install."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from harness import REPOSITORY

import safelaunch


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What `should_stop()` is to say, call by call."""
    answers: list[bool] = []
    monkeypatch.setattr(safelaunch, "_stop", lambda: answers.pop(0))
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    yield answers
    assert not answers


def example(name: str, framework: str, base: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of an example, with a framework that has this base class alone."""
    for number in range(1, len(framework.split(".")) + 1):
        package = ".".join(framework.split(".")[:number])
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    setattr(sys.modules[framework], base, type(base, (), {}))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_the_hf_trainer_saves_and_stops(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    callback = example("stop_hf_trainer", "transformers", "TrainerCallback", monkeypatch).StopAtStep()
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    asked += [False, True]

    assert callback.on_step_end(None, None, control, model=None) is control
    assert not control.should_save
    callback.on_step_end(None, None, control, model=None)

    assert control.should_save
    assert control.should_training_stop


def test_lightning_saves_once_and_stops(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    callback = example("stop_lightning", "lightning.pytorch", "Callback", monkeypatch).StopAtBatch("last.ckpt")
    trainer = SimpleNamespace(should_stop=False, save_checkpoint=saved.append)
    asked += [False, True, True]

    callback.on_train_batch_end(trainer, None, None, None, 0)
    assert saved == []
    callback.on_train_batch_end(trainer, None, None, None, 1)
    callback.on_train_batch_end(trainer, None, None, None, 2)

    assert (saved, trainer.should_stop) == (["last.ckpt"], True)
