"""The file for Prometheus: by its format, by its conventions, and whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import REPOSITORY

from safelaunch.model import WorkerGroup
from safelaunch.run import metrics
from safelaunch.run.metrics import BUCKETS, METRICS, Metrics

ROW = re.compile(r'(safelaunch_\w+)\{run="job",?((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\d+(?:\.\d+)?)')


class Slots:
    """Ranks that have made so many steps, the latest at such a time."""

    def __init__(self) -> None:
        self.steps, self.stepped = 0, 0.0

    def pulse(self, local_rank: int, pid: int) -> Any:  # noqa: ARG002
        now = time.monotonic()
        times = {"beat": now, "progress": now, "waited": 1.5, "loading": 0.25}
        return SimpleNamespace(steps=self.steps, stepped=self.stepped, **times)


def following(folder: Path, slots: Slots, **info: str) -> tuple[Metrics, WorkerGroup, list[str]]:
    said: list[str] = []
    plan = cast("Any", SimpleNamespace(run_id="job", script="/work/train.py"))
    group = cast("Any", SimpleNamespace(attempt=0))
    group.workers = group.alive = [SimpleNamespace(rank=rank, local_rank=rank, pid=rank) for rank in range(2)]
    return Metrics(str(folder), plan, info, cast("Any", slots), said.append), group, said


def rows(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = ROW.fullmatch(line)
            assert match, line
            found[match[1], match[2]] = float(match[3])
    return found


def test_each_series_is_written_by_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOOK_S", 0.0)
    slots = Slots()
    watch, group, _ = following(tmp_path, slots, profile='a "quoted"\nname\\')
    for steps, stepped in ((10, 5.0), (14, 5.1), (15, 8.2)):
        slots.steps, slots.stepped = steps, stepped
        watch.poll(group)
    watch.notice(cast("Any", SimpleNamespace(code="SL301")))

    (path,) = tmp_path.iterdir()
    text = path.read_text()
    found = rows(text)
    assert path.suffix == ".prom"
    assert path.stat().st_mode & 0o777 == 0o644
    assert found["safelaunch_steps_total", 'rank="1"'] == 15
    assert found["safelaunch_up", 'rank="0"'] == 1
    assert found["safelaunch_notices_total", 'code="SL301"'] == 1
    assert found["safelaunch_step_seconds_bucket", 'rank="0",le="0.05"'] == 4  # 4 steps in 0.1 s
    assert found["safelaunch_step_seconds_bucket", 'rank="0",le="+Inf"'] == 5
    assert found["safelaunch_step_seconds_sum", 'rank="0"'] == pytest.approx(3.2)
    assert found["safelaunch_loader_wait_seconds_total", 'rank="0"'] == 0.25
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert max(sum(f'rank="{rank}"' in key for _, key in found) for rank in range(2)) <= 40
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_file_goes_with_the_run(tmp_path: Path) -> None:
    watch, group, _ = following(tmp_path, Slots())
    watch.poll(group)
    assert len(list(tmp_path.iterdir())) == 1
    watch.end()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "EVERY_S", 0.0)
    watch, group, said = following(tmp_path / "nowhere", Slots())
    for _ in range(3):
        watch.notice(cast("Any", SimpleNamespace(code="SL301")))
        watch.poll(group)
    watch.end()

    assert len(said) == 1
    assert "nowhere" in said[0]


def test_a_script_may_have_any_name(tmp_path: Path) -> None:
    watch, _, said = following(tmp_path, Slots(), profile="m\udcff.toml")
    watch.write(time.monotonic())

    (path,) = tmp_path.iterdir()
    assert rows(path.read_text())["safelaunch_run_start_time_seconds", ""] > 0
    assert r'profile="m\\udcff.toml"' in path.read_text()
    assert said == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a link to another user")
def test_the_link_of_another_user_leads_into_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "EVERY_S", 0.0)
    (tmp_path / "ours").mkdir()
    (tmp_path / "his").mkdir()
    (tmp_path / "prom").symlink_to(tmp_path / "ours")
    watch, _, said = following(tmp_path / "prom", Slots())
    watch.write(0.0)
    assert len(list((tmp_path / "ours").iterdir())) == 1

    os.chown(tmp_path / "prom", 1234, 1234, follow_symlinks=False)
    before = [(file.name, file.stat().st_ino) for file in (tmp_path / "ours").iterdir()]
    watch.write(1.0)
    watch.end()
    assert [(file.name, file.stat().st_ino) for file in (tmp_path / "ours").iterdir()] == before
    assert len(said) == 1
    assert "the link of one user leads there to what is another's" in said[0]

    os.chown(tmp_path / "ours", 1234, 1234)
    watch.end()
    assert list((tmp_path / "ours").iterdir()) == []


def test_names_follow_the_conventions() -> None:
    for one in METRICS:
        assert one.name.endswith("_total") == (one.type == "counter"), one.name
        assert re.fullmatch(r"safelaunch_[a-z_]+", one.name)
        assert one.help.endswith(".")
    assert list(BUCKETS) == sorted(BUCKETS)


def test_the_page_is_that_of_the_table() -> None:
    """python -c "from safelaunch.run import metrics; print(metrics.page(), end='')" > docs/metrics.md"""
    assert (REPOSITORY / "docs" / "metrics.md").read_text() == metrics.page()
