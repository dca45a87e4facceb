"""Which job `safelaunch attach` takes a number for, and what it says where there is none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from safelaunch.cli import attach
from safelaunch.evidence import ranks
from safelaunch.evidence.ranks import Seen
from safelaunch.model import SafelaunchError
from safelaunch.procfs import Process


def seen(pid: int, parent: int, environ: Mapping[str, str], command: str = "train.py") -> Seen:
    return Seen(Process(pid, parent, pid, pid, "S", 1), command, True, environ, "net:[1]")


def rank(pid: int, parent: int, number: int, job: str, port: str) -> Seen:
    return seen(
        pid,
        parent,
        {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "MASTER_PORT": port, "SLURM_JOB_ID": job},
    )


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """Slurm job 30, and below process 30 the ranks of Slurm job 31."""
    found = [
        rank(11, 10, 0, "30", "1"),
        rank(12, 10, 1, "30", "1"),
        rank(31, 30, 0, "31", "2"),
        rank(32, 30, 1, "31", "2"),
    ]
    monkeypatch.setattr(ranks, "look", lambda: found)
    return found


@pytest.mark.usefixtures("node")
def test_a_number_that_is_a_process_and_another_job_is_not_guessed() -> None:
    with pytest.raises(SafelaunchError) as refused:
        attach.choose("30")
    assert refused.value.diagnostic.summary == "30 is a process here and also a Slurm job"
    assert "pid 31, pid 32" in refused.value.diagnostic.because[0]
    assert "pid 11, pid 12" in refused.value.diagnostic.because[1]

    assert [one.seen.pid for one in attach.choose("30", job=True).ranks] == [11, 12]
    assert [one.seen.pid for one in attach.choose("31").ranks] == [31, 32]


def test_ranks_that_set_their_variables_themselves_are_pointed_at(node: list[Seen]) -> None:
    spawn = "/usr/bin/python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4)"
    node[:] = [seen(1, 0, {"HOME": "/"}), *(seen(pid, 1, {"HOME": "/"}, spawn) for pid in (7, 8))]

    with pytest.raises(SafelaunchError) as refused:
        attach.choose("1")
    assert "pid 7, 8 were started by Python's multiprocessing" in refused.value.diagnostic.because[0]
    assert "py-spy dump --pid 7" in refused.value.diagnostic.remedy
