"""Of a folder each log is read, or it is said that it was not: "nothing wrong was found" is said of all of them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from log_pieces import MAIN, traceback

from safelaunch.cli.main import main
from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.evidence.logs.find import DEPTH
from safelaunch.model.logs import LogFacts

FAILED = traceback("ValueError: bad sample 7", MAIN)
FINE = "WORLD_SIZE=2\n" + "step 1 loss 2.3\n" * 20


def facts_of(folder: Path) -> LogFacts:
    (folder / "rank_0.log").write_text(FINE)
    return read([str(folder)])


# --------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    "name",
    ["rank_1.log", "rank_1", "train.e4711", "train.o4711", "train.pe4711.2", "job.4711", "rank_1.log.json", "stderr.1",
     "rank_1_stderr", "rank-1.OUT"],
)  # fmt: skip
def test_a_name_of_a_log_is_known(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FAILED)

    assert diagnose(facts_of(tmp_path)).code == "SL401"


def test_what_is_known_to_be_something_else_is_no_log(tmp_path: Path) -> None:
    """2,000 entries of a Flight Recorder's dump cost a second as a log, and its names may be those of logs."""
    for name in ("rank_0.log", "nccl_trace_rank_0"):
        (tmp_path / name).write_text(FAILED)

    facts = read([str(tmp_path)], without=[str(tmp_path / "nccl_trace_rank_0")])
    assert [file.path for file in facts.files] == [str(tmp_path / "rank_0.log")]


def test_a_link_to_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    elsewhere, job = tmp_path / "elsewhere", tmp_path / "job"
    elsewhere.mkdir()
    job.mkdir()
    (elsewhere / "rank_1.log").write_text(FAILED)
    (job / "logs").symlink_to(elsewhere)
    verdict = diagnose(facts_of(job))

    assert verdict.code == "SL499"
    assert any("name that folder itself" in line for line in verdict.because)


@pytest.mark.parametrize("name", ["rank_1.log", "rank_1"])
@pytest.mark.parametrize("coding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_log_that_marks_its_coding_is_read(name: str, coding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(("步骤 1 损失 2.3\n" * 30 + FAILED * 200).encode(coding))
    verdict = diagnose(facts_of(tmp_path))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (1,))


def test_a_mark_and_its_text_may_have_the_other_order(tmp_path: Path) -> None:
    (tmp_path / "rank_1.log").write_bytes(b"\xfe\xff" + FAILED.encode("utf-16-be"))

    assert diagnose(facts_of(tmp_path)).code == "SL401"


