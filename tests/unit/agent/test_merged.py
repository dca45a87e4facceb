"""Lines that several ranks print alike are shown once, none is lost, and each rank's keep their order."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.agent import merged
from safelaunch.agent.merged import HOLD_S, MOST_WAITING, Merger, Pieces, spans, spread


def head(ranks: str, since: float) -> str:  # noqa: ARG001
    return f"[{ranks}] "


def shown(merger: Merger, now: float, *, last: bool = False) -> list[str]:
    return merger.ready(now, last=last).splitlines()


def test_a_line_of_all_ranks_is_shown_once_and_at_once() -> None:
    merger = Merger(4, head)
    for rank in (2, 0, 3, 1):
        merger.add(rank, "epoch 1 begins", 0.0)

    assert shown(merger, 0.0) == ["[0-3] epoch 1 begins"]


def test_numbers_that_differ_are_shown_as_a_range() -> None:
    merger = Merger(3, head)
    for rank, loss in enumerate(("2.31", "2.38", "2.3e0")):
        merger.add(rank, f"rank {rank}: loss {loss} of float32 in 0.5s", 0.0)

    assert shown(merger, 0.0) == ["[0-2] rank 0…2: loss 2.3e0…2.38 of float32 in 0.5s"]


def test_a_line_waits_for_those_of_other_ranks_and_no_longer_than_that() -> None:
    merger = Merger(2, head)
    merger.add(0, "of rank 0 alone", 10.0)

    assert shown(merger, 10.0) == []
    assert merger.due(10.0) == pytest.approx(HOLD_S)
    assert HOLD_S <= 1
    assert shown(merger, 10.0 + HOLD_S) == ["[0] of rank 0 alone"]
    assert merger.due(20.0) == float("inf")


def test_a_line_of_all_does_not_pass_one_that_came_before_it() -> None:
    merger = Merger(2, head)
    merger.add(0, "first", 0.0)
    for rank in (0, 1):
        merger.add(rank, "second", 0.1)

    assert shown(merger, 0.1) == []
    assert shown(merger, HOLD_S) == ["[0] first", "[0-1] second"]


def test_an_exception_waits_for_nobody() -> None:
    merger = Merger(4, head)
    merger.add(0, "before it", 0.0)
    merger.add(1, "Traceback (most recent call last):", 0.1)
    merger.add(1, "ValueError: no", 0.1)
    merger.add(2, "[rank2]: Traceback (most recent call last):", 0.1)

    assert merger.due(0.1) == 0
    assert shown(merger, 0.1) == [
        "[0] before it",
        "[1] Traceback (most recent call last):",
        "[1] ValueError: no",
        "[2] [rank2]: Traceback (most recent call last):",
    ]


def test_exceptions_that_come_together_are_shown_once() -> None:
    merger = Merger(2, head)
    for rank in (0, 1):
        for text in ("Traceback (most recent call last):", "ValueError: no"):
            merger.add(rank, text, 0.0)

    assert shown(merger, 0.0) == ["[0-1] Traceback (most recent call last):", "[0-1] ValueError: no"]


def test_a_rank_joins_the_line_with_its_own_words() -> None:
    merger = Merger(2, head)
    for step in (1, 2, 3):
        merger.add(0, f"step {step}", 0.0)
    merger.add(1, "step 2", 0.0)

    assert shown(merger, HOLD_S) == ["[0] step 1", "[0-1] step 2", "[0] step 3"]


def test_lines_in_which_many_numbers_differ_are_shown_for_each_rank() -> None:
    merger = Merger(2, head)
    merger.add(0, "tensor([1, 2, 3, 4])", 0.0)
    merger.add(1, "tensor([5, 6, 7, 8])", 0.0)

    assert shown(merger, 0.0) == ["[0] tensor([1, 2, 3, 4])", "[1] tensor([5, 6, 7, 8])"]


@pytest.mark.parametrize(
    ("texts", "one"),
    [
        (("took 2.31s", "took 0.9s"), "took 0.9…2.31s"),
        (("\x1b[31m5\x1b[0m red", "\x1b[31m7\x1b[0m red"), "\x1b[31m5…7\x1b[0m red"),
        (("\x1b[1;31m5\x1b[0m red", "\x1b[1;31m7\x1b[0m red"), "\x1b[1;31m5…7\x1b[0m red"),
        (("lr -1e-3", "lr 1e-3"), "lr -1e-3…1e-3"),
        (("1 of 1", "1.0 of 1"), "1 of 1"),
    ],
)
def test_a_range_is_of_numbers_alone(texts: tuple[str, ...], one: str) -> None:
    assert spread(texts) == one


def test_what_is_no_number_makes_lines_different() -> None:
    merger = Merger(2, head)
    merger.add(0, "commit a3f9", 0.0)
    merger.add(1, "commit a4f9", 0.0)

    assert shown(merger, HOLD_S) == ["[0] commit a3f9", "[1] commit a4f9"]


def test_a_line_with_a_null_byte_is_alike_to_itself_alone() -> None:
    merger = Merger(3, head)
    for rank, text in enumerate(("loss \0", "loss \0", "loss 5")):
        merger.add(rank, text, 0.0)
    for rank in (0, 1, 2):
        merger.add(rank, f"after {rank}", 0.0)

    assert shown(merger, HOLD_S) == ["[0-1] loss \0", "[2] loss 5", "[0-2] after 0…2"]


def breaks(*_: object) -> str:
    raise KeyError("no head")


@pytest.mark.parametrize("where", ["_line", "_open", "spread"])
def test_a_fault_ends_the_merging_and_not_the_output(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(merged, "_told", [])
    mergers = [Merger(2, head), Merger(2, head)]
    out: dict[int, list[str]] = defaultdict(list)
    for number, merger in enumerate(mergers):
        merger.add(0, "before", 0.0)
        merger.add(1, "before", 0.0)
        merger.add(0, "loss 1", 0.0)
        monkeypatch.setattr(merged if where == "spread" else merger, where, breaks)
        merger.add(1, "loss 2", 0.0)
        out[number] += shown(merger, 0.0)
        merger.add(0, "after", 1.0)
        assert merger.due(1.0) == 0.0
        out[number] += shown(merger, 1.0)

    for lines in out.values():
        expanded = [re.sub(r"^\[0-1\] (.*)$", r"[0] \1\n[1] \1", line) for line in lines]
        assert "\n".join(expanded).split("\n") == ["[0] before", "[1] before", "[0] loss 1", "[1] loss 2", "[0] after"]
    said = capsys.readouterr().err
    assert said.count("warning[SL902]") == 1
    assert "KeyError('no head')" in said


def test_of_too_many_lines_the_first_do_not_wait() -> None:
    merger = Merger(2, head)
    for number in range(2 * MOST_WAITING):
        merger.add(0, f"line {number}", 0.0)

    assert len(shown(merger, 0.0)) == MOST_WAITING


def test_ranks_are_shown_as_spans() -> None:
    assert spans([0, 1, 2, 3, 5, 8, 9]) == "0-3,5,8-9"


def ranks_of(text: str) -> list[int]:
    """The ranks of a span: what a reader takes `0-3,5` for."""
    bounds = [part.split("-") for part in text.split(",")]
    return [rank for first, *last in bounds for rank in range(int(first), int((last or [first])[0]) + 1)]


LINES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c 1", "c 2", "d 1 2 3 4", "d 5 6 7 8"])))


@given(LINES, st.lists(st.floats(0, 0.3), max_size=10))
def test_no_line_is_lost_and_each_rank_keeps_its_order(lines: list[tuple[int, str]], pauses: list[float]) -> None:
    merger, now, out = Merger(4, head), 0.0, []
    for number, (rank, text) in enumerate(lines):
        merger.add(rank, text, now)
        if number < len(pauses):
            now += pauses[number]
            out += shown(merger, now)
    out += shown(merger, now, last=True)

    printed, seen = defaultdict(list), defaultdict(list)
    for rank, text in lines:
        printed[rank].append(re.sub(r"\d", "#", text))
    for line in out:
        ranks, text = re.fullmatch(r"\[([\d,-]+)\] (.*)", line).groups()  # type: ignore[union-attr]
        for rank in ranks_of(ranks):
            seen[rank].append(re.sub(r"\d(…\d)?", "#", text))
    assert seen == printed


def test_of_a_bar_the_latest_state_counts() -> None:
    pieces = Pieces("utf-8")

    assert pieces.feed("\r 10%|█ |".encode()) == []
    assert pieces.bar == " 10%|█ |"
    assert pieces.feed(b"\r 20%") == []
    assert pieces.bar == " 20%"
    assert pieces.feed(b"\r100%\nnext\r\nrest") == ["100%", "next"]
    assert pieces.bar == ""
    assert pieces.rest() == "rest"


def test_a_character_that_comes_in_two_pieces_is_one() -> None:
    pieces = Pieces("utf-8")

    assert pieces.feed("é".encode()[:1]) == []
    assert pieces.feed("é\n".encode()[1:]) == ["é"]
