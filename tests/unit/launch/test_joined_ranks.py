"""Ranks that say themselves who they are, and the jobs that they make up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safelaunch import procfs
from safelaunch.launch import joined
from safelaunch.launch.exits import Watched
from safelaunch.launch.joined import Joined

PLACE = ["tcp", "net", "29500"]


class Folder:
    """A folder of ranks that are processes which sleep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[subprocess.Popen[bytes]] = []
        self.next_slot = 0
        joined.prepare(str(path))
        self.joined = Joined(str(path), lambda _: None)

    def process(self) -> int:
        """A new one; its pid."""
        self.processes.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return self.processes[-1].pid

    def end(self, pid: int) -> None:
        process = next(one for one in self.processes if one.pid == pid)
        process.kill()
        process.wait()

    def says(self, rank: int, pid: int, **other: Any) -> int:
        """A process takes a slot; its number."""
        process = procfs.read(pid)
        assert process is not None
        said = {"pid": pid, "ppid": os.getpid(), "start": process.start, "t": float(self.next_slot), "rank": rank}
        said |= {"world_size": 2, "meeting": PLACE, "in_group": True, "loopback": True, **other}
        slot, self.next_slot = self.next_slot, self.next_slot + 1
        (self.path / f"slot.{slot}").write_text(json.dumps(said) + "\n")
        return slot

    def jobs(self) -> list[dict[int, int]]:
        """The pids of all jobs, by rank."""
        self.joined.poll()
        return [{rank: one.said.pid for rank, one in sorted(job.members.items())} for job in self.joined.jobs]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def test_ranks_that_meet_at_one_place_are_one_job(folder: Folder) -> None:
    first, second, other = folder.process(), folder.process(), folder.process()
    folder.says(1, first)
    folder.says(0, second)
    folder.says(0, other, meeting=["file", "/tmp/x"])

    assert folder.jobs() == [{0: second, 1: first}, {0: other}]


def test_a_rank_that_is_there_already_begins_the_next_job(folder: Folder) -> None:
    pids = [folder.process() for _ in range(4)]
    folder.says(0, pids[0])
    folder.says(1, pids[1])
    assert len(folder.jobs()) == 1
    for pid in pids[:2]:
        folder.end(pid)
    folder.says(1, pids[2])
    folder.says(0, pids[3])

    assert folder.jobs() == [{0: pids[0], 1: pids[1]}, {0: pids[3], 1: pids[2]}]


def test_a_process_that_joins_again_is_in_another_job(folder: Folder) -> None:
    first, second = folder.process(), folder.process()
    slots = [folder.says(0, first), folder.says(1, second)]
    folder.jobs()
    for slot in slots:
        with open(folder.path / f"slot.{slot}", "a") as file:
            file.write('{"left": 1.0}\n')
    folder.says(0, first, again=True)
    folder.says(1, second, again=True)

    assert folder.jobs() == [{0: first, 1: second}] * 2
    assert [job.left for job in folder.joined.jobs] == [True, False]
    assert all(one.since for one in folder.joined.jobs[1].group("").workers)


def test_so_it_is_where_all_of_that_is_read_at_once(folder: Folder) -> None:
    first, second = folder.process(), folder.process()
    for rank, pid in ((1, first), (0, second)):
        slot = folder.says(rank, pid)
        with open(folder.path / f"slot.{slot}", "a") as file:
            file.write('{"left": 1.0}\n')
    for rank, pid in ((1, first), (0, second)):
        folder.says(rank, pid, again=True)

    assert folder.jobs() == [{0: second, 1: first}] * 2


def test_one_that_only_has_the_variables_gives_way_to_the_rank(folder: Folder) -> None:
    launcher, rank = folder.process(), folder.process()
    folder.says(0, launcher, in_group=False)
    assert folder.jobs() == [{0: launcher}]
    assert not folder.joined.jobs[0].watched
    folder.says(0, rank, ppid=launcher)

    assert folder.jobs() == [{0: rank}]
    assert folder.joined.jobs[0].watched


