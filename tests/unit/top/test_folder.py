"""What the folder of a run says, and that nobody's words in it break anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from recorded import Run, verdict

from safelaunch import procfs
from safelaunch.top import attempts, looks, tail
from safelaunch.top.attempts import ended, how
from safelaunch.top.folder import Folder
from safelaunch.top.job import Job
from safelaunch.top.replay import Replay


def test_what_was_started_and_what_came_of_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    folder = Folder(str(run.path))
    folder.poll()

    assert (folder.run_id, folder.script) == ("r1", "train.py --lr 1")
    assert folder.group is not None
    assert [one.rank for one in folder.group.workers] == [0, 1, 2]

    run.event("exit", pid=folder.group.workers[0].pid, code=-9, t=1.0)
    folder.poll()  # only what is new is read

    assert "rank 0 was killed by SIGKILL" in [one.text for one in folder.attempts.notices]


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    folder = Folder(str(run.path))
    events = run.path / "agent.jsonl"
    whole = events.read_bytes()
    events.write_bytes(whole[:-20])
    folder.poll()
    assert folder.group is not None
    assert len(folder.group.workers) == 2

    events.write_bytes(whole)
    folder.poll()

    assert len(folder.group.workers) == 3


def test_a_notice_and_its_verdict_are_one(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.tell(0, verdict(), "notice")
    first = run.time
    job = Job([Folder(str(run.path))])
    job.poll()
    assert [(one.level, one.text[:5]) for one in job.picture().notices] == [("warning", "SL301")]

    run.tell(0, verdict())
    run.event("verdict", code="SL301", summary="rank 1 sleeps, and 2 peers wait for it")
    job.poll()

    [notice] = job.picture().notices
    assert (notice.level, notice.time) == ("error", first)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "group"}',
        '{"event": "group", "time": 1, "attempt": "one", "world_size": 3, "local_world_size": 3}',
        '{"event": "worker", "time": 1, "rank": 0}',
        '{"event": "exit", "time": 1, "pid": 1, "code": "x", "t": 1}',
        '{"event": "verdict", "time": 1}',
        '{"event": "take", "time": 1}',
        '{"event": ["group"], "time": 1e300}',
        "[" * 100_000,
        "nonsense",
        "[]",
    ],
)
def test_what_is_no_event_of_ours_changes_nothing(line: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start()
    with (run.path / "agent.jsonl").open("a") as file:
        file.write(f"{line}\n")
    run.begin()
    folder = Folder(str(run.path))
    folder.poll()

    assert folder.group is not None
    assert len(folder.group.workers) == 3


@pytest.mark.parametrize("document", ["[]", "{", '{"plan": [], "mapping": {"a": 1}, "started": "now"}', ""])
def test_a_run_json_of_another_shape_is_no_fault(document: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    (run.path / "run.json").write_text(document)
    job = Job([Folder(str(run.path))])
    job.poll()

    assert len(job.picture().rows) == 3


def test_a_verdict_of_another_shape_is_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.write("incident-0/verdict.json", {"code": 301})
    (run.path / "incident-1").symlink_to(tmp_path)
    (tmp_path / "verdict.json").mkdir()
    job = Job([Folder(str(run.path))])
    job.poll()

    assert job.picture().notices == ()


def test_a_run_that_was_killed_is_told_from_one_that_is_just_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "r1").start().begin()
    folder = Folder(str(run.path))
    folder.poll()
    assert not folder.is_gone()

    plan = folder.start["plan"] | {"scratch_dir": str(tmp_path / "removed"), "token": "t1"}
    run.write("run.json", folder.start | {"plan": plan})
    folder.poll()
    assert not folder.is_gone()  # its last event is of just now

    os.utime(run.path / "agent.jsonl", (run.time, run.time))
    assert folder.is_gone()

    monkeypatch.setattr(procfs, "in_environ", lambda _pid, entry: entry == b"SAFELAUNCH_RUN_TOKEN=t1")
    contained = Folder(str(run.path))
    contained.poll()
    assert not contained.is_gone()  # its processes are there: it runs in a container

    run.write("result.json", {"exit_code": 0})
    folder.poll()
    assert not folder.is_gone()


def test_how_a_process_has_ended() -> None:
    assert [how(code) for code in (3, -9, -99)] == [
        "ended with exit code 3",
        "was killed by SIGKILL",
        "was killed by signal 99",
    ]
    assert [ended(code) for code in (0, -15)] == ["exit 0", "by SIGTERM"]


def test_the_result_is_the_state(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.write("result.json", json.loads('{"exit_code": 124, "elapsed_s": 61.5}'))
    job = Job([Folder(str(run.path))])
    job.poll()

    picture = job.picture()
    assert (picture.over, picture.state, picture.elapsed_s) == (True, "has ended with exit code 124", 61.5)


def test_what_a_user_has_led_elsewhere_is_not_shown(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    secret = tmp_path / "secret"
    secret.write_text('{"code": "SL301", "summary": "secret"}')
    (run.path / "incident-0" / "evidence" / "rank_001").mkdir(parents=True)
    (run.path / "incident-0" / "verdict.json").symlink_to(secret)
    (run.path / "incident-0" / "evidence" / "rank_001" / "stack.txt").symlink_to(secret)
    job = Job([Folder(str(run.path))])
    job.poll()

    assert job.picture().notices == ()
    assert "secret" not in looks.kept(str(run.path / "incident-0"), 1)


def test_what_has_no_incident_is_told_too(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.event("notice", code="SL233", summary="rank 1 brings 8 elements, its peers 16")
    run.event("notice", code="SL301", summary="rank 1 sleeps, and 2 peers wait for it")
    run.tell(0, verdict(), "notice")
    job = Job([Folder(str(run.path))])
    job.poll()

    told = [one.text for one in job.picture().notices]
    assert told == ["SL233: rank 1 brings 8 elements, its peers 16", "SL301: rank 1 sleeps, and 2 peers wait for it"]


def test_events_before_any_group_change_nothing(tmp_path: Path) -> None:
    """A torn agent.jsonl is enough for that."""
    run = Run(tmp_path / "r1").start()
    run.event("worker", rank=0, local_rank=0, pid=3, start=1, rank_dir="")
    run.event("exit", pid=3, code=1, t=1.0)
    folder = Folder(str(run.path))
    folder.poll()

    assert (folder.group, folder.attempts.notices) == (None, [])


def test_many_exits_cost_no_more_than_to_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "r1").start()
    run.event("group", attempt=0, world_size=8, local_world_size=8)
    worker = '{"event":"worker","time":1,"rank":%d,"local_rank":0,"pid":1,"start":1,"rank_dir":""}\n'
    exits = '{"event":"exit","time":1,"pid":1,"code":1,"t":0}\n' * 1000
    with (run.path / "agent.jsonl").open("a") as file:
        file.write("".join(worker % rank for rank in range(500)) + exits)
    made = []
    replace = attempts.replace
    monkeypatch.setattr(attempts, "replace", lambda one, **changes: made.append(one) or replace(one, **changes))
    folder = Folder(str(run.path))
    folder.poll()

    assert folder.group is not None
    assert {one.exit.code for one in folder.group.workers if one.exit is not None} == {1}
    assert len(made) <= 2 * 500
    assert [one.text for one in folder.attempts.notices] == ["rank 0 ended with exit code 1"]  # a process ends once


@pytest.mark.parametrize("name", ["agent.jsonl", "events.jsonl"])
def test_a_file_without_end_is_read_in_part_and_told(name: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.write("result.json", {"exit_code": 0})
    with (run.path / name).open("ab") as file:
        file.truncate(1 << 40)  # of which nothing is stored
    folder = Folder(str(run.path))
    for _ in range(2):
        folder.poll()

        assert folder.faults == (f"{name}: only its first 64 MiB were read, of 1 TiB",)
    assert folder.group is not None
    assert folder.faults[0] in Replay([folder]).picture().missing


def test_lines_without_end_are_read_in_part_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST_LINES", 3)
    run = Run(tmp_path / "r1").start().begin()
    folder = Folder(str(run.path))
    folder.poll()

    assert folder.faults == ("agent.jsonl: only its first 3 lines were read",)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{}", "has no exit code"),
        ('{"exit_code": "1", "elapsed_s": 5}', "exit_code: expected a whole number, got '1'"),
        ('{"exit_code": null}', "has no exit code"),
        ('{"exit_c', "cannot be read: it is no JSON"),
        ("[0]", "cannot be read: it is no JSON object of ours"),
    ],
)
def test_how_it_ended_is_not_guessed(document: str, why: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    (run.path / "result.json").write_text(document)
    job = Job([Folder(str(run.path))])
    job.poll()

    assert (job.picture().state, job.over) == ("has ended; how, is not known", True)
    assert f"result.json: {why}" in job.picture().missing

    run.time += 1
    run.write("result.json", {"exit_code": 0})
    job.poll()
    assert (job.picture().state, job.picture().missing) == ("has ended well", ())


def test_one_node_that_ended_well_does_not_speak_for_the_others(tmp_path: Path) -> None:
    nodes = [Run(tmp_path / "job" / name, ranks=1).start().begin() for name in ("node-a", "node-b")]
    for one, code in zip(nodes, (0, None), strict=True):
        one.write("result.json", {"exit_code": code})
    job = Job([Folder(str(one.path)) for one in nodes])
    job.poll()
    assert job.picture().state == "has ended; how, is not known of 1 of 2 nodes"

    nodes[0].time += 9
    nodes[0].write("result.json", {"exit_code": 3})
    job = Job([Folder(str(one.path)) for one in nodes])
    job.poll()
    assert job.picture().state == "has ended with exit code 3"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read it")
def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    run.event("notice", code="SL301", summary="rank 1 sleeps")
    (run.path / "events.jsonl").chmod(0)
    folder = Folder(str(run.path))
    folder.poll()

    assert folder.faults == ("events.jsonl cannot be read: Permission denied",)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path / "r1").start().begin()
    (run.path / "events.jsonl").mkdir()
    folder = Folder(str(run.path))
    folder.poll()

    assert folder.faults == ("events.jsonl cannot be read: it is no regular file",)
