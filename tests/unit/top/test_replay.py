"""A run that is over, event by event."""

from __future__ import annotations

from pathlib import Path

from recorded import Run, verdict

from safelaunch.top.folder import Folder
from safelaunch.top.replay import Replay


def of(run: Run) -> Replay:
    folder = Folder(str(run.path))
    folder.poll()
    return Replay([folder])


def test_it_begins_at_the_end_and_goes_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict(), "notice")
    ranks = [
        {"rank": 0, "step": 12, "collectives": [{"op": "all_reduce", "done": False}]},
        {"rank": 1, "step": 11, "phases": [{"name": "checkpoint"}]},
    ]
    pace = {"rank": 1, "own_s": 0.9, "peers_s": 0.3, "late": 4, "loading": 0.5, "waiting": 0.01}
    run.write("incident-0/evidence/case.json", {"ranks": ranks, "slow": {"paces": [pace]}})
    run.tell(0, verdict())
    run.write("result.json", {"exit_code": 124, "elapsed_s": 9.0})
    replay = of(run)

    last = replay.picture()
    assert (last.state, last.elapsed_s) == ("has ended with exit code 124", 9.0)
    assert [row.doing for row in last.rows] == ["in all_reduce", "checkpoint", "end not known"]
    assert [row.step for row in last.rows] == [12, 11, None]
    assert (last.rows[1].late_s, last.rows[1].loading, last.rows[1].mood) == (0.6000000000000001, 0.5, "bad")
    assert "not kept" in last.missing[0]

    replay.move(-1000)
    first = replay.picture()
    assert (first.state, first.rows, first.notices) == ("is replayed", (), ())
    assert first.at.startswith("1 of ")

    replay.move(1)
    begun = replay.picture()
    assert [row.doing for row in begun.rows] == ["runs"] * 3
    assert {row.step for row in begun.rows} == {None}
    replay.move(1000)
    assert replay.picture() == last


def test_attempts_follow_one_another(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1", ranks=1).start().begin(pid=4711)
    run.event("exit", pid=4711, code=1, t=1.0)
    run.begin(attempt=1, pid=4712)
    run.event("exit", pid=4712, code=0, t=1.0)
    run.write("result.json", {"exit_code": 0})
    replay = of(run)
    assert replay.picture().state == "has ended well"

    seen = []
    replay.move(-1000)
    for _ in range(5):
        replay.move(1)
        seen.append([(row.pid, row.doing) for row in replay.picture().rows])

    assert seen == [
        [(4711, "runs")],
        [(4711, "exit 1")],
        [(4712, "runs")],
        [(4712, "exit 0")],
        [(4712, "exit 0")],
    ]


def test_a_case_of_another_shape_is_no_fault(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict())
    for document in ({"ranks": 3, "slow": []}, {"ranks": [1, {"rank": "x"}, {"rank": 1, "step": "s", "phases": [1]}]}):
        run.write("incident-0/evidence/case.json", document)

        assert len(of(run).picture().rows) == 3


def test_the_stacks_of_an_incident_are_found(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict())
    told = of(run).incident()

    assert told is not None
    assert Path(told.folder) == run.path / "incident-0"


def test_steps_are_known_by_the_minute(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.event("progress", step=120, furthest=121, step_s=0.5)
    run.event("progress", step=240, furthest=240, step_s=0.25)
    run.event("progress", step="x", furthest=240, step_s=0.25)
    replay = of(run)

    replay.move(-1)
    assert {(row.step, row.each) for row in replay.picture().rows} == {(240, 0.25)}
    replay.move(-1)  # what is of no shape of ours is no moment
    assert {(row.step, row.each) for row in replay.picture().rows} == {(120, 0.5)}


def test_a_run_of_weeks_still_has_its_ranks(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    with (run.path / "events.jsonl").open("a") as file:
        for minute in range(10_000):
            step = f'{{"event": "progress", "time": {run.time + 60 * minute}, "step": {minute}, "step_s": 0.5}}'
            file.write(f"{step}\n")
    run.write("result.json", {"exit_code": 0})

    rows = of(run).picture().rows

    assert [(row.rank, row.step) for row in rows] == [(0, 9999), (1, 9999), (2, 9999)]
