"""A picture as lines of so many columns, each in parts with the name of a style."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch import redaction
from safelaunch.printable import Line, line, named, visible
from safelaunch.sizes import plural
from safelaunch.top.cells import fitted, width
from safelaunch.top.picture import SORTS, Notice, Picture, Row
from safelaunch.top.words import memory, roughly, share, span

Parts = tuple[tuple[Line, str], ...]  # of a line: texts, each with the name of a style ("" for none)
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
MARKS = {"bad": "!", "slow": "~", "over": " ", "good": " "}  # for those who see no colours
STYLES = {"bad": "error", "slow": "warning", "over": "dim", "good": ""}
BARE = 40  # columns: in fewer, notices have no times
REDACTED = 2000  # characters of a text that are looked through: far more than a line shows


@dataclass(frozen=True)
class Column:
    """One column: its least and its greatest width, and what stands in it. `drop` orders which goes first where there
    is no room (0: it stays)."""

    title: str
    least: int
    most: int
    text: Callable[[Row], str]
    drop: int = 0
    right: bool = True


@functools.lru_cache(maxsize=8192)
def shown(text: str) -> str:
    """What a program says of itself, such as the name of a phase, without the secrets in it."""
    return redaction.text(visible(text[:REDACTED]))


def _step(row: Row) -> str:
    if row.step is None:
        return "-"
    return f"{row.step}/{row.total}" if row.total else str(row.step)


def _time(row: Row) -> str:
    if row.open_s is not None:
        return f">{span(row.open_s)}"
    return span(row.each) if row.each is not None else "-"


def _late(row: Row) -> str:
    if row.awaited_s is not None:
        return span(row.awaited_s)
    return f"+{roughly(row.late_s)}" if row.late_s is not None else ""


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return text(value) if value is not None else "-"


def columns(rows: Sequence[Row], room: int) -> list[Column]:
    """The columns for these rows, in so many of the terminal."""
    hosts = {row.host for row in rows}
    host = max(_most(hosts), 6)
    all_ = [
        Column("rank", 5, 7, lambda row: f"{MARKS[row.mood]}{row.rank}"),
        Column("host", 6, host, lambda row: row.host, 5 if len(hosts) > 1 else 1, right=False),
        Column("gpu", 3, 6, lambda row: row.gpu or "-", 6),
        Column("pid", 7, 8, lambda row: str(row.pid), 11),
        Column("does", 14, _most(shown(row.doing) for row in rows), lambda row: shown(row.doing), right=False),
        Column("step", 6, 16, _step),
        Column("time", 6, 8, _time, 12),
        Column("", 4, 40, str, 3, right=False),  # the sparkline
        Column("load", 4, 5, lambda row: _known(row.loading, share), 10),
        Column("wait", 4, 5, lambda row: _known(row.waiting, share), 9),
        Column("late", 6, 8, _late, 2),
        Column("cpu", 4, 6, lambda row: _known(row.cores, share), 8),
        Column("mem", 4, 6, lambda row: _known(row.memory, lambda count: memory(int(count))), 7),
        Column("gpu%", 4, 5, lambda row: f"{row.gpu_busy}%" if row.gpu_busy is not None else "-", 4),
    ]
    kept = [one for one in all_ if any(row.gpu for row in rows) or one.title not in ("gpu", "gpu%")]
    while _least(kept) > room and any(one.drop for one in kept):
        kept.remove(min((one for one in kept if one.drop), key=lambda one: one.drop))
    return _widened(kept, room)


def _most(texts: Iterable[str]) -> int:
    return min(max(map(width, texts), default=0) + 2, 60)


def _least(all_: Sequence[Column]) -> int:
    return sum(one.least + 1 for one in all_) - 1


def _widened(all_: Sequence[Column], room: int) -> list[Column]:
    """Give what room is left to those that want it, a column of the terminal at a time, what rows do first of all."""
    left = room - _least(all_)
    widths = {one.title: one.least for one in all_}
    order = sorted(all_, key=lambda one: (one.title != "does", one.title == ""))
    for one in order:
        more = max(min(left, one.most - one.least), 0)
        widths[one.title] += more
        left -= more
    return [Column(one.title, widths[one.title], one.most, one.text, one.drop, one.right) for one in all_]


def spark(values: Sequence[float], room: int, bars: str) -> str:
    """The latest values as bars: one as high as the middle of them is half of a full bar, and twice that is full."""
    latest = values[-room:]
    if not latest:
        return ""
    middle = statistics.median(values) or 1.0
    return "".join(bars[min(int(one / middle * len(bars) / 2), len(bars) - 1)] for one in latest)


def header(all_: Sequence[Column], room: int) -> Parts:
    """The titles of the columns."""
    titles = " ".join(fitted(one.title or "past", one.least, right=one.right) for one in all_)
    return ((fitted(titles, room), "dim"),)


def body(row: Row, all_: Sequence[Column], room: int, bars: str = BARS) -> Parts:
    """A row, in so many columns of the terminal at most."""
    parts: list[tuple[Line, str]] = []
    for one in all_:
        text = one.text(row) if one.title else spark(row.each_of, one.least, bars)
        style = STYLES[row.mood] if one.title in ("rank", "does", "late", "time") or row.mood == "over" else ""
        parts.append((fitted(text, one.least, right=one.right), style))
        parts.append((line(" "), ""))
    return _clipped(parts[:-1], room)


def _clipped(parts: Sequence[tuple[Line, str]], room: int) -> Parts:
    found = []
    for text, style in parts:
        found.append((text if width(text) <= room else fitted(text, max(room, 0)), style))
        room -= width(text)
        if room <= 0:
            break
    return tuple(found)


def head(picture: Picture, room: int, by: str) -> list[Parts]:
    """What stands above the rows: which run it is, how it goes, what they are sorted by, and what cannot be shown."""
    hosts = sorted({row.host for row in picture.rows if row.host})
    where = ", ".join(hosts) if len(hosts) <= 2 else plural(len(hosts), "node")
    state = picture.state if not picture.at else f"{picture.state} ({picture.at})"
    steps = [row.step for row in picture.rows if row.step is not None]
    facts = [
        state,
        f"{picture.elapsed_s:.0f}s" if picture.elapsed_s < 60 else span(picture.elapsed_s),
        f"{plural(len(picture.rows), 'rank')}{f' on {where}' if where else ''}" if picture.rows else "",
        f"{picture.rows[0].unit or 'step'} {min(steps)}" if steps else "",
        f"by {by}" if by != "late" else "",
    ]
    style = "good" if "ended well" in state else "error" if picture.over and not picture.at else "strong"
    first = line("run ", named(picture.run_id), "  ", shown(picture.script))
    lines: list[Parts] = [((fitted(first, room), "strong"),), ((fitted("  ".join(filter(None, facts)), room), style),)]
    lines += [((fitted(one, room), "dim"),) for one in picture.missing]
    return lines


def notices(told: Sequence[Notice], room: int, most: int) -> list[Parts]:
    """The latest notices, the last one last; each in as many lines as it needs."""
    found: list[Parts] = []
    for one in reversed(told):
        at = time.strftime("%H:%M:%S", time.localtime(min(max(one.time, 0.0), float(1 << 40))))
        at = f"{at} " if room >= BARE else ""
        lines = list(_folded(line(shown(one.text)), room - len(at)))
        times = [line(at), *[line(" " * len(at))] * (len(lines) - 1)]
        parts = [((when, "dim"), (text, one.level)) for when, text in zip(times, lines, strict=True)]
        if len(found) + len(parts) > most and found:
            break
        found = [*parts[:most], *found]
    return found


def _folded(text: Line, room: int) -> Iterator[Line]:
    """A text in lines of so many columns, at spaces where there are any."""
    rest = str(text)
    while width(rest) > room:
        end = next(n for n in range(len(rest) + 1) if width(rest[: n + 1]) > room)
        space = rest.rfind(" ", room // 2, end + 1)
        end = space if space > 0 else max(end, 1)
        yield fitted(rest[:end], room)
        rest = rest[end:].lstrip(" ")
    yield fitted(rest, room)


def ordered(rows: Iterable[Row], by: str) -> list[Row]:
    """The rows, sorted."""
    return sorted(rows, key=SORTS[by])


def plain(picture: Picture, room: int, by: str, bars: str) -> Iterator[Parts]:
    """All of it, once."""
    yield from head(picture, room, by)
    if picture.rows:
        all_ = columns(picture.rows, room)
        yield header(all_, room)
        yield from (body(row, all_, room, bars) for row in ordered(picture.rows, by))
    yield from notices(picture.notices, room, 1000)
