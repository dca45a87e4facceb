"""Whether a process went on behind a traceback: then it was handled, and is not what ended anything.

A step that stands behind a traceback proves it by itself only where its time is later. What a program prints is
buffered: a process that has failed writes its last steps when it ends, behind its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from safelaunch.evidence.logs.prefixes import Writer
from safelaunch.model.logs import Ended, Event, LogLine, Raised

LINES = 20  # of ordinary output after a traceback; loggers print a dozen when their process ends
LATER_S = 1.0  # stamps are taken when a line is written
OF_ALL = 3  # steps of a stream that many write to: ranks go on for no more than one or two without a peer
BUFFER = 10_000  # characters: what one process may print at its end at once is 8 KiB (io.DEFAULT_BUFFER_SIZE)
MOST = 2000  # steps that are kept of one stream

_NUMBERS = re.compile(
    r"\b(?:step|iter(?:ation)?s?|it|batch|epoch)\b['\"]?\W{0,4}(?P<one>\d{1,12})(?:\W{1,3}(?P<two>\d{1,12}))?"
    r"|(?P<bar>\d{1,12})/\d{1,12} \[",
    re.IGNORECASE,
)


@dataclass
class Steps:
    """The steps of one stream near the end of its file: the first line of each. `last` is its last line that has a
    time, `pause_s` the longest time between two such lines."""

    last: LogLine | None = None
    pause_s: float = 0.0
    _lines: list[LogLine] = field(default_factory=list)
    _seen: set[object] = field(default_factory=set)

    def note(self, at: LogLine, text: str) -> None:
        """A line of the stream.

        Args:
            text: the line without what stands before its message.
        """
        if at.t is not None:
            if self.last is not None and self.last.t is not None and self.last.clock == at.clock:
                self.pause_s = max(self.pause_s, at.t - self.last.t)
            self.last = at
        said = tuple(match.groups() for match in _NUMBERS.finditer(text[:400])) if not text.startswith(" ") else ()
        if said and said not in self._seen and len(self._lines) < MOST:
            self._seen.add(said)
            self._lines.append(at)

    def __len__(self) -> int:
        return len(self._lines)

    def behind(self, at: LogLine) -> list[LogLine]:
        """Those that stand behind a line."""
        return [one for one in self._lines if one.line > at.line]


def ordinary_after(raised: Raised, tail: tuple[LogLine, bool] | None) -> bool:
    """Whether the last lines of a stream are ordinary output, and far behind a traceback.

    Args:
        tail: the last line of its stream, with: is it ordinary?
    """
    return tail is not None and tail[1] and tail[0].line - raised.at.line >= LINES


def went_on(at: LogLine, steps: Steps | None) -> bool:
    """Whether the stream of a line that may mean nothing has made several steps behind it, none of an earlier time."""
    return steps is not None and sum(not _is_later(one, at) for one in steps.behind(at)) >= OF_ALL


def stepped(raised: Raised, writer: Writer, steps: Steps | None, failures: Iterable[Event], processes: int) -> bool:
    """Whether steps of its own process prove that it went on behind a traceback.

    Args:
        raised: of which the traceback is.
        writer: its stream.
        steps: of its stream.
        failures: what failed in the same stream.
        processes: how many may write to one stream without marks.
    """
    if raised.times > 1 or steps is None:
        return False  # of a traceback that was printed several times, the last one may be the end
    own = writer.rank is not None or writer.local is not None or bool(writer.process)
    behind, needed = steps.behind(raised.at), 1 if own else OF_ALL
    if sum(_is_later(raised.at, one) for one in behind) >= needed:
        return True
    if sum(len(one.text) for one in behind) > BUFFER * (1 if own else processes):
        return True  # more than comes out at the ends of all of them
    # A process raises once what ends it: what stands before steps that it made ahead of that was handled.
    last = max((one.at.line for one in failures if _ends(one)), default=0)
    return (own or processes == 1) and sum(one.line < last for one in behind) >= needed


def started_again(events: Sequence[Event], steps: Collection[Steps], dated: Callable[[LogLine], LogLine]) -> list[int]:
    """The lines in which torch elastic notices that a rank failed, behind which ranks have made steps, later: it has
    started them again, though it says so only in a level of its log that is off by default.

    Args:
        events: of one file.
        steps: of its streams.
        dated: gives a line the year of the others.
    """
    noticed = [one.at for one in events if isinstance(one, Ended) and one.by == "elastic" and one.first]
    listed = max((one.at.line for one in events if isinstance(one, Ended) and one.rank is not None), default=0)

    def went_on(at: LogLine) -> bool:
        behind = [one for stream in steps for one in stream.behind(at) if _is_later(dated(at), dated(one))]
        return len(behind) >= OF_ALL

    return [at.line for at in noticed if at.line > listed and went_on(at)]


def _is_later(one: LogLine, other: LogLine) -> bool:
    return one.t is not None and other.t is not None and one.clock == other.clock and other.t - one.t > LATER_S


def _ends(one: Event) -> bool:
    return isinstance(one, Raised) and one.whole and not one.background and not one.launcher
