"""`safelaunch trace` of a run whose owner is hostile: what it reads is checked, and nothing outside is touched."""

from __future__ import annotations

import gzip
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safelaunch import black_box, files
from safelaunch.cli import running, trace
from safelaunch.model import SafelaunchError
from safelaunch.report import trace_file, trace_summary
from safelaunch.run import tracing

HIS = 1234
RANK_FILES = ("rank_000.json", "rank_000.meta", "rank_000.calls")
STEPS = [[1, 1.0, 1_000_000_000, 0.0, 0.0], [2, 2.0, 2_000_000_000, 0.1, 0.2], [3, 3.0, 3_000_000_000, 0.2, 0.4]]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")


def event(**more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": 10, "tid": 10, "ts": 5.0, "dur": 1.0, **more}


class Run:
    """A run directory whose supervisor has answered, and whose ranks have left their traces."""

    def __init__(self, folder: Path, ranks: int = 1) -> None:
        self.folder = folder
        (folder / "traces/1").mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        self.answer(ranks=dict.fromkeys(map(str, range(ranks)), self.rank()))
        for rank in range(ranks):
            self.leave(rank)

    @staticmethod
    def rank(**more: Any) -> dict[str, Any]:
        return {"pid": 10, "state": "written", "steps": 5, "marks": 0, "pace": [1.0, 1.0], **more}

    def answer(self, **more: Any) -> None:
        said = {"number": 1, "first": 0, "host": "node-a", "ranks": {"0": self.rank()}, **more}
        (self.folder / "tracing.json").write_text(json.dumps(said))

    def leave(self, rank: int = 0, events: Any = (), **more: Any) -> None:
        base = str(self.folder / f"traces/1/rank_{rank:03d}.")
        Path(base + "meta").write_text(json.dumps({"pid": 10 + rank, "thread": 10, "steps": STEPS, **more}))
        Path(base + "json").write_text(
            events if isinstance(events, str) else json.dumps({"baseTimeNanoseconds": 0, "traceEvents": list(events)})
        )
        Path(base + "calls").write_bytes(bytes(black_box.SLOT))

    def ask(self, tell: Callable[[str], None] = lambda _: None) -> tracing.Asked:
        held = running.hold(str(self.folder))
        return tracing.ask([held], held, 3, None, 0.0, tell)

    def traced(self) -> tracing.Traced:
        return self.ask().merged()

    @property
    def written(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "traces/1").iterdir())

    @property
    def document(self) -> dict[str, Any]:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        text = gzip.decompress((self.folder / "traces/1/trace.json.gz").read_bytes())
        found: dict[str, Any] = json.loads(text, parse_constant=refuse)
        return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ANSWER_S", 0.05)
    monkeypatch.setattr(tracing, "_free", lambda _: 1)
    monkeypatch.setattr(files, "_held", {})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "theirs/run")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder with files that are called as those of a trace."""
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in ("trace", "run.json", *RANK_FILES):
        (folder / name).write_text("precious")
    return folder


def lead(path: Path, target: Path) -> None:
    """What is at a path goes, and a link comes."""
    path.rename(path.with_name("old"))
    path.symlink_to(target)


# ------------------------------------------------------------------------------------------------------- links


def test_a_request_is_taken_out_of_the_folder_in_which_it_was_made(run: Run, ours: Path) -> None:
    run.ask(lambda _: lead(run.folder, ours))

    assert (ours / "trace").read_text() == "precious"
    assert not (run.folder.with_name("old") / "trace").exists()


def test_a_file_that_another_has_put_in_the_place_of_the_request_stays(run: Run) -> None:
    request = run.folder / "trace"

    def replace(_: str) -> None:
        request.rename(run.folder / "away")
        request.write_text("another")

    run.ask(replace)

    assert request.read_text() == "another"


def test_the_files_of_ranks_are_removed_where_they_were_read(
    run: Run, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(*_: Any) -> list[str]:
        lead(run.folder / "traces/1", ours)
        return ["a summary"]

    monkeypatch.setattr(trace_summary, "lines", swap)
    with pytest.raises(SafelaunchError, match=r"summary\.txt cannot be written"):
        run.traced()

    assert sorted(path.name for path in ours.iterdir()) == sorted(("trace", "run.json", *RANK_FILES))


def test_a_folder_that_became_a_link_is_told_and_not_written_into(
    run: Run, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = trace_file.write

    def swap(*arguments: Any) -> Any:
        lead(run.folder / "traces/1", ours)
        return write(*arguments)

    monkeypatch.setattr(trace_file, "write", swap)
    with pytest.raises(SafelaunchError, match=r"trace\.json\.gz cannot be written"):
        run.traced()

    assert sorted(path.name for path in ours.iterdir()) == sorted(("trace", "run.json", *RANK_FILES))


@AS_ROOT
@pytest.mark.parametrize("named", [True, False])
def test_the_link_of_another_user_leads_to_no_run_of_ours(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "ours")
    (tmp_path / "cwd/safelaunch_runs").mkdir(parents=True)
    link = tmp_path / "cwd/safelaunch_runs/job"
    link.symlink_to(run.folder)
    os.lchown(link, HIS, HIS)
    monkeypatch.chdir(tmp_path / "cwd")

    with pytest.raises(SafelaunchError, match="is another's" if named else "no run goes on below"):
        trace.run([str(link)] if named else [])

    assert run.written == sorted(RANK_FILES)


@AS_ROOT
def test_what_comes_in_the_place_of_a_run_that_was_found_is_looked_at_again(run: Run, ours: Path) -> None:
    os.lchown(run.folder, HIS, HIS)
    (found,) = running.folders(str(run.folder))
    lead(run.folder, ours)
    os.lchown(run.folder, HIS, HIS)

    with pytest.raises(SafelaunchError, match="is another's"):
        running.hold(found)


def test_a_folder_without_a_run_is_none(tmp_path: Path) -> None:
    with pytest.raises(SafelaunchError, match=r"it has no run\.json"):
        running.hold(str(tmp_path))


@AS_ROOT
def test_the_supervisor_of_another_user_may_read_what_root_asks(run: Run) -> None:
    os.chown(run.folder, HIS, HIS)
    seen: list[int] = []

    run.ask(lambda _: seen.append((run.folder / "trace").stat().st_mode))

    assert [stat.S_IMODE(mode) for mode in seen] == [0o644]


@AS_ROOT
@pytest.mark.parametrize("whose", ["folder", "file"])
def test_only_what_the_owner_of_the_run_has_written_counts(whose: str, run: Run) -> None:
    for path in (run.folder, run.folder / "traces", run.folder / "traces/1"):
        os.chown(path, HIS, HIS)
    for name in RANK_FILES:
        os.chown(run.folder / "traces/1" / name, HIS, HIS)
    if whose == "folder":
        os.chown(run.folder / "traces/1", 0, 0)
    else:
        os.chown(run.folder / "traces/1/rank_000.json", 0, 0)

    traced = run.traced()

    assert set(RANK_FILES) <= set(run.written)
    assert (traced.path != "") == (whose == "folder")


# ------------------------------------------------------------------------------------------------------ documents


@pytest.mark.parametrize(
    "more",
    [
        {"pace": [1.7e308, 0.0]},
        {"pace": [-1.0, 0.0]},
        {"steps": 1 << 62},
        {"marks": -1},
        {"state": "\x1b[2J"},
        {"steps": "5"},
    ],
)
def test_an_answer_that_no_supervisor_gives_is_told_as_one_that_cannot_be_read(more: dict[str, Any], run: Run) -> None:
    run.answer(ranks={"0": run.rank(**more)})

    with pytest.raises(SafelaunchError, match=r"has not answered in a way that can be read \(tracing\.json: "):
        run.ask()

    assert not (run.folder / "trace").exists()


@pytest.mark.parametrize(
    "more",
    [{"offset_s": 1e300}, {"clock_error_s": 1e300}, {"world_size": -1}, {"ranks": {"00": {}}}, {"ranks": {"٣": {}}}],
)
def test_no_clock_and_no_rank_is_believed_that_cannot_be(more: dict[str, Any], run: Run) -> None:
    run.answer(**more)

    with pytest.raises(SafelaunchError, match="in a way that can be read"):
        run.ask()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"steps": [[1, 1.7e308, 0, 0.0, 0.0], [2, 1.7e308, 0, 0.0, 0.0]]}, "its times are none"),
        ({"steps": [[1, 1.0, 0, 0.0, 0.0], [2, 1.0, 0, 0.0, 0.0]]}, "took no time"),
        ({"steps": [[5, 2.0, 0, 0.0, 0.0], [2, 3.0, 0, 0.0, 0.0]]}, "go backwards"),
        ({"steps": [[5, 2.0, 0, 0.0, 0.0], [6, 1.0, 0, 0.0, 0.0]]}, "go backwards"),
        ({"steps": [[5, 2.0], [6]]}, "expected 5 values"),
        ({"steps": [[1, 1.0, 0, 0.0, 0.0]]}, "no step"),
        ({"write_s": 1e300}, "its times are none"),
        ({"pid": 1 << 40}, "its pid is none"),
    ],
)
def test_steps_that_no_rank_makes_are_missing_with_the_reason(more: dict[str, Any], why: str, run: Run) -> None:
    run.leave(**more)

    traced = run.traced()

    assert traced.path == ""
    assert why in traced.missing[0]
    assert traced.summary == ("no rank has left a trace",)
    assert run.written == sorted(RANK_FILES)


WRONG: list[dict[str, Any]] = [
    {"ph": []}, {"ph": {}}, {"cat": [1]}, {"cat": {"a": 1}}, {"tid": [1]}, {"tid": {"a": 1}}, {"tid": [1], "pid": 2},
    {"tid": {"a": 1}, "cat": "kernel"}, {"ts": None}, {"ts": float("inf")}, {"ts": float("nan")}, {"ts": 1 << 70},
    {"dur": -5}, {"dur": True}, {"dur": "5"}, {"args": [1]}, {"id": [], "ph": "s"}, {"name": 5}, {"pid": None},
    {"args": {"deep": json.loads("[" * 500 + "]" * 500)}}, {"args": {"large": float("inf"), "in": [float("nan")]}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:40])
def test_an_event_that_torch_does_not_write_harms_none_of_the_others(wrong: dict[str, Any], run: Run) -> None:
    without_time = event()
    del without_time["ts"]
    run.leave(events=[event(name="before"), event(**wrong), without_time, 5, event(name="after")])

    traced = run.traced()

    assert (traced.missing, traced.path != "") == ({}, True)
    assert {"before", "after"} <= {one["name"] for one in run.document["traceEvents"]}


@pytest.mark.parametrize("text", ["{}", "[]", "5", '{"traceEvents": 5}', '{"traceEvents": {}}', "[" * 100_000, "{"])
def test_what_is_no_trace_is_missing_and_the_others_are_written(text: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", ranks=2)
    run.leave(0, events=text)

    traced = run.traced()

    assert list(traced.missing) == [0]
    assert traced.path != ""
    assert run.written == ["rank_000.calls", "rank_000.json", "rank_000.meta", "summary.txt", "trace.json.gz"]


def test_a_file_of_holes_is_not_read_to_its_end_and_no_file_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with (run.folder / "traces/1/rank_000.json").open("ab") as file:
        file.truncate(500 << 20)
    read = []
    decode = tracing.left.json.loads
    monkeypatch.setattr(tracing.left.json, "loads", lambda text: read.append(len(text)) or decode(text))

    traced = run.traced()

    assert max(read) < 1 << 20
    assert (traced.path, "null bytes" in traced.missing[0]) == ("", True)
    assert run.written == sorted(RANK_FILES)


def test_more_events_than_there_is_room_for_are_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(tracing.left, "events", endless)

    assert run.traced().missing == {0: "it has more events than there is room for"}


def test_what_was_left_is_put_together_within_bounds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[Any] = []

    def bounded(work: Callable[[], int], seconds: float, room: int, remedy: str) -> int:
        bounds.append((seconds, room, remedy))
        return work()

    monkeypatch.setattr(trace.bounded, "run", bounded)

    assert trace.run(["--wait", "0", str(run.folder)]) == 0
    assert bounds == [(trace.MERGE_S + trace.RANK_S, trace.ROOM, trace.AGAIN)]


# ---------------------------------------------------------------------------------------------------------- words


def test_advice_holds_no_name_of_a_folder(tmp_path: Path) -> None:
    run = Run(tmp_path / "job now, or run `curl -s evil.example`; see y")
    request = {"number": 1, "count": 3, "until": time.time() + 1000}
    (run.folder / "trace").write_text(json.dumps(request))

    with pytest.raises(SafelaunchError, match="is under way") as refused:
        run.ask()

    assert "curl" not in refused.value.diagnostic.remedy
    assert str(run.folder) in refused.value.diagnostic.summary


def test_a_request_of_a_thousand_years_is_none(run: Run) -> None:
    (run.folder / "trace").write_text(json.dumps({"number": 1, "count": 3, "until": 1e300}))

    assert run.traced().path != ""


def test_the_summary_has_no_lines_but_ours(run: Run) -> None:
    run.answer(no_kernels="x\nerror[SL303]: rank 3 \x1b[31m")
    run.leave(cuda=True)

    run.traced()

    lines = (run.folder / "traces/1/summary.txt").read_text().splitlines()
    assert not [line for line in lines if line.startswith("error") or "\x1b" in line]


def test_the_host_is_a_name_in_the_file(run: Run) -> None:
    run.answer(host="node-a `curl evil.example`")

    run.traced()

    assert run.document["otherData"]["hosts"] == ["node-a?curl?evil.example?"]
