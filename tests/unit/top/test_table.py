"""Lines of so many columns, and not one more, whatever others have named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safelaunch.top import cells, table, words
from safelaunch.top.picture import Notice, Picture, Row

ROW = Row(
    3, "node-a", "1", 41872, "in all_reduce 41s train.py:214", 1842, None, "step", 0.0932, (0.09, 0.09, 0.18), None,
    0.02, 0.66, 0.061, None, 1.03, 256 << 20, 87,
)  # fmt: skip
HOSTILE = "\x1b[2Jé\u0301\u0301\u202e模型\n訓練 [bold]x[/bold] " * 20
MANY = (
    ROW,
    replace(ROW, rank=127, host="a-rather-long-name-of-a-node.cluster.example", step=999_999, total=1_000_000),
    replace(ROW, host=HOSTILE, doing=HOSTILE, gpu=HOSTILE, pid=4_194_304, each=None, open_s=7200.0),
    Row(0),
    Row(200_000, memory=3 << 40, cores=640.0, each=86400.0, late_s=9.99, awaited_s=86400.0 * 400, mood="bad"),
)


def text(parts: table.Parts) -> str:
    return "".join(one for one, _ in parts)


@pytest.mark.parametrize("rows", [MANY, MANY[:1], MANY[:2], (Row(0),), tuple(replace(one, gpu="") for one in MANY)])
@pytest.mark.parametrize("room", [1, 5, 20, 39, 60, 79, 80, 119, 200, 300])
def test_no_line_is_longer_than_the_terminal_is_wide(room: int, rows: tuple[Row, ...]) -> None:
    told = (Notice(0.0, "error", HOSTILE), Notice(1e300, "note", "short"))
    picture = Picture(HOSTILE, HOSTILE, "runs", 7200.0, rows, told, (HOSTILE,))

    for parts in table.plain(picture, room, "late", table.BARS):
        assert cells.width(text(parts)) <= room
        assert text(parts).isprintable()


@pytest.mark.parametrize(
    ("rows", "room", "missing"),
    [(1, 79, {"host", "late"}), (2, 80, {"late", "past"}), (1, 99, set()), (2, 200, set())],
)
def test_all_columns_that_fit_are_there(rows: int, room: int, missing: set[str]) -> None:
    all_ = table.columns(MANY[:rows], room)

    titles = text(table.header(all_, room)).split()
    wanted = [
        "rank",
        "host",
        "gpu",
        "pid",
        "does",
        "step",
        "time",
        "past",
        "load",
        "wait",
        "late",
        "cpu",
        "mem",
        "gpu%",
    ]
    assert titles == [title for title in wanted if title not in missing]


def test_a_row() -> None:
    all_ = table.columns([ROW], 200)

    assert text(table.body(ROW, all_, 200)).split() == [
        "3", "node-a", "1", "41872", "in", "all_reduce", "41s", "train.py:214", "1842", "93.2ms", "▅▅█",
        "2%", "66%", "+61ms", "103%", "256M", "87%",
    ]  # fmt: skip


def test_colours_are_never_all_that_tells() -> None:
    moods = [replace(ROW, mood=mood) for mood in ("bad", "slow", "good", "over")]
    all_ = table.columns(moods, 80)

    assert [text(table.body(row, all_, 80)).split()[0] for row in moods] == ["!3", "~3", "3", "3"]


@pytest.mark.parametrize("columns", [40, 200])
def test_no_line_begins_with_the_words_of_a_stranger(columns: int) -> None:
    lie = "error[SL303]: rank 3 calls all_gather where the others call all_reduce"
    picture = Picture(lie, lie, "runs", 1.0, (replace(ROW, host=lie, doing=lie),), (Notice(0.0, "error", lie),))

    shown = [text(parts) for parts in table.plain(picture, columns, "late", table.BARS)]

    assert shown[0].startswith("run 'error[SL303]: ")
    assert not [one for one in shown if one.startswith("error")]


def test_a_secret_in_the_name_of_a_phase_is_not_shown() -> None:
    doing = "pull https://bob:S3cretPassw0rd@h/x 12s"
    picture = Picture("r1", "", "runs", 1.0, (replace(ROW, doing=doing),), (Notice(0.0, "note", f"cold: {doing}"),))

    shown = "".join(text(parts) for parts in table.plain(picture, 300, "late", table.BARS))

    assert "pull https://<redacted>@h/x" in shown
    assert "S3cret" not in shown


def test_the_latest_notices_are_shown_whole() -> None:
    told = [Notice(float(n), "note", f"number {n} " + "word " * 20) for n in range(10)]

    shown = [text(parts) for parts in table.notices(told, 60, 7)]

    assert len(shown) <= 7
    assert "number 9" in "".join(shown)
    assert "number 8" in shown[0]
    assert shown[1].startswith(" " * 9)


def test_bars_show_what_doubles() -> None:
    assert table.spark([1.0] * 9 + [2.0, 40.0], 4, table.BARS) == "▅▅██"
    assert table.spark([1.0] * 9 + [2.0], 3, table.PLAIN_BARS) == "==#"
    assert table.spark([], 8, table.BARS) == ""
    assert table.spark([0.0, 0.0], 8, table.BARS) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0001, "0.1ms"), (0.0932, "93.2ms"), (0.5, "500ms"), (1.24, "1.24s"), (41.0, "41s"), (59.7, "1m00s"),
     (192.0, "3m12s"), (3599.9, "1h00m"), (7500.0, "2h05m"), (259200.0, "3d")],
)  # fmt: skip
def test_times_are_short(seconds: float, said: str) -> None:
    assert words.span(seconds) == said


def test_bytes_are_short() -> None:
    said = [words.memory(count) for count in (0, 812 << 20, 1200 << 20, 34 << 30, 1100 << 30)]
    assert said == ["0M", "812M", "1.2G", "34G", "1.1T"]
    assert [words.roughly(seconds) for seconds in (0.061, 1.23, 41.0)] == ["61ms", "1.2s", "41s"]
