"""The paths that a rank may be looking at: those that names of a function hold which looks at files, and no others."""

from __future__ import annotations

import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from safelaunch.worker import looks


def seen_in(function: Callable[..., Any], *arguments: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is said of a thread that stands in the middle of that function, for which this one is the main thread."""
    inside, on = threading.Event(), threading.Event()
    thread = threading.Thread(target=function, args=(inside, on, *arguments))
    thread.start()
    try:
        assert inside.wait(20)
        monkeypatch.setattr(looks.threading, "main_thread", lambda: thread)
        monkeypatch.setattr(looks, "is_user_code", lambda file: file == __file__)
        return dict(looks.at())
    finally:
        monkeypatch.undo()
        on.set()
        thread.join()


def waits_for(inside: threading.Event, on: threading.Event, flag: object, token: str, relative: str) -> bool:
    inside.set()
    on.wait(20)
    return pathlib.Path(str(flag)).exists() and bool(token) and bool(relative)


def trains(inside: threading.Event, on: threading.Event, path: str) -> str:
    inside.set()
    on.wait(20)
    return path


def keeps(inside: threading.Event, on: threading.Event, flag: str) -> dict[str, object]:
    names = locals()
    inside.set()
    on.wait(20)
    assert "flag" in names
    assert not pathlib.Path(flag).exists()
    return names


def test_paths_are_told_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    said = seen_in(waits_for, pathlib.Path("/data/ready"), "s3cret", "hunter2", monkeypatch=monkeypatch)

    assert said == {"flag": "/data/ready"}


def test_a_function_that_looks_at_no_file_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_in(trains, "/data/shard", monkeypatch=monkeypatch) == {}


def test_a_function_that_uses_its_own_names_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_in(keeps, "/data/ready", monkeypatch=monkeypatch) == {}


PROFILER = """
def callback(frame, event, arg):
    if event == "c_call" and arg is len:
        inside.set()
        on.wait(20)
"""
KEPT: list[str] = []


def profiler(inside: threading.Event, on: threading.Event) -> Any:
    library: dict[str, Any] = {"__name__": "profiler", "inside": inside, "on": on}
    exec(compile(PROFILER, "/lib/profiler.py", "exec"), library)
    return library["callback"]


def profiled(inside: threading.Event, on: threading.Event, flag: str) -> None:
    sys.setprofile(profiler(inside, on))
    try:
        len(flag)
        KEPT.append("" if pathlib.Path(flag).exists() else flag)  # pytest's `assert` would ask for `locals`
    finally:
        sys.setprofile(None)


def test_a_function_that_is_profiled_keeps_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes a copy of them back when the profiler's callback has ended: one that was emptied took them away."""
    KEPT.clear()
    assert seen_in(profiled, "/data/ready", monkeypatch=monkeypatch) == {}
    assert KEPT == ["/data/ready"]
