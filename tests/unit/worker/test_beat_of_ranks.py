"""The beat thread: it beats, counts, answers, and is gone before the interpreter is."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_ranks import GLOO, run

from safelaunch import black_box

# A binding of torch that the test can see through.
FAKE = """
import types
import safelaunch
from safelaunch.worker import beat
calls = []
def dump(collectives, only_active):
    calls.append(collectives)
    if os.path.exists("broken"):
        raise RuntimeError("otherwise in this torch")
    status = {"0": {"last_enqueued_collective": 5, "last_completed_collective": 4},
              "1": {"last_enqueued_collective": -1, "last_completed_collective": -1}}
    return json.dumps({"pg_status": status, "entries": [1]} if collectives else {"pg_status": status}).encode()
box = types.SimpleNamespace(path=PLACE[0], index=PLACE[1], pulse=safelaunch._pulse)
beat.start(box, types.SimpleNamespace(_dump_fr_trace_json=dump))
until(lambda: slot().pulse.beat)
"""
ASKED = """
supervisor = black_box_reader.Reader(PLACE[0])
until(lambda: slot().pulse.enqueued)
counted = [slot().pulse.enqueued, slot().pulse.completed, slot().pulse.waiting]
supervisor.ask(0)
until(lambda: slot().pulse.answered == 1)
supervisor.ask(0)
supervisor.ask(0)
until(lambda: slot().pulse.answered == 3)
whole = calls.count(True)
mark("broken")
first = slot().pulse.beat
until(lambda: slot().pulse.beat > first + 0.5)
supervisor.ask(0)
say(counted=counted, whole=whole, threads=[thread.name for thread in threading.enumerate()])
"""


def test_it_beats_counts_and_answers(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, FAKE + ASKED)

    assert (rank.code, rank.err) == (0, "")
    assert rank.said["counted"] == [5, 4, True]
    assert rank.said["whole"] in (2, 3)
    assert rank.said["threads"] == ["MainThread", "safelaunch-beat"]
    assert Path(black_box.beside(str(tmp_path / "black_box"), 0, "recorder")).read_bytes().endswith(b'"entries": [1]}}')
    assert not list(tmp_path.glob("*.partial"))


ENDS = {
    "the end of the script": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError", 1),
    "os._exit": ("os._exit(0)", 0),
    "destroyed": ("dist.destroy_process_group()", 0),
}


@pytest.mark.parametrize("end", ["the end of the script", "sys.exit", "an exception", "os._exit"])
def test_it_ends_before_the_interpreter(tmp_path: Path, end: str) -> None:
    # A thread that is still inside torch while the interpreter shuts down could abort the process.
    source, code = ENDS[end]
    (rank,) = run(tmp_path, FAKE + source)

    assert rank.code == code, rank.err


def test_nobody_beats_without_torch(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "say(threads=[thread.name for thread in threading.enumerate()])")

    assert rank.said["threads"] == ["MainThread"]
    assert rank.slot.pulse.beat == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_quick_runs_end_well(tmp_path: Path) -> None:
    """Each of five rounds of four ranks ends as soon as it can."""
    ends = list(ENDS.values())
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        source, code = ends[number]
        left = run(folder, GLOO + "dist.all_reduce(torch.ones(3))\n" + source, ranks=4)
        if end_is_clean(source):
            assert [rank.code for rank in left] == [code] * 4, [rank.err for rank in left]
        else:
            assert {rank.code for rank in left} <= {code, 1}, [rank.err for rank in left]


def end_is_clean(source: str) -> bool:
    """Whether no rank can lose a peer before it has ended itself."""
    return source in ("", "os._exit(0)", "dist.destroy_process_group()")
