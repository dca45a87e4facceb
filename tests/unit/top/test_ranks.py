"""From pulses to rows."""

from __future__ import annotations

import time
from pathlib import Path

import fake_nvml
import pytest
from recorded import HOST, Run, verdict

from safelaunch import black_box_reader, files
from safelaunch.run import hardware
from safelaunch.top.folder import Folder
from safelaunch.top.gpus import Gpus
from safelaunch.top.job import Job
from safelaunch.top.picture import Row, lateness


def looked(run: Run) -> tuple[Job, dict[int, Row]]:
    job = Job([Folder(str(run.path))])
    job.poll()
    return job, rows(job)


def rows(job: Job) -> dict[int, Row]:
    job.poll()
    return {row.rank: row for row in job.picture().rows}


def mapped() -> int:
    """How often this process has mapped a black box."""
    return sum("memfd:safelaunch" in line for line in Path("/proc/self/maps").read_text().splitlines())


def step(run: Run, number: int, *, late: int | None = None) -> None:
    """All ranks make a step, one of them 20 ms after the others."""
    order = [rank for rank in range(run.ranks) if rank != late] + ([late] if late is not None else [])
    entries = {}
    for rank in order:
        if rank == late:
            time.sleep(0.02)
        writer = run.writers[rank]
        text = writer.text("all_reduce", ("/work/train.py", 41, "train"), "0", "float32")
        entries[rank] = writer.enter(text, run.ranks, number, 10)
    for rank, entry in entries.items():
        run.writers[rank].leave(entry, waited=True)
        run.writers[rank].pulse.step()


def test_a_rank_that_comes_late_is_first(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    job, seen = looked(run)
    for number in range(1, 60):
        step(run, number, late=2)
        if number % 5 == 0:
            seen = rows(job)

    assert {row.step for row in seen.values()} == {55}
    assert seen[2].late_s is not None
    assert seen[2].late_s > 0.01
    assert (seen[0].late_s, seen[1].late_s) == (None, None)
    assert min(seen.values(), key=lateness).rank == 2
    assert [row.mood for row in seen.values()] == ["good", "good", "slow"]
    for row in seen.values():
        assert row.each is not None
        assert row.each > 0.01
        assert row.each_of
        assert row.host == HOST
        assert row.memory
    assert seen[0].waiting is not None
    assert seen[2].waiting is not None
    assert seen[0].waiting > seen[2].waiting


def test_the_rank_for_which_the_others_wait_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "r1").start().begin()
    for number in range(1, 20):
        step(run, number)
    for rank in (0, 2):
        run.meet(rank, 20, returns=False)
    job, _ = looked(run)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 41.0)

    seen = {row.rank: row for row in job.picture().rows}

    assert min(seen.values(), key=lateness).rank == 1
    assert seen[1].awaited_s == pytest.approx(41, abs=1)
    assert (seen[1].doing, seen[1].mood) == ("no progress 41s", "bad")
    assert seen[0].doing == "in all_reduce 41s train.py:41"
    assert seen[0].open_s == pytest.approx(41, abs=1)