@pytest.mark.parametrize("name", ["rank_1.log", "rank_1"])
@pytest.mark.parametrize("hole", [4096, 1 << 16, 3 << 20])
def test_a_log_that_begins_with_a_hole_is_read(name: str, hole: int, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(bytes(hole) + FAILED.encode())

    assert diagnose(facts_of(tmp_path)).code == "SL401"


# ------------------------------------------------------------------------------------------- what cannot be


def dead_link(path: Path) -> None:
    path.symlink_to("/nonexistent")


def cut(path: Path) -> None:
    packed = gzip.compress(("".join(f"step {at} {hash(at * 7919)}\n" for at in range(5000)) + FAILED).encode())
    path.with_name("rank_1.log.gz").write_bytes(packed[: len(packed) // 2])


def of_two_codings(path: Path) -> None:
    path.write_bytes((FINE * 20).encode("utf-16") + FAILED.encode() * 3)


def going_on_in_two_bytes(path: Path) -> None:
    path.write_bytes(FINE.encode() * 20 + FAILED.encode("utf-16-le") * 3)


UNREADABLE = {
    "a link to nothing": dead_link,
    "a pipe": os.mkfifo,
    "a file that is cut": cut,
    "UTF-16 without a mark": lambda path: path.write_bytes(FAILED.encode("utf-16-le") * 9),
    "two codings": of_two_codings,
    "two codings in the other order": going_on_in_two_bytes,
    "packed in a way that is not known": lambda path: path.with_name("rank_1.log.zst").write_bytes(os.urandom(999)),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_beside_a_log_that_cannot_be_read_nothing_is_well(
    make: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    make(tmp_path / "rank_1.log")
    facts = facts_of(tmp_path)
    verdict = diagnose(facts)
    (tmp_path / "rank_2.log").write_text(FAILED)

    assert (verdict.code, verdict.confidence) == ("SL499", "low")
    assert "1 of 2 files could not be read" in verdict.summary
    assert any("rank_1.log" in line for line in verdict.because)
    assert not any("no log of" in line for line in verdict.because)
    assert main(["diagnose", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "SL401" in said
    assert "rank_1.log" in said


def test_a_folder_that_is_too_deep_is_said(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"x" * (DEPTH + 2))
    deep.mkdir(parents=True)
    (deep / "rank_1.log").write_text(FAILED)

    assert diagnose(facts_of(tmp_path)).code == "SL499"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
@pytest.mark.parametrize("name", ["rank_1.log", "folder"])
def test_what_may_not_be_read_is_said(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.write_text(FAILED)
    path.chmod(0)
    try:
        assert diagnose(facts_of(tmp_path)).code == "SL499"
    finally:
        path.chmod(0o700)


def test_what_is_no_log_is_none(tmp_path: Path) -> None:
    for name in ("model.pt", "train.py", "events.out.tfevents.1.host.7.0", "core", "a.out", "catalog.db"):
        (tmp_path / name).write_bytes(b"\x7fELF" + b"\0\1\2" * 5000)
    facts = facts_of(tmp_path)

    assert [Path(file.path).name for file in facts.files] == ["rank_0.log"]
    assert diagnose(facts).code == "SL498"


def test_a_name_that_says_nothing_is_named_where_nothing_was_found(tmp_path: Path) -> None:
    (tmp_path / "rank_1.ipynb").write_text(FAILED)
    verdict = diagnose(facts_of(tmp_path))

    assert verdict.code == "SL498"
    assert any("not read" in line and "rank_1.ipynb" in line for line in verdict.because)


# --------------------------------------------------------------------------------- what services of logs export

LINES = [*(f"step {at} loss 0.{at}" for at in range(40)), *FAILED.splitlines()]
EXPORTS = {
    "newest line first": "\n".join(reversed(LINES)),
    "fields below each other": json.dumps({"events": [{"timestamp": 1, "message": line} for line in LINES]}, indent=2),
    "a document for each line": "\n".join(json.dumps({"MESSAGE": line}) for line in LINES),
    "bytes as numbers": "\n".join(json.dumps({"MESSAGE": list(line.encode()), "PRIORITY": "6"}) for line in LINES),
    "none that failed": "\n".join(json.dumps({"level": "info", "msg": line}) for line in LINES[:40]),
}


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
def test_what_a_service_of_logs_exports_is_not_understood(text: str, tmp_path: Path) -> None:
    (tmp_path / "rank_1.log").write_text(text + "\n")

    assert diagnose(facts_of(tmp_path)).code == "SL499"


def test_four_bytes_for_each_character_are_not_taken_as_read(tmp_path: Path) -> None:
    (tmp_path / "rank_1.log").write_bytes("\n".join(LINES).encode("utf-32-le"))

    assert diagnose(facts_of(tmp_path)).code == "SL499"


def test_numbers_of_a_training_in_json_are_understood(tmp_path: Path) -> None:
    numbers = (json.dumps({"step": at, "loss": 2.3, "text_tokens": 512}) for at in range(40))
    (tmp_path / "rank_1.log").write_text("\n".join(numbers) + "\n")

    assert diagnose(facts_of(tmp_path)).code == "SL498"


def test_lines_of_docker_are_understood(tmp_path: Path) -> None:
    records = (json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-25T10:00:00Z"}) for line in LINES)
    (tmp_path / "rank_1.log").write_text("\n".join(records) + "\n")

    assert diagnose(facts_of(tmp_path)).code == "SL401"


def test_a_traceback_that_a_job_survived_is_one_that_has_its_end(tmp_path: Path) -> None:
    steps = "".join(f"step {at}\n" for at in range(40))
    (tmp_path / "rank_1.log").write_text(FAILED + steps)
    whole = diagnose(facts_of(tmp_path))
    (tmp_path / "rank_1.log").write_text(FAILED.splitlines()[0] + "\n" + steps)

    assert whole.code == "SL498"
    assert diagnose(facts_of(tmp_path)).code == "SL499"
