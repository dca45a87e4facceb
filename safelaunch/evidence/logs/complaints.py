"""The lines of one file that speak of a failure, each kind once: what a verdict must show, or has shown already."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from safelaunch.evidence.logs import failing
from safelaunch.evidence.logs.sieve import SEGMENT, Sieve
from safelaunch.model.logs import Complaint, LogLine
from safelaunch.shortened import shortened

KINDS = 300  # of lines; those that ended something have as many again
WIDTH = 1000  # characters of a line that is kept
LONGEST = 4000  # characters of a line that are looked at
WRITERS = 64  # of one kind of line, so many processes are told apart
CONTEXT = 20  # lines before one, in which a secret may be announced

STACKS = 16
# py-spy: the innermost call stands in the line below that of its thread.
_STACK = re.compile(
    r'^(?P<mark>[^\n]{0,60}?)Thread (?:0x)?\w{1,20} \(active[^)\n]{0,20}\): "MainThread"[^\n]{0,40}\n'
    r"(?P=mark)[ \t]{1,12}(?P<call>[\w<>.]{1,100}) \((?P<place>[^()\n]{1,300}:\d{1,7})\)",
    re.MULTILINE,
)
_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+|\s+")

_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")  # as terminals are told; a reader of a quotation needs none

Writer = TypeVar("Writer", bound=Hashable)


@dataclass
class Complaints(Generic[Writer]):
    """Collects them. `writer` is the stream of whoever wrote a line."""

    _found: dict[str, tuple[Complaint, dict[Writer, None]]] = field(default_factory=dict)
    _looked: set[int] = field(default_factory=set)

    def look(self, writer: Writer, text: str, whole: str, at: LogLine, *, known: str = "") -> None:
        """One line.

        Args:
            writer: whoever wrote it.
            text: the line without what stands before its message.
            whole: the line as it is.
            at: where it stands.
            known: the role of the known message that it is, `note` within a traceback, or nothing.
        """
        self._looked.add(at.line)
        if known == "note":
            return
        weight = failing.strength(text[:LONGEST], whole[:LONGEST])
        if known in ("cause", "outside") and failing.has_words(text[:LONGEST]):
            weight = max(weight, failing.SAID)
        if weight:
            text = text.strip()
            mark = _COLOUR.sub("", whole.rstrip()[: -len(text)]) if whole.rstrip().endswith(text) else ""
            self.add(writer, replace(at, text=shortened(text, WIDTH)), weight, mark)

    def pass_over(self, line: int) -> None:
        """A line that is no more than the rest of the one before it."""
        self._looked.add(line)

    def add(self, writer: Writer, at: LogLine, weight: int, mark: str = "") -> None:
        """A line that is known to speak of a failure, with what stood before its message."""
        kind = _VARIES.sub("#", at.text[:LONGEST].lower())[:200]
        known = self._found.get(kind)
        if known is not None:
            one, writers = known
            if one.at.line == at.line:
                return
            first = replace(one, at=at, mark=mark) if at.line < one.at.line else one
            self._found[kind] = (replace(first, times=one.times + 1, weight=max(weight, one.weight)), writers)
            if len(writers) < WRITERS:
                writers.setdefault(writer)
        elif len(self._found) < (2 * KINDS if weight == failing.GRAVE else KINDS):
            echo, wrong = failing.is_echo(at.text), failing.contradicts(at.text)
            self._found[kind] = (Complaint(at=at, weight=weight, echo=echo, wrong=wrong, mark=mark), {writer: None})

    def rest(self, sieve: Sieve) -> Iterator[tuple[int, str]]:
        """The lines at the beginning and at the end of a file that have not been looked at."""
        from safelaunch import redaction

        for first, data, cut in ((1, sieve.sample, False), (sieve.tail_line, sieve.tail, sieve.tail_cut)):
            lines = [part.rpartition(b"\r")[2][:SEGMENT].decode("utf-8", "replace") for part in data.split(b"\n")]
            for number, whole in enumerate(lines, first):
                if number in self._looked or (number == first and cut) or not whole.strip():
                    continue
                if failing.strength(whole[:LONGEST]):
                    before = lines[max(0, number - first - CONTEXT) : number - first]
                    whole = redaction.lines([*before, whole])[-1]
                yield number, whole

    def stacks(self, path: str, writer: Writer, sieve: Sieve) -> None:
        """Where the main threads stood whose stacks py-spy wrote into the log."""
        text = sieve.sample.decode("utf-8", "replace")
        for match in itertools.islice(_STACK.finditer(text), STACKS):
            said = f"{match['call']} ({match['place']})"
            at = LogLine(path, text.count("\n", 0, match.start("call")) + 1, said)
            self.add(writer, at, failing.SAID)

    def found(self) -> list[tuple[tuple[Writer, ...], Complaint]]:
        """All of them in the order of the file, each with those who wrote it."""
        ordered = sorted(self._found.values(), key=lambda item: item[0].at.line)
        return [(tuple(writers), one) for one, writers in ordered]
