"""What has to hold for all logs: the order in which ranks' lines are mixed does not matter, and a log that is cut, or a
file that is missing, may end in "cannot tell", but never in another name."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_corpus import CORPUS
from log_pieces import CLOSED, MAIN, STEP, WORLD, dump_signal, rank, status, traceback, watchdog
from test_log_corpus import SIGNATURES, verdict_of

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import prefixes, read
from safelaunch.model import Verdict

# Where two ranks raised by themselves, one is all that is left without the other one's lines, or without later lines
# that tell which of them counts.
TWO_OF_THEM = {
    "two different exceptions, times tell the first",
    "a caught exception of a rank that torchrun does not list",
    "two jobs in one file",
}
NAMED = [name for name, (_, expected) in CORPUS.items() if expected.get("culprit_ranks")]
MANY = settings(max_examples=60, deadline=None)


def verdict_on(text: str) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return verdict_of({"out.log": text}, Path(folder))


def mixtures(streams: list[list[str]]) -> st.SearchStrategy[str]:
    """All ways to mix the lines of several processes."""
    turns = [number for number, lines in enumerate(streams) for _ in lines]

    def mix(order: list[int]) -> str:
        queues = [list(lines) for lines in streams]
        return "".join(queues[number].pop(0) for number in order)

    return st.permutations(turns).map(mix)


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


CRASH = [
    lines(rank(i, traceback("ValueError: bad", MAIN, STEP) if i == 2 else traceback(CLOSED, MAIN, library=True)))
    for i in range(4)
]
HANG = [
    [WORLD.format(4)],
    *(lines(watchdog(i) + status(i, 1842, 1842, 1841)) for i in (0, 1, 3)),
    lines("[rank2]: loading\n" + dump_signal(2, " rank 0", 1841, 1841)),
]


@MANY
@given(mixtures(CRASH))
def test_mixing_the_lines_of_a_crash_changes_nothing(text: str) -> None:
    verdict = verdict_on(text)
    assert (verdict.code, verdict.culprit_ranks, verdict.secondary) == ("SL401", (2,), (0, 1, 3))
    assert verdict.location is not None
    assert (verdict.location.file, verdict.location.line) == (STEP[0], STEP[1])


@MANY
@given(mixtures(HANG))
def test_mixing_the_lines_of_a_hang_changes_nothing(text: str) -> None:
    verdict = verdict_on(text)
    assert (verdict.code, verdict.culprit_ranks) == ("SL301", (2,))


@MANY
@given(st.permutations(range(4)))
def test_other_ranks_give_other_names(order: list[int]) -> None:
    streams = "".join(
        rank(order[i], traceback("ValueError: bad" if i == 2 else CLOSED, MAIN, library=i != 2)) for i in range(4)
    )
    assert verdict_on(streams).culprit_ranks == (order[2],)


@MANY
@given(mixtures([lines(traceback("ValueError: bad", MAIN, STEP))] * 3))
def test_unmarked_tracebacks_of_several_processes_never_name_a_rank(text: str) -> None:
    verdict = verdict_on(text)
    assert verdict.culprit_ranks == ()
    assert verdict.location is None or (verdict.location.file, verdict.location.line) in {MAIN[:2], STEP[:2]}


@MANY
@given(mixtures([lines(traceback("ValueError: a", MAIN, ("/srv/a.py", 1, "a"))),
                 lines(traceback("KeyError: 'b'", MAIN, ("/srv/b.py", 2, "b")))]))  # fmt: skip
def test_unmarked_tracebacks_that_differ_are_never_given_the_others_line(text: str) -> None:
    verdict = verdict_on(text)
    where = (verdict.location.file, verdict.location.line) if verdict.location else None
    if "ValueError: a" in verdict.summary:
        assert where in (None, ("/srv/a.py", 1))
    if "KeyError: 'b'" in verdict.summary:
        assert where in (None, ("/srv/b.py", 2))


@pytest.mark.parametrize("name", sorted({*NAMED} - TWO_OF_THEM))
@settings(max_examples=25, deadline=None)
@example(share=0.8828125)  # of `sizes differ` it leaves `OpType=ALL`
@given(share=st.floats(0, 1))
def test_a_log_that_is_cut_never_names_another_rank(name: str, share: float) -> None:
    files, expected = CORPUS[name]
    cut = {path: text[: int(len(text) * share)] for path, text in files.items()}
    with tempfile.TemporaryDirectory() as folder:
        verdict = verdict_of(cut, Path(folder))
    assert set(verdict.culprit_ranks) <= set(expected["culprit_ranks"]), verdict.summary


@pytest.mark.parametrize("name", sorted({*NAMED} - TWO_OF_THEM))
def test_a_file_that_is_missing_never_leads_to_another_name(name: str, tmp_path: Path) -> None:
    files, expected = CORPUS[name]
    for left_out in files if len(files) > 1 else ():
        rest = {path: text for path, text in files.items() if path != left_out}
        verdict = verdict_of(rest, tmp_path / re.sub(r"\W", "_", left_out))
        assert set(verdict.culprit_ranks) <= set(expected["culprit_ranks"]), verdict.summary


@MANY
@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_give_a_verdict(data: bytes, spoilt: bool) -> None:
    if spoilt:
        text = "".join("".join(stream) for stream in HANG + CRASH).encode()
        data = text[: len(text) // 2] + data + text[len(text) // 2 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(data)
        assert diagnose(read([str(path)], SIGNATURES)).code.startswith("SL")


@pytest.mark.parametrize("line", ["a" + "1" * 16_000, "1.1.1.1a." * 1800, "a" + "-1" * 8000, "a" + " " * 16_000])
def test_what_looks_like_the_name_of_a_host_takes_no_longer_than_other_lines(line: str) -> None:
    habits = prefixes.Habits(tasks=True, pods=True, compose=True, hosts=True)
    began = time.process_time()
    for _ in range(60):
        prefixes.strip(line, habits)
    assert time.process_time() - began < 3  # seconds; it was a hundred times as long