def test_a_rank_says_later_that_it_has_come_into_its_group(folder: Folder) -> None:
    pid = folder.process()
    slot = folder.says(0, pid, in_group=False)
    folder.jobs()
    said = json.loads((folder.path / f"slot.{slot}").read_text())
    with open(folder.path / f"slot.{slot}", "a") as file:
        file.write(json.dumps({**said, "in_group": True})[:-9])
        file.flush()
        assert folder.jobs() == [{0: pid}]
        assert not folder.joined.jobs[0].watched  # that was half a line
        file.write(json.dumps({**said, "in_group": True})[-9:] + "\n")

    assert folder.jobs() == [{0: pid}]
    assert folder.joined.jobs[0].watched


def test_the_one_beside_the_ranks_is_taken_for_the_rank_that_is_missing(folder: Folder) -> None:
    rank, beside = folder.process(), folder.process()
    folder.says(0, rank)
    (folder.path / f"torch.{rank}").touch()
    (folder.path / f"torch.{beside}").touch()
    folder.jobs()
    folder.joined.suppose()
    member = folder.joined.jobs[0].members[1]
    assert (member.said.pid, member.supposed) == (beside, True)

    another = folder.process()  # so that nobody knows which
    (folder.path / f"torch.{another}").touch()
    folder.joined.suppose()
    assert set(folder.joined.jobs[0].members) == {0}

    folder.says(1, another)
    assert folder.jobs() == [{0: rank, 1: another}]


@pytest.mark.parametrize("differs", [{"ppid": 1}, {"loopback": False}])
def test_nobody_is_supposed_of_another_parent_or_where_the_rank_may_be_elsewhere(
    folder: Folder, differs: dict[str, Any]
) -> None:
    rank = folder.process()
    folder.says(0, rank, **differs)
    (folder.path / f"torch.{folder.process()}").touch()
    folder.jobs()
    folder.joined.suppose()

    assert set(folder.joined.jobs[0].members) == {0}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x"}\n', "null\n", "\x00\n"])
def test_what_is_no_word_of_a_rank_is_none(folder: Folder, text: str) -> None:
    (folder.path / "slot.7").write_text(text)
    (folder.path / "slot.x").write_text(text)

    assert folder.jobs() == []


@pytest.mark.parametrize(
    "other", [{"pid": 1 << 40}, {"pid": -1}, {"meeting": []}, {"rank": -1}, {"world_size": 0}, {"rank": 1 << 80}]
)
def test_what_no_rank_can_say_ends_nothing(folder: Folder, other: dict[str, Any]) -> None:
    pid = folder.process()
    claim = folder.path / f"slot.{folder.says(0, pid)}"
    said = json.loads(claim.read_text())
    (folder.path / "slot.70000").write_text(claim.read_text())
    claim.write_text(json.dumps({**said, **other}) + "\n")
    (folder.path / f"rank.{other.get('pid', pid)}.{said['start']}").mkdir()
    folder.says(1, folder.process())

    assert [set(job) for job in folder.jobs()] == [{1}]
    assert [job.where for job in folder.joined.jobs] == ["2 ranks at port 29500"]


def test_nobody_is_supposed_in_a_job_of_more_ranks_than_can_be_watched(folder: Folder) -> None:
    """By memory: a list of so many ranks takes more than 300 MB."""
    folder.says(0, folder.process(), world_size=40_000_000)
    (folder.path / f"torch.{folder.process()}").touch()
    folder.jobs()
    tracemalloc.start()
    try:
        folder.joined.suppose()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 10 << 20
    assert set(folder.joined.jobs[0].members) == {0}


def test_a_pid_of_another_process_is_no_rank(folder: Folder) -> None:
    folder.says(0, folder.process(), start=1)

    assert folder.jobs() == []


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("exit 0", 0)])
def test_the_end_of_a_process_is_seen_before_its_parent_asks(script: str, code: int) -> None:
    process = subprocess.Popen(["sh", "-c", f"read line; {script}"], stdin=subprocess.PIPE)
    watched = Watched(process.pid)
    assert not watched.ended()
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert (watched.ended(), watched.status()) == (True, code)
    assert process.wait() == code
    assert watched.status() in (code, None)  # Linux 6.15 still knows
