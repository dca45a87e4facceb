"""`safelaunch diagnose`: what it takes, what it prints, and with which exit code."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from fr_dumps import Recorder, world, write_all
from golden_file import load, names

from safelaunch import files, limits
from safelaunch.cli import diagnose as command
from safelaunch.cli.main import main
from safelaunch.codec import from_json, to_json
from safelaunch.diagnosis import diagnose
from safelaunch.evidence.case import stack_text
from safelaunch.evidence.logs import signatures
from safelaunch.model import Case, Exit, Incident, PyError, RankFacts, Verdict
from safelaunch.report import bundle
from safelaunch.run.messages import classified


def write(folder: Path, case: Case, verdict: Verdict | None = None) -> Verdict:
    """An incident's folder as a live run writes it."""
    case = classified(case, signatures.shipped())
    verdict = verdict or dataclasses.replace(diagnose(case), detected_after_s=0.2, concluded_after_s=0.3)
    bundle.write(str(folder), case, verdict, (), stack_text)
    return verdict


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["diagnose", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def packed(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


# ------------------------------------------------------------------------------------------------- bundles


@pytest.mark.parametrize("name", names())
def test_a_bundle_says_what_the_run_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "incident-0", load(name))
    code, out, _ = run(capsys, tmp_path / "incident-0")

    assert code == 0
    assert out == (tmp_path / "incident-0" / "verdict.txt").read_text()


def test_a_run_directory_an_incident_its_case_and_a_tar_file_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = write(tmp_path / "run" / "incident-0", load("hang-sleep"))
    folder = tmp_path / "run" / "incident-0"
    tar = packed(folder, tmp_path / "bundle.tar.gz")
    for path in (tmp_path / "run", folder, folder / "evidence", folder / "evidence" / "case.json", tar):
        _, out, _ = run(capsys, "--json", path)
        (one,) = json.loads(out)["conclusions"]
        assert from_json(Verdict, one["verdict"]) == verdict, path


def test_a_case_is_known_by_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("hang-left-loop")
    files.write_json(str(tmp_path / "mine.json"), to_json(case))

    assert diagnose(case).summary in run(capsys, tmp_path / "mine.json")[1]


def test_another_verdict_than_the_run_came_to_is_told_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load("hang-sleep")
    write(tmp_path / "i", case, dataclasses.replace(diagnose(case), code="SL399", summary="no idea", culprit_ranks=()))
    _, out, _ = run(capsys, tmp_path / "i")

    assert "the run itself concluded SL399: no idea" in out
    assert diagnose(case).summary in out


def test_progress_that_returned_is_not_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("hang-sleep")
    said = dataclasses.replace(diagnose(case), code="SL501", slug="slow", kind="slow", summary="progress returned")
    write(tmp_path / "i", case, said)
    _, out, _ = run(capsys, tmp_path / "i")

    assert "before progress returned it was told: " + diagnose(case).code in out
    assert "warning[SL501]" in out


def test_what_was_told_before_stands_where_the_last_look_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load("hang-nobody-waits")
    assert diagnose(case).code == "SL399"
    notice = diagnose(load("hang-sleep"))
    write(tmp_path / "i", case, notice)
    files.write_json(str(tmp_path / "i" / "notice.json"), notice)
    _, out, _ = run(capsys, tmp_path / "i")

    told = (tmp_path / "i" / "verdict.txt").read_text()
    assert out == "".join(line for line in told.splitlines(keepends=True) if "= help:" not in line)


def test_a_run_without_incidents_has_nothing_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_json(str(tmp_path / "run.json"), {"run_id": "x"})
    files.write_json(str(tmp_path / "result.json"), {"exit_code": 0, "verdicts": []})
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "ended with exit code 0 and holds no incident: nothing to tell" in out


# -------------------------------------------------------------------------------------------- several nodes


def node(folder: Path, host: str, ranks: tuple[RankFacts, ...], *, boot: float, run_id: str = "7") -> None:
    """One node of two; its clock began at `boot` of the wall clock."""
    first = min((r.error.t if r.error else r.exit.t if r.exit else 0.0) for r in ranks)
    case = Case(Incident("exit", 0, tuple(r.rank for r in ranks), first), host, 4, ranks)
    write(folder / "incident-0", case)
    files.write_json(str(folder / "run.json"), {"run_id": run_id})
    (folder / "agent.jsonl").write_text(json.dumps({"event": "x", "time": boot + 10.0, "t": 10.0}) + "\n")


def failed(rank: int, t: float, type_: str, message: str) -> RankFacts:
    return RankFacts(rank, rank % 2, 100 + rank, Exit(1, t + 1), PyError(type_, message, "", t))


LOST = "[.../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:5025"


def test_nodes_of_one_run_give_one_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # By its own clock, which began later, node-b's root failure comes first by far.
    lost = (failed(0, 5000.2, "RuntimeError", LOST), failed(1, 5000.3, "RuntimeError", LOST))
    node(tmp_path / "a", "node-a", lost, boot=1_000_000.0)
    root = (failed(2, 40.0, "ValueError", "loss is nan"), failed(3, 40.3, "RuntimeError", LOST))
    node(tmp_path / "b", "node-b", root, boot=1_004_960.0)
    _, out, _ = run(capsys, "--json", tmp_path)

    (one,) = json.loads(out)["conclusions"]
    assert (one["verdict"]["code"], one["verdict"]["culprit_ranks"]) == ("SL401", [2])
    assert one["verdict"]["host"] == "node-b"
    assert one["verdict"]["secondary"] == [0, 1, 3]
    _, out, _ = run(capsys, tmp_path / "a", tmp_path / "b")
    assert "one verdict over 2 nodes" in out


def test_an_incident_that_takes_all_time_leaves_some_to_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, host in (("a", "slow"), ("b", "healthy")):
        write(tmp_path / name / "incident-0", dataclasses.replace(load("exception-in-one-rank"), host=host))

    def judge(case: Case) -> Verdict:
        while case.host == "slow":
            pass
        return diagnose(case)

    monkeypatch.setattr(command, "diagnose", judge)
    monkeypatch.setattr(limits, "SECONDS", 0.0)
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "error[SL401]" in out
    assert "takes too long" in out


def test_nodes_whose_clocks_do_not_compare_stand_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node(tmp_path / "a", "node-a", (failed(0, 9.0, "RuntimeError", LOST), failed(1, 9.1, "OSError", "x")), boot=1.0)
    node(tmp_path / "b", "node-b", (failed(2, 40.0, "ValueError", "nan"), failed(3, 41.0, "KeyError", "k")), boot=1.0)
    (tmp_path / "b" / "agent.jsonl").unlink()
    _, out, _ = run(capsys, tmp_path)

    assert "clocks of these nodes cannot be compared" in out
    assert out.count("error[") == 2


def test_runs_that_only_lie_side_by_side_are_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node(tmp_path / "a", "node-a", (failed(0, 9.0, "OSError", "x"), failed(1, 9.1, "RuntimeError", LOST)), boot=0.0)
    root = (failed(2, 9.0, "ValueError", "nan"), failed(3, 9.1, "RuntimeError", LOST))
    node(tmp_path / "b", "node-b", root, boot=90_000.0, run_id="8")
    _, out, _ = run(capsys, "--json", tmp_path)

    assert [one["verdict"]["culprit_ranks"] for one in json.loads(out)["conclusions"]] == [[0], [2]]


# ------------------------------------------------------------------------------------------- what is damaged


def member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def test_a_tar_file_writes_nothing_and_follows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("hang-sleep")
    path = tmp_path / "in" / "bundle.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        member(archive, "../../escaped", b"x")
        link = tarfile.TarInfo("incident-0/verdict.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        member(archive, "../incident-0/evidence/case.json", json.dumps(to_json(case)).encode())
    code, out, _ = run(capsys, path)

    assert code == 0
    assert diagnose(case).summary in out
    assert [entry.name for entry in tmp_path.rglob("*")] == ["in", "bundle.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_document_that_is_a_link_in_a_tar_file_is_told(
    kind: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job whose only case is one would look as if it had nothing to tell."""
    path = tmp_path / "bundle.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member(archive, "run/run.json", b'{"run_id": "r1"}')
        member(archive, "run/copy.json", json.dumps(to_json(load("hang-sleep"))).encode())
        link = tarfile.TarInfo("run/incident-0/evidence/case.json")
        link.type, link.linkname = kind, "run/copy.json"
        archive.addfile(link)
    code, out, err = run(capsys, path)

    assert code == 2
    assert "run/incident-0/evidence/case.json is a link" in out + err
    assert "nothing to tell" not in out + err


def test_a_tar_file_that_unpacks_without_end_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelaunch.evidence.offline.archives.MAX_UNPACKED", 1 << 20)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        member(archive, "zeros", bytes(4 << 20))
        member(archive, "evidence/case.json", b"{}")
    code, _, err = run(capsys, tmp_path / "b.tar.gz")

    assert code == 2
    assert "unpacks to more than" in err


def test_of_a_tar_file_that_is_cut_off_what_is_left_counts_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load("hang-sleep")
    path = tmp_path / "b.tar"
    with tarfile.open(path, "w") as archive:
        member(archive, "run/incident-0/evidence/case.json", json.dumps(to_json(case)).encode())
        member(archive, "run/incident-1/evidence/case.json", json.dumps(to_json(case)).encode())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    code, out, _ = run(capsys, path)
    assert code == 0
    assert diagnose(case).summary in out
    assert "it is cut off or damaged" in out

    path.write_bytes(whole[:2000])
    code, out, err = run(capsys, path)
    assert (code, out) == (2, "")
    assert "error[SL005]" in err


def test_what_is_no_dump_in_a_folder_of_dumps_harms_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        recorder = Recorder(number, world(3)).calls(5)
        (recorder if number == 1 else recorder.call(state="scheduled")).write(tmp_path)
    os.mkfifo(tmp_path / "nccl_trace_rank_9.pipe")
    os.mkfifo(tmp_path / "nccl_trace_rank_7")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nccl_trace_rank_8").symlink_to(tmp_path / "nowhere")
    for number in range(2000):
        (tmp_path / f"image_{number}.jpg").write_bytes(b"\xff\xd8\xff\x00")
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "rank 1 never entered all_reduce #6; 2 peers wait for it" in out


def test_what_is_no_log_in_a_folder_of_logs_harms_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_bytes(
        b"caf\xe9 \xff\x00\n[rank1]: Traceback (most recent call last):\n"
        b'[rank1]:   File "/w/t.py", line 3, in <module>\n[rank1]:     f()\n[rank1]: ValueError: bad\n\xc3'
    )
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    for number in range(2000):
        (tmp_path / f"image_{number}.jpg").write_bytes(b"\xff\xd8\xff\x00" * 50)
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "rank 1 raised ValueError: bad" in out


@pytest.mark.parametrize("cut", [0, 1, 100, 2000])
def test_a_case_that_is_cut_off_is_one_clear_error(
    cut: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "i", load("hang-sleep"))
    path = tmp_path / "i" / "evidence" / "case.json"
    path.write_bytes(path.read_bytes()[:cut])
    (tmp_path / "i" / "verdict.json").unlink()
    code, out, err = run(capsys, tmp_path / "i")

    assert (code, out) == (2, "")
    assert "error[SL005]" in err
    assert "case.json" in err


@pytest.mark.parametrize(
    ("key", "value"), [("world_size", 10**12), ("world_size", "many"), ("ranks", [7]), ("incident", None), ("now", "x")]
)
def test_a_case_that_makes_no_sense_is_one_clear_error(
    key: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "i", load("hang-sleep"))
    path = tmp_path / "i" / "evidence" / "case.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    (tmp_path / "i" / "verdict.json").unlink()
    code, out, err = run(capsys, tmp_path / "i")

    assert (code, out) == (2, "")
    assert "error[SL005]" in err


def test_a_case_that_is_cut_off_costs_neither_the_verdict_beside_it_nor_the_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "i", load("hang-sleep"))
    (tmp_path / "i" / "evidence" / "case.json").write_bytes(b"{")
    code, out, _ = run(capsys, tmp_path / "i")

    assert code == 0
    assert "case.json" in out
    assert diagnose(load("hang-sleep")).summary in out

    (tmp_path / "i" / "verdict.json").unlink()
    (tmp_path / "i" / "rank_1.log").write_text(FAILED)
    code, out, _ = run(capsys, tmp_path / "i")

    assert code == 0
    assert "case.json" in out
    assert "rank 1 raised ValueError: bad" in out


FAILED = 'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n    main()\nValueError: bad\n'


@pytest.mark.parametrize("name", ["rank_0.ready", "stderr_rank_0", "nccl_trace_rank_0"])
def test_an_empty_file_beside_logs_costs_nothing_else(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "rank_1.log").write_text(FAILED)
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "rank 1 raised ValueError: bad" in out


@pytest.mark.parametrize("codes", [{"a": 0, "b": None}, {"a": 1}, {"a": 143, "b": 143}], ids=str)
def test_a_run_without_an_incident_is_judged_by_its_logs(
    codes: dict[str, int | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, code in codes.items():
        (tmp_path / host).mkdir()
        (tmp_path / host / "run.json").write_text('{"run_id": "x"}')
        (tmp_path / host / "rank_1.log").write_text(FAILED if code != 0 else "step 1\n")
        if code is not None:
            (tmp_path / host / "result.json").write_text(json.dumps({"exit_code": code, "verdicts": []}))
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "rank 1 raised ValueError: bad" in out
    assert "nothing to tell" not in out


def test_a_damaged_incident_beside_a_good_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load("hang-sleep")
    write(tmp_path / "incident-0", case)
    (tmp_path / "incident-1" / "evidence").mkdir(parents=True)
    (tmp_path / "incident-1" / "evidence" / "case.json").write_bytes(b'{"incident": {"kind": "han\xff')
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "left out, because it cannot be read" in out
    assert "incident-1" in out
    assert diagnose(case).summary in out


# ------------------------------------------------------------------------------------- dumps and command line


def test_dumps_are_read_and_what_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everybody = [Recorder(rank, world(4)).calls(3) for rank in range(4)]
    for recorder in everybody[:2]:
        recorder.call(state="scheduled")
    write_all(tmp_path, [everybody[0], everybody[1], everybody[3]])
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"\x80\x02}q\x00version")
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "note: read 2 Flight Recorder dumps of 4 ranks (nccl, version 2.10)" in out
    assert "nccl_trace_rank_1: it is damaged or cut off" in out
    assert "note: rank 2 left no dump" in out
    assert "rank 3 never entered all_reduce #4; rank 0 waits for it" in out
    assert "confidence: low" in out


def test_logs_beside_dumps_say_why_a_rank_did_not_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everybody = [Recorder(rank, world(4)).calls(3) for rank in range(4)]
    for recorder in everybody[:2]:
        recorder.call(state="scheduled")
    write_all(tmp_path, everybody)
    failed = (
        'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n    main()\nValueError: bad shard\n'
    )
    (tmp_path / "rank2.log").write_text(failed)
    code, out, _ = run(capsys, tmp_path)

    assert code == 0
    assert "error[SL401]: rank 2 raised ValueError: bad shard" in out
    assert "Flight Recorder dumps of 4 ranks" in out


def test_what_torch_elastic_keeps_of_an_exception_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    callstack = (
        'Traceback (most recent call last):\n  File "/w/t.py", line 12, in step\n    batch["x"]\nKeyError: \'x\'\n'
    )
    record = {"message": {"message": "KeyError: 'x'", "extraInfo": {"py_callstack": callstack, "timestamp": "1"}}}
    (folder / "error.json").write_text(json.dumps(record))

    assert "error[SL401]: rank 3 raised KeyError: 'x'" in run(capsys, tmp_path)[1]


@pytest.mark.parametrize("text", ["", "[1]", '{"message": 5}', '{"message": {"extraInfo": []}}', "[" * 100_000])
def test_a_record_of_another_form_harms_nothing(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "error.json").write_text(text)

    assert "SL901" not in "".join(map(str, run(capsys, tmp_path)))


def test_dumps_of_which_none_can_be_read_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(b"")
    code, out, err = run(capsys, tmp_path)

    assert (code, out) == (2, "")
    assert "none of 3 Flight Recorder dumps can be read" in err
    assert "it is empty" in err


def test_no_torch_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    write_all(tmp_path, [Recorder(rank, world(2)).call(state="scheduled") for rank in range(2)])

    assert run(capsys, tmp_path)[0] == 0


def test_a_folder_with_nothing_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, tmp_path)

    assert (code, out) == (2, "")
    assert err.startswith("error[SL005]")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("/no/such/thing",), "SL005", "/no/such/thing"),
        ((), "SL001", "nothing to diagnose"),
        (("--colour", "x"), "SL001", "--colour"),
        (("--color", "blue", "x"), "SL001", "blue"),
    ],
)
def test_misuse(arguments: tuple[str, ...], code: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended, out, err = run(capsys, *arguments)

    assert (ended, out) == (2, "")
    assert err.startswith(f"error[{code}]")
    assert word in err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")

    assert code == 0
    assert all(word in out for word in ("--json", "--color", "Flight Recorder", "exit codes"))


def concluded(
    folder: Path, code: str, summary: str, *, culprits: tuple[int, ...] = (), nodes: int, host: str = ""
) -> None:
    """What the run said there, over so many nodes."""
    verdict = Verdict(
        code=code, slug="s", kind="crash", summary=summary, culprit_ranks=culprits, nodes=nodes, host=host
    )
    files.write_json(str(folder / "incident-0" / "verdict.json"), verdict)


def two_nodes(tmp_path: Path) -> None:
    node(
        tmp_path / "a", "node-a", (failed(0, 5.2, "RuntimeError", LOST), failed(1, 5.3, "RuntimeError", LOST)), boot=0.0
    )
    root = (failed(2, 4.0, "ValueError", "loss is nan"), failed(3, 4.3, "RuntimeError", LOST))
    node(tmp_path / "b", "node-b", root, boot=0.0)


def test_a_part_of_a_job_says_what_the_job_has_concluded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_nodes(tmp_path)
    for name in ("a", "b"):
        concluded(tmp_path / name, "SL401", "rank 2 raised ValueError: loss is nan", culprits=(2,), nodes=2)
    for paths in ([tmp_path], [tmp_path / "a"], [tmp_path / "b" / "incident-0"]):
        _, out, _ = run(capsys, "--json", *paths)
        (one,) = json.loads(out)["conclusions"]
        assert (one["verdict"]["code"], one["verdict"]["culprit_ranks"]) == ("SL401", [2])
    _, out, _ = run(capsys, tmp_path / "a")
    assert "note: as the run concluded it over its 2 nodes; here is what node-a left of it" in out


def test_how_a_node_was_lost_is_in_no_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_nodes(tmp_path)
    for name in ("a", "b"):
        concluded(tmp_path / name, "SL604", "node-c has been silent for 9 s", nodes=2)
    _, out, _ = run(capsys, tmp_path)
    assert "error[SL604]: node-c has been silent for 9 s" in out


def test_a_node_that_was_cut_off_says_it_in_words_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_nodes(tmp_path)
    node(
        tmp_path / "c", "node-c", (failed(4, 5.2, "RuntimeError", LOST), failed(5, 5.3, "RuntimeError", LOST)), boot=0.0
    )
    for name, said in (("a", "lost all other nodes"), ("b", "been silent for 9 s"), ("c", "been silent for 9 s")):
        concluded(tmp_path / name, "SL604", f"node-a has {said}", nodes=3, host="node-a")
    _, out, _ = run(capsys, tmp_path)
    assert "error[SL604]: node-a has been silent for 9 s" in out


def test_nodes_that_disagree_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_nodes(tmp_path)
    concluded(tmp_path / "a", "SL604", "node-b has been silent for 9 s", nodes=2)
    concluded(tmp_path / "b", "SL604", "node-a has been silent for 9 s", nodes=2)
    _, out, _ = run(capsys, tmp_path)
    assert "error[SL401]: rank 2 raised ValueError: loss is nan" in out
