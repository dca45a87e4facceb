"""What log files said: the lines that the verdict quotes, and the first failure of each rank, in order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Verdict
from safelaunch.model.logs import ALSO, WENT_ON, Ended, Event, LogFacts, LogLine, Raised, Sighting, TimedOut
from safelaunch.report.page.element import Html, cell, tag
from safelaunch.report.page.subject import names

ROWS = 200
LAST = 64  # ranks whose last lines are shown
FILES = 50
WIDTH = 400


@dataclass(frozen=True)
class Row:
    """A line that is shown. `quoted` says that the verdict rests on it."""

    at: LogLine
    what: str
    ranks: tuple[int, ...] = ()
    quoted: bool = False
    traceback: str = ""


def section(facts: LogFacts, verdict: Verdict | None) -> Html:
    """The section on a job's logs."""
    found = rows(facts, verdict)
    ordered, compare = in_time(found)
    shown = ordered[:ROWS]
    if len(ordered) > ROWS:  # what the verdict quotes is never left out
        shown += [row for row in ordered[ROWS:] if row.quoted]
    more = len(ordered) - len(shown)
    short = _short_names(facts)
    told = "Lines that the verdict quotes are marked; of each rank its first failure is shown."
    if not compare and len({row.at.file for row in ordered}) > 1:
        told += " Their times do not compare: they stand file by file."
    head = tag("thead", tag("tr", *(tag("th", name) for name in ("time", "rank", "line", "what", "text"))))
    return tag(
        "section",
        tag("h2", "What the logs say, in order of time" if compare else "What the logs say"),
        tag("p", told, class_="dim"),
        tag("table", head, tag("tbody", *(_row(row, short) for row in shown)))
        if shown
        else tag("p", "They hold no failure."),
        tag("p", f"... and {more} more") if more else None,
        _last(facts, short),
        _files(facts),
    )


def rows(facts: LogFacts, verdict: Verdict | None) -> list[Row]:
    """The first failure of each rank (of what no rank wrote, the first of each kind), and all that is quoted."""
    because = [*verdict.because, verdict.summary] if verdict is not None else []
    because = [line for line in because if not line.startswith((ALSO, WENT_ON))]
    named = {_place(event.at) for event in _events(facts) if any(f"{_place(event.at)}:" in line for line in because)}
    lines: dict[tuple[str, int], Row] = {}
    begun: set[object] = set()
    for event in sorted(_events(facts), key=lambda event: (event.attempt, event.at.file, event.at.line)):
        quoted = _place(event.at) in named
        whose: object = event.rank if event.rank is not None else (event.at.file, event.host, _what(event))
        first = (event.attempt, whose) not in begun and not _is_aside(event)
        if first:
            begun.add((event.attempt, whose))
        if not (first or quoted):
            continue
        place = (event.at.file, event.at.line)
        before = lines.get(place)
        ranks = {event.rank} - {None} | set(before.ranks if before is not None else ())
        traceback = event.traceback if isinstance(event, Raised) and event.frames else ""
        lines[place] = Row(
            event.at,
            before.what if before is not None else _what(event),
            tuple(sorted(rank for rank in ranks if rank is not None)),
            quoted,
            (before.traceback if before is not None else "") or traceback,
        )
    return list(lines.values())


def in_time(found: Sequence[Row]) -> tuple[list[Row], bool]:
    """Rows in order of time, and whether their times compare. A line without a time is as old as the one before it in
    its file."""
    clocks = Counter(row.at.clock for row in found if row.at.t is not None)
    by_place = sorted(found, key=lambda row: (row.at.file, row.at.line))
    if not clocks:
        return by_place, len({row.at.file for row in found}) == 1
    clock = clocks.most_common(1)[0][0]
    files = {row.at.file for row in found}
    timed = {row.at.file for row in found if row.at.t is not None and row.at.clock == clock}
    if timed != files:
        return by_place, len(files) == 1
    last: dict[str, float] = {}
    keys: list[tuple[float, str, int]] = []
    first = {
        file: min(row.at.t for row in found if row.at.file == file and row.at.clock == clock and row.at.t is not None)
        for file in files
    }
    for row in by_place:
        if row.at.t is not None and row.at.clock == clock:
            # Lines of several processes reach one file a little out of order; the file's order decides within it.
            last[row.at.file] = max(last.get(row.at.file, row.at.t), row.at.t)
        keys.append((last.get(row.at.file, first[row.at.file]), row.at.file, row.at.line))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [by_place[index] for index in order], True


