"""Flight Recorder dumps that ranks had written before anybody attached: which of them count."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest
from fr_dumps import Recorder, world

from safelaunch import procfs
from safelaunch.evidence import attached
from safelaunch.evidence.ranks import Group, Identity, RankProcess, Seen
from safelaunch.model import Case, Incident, Location, RankFacts, Stack

STUCK = Stack((Location("/v/lib/python3.11/site-packages/torch/x.py", 3, "wait"),), "py-spy")


def job(folder: Path, *, waited_s: float, gave_up: bool = False, late: int = 1, size: int = 3) -> tuple[Group, Case]:
    """This process as all ranks of a job; their dumps were written when the others had waited so long for `late`."""
    process = procfs.read(os.getpid())
    assert process is not None
    seen = Seen(process, "train.py", True, {"TORCH_FR_DUMP_TEMP_FILE": str(folder / "dump_")}, owner=os.geteuid())
    written = time.time()
    for number in range(size):
        recorder = Recorder(number, world(size), clock_ns=int((written - waited_s) * 1e9) - 6_000_000)
        recorder.calls(5)
        if number != late:
            recorder.call(state="scheduled", **({"retired": True} if gave_up else {}))
        recorder.write(folder, "dump_")
    group = Group(tuple(RankProcess(Identity(3, n, size, n, ()), seen) for n in range(size)), size)
    ranks = tuple(RankFacts(n, n, os.getpid(), watched=False, stack=STUCK, earlier=STUCK) for n in range(size))
    return group, Case(Incident("hang", 0, (), time.monotonic()), "a", size, ranks, origin="attach")


@pytest.mark.parametrize(("waited", "gave_up"), [(601.0, False), (5.0, True)], ids=["too long", "given up"])
def test_dumps_of_a_call_that_timed_out_tell_who_is_late(tmp_path: Path, waited: float, gave_up: bool) -> None:
    group, case = job(tmp_path, waited_s=waited, gave_up=gave_up)

    found, notes = attached._with_old_dumps(group, case)
    assert [[call.done for call in rank.recorded or ()][-1] for rank in found.ranks] == [False, True, False]
    assert "of 3 ranks lay there since a call timed out" in notes[0]
    late = [call.t for call in found.ranks[0].recorded or () if not call.done]
    assert abs(time.monotonic() - late[0] - waited) < 30


def test_dumps_that_say_nothing_of_now_are_not_used(tmp_path: Path) -> None:
    group, case = job(tmp_path, waited_s=5.0)

    found, notes = attached._with_old_dumps(group, case)
    assert found == case
    assert "no call in them had timed out" in notes[0]
    assert "`safelaunch diagnose " in notes[0]


def test_ranks_that_move_have_left_their_dumps_behind(tmp_path: Path) -> None:
    group, case = job(tmp_path, waited_s=601.0)
    elsewhere = dataclasses.replace(STUCK, frames=(Location("/home/u/train.py", 9, "step"),))
    moved = dataclasses.replace(case.ranks[2], earlier=elsewhere)

    found, notes = attached._with_old_dumps(group, dataclasses.replace(case, ranks=(*case.ranks[:2], moved)))
    assert all(rank.recorded is None for rank in found.ranks)
    assert "ranks have moved since" in notes[0]


def test_a_dump_of_another_moment_is_left_out(tmp_path: Path) -> None:
    group, case = job(tmp_path, waited_s=601.0)
    process = procfs.read(os.getpid())
    assert process is not None
    begun = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + process.start / os.sysconf("SC_CLK_TCK")
    later = time.time() + 3600
    os.utime(tmp_path / "dump_1", (later, later))
    assert later > begun

    found, _ = attached._with_old_dumps(group, case)
    assert [rank.recorded is None for rank in found.ranks] == [False, True, False]


def test_without_dumps_nothing_is_said(tmp_path: Path) -> None:
    group, case = job(tmp_path, waited_s=601.0)
    for path in tmp_path.iterdir():
        path.unlink()

    assert attached._with_old_dumps(group, case) == (case, [])
