"""When ranks may be forked, as far as it is known before anything starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from safelaunch.model import Settings, WarmStart
from safelaunch.settings import warm
from safelaunch.settings.resolve import resolve


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    return str(path)


def settings(*arguments: str, environ: Mapping[str, str]) -> Settings:
    return resolve(list(arguments), environ)


def there(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """A node that has the files of these drivers and of no others."""
    real = os.path.exists
    monkeypatch.setattr(
        os.path, "exists", lambda path: path in paths or (path not in warm.UNKNOWN_DRIVERS and real(path))
    )


NODES = {
    "no GPU": ((), True),
    "NVIDIA": (("/proc/driver/nvidia",), True),
    "AMD": (("/dev/kfd",), False),
}


@pytest.mark.parametrize("node", NODES)
def test_the_start_is_warm_by_itself_but_where_a_driver_is_unknown(
    node: str, script: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers, is_warm = NODES[node]
    there(monkeypatch, *drivers)

    found = warm.start(settings(script, environ=environ), environ)

    assert isinstance(found, WarmStart) if is_warm else found == ""


def test_who_asks_for_it_has_it_on_amd(script: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, "/dev/kfd")

    assert isinstance(warm.start(settings("--warm-start", script, environ=environ), environ), WarmStart)


PROFILERS = {
    "NSYS_PROFILING_SESSION_ID": "1",
    "CUDA_INJECTION64_PATH": "/opt/nvidia/nsight-systems/libToolsInjection64.so",
    "LD_PRELOAD": "/usr/lib/libjemalloc.so /opt/nvidia/libToolsInjectionProxy64.so",
    "ROCP_TOOL_LIBRARIES": "librocprofiler-sdk-tool.so",
}


@pytest.mark.parametrize("name", PROFILERS)
def test_a_profiler_that_follows_the_ranks_has_them_started_as_torchrun_does(
    name: str, script: str, environ: dict[str, str]
) -> None:
    environ[name] = PROFILERS[name]

    found = warm.start(settings("--warm-start", script, environ=environ), environ)

    assert f"a profiler is at work ({name})" in str(found)


def test_an_allocator_is_no_profiler(script: str, environ: dict[str, str]) -> None:
    environ |= {"LD_PRELOAD": "/usr/lib/libjemalloc.so", "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_HOME": sys.prefix}

    assert isinstance(warm.start(settings("--warm-start", script, environ=environ), environ), WarmStart)
