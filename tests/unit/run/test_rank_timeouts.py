"""What follows from the timeouts that ranks tell of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from said import Said

from safelaunch import black_box
from safelaunch.model import Finding, Origin, Settings, Value, WorkerGroup, WorkerProcess
from safelaunch.run import ranks as wiring
from safelaunch.run.findings import unsaid
from safelaunch.run.inboxes import Inbox
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.rank_timeouts import RankTimeouts

PROFILE = Origin("profile", "mine.toml:2")


@pytest.fixture
def box(tmp_path: Path) -> str:
    return str(tmp_path / "black_box")


def settings(abort_after: float | None = None, **timeouts: float) -> Settings:
    return Settings(
        options={},
        env={},
        timeouts={name: Value(value, PROFILE) for name, value in timeouts.items()},
        hang={"abort_after": Value(abort_after, PROFILE), "on_hang": Value("auto", Origin("default"))},
    )


def ranks(*pids: int, attempt: int = 0) -> WorkerGroup:
    workers = tuple(WorkerProcess(rank, rank, pid, 0, "", "") for rank, pid in enumerate(pids))
    return WorkerGroup(attempt, len(pids), len(pids), workers)


def say(box: str, index: int, pid: int, kind: str, seconds: float, explicit: bool = True, **facts: Any) -> None:
    facts = {"backend": "gloo", "file": "/there/train.py", "line": 31, **facts}
    with open(black_box.beside(box, index, "announcements"), "a") as file:
        file.write(json.dumps({"pid": pid, "kind": kind, "seconds": seconds, "explicit": explicit, **facts}) + "\n")


def listening(box: str, settings: Settings) -> RankTimeouts:
    return RankTimeouts(wiring.remarks_of(box), wiring.timeouts_judge(settings))


def codes(heard: RankTimeouts, group: WorkerGroup) -> list[str]:
    return [finding.code for finding in heard.poll(group)]


def test_ranks_that_say_nothing_and_a_run_without_a_black_box(box: str) -> None:
    assert codes(listening(box, settings(60.0)), ranks(7, 8)) == []
    assert wiring.listener(None, settings(60.0), {}, ThisNode(), Said(), "train.py", Inbox()).poll(ranks(7, 8)) == []


@pytest.mark.parametrize("first", ["group", "loader"])
def test_a_loader_and_a_group_are_compared_whichever_comes_first(first: str, box: str) -> None:
    heard = listening(box, settings())
    said = {"group": 300.0, "loader": 300.0}
    say(box, 1, 8, first, said.pop(first))
    assert codes(heard, ranks(7, 8)) == []
    (other, seconds) = said.popitem()
    say(box, 1, 8, other, seconds)
    (finding,) = heard.poll(ranks(7, 8))
    assert (finding.code, finding.where) == ("SL220", "/there/train.py:31")
    say(box, 0, 7, "group", 300.0)
    say(box, 0, 7, "loader", 900.0)
    assert codes(heard, ranks(7, 8)) == []  # once is enough


def test_a_shorter_timeout_that_the_script_sets_later_counts(box: str) -> None:
    heard = listening(box, settings(540.0))
    say(box, 0, 7, "group", 600.0)
    say(box, 0, 7, "loader", 120.0)
    assert codes(heard, ranks(7)) == []
    say(box, 0, 7, "group", 100.0, backend="")
    assert sorted(codes(heard, ranks(7))) == ["SL220", "SL221"]


def test_who_has_said_it_is_told(box: str) -> None:
    say(box, 0, 7, "group", 60.0, explicit=False)
    say(box, 0, 7, "loader", 90.0, explicit=False)
    of_profile = listening(box, settings(process_group=60.0)).poll(ranks(7))[0]
    of_torch = listening(box, settings()).poll(ranks(7))[0]

    assert of_profile.because[0].endswith("profile mine.toml:2")
    assert of_torch.because[0].endswith("torch's default for gloo")
    assert "`loader` in [timeouts]" in of_profile.summary


def test_what_a_rank_of_an_earlier_attempt_has_said_is_over(box: str) -> None:
    heard = listening(box, settings())
    say(box, 0, 7, "group", 60.0)
    say(box, 0, 7, "other", 60.0)
    assert codes(heard, ranks(7)) == []
    say(box, 0, 9, "loader", 90.0)
    assert codes(heard, ranks(9, attempt=1)) == []
    say(box, 0, 9, "group", 60.0)
    assert codes(heard, ranks(9, attempt=1)) == ["SL220"]


def test_a_note_does_not_keep_back_the_warning_after_it(box: str) -> None:
    heard = listening(box, settings(60.0))
    say(box, 0, 7, "group", 60.0)
    say(box, 1, 8, "group", 50.0)
    say(box, 2, 9, "group", 60.0)
    found = heard.poll(ranks(7, 8, 9))

    assert [(finding.code, finding.severity) for finding in found] == [("SL221", "note"), ("SL221", "warning")]


def test_the_profiles_loader_is_told_at_the_profiles_line_as_the_lint_tells_it(box: str) -> None:
    say(box, 0, 7, "group", 60.0)
    say(box, 0, 7, "loader", 90.0, explicit=False)
    (finding,) = listening(box, settings(loader=90.0)).poll(ranks(7))

    assert finding.where == PROFILE.where


# ------------------------------------------------------------------------------------- what is told, and what is not


def finding(severity: str = "warning", where: str = "", summary: str = "a") -> Finding:
    return Finding(code="SL221", severity=severity, summary=summary, where=where)  # type: ignore[arg-type]


def test_what_the_lint_has_shown_is_not_said_again_and_the_rest_is() -> None:
    shown, note = finding(where="mine.toml:2"), finding("note")
    later = (finding(where="mine.toml:2", summary="b"), finding(summary="b"), finding("note"), finding(where="x.py:3"))

    # The note was not shown: it keeps back nobody but itself.
    assert unsaid(later, (shown, note), (shown,)) == [later[1], later[3]]


class Broken:
    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:  # noqa: ARG002
        raise RuntimeError("no such file")


class Sound:
    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:  # noqa: ARG002
        return [finding()]


def test_ranks_are_listened_to_once_in_a_while_and_at_the_end() -> None:
    listener = wiring.Listener({"timeouts": Sound()}, Said())

    assert [len(listener.poll(ranks(7))) for _ in range(3)] == [1, 0, 0]
    assert len(listener.poll(ranks(7), last=True)) == 1


@pytest.mark.parametrize("broken", ["timeouts", "GPUs"])
def test_a_fault_of_one_watcher_is_told_once_and_leaves_the_other(broken: str) -> None:
    console = Said()
    both = {"timeouts": Sound(), "GPUs": Sound(), broken: Broken()}
    listener = wiring.Listener(both, console)

    assert [len(listener.poll(ranks(7), last=True)) for _ in range(3)] == [1, 1, 1]
    (line,) = console.lines
    assert f"the ranks' {broken} are not judged" in line
    assert "SL902" in line