def test_phases_say_what_a_rank_does(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1", ranks=4).start().begin()
    run.writers[0].pulse.begin("checkpoint \x1b[2J")
    run.writers[1].pulse.loading()
    run.writers[2].pulse.program_ended()
    _, seen = looked(run)

    assert [row.doing for row in seen.values()] == ["checkpoint \x1b[2J", "loader", "its program has ended", "imports"]


def test_marks_of_the_script_have_a_total(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.writers[0].pulse.mark(12, 500)
    _, seen = looked(run)

    assert (seen[0].step, seen[0].total) == (12, 500)


def test_of_another_attempt_nothing_counts(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict())
    job, seen = looked(run)
    assert seen[1].mood == "bad"

    run.event("exit", pid=seen[0].pid, code=0, t=1.0)
    run.begin(attempt=1, pid=1, start=1)
    seen = rows(job)

    assert job.picture().state == "runs (attempt 1)"
    assert {row.mood for row in seen.values()} == {"good"}
    assert {row.doing for row in seen.values()} == {"has ended"}  # no process of this machine has that start


def test_whom_the_verdict_names_is_bad_and_its_victims_are_not(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1", ranks=1).start().begin()
    job, seen = looked(run)
    run.event("exit", pid=seen[0].pid, code=1, t=1.0)
    assert rows(job)[0].mood == "bad"

    run.tell(0, verdict(kind="crash"))  # on rank 1, of another node
    assert rows(job)[0].mood == "over"


def test_a_wait_that_is_over_blames_nobody(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict(), "notice")
    run.tell(0, verdict("SL501", kind="slow"))
    job, seen = looked(run)

    assert seen[1].mood == "good"
    assert [one.level for one in job.picture().notices] == ["warning"]


def test_a_run_that_is_not_on_this_machine_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1")
    elsewhere = [{"attempt": 0, "ranks": [{"rank": rank, "host": "node-b"} for rank in range(3)]}]
    run.start(mapping=elsewhere).begin(pid=1, start=1)
    job, seen = looked(run)

    assert {(row.host, row.doing) for row in seen.values()} == {("node-b", "is not seen from here")}
    assert "run it where they are" in job.picture().missing[0]
    assert not job.over


def test_what_has_no_pulses_says_why(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin(black_box=str(tmp_path / "none"))
    job, _ = looked(run)

    assert "no pulses: " in job.picture().missing[0]


def test_it_cannot_write(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start()
    reader = black_box_reader.Reader(run.box, (tmp_path / "r1").stat().st_uid, reads_only=True)

    with pytest.raises(TypeError):
        reader.ask(0)
    reader.close()


def test_the_pulses_of_a_run_that_has_ended_are_let_go(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    step(run, 1)
    before = mapped()
    job, _ = looked(run)
    assert mapped() == before + 1
    files.write_json(str(run.path / "result.json"), {"exit_code": 0})

    seen = rows(job)

    assert mapped() == before
    assert {row.step for row in seen.values()} == {1}  # what was seen last stays


def test_how_busy_the_gpus_of_ranks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_nvml.build(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setattr(hardware, "uses_gpus", lambda _workers: True)
    run = Run(tmp_path / "r1").start().begin(black_box="")
    folder = Folder(str(run.path))
    folder.poll()
    assert folder.group is not None
    gpus = Gpus()

    gpus.poll(folder.group.workers, {rank: {"gpu_index": rank} for rank in range(3)}, 100.0)
    assert gpus.thread is not None
    gpus.thread.join(30)

    assert gpus.names == {0: "0", 1: "1", 2: "2"}
    assert gpus.busy.keys() == {0, 1, 2}


def test_of_a_job_that_was_started_again_under_its_name_the_last_one_is_shown(tmp_path: Path) -> None:
    before = Run(tmp_path / "job" / "node-a", ranks=4).start().begin(pid=4711)
    before.write("result.json", {"exit_code": 75, "elapsed_s": 60.0})
    after = Run(tmp_path / "job" / "node-a.2", ranks=2, time=before.time + 600).start().begin()
    after.write("result.json", {"exit_code": 0, "elapsed_s": 60.0})
    job = Job([Folder(str(one.path)) for one in (after, before)])
    job.poll()

    picture = job.picture()
    assert (picture.state, len(picture.rows)) == ("has ended well", 2)


def test_two_nodes_that_say_the_same_rank_have_one_row(tmp_path: Path) -> None:
    nodes = [Run(tmp_path / "job" / name, ranks=2).start().begin() for name in ("node-a", "node-b")]
    job = Job([Folder(str(one.path)) for one in nodes])
    job.poll()

    assert [row.rank for row in job.picture().rows] == [0, 1]


@pytest.mark.parametrize("slot", [10**9, 2**62, -1])
def test_a_slot_that_is_not_there_is_no_fault(slot: int, tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin(local_rank=slot)

    assert {row.doing for row in looked(run)[1].values()} == {"starting"}
