"""What earlier runs say of a verdict, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY

from safelaunch import history
from safelaunch.history import Entry
from safelaunch.run.history import WEEK_S, again, blamed_again

NOW = Entry(
    at=1_700_000_000.0,
    run_id="now",
    run_dir="/runs/now",
    script="/work/train.py",
    arguments="",
    hosts=("node-a", "node-b"),
    world_size=4,
    elapsed_s=60.0,
    exit_code=1,
    steps=1842,
    code="SL301",
    summary="rank 1 sleeps",
    host="node-b",
    culprit_ranks=(1,),
    operation="all_reduce",
    place="train.py:10",
)


def before(run_id: str = "before", **changes: object) -> Entry:
    return dataclasses.replace(NOW, run_id=run_id, **changes)  # type: ignore[arg-type]


def test_a_third_time_at_the_same_step_on_other_nodes_is_not_the_hardware() -> None:
    earlier = [before("one", hosts=("node-c", "node-d")), before("two", hosts=("node-e", "node-f"))]

    told = again(earlier, NOW)

    assert told == (
        "the same verdict for the third time at step 1842, on other nodes: not the hardware (before: run two)"
    )


def test_on_a_node_of_this_run_it_may_be_the_hardware() -> None:
    told = again([before("one", hosts=("node-c", "node-d")), before("two", hosts=("node-b", "node-f"))], NOW)

    assert "for the third time at step 1842 (" in told


@pytest.mark.parametrize(
    "changes",
    [{"steps": 1841}, {"script": "/work/other.py"}, {"place": "train.py:11"}, {"code": "SL302"}, {"run_id": "now"}],
    ids=str,
)
def test_another_end_is_another_matter(changes: dict[str, object]) -> None:
    assert again([dataclasses.replace(before(), **changes)], NOW) == ""  # type: ignore[arg-type]


def test_before_the_first_step_it_is_no_news_that_a_script_fails_again() -> None:
    assert again([before(steps=None)], dataclasses.replace(NOW, steps=None)) == ""


def test_a_node_that_another_run_of_this_week_has_blamed_is_told() -> None:
    other = before("other", script="/work/other.py", at=NOW.at - WEEK_S / 2, code="SL301")

    assert blamed_again([other], NOW) == "node-b for the second time this week (before: run other, SL301)"


@pytest.mark.parametrize(
    "changes",
    [{"at": NOW.at - 2 * WEEK_S}, {"host": "node-a"}, {"hosts": ("node-b",)}, {"culprit_ranks": ()}],
    ids=["long ago", "another node", "it was the only node", "nobody was named"],
)
def test_otherwise_it_is_not(changes: dict[str, object]) -> None:
    assert blamed_again([dataclasses.replace(before(), **changes)], NOW) == ""  # type: ignore[arg-type]


def test_what_was_written_is_read_and_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    history.add(environ, NOW)
    with open(history.path(environ), "a") as file:
        file.write('{"at": 17\n' + json.dumps({"at": "yesterday"}) + "\n" + "[" * 100_000 + "\n")
    history.add(environ, before())

    assert history.read(environ) == [NOW, before()]
    assert (tmp_path / "safelaunch" / "runs.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_file_stays_small_and_the_latest_runs_stay_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST", 20_000)
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(100):
        history.add(environ, before(str(number)))

    kept = [entry.run_id for entry in history.read(environ)]
    assert Path(history.path(environ)).stat().st_size <= 20_000
    assert kept == [str(number) for number in range(100 - len(kept), 100)]
    assert len(kept) > 10


WRITES = f"""
import dataclasses, sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "tests")!r}, {str(Path(__file__).parent)!r}]
from safelaunch import history
from test_history import before
sys.stdin.read(1)
for number in range(50):
    history.add({{"XDG_STATE_HOME": sys.argv[1]}}, before(f"{{sys.argv[2]}}-{{number}}"))
"""


def test_runs_that_end_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    writers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE) for name in "ab"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0]

    found = [entry.run_id for entry in history.read({"XDG_STATE_HOME": str(tmp_path)})]
    assert sorted(found) == sorted(f"{name}-{number}" for name in "ab" for number in range(50))


def test_nothing_is_written_behind_a_link(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    history.add(environ, NOW)
    Path(history.path(environ)).unlink()
    Path(history.path(environ)).symlink_to(tmp_path / "precious")

    with pytest.raises(OSError, match="symbolic"):
        history.add(environ, NOW)
    assert not (tmp_path / "precious").exists()