def _events(facts: LogFacts) -> Iterable[Event]:
    return (*facts.raised, *facts.timed_out, *facts.ended, *facts.desyncs, *facts.brought, *facts.sightings)


def _is_aside(event: Event) -> bool:
    """What did not end its process."""
    if isinstance(event, Raised):
        return event.background or event.survived
    return isinstance(event, Sighting) and event.known.role == "note"


def _what(event: Event) -> str:
    if isinstance(event, Raised):
        kind = f"{event.type.rpartition('.')[2]}, raised by the launcher" if event.launcher else event.type
        return kind if event.times == 1 else f"{kind} ({event.times} times)"
    if isinstance(event, TimedOut):
        return f"gave up on {event.op} #{event.seq}"
    if isinstance(event, Ended):
        how = "" if event.code is None else f", signal {-event.code}" if event.code < 0 else f", exit code {event.code}"
        return f"its end, seen by {event.by}{how}"
    if isinstance(event, Sighting):
        return event.known.name.replace("-", " ")
    return type(event).__name__.lower()


def _place(at: LogLine) -> str:
    return f"{at.file}:{at.line}"


def _short_names(facts: LogFacts) -> dict[str, str]:
    """What files are called in the table: without their folders, where that says which one is meant."""
    last = Counter(file.path.rpartition("/")[2] for file in facts.files)
    return {file.path: name for file in facts.files if last[name := file.path.rpartition("/")[2]] == 1}


def _row(row: Row, short: Mapping[str, str]) -> Html:
    text: object = cell(row.at.text, WIDTH)
    if row.traceback:
        text = tag("details", tag("summary", cell(row.at.text, WIDTH)), tag("pre", row.traceback))
    return tag(
        "tr",
        tag("td", _clock(row.at)),
        tag("td", names(row.ranks).partition(" ")[2] if row.ranks else ""),
        tag("td", f"{short.get(row.at.file, row.at.file)}:{row.at.line}"),
        tag("td", cell(row.what)),
        tag("td", text),
        class_="culprit" if row.quoted else None,
    )


def _clock(at: LogLine) -> str:
    """The time of the day: what a date is, not all of the clocks know."""
    if at.t is None:
        return ""
    if at.clock == "boot":
        return f"{at.t:.3f} s"
    seconds = at.t % 86400.0
    return f"{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}"


def _last(facts: LogFacts, short: Mapping[str, str]) -> Html | None:
    if not facts.tails:
        return None
    lines = [
        tag(
            "tr",
            tag("td", str(rank)),
            tag("td", f"{short.get(at.file, at.file)}:{at.line}"),
            tag("td", cell(at.text, WIDTH)),
        )
        for rank, at in sorted(facts.tails)[:LAST]
    ]
    head = tag("thead", tag("tr", *(tag("th", name) for name in ("rank", "line", "text"))))
    more = f", of the first {LAST} of {len(facts.tails)}" if len(facts.tails) > LAST else ""
    return tag("details", tag("summary", f"the last line of each rank{more}"), tag("table", head, tag("tbody", *lines)))


def _files(facts: LogFacts) -> Html | None:
    lines = [
        tag("li", cell(file.path, 400), f": {file.unreadable}" if file.unreadable else f": {file.lines:,} lines")
        for file in facts.files[:FILES]
    ]
    if not lines:
        return None
    more = tag("li", f"... and {len(facts.files) - FILES} more") if len(facts.files) > FILES else None
    count = "1 file was read" if len(facts.files) == 1 else f"{len(facts.files)} files were read"
    return tag("details", tag("summary", count), tag("ul", *lines, more))
