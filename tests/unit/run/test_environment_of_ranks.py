"""What a rank is started with is computed once: all that decide by it see what the rank will see."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch.cli import dry_run
from safelaunch.run import steps
from safelaunch.settings.resolve import resolve

PROFILER = "NSYS_PROFILING_SESSION_ID"  # of Nsight Systems, which makes a start cold
RECORDER = "TORCH_FR_BUFFER_SIZE"


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plans a run with such a profile, in a shell that has these variables."""

    def plan(profile: str, **shell: str) -> steps.Run:
        monkeypatch.chdir(tmp_path)
        for name, value in shell.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "train.py").touch()
        (tmp_path / "mine.toml").write_text(profile)
        settings = resolve(["--profile", "./mine.toml", "train.py"], os.environ)
        signals = SimpleNamespace(treat_as_terminating=lambda _: None, ignored_children=False)
        job = steps.Run(settings, cast("Any", signals), ())
        steps.make_plan(job)
        return job

    return plan


def test_a_variable_that_a_profile_takes_away_makes_no_start_cold(planned: Any) -> None:
    assert planned("", **{PROFILER: "1"}).plan.warm is None
    job = planned(f"unset = ['{PROFILER}']\n", **{PROFILER: "1"})
    assert job.plan.warm is not None
    assert job.remarks == []


def test_a_dry_run_says_the_same(planned: Any) -> None:
    job = planned(f"unset = ['{PROFILER}']\n", **{PROFILER: "1"})
    assert dry_run._start(job.settings).startswith("warm")


def test_a_recorder_that_the_shell_switches_off_and_a_profile_brings_back_is_no_warning(planned: Any) -> None:
    assert any(RECORDER in line for line in planned("", **{RECORDER: "0"}).plan.warnings)
    job = planned(f"unset = ['{RECORDER}']\n", **{RECORDER: "0"})
    assert not any(RECORDER in line for line in job.plan.warnings)


def test_the_processes_get_what_was_computed(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []
    tree = SimpleNamespace(start=lambda _: None)
    monkeypatch.setattr("safelaunch.launch.tree.Tree", lambda _plan, _signals, environ: started.append(environ) or tree)
    job = planned("unset = ['GONE']\n[env]\nPLACE = '{run_dir}/x'\n", GONE="1", KEPT="1")
    steps.start_tree(job)
    (given,) = started
    assert "GONE" not in given
    assert given["KEPT"] == "1"
    assert given["PLACE"] == f"{job.plan.run_dir}/x" == job.plan.env["PLACE"]
