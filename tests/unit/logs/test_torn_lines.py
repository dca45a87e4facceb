"""Lines that two processes wrote at once, and numbers that no program counts, cost their own line and no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from log_pieces import MAIN, traceback, watchdog

from safelaunch import limits
from safelaunch.cli.diagnose import Conclusion, conclusions
from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence import logs
from safelaunch.evidence.logs import reader

LONG = "9" * 5000
CAUGHT = "[Rank 0] Watchdog caught collective operation timeout:"
VALUE = "ValueError: bad sample 7"


def told(folder: Path, text: str) -> Conclusion:
    (folder / "job.log").write_text(text)
    (one,) = conclusions([str(folder / "job.log")])
    return one


def marked(text: str, rank: int = 1) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "line",
    [
        f"[rank{LONG}]: step 3\n[rank{LONG}]: RuntimeError: x",
        "[rank99999999]: RuntimeError: x",
        f"srun: error: node1: task {LONG}: Exited with exit code 1",
        f"srun: error: node1: task 0: Exited with exit code {LONG}",
        f"Out of memory: Killed process {LONG} (python)",
        f"[{LONG}] finished collective #3, but didn't join",
        f"[1] finished collective #{LONG}, but didn't join",
        f"failed (exitcode: 1) local_rank: {LONG} (pid: 12) of binary: python",
        f"{CAUGHT} WorkNCCL(SeqNum={LONG}, OpType=ALLREDUCE) ran for 5 ms",
        f"{CAUGHT} WorkNCCL(SeqNum=², OpType=X) ran for {LONG} ms",
        f"world_size={LONG}",
        f"{LONG}/3 attempts left; will restart worker group",
    ],
    ids=lambda line: line.replace(LONG, "N")[:40],
)
def test_a_number_that_is_none_costs_one_line(tmp_path: Path, line: str) -> None:
    failed = marked(traceback(VALUE, MAIN))

    for text in (f"{line}\n{failed}", f"{failed}{line}\n"):
        verdict = told(tmp_path, text).verdict
        assert verdict is not None
        assert (verdict.code, verdict.culprit_ranks) == ("SL401", (1,))


def test_a_torn_watchdog_line_leaves_the_others(tmp_path: Path) -> None:
    whole = "".join(watchdog(rank, 12) for rank in (0, 1, 2))
    torn = watchdog(3, 12).replace("NumelIn=", "NumelIn=1048Watchdog caught576")
    (tmp_path / "job.log").write_text(whole + torn)

    facts = logs.read([str(tmp_path / "job.log")])

    assert {said.rank for said in facts.timed_out} >= {0, 1, 2}
    assert diagnose(facts).code.startswith("SL3")


def test_the_lines_that_could_not_be_read_are_counted(tmp_path: Path) -> None:
    one = told(tmp_path, f"[rank{LONG}]: RuntimeError: x\n" * 3 + marked(traceback(VALUE, MAIN)))

    assert any("3 lines of" in note and "could not be read" in note for note in one.notes)


def test_thousands_of_tracebacks_are_told_in_seconds(tmp_path: Path) -> None:
    text = "".join(marked(traceback(f"ValueError: sample {rank}", MAIN), rank) for rank in range(4000))
    begun = time.process_time()
    verdict = told(tmp_path, text).verdict

    assert verdict is not None
    assert verdict.code.startswith("SL4")
    assert time.process_time() - begun < 8  # comparing each with each took 20 s


def test_a_line_of_a_quarter_of_a_million_tasks_is_cut(tmp_path: Path) -> None:
    line = "srun: error: node1: tasks 0-262000: Killed\n"
    begun = time.process_time()
    told(tmp_path, line * 2000)

    assert time.process_time() - begun < 8


def test_a_line_of_many_tasks_that_ended_well_takes_no_room_from_a_failure(tmp_path: Path) -> None:
    failure = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nRuntimeError: x\n'
    found = told(tmp_path, "srun: error: a: tasks 0-30000: Exited with exit code 0\n" * 20 + failure)

    assert found.verdict.code == "SL401"


def test_a_log_of_torn_lines_alone_is_none_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    assert told(tmp_path, "[rank99999999]: RuntimeError: x\n" * 6).verdict.code == "SL499"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_text_of_two_bytes_for_each_character_is_not_taken_as_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("Traceback (most recent call last):\nRuntimeError: x\n".encode(encoding))
    facts = logs.read([str(tmp_path / "a.log")])

    assert "UTF-16" in facts.files[0].unreadable


@pytest.mark.parametrize("line", ["Killed process " + "a" * 16_000, "[PG " + "(" * 16_000, "at work: 1 " * 2000])
def test_a_long_line_takes_no_time(line: str, tmp_path: Path) -> None:
    begun = time.process_time()
    told(tmp_path, f"{line}\n" * 20)

    assert time.process_time() - begun < 4


def test_the_limit_of_time_is_no_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ring(*_: object) -> None:
        raise limits.LimitError("it takes longer than 9 s")

    monkeypatch.setattr(reader.prefixes, "strip", ring)
    with pytest.raises(limits.LimitError):
        told(tmp_path, "srun: error: a: task 0: Killed\n")
