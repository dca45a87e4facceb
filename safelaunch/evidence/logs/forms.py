"""Tracebacks in other forms than Python's own, read as if Python had written them: the boxes of rich, and the documents
in JSON that torch elastic logs of an exception (torch/distributed/elastic/multiprocessing/errors/error_handler.py)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from safelaunch.evidence.logs.tracebacks import Fault, Found, Tracebacks
from safelaunch.model.logs import LogLine
from safelaunch.shortened import shortened

HEAD = "Traceback (most recent call last):"
WIDTH = 1000  # of a quoted line
LONGEST = 4000  # characters of a place that is wrapped

_TOP = re.compile(r"^\s*[\u256d\u250c][\u2500-]+ Traceback \(most recent call last\)")
_BOTTOM = re.compile(r"^\s*[\u2570\u2514][\u2500-]{3}")
_SIDE = re.compile(r"^\s*\u2502(?P<said>.*?)\u2502?\s*$")
_ARROW = re.compile(r"^\s*\u2771\s*\d{1,7} \u2502\s*(?P<code>.*)$")
_SOURCE = re.compile(r"^\s*\d{1,7} \u2502|^\s*[\u256d\u2502\u2570\u250c\u2514]")  # and boxes of variables within
_PLACE = re.compile(r"^(?P<file>\S.*?):(?P<line>\d{1,9})\s+in\s+(?P<function>\S+)\s*$")

_OPENS = re.compile(r"error_handler\b[^{\n]{0,40}\{|^\s*(?:\{\s*)?\"message\": ?\{(?:\s*$|\s*\"message\": ?\")")
_MARK = re.compile(r"^\[?[EWIF]\d{3,4} [\d:.]+ +(?:\d+ +)?\S{0,200}error_handler\.py:\d+\] ?")  # torch's, of each line
_FIELD = re.compile(r"\"(?P<key>message|py_callstack)\": ?(?:(?P<list>\[)|\"(?P<said>(?:[^\"\\]|\\.)*)(?:\"|\\?$))")
_ITEM = re.compile(r"^\s*\"(?P<said>(?:[^\"\\]|\\.)*)(?:\"?,?|\\)\s*$")
_STRUCTURE = re.compile(r"^\s*(?:\"(?:message|extraInfo|py_callstack)\": ?[\[{]|[\]}]{1,3},?|\{)?\s*$")
_ENDS = re.compile(r"^\s*\"timestamp\":|^\}")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,200}(?:: |$)")


@dataclass
class _Box:
    """A box of rich that is being read. What stands above it may be cut off: then its first frame opens it."""

    known: bool = False
    place: str = ""  # as far as it was wrapped

    def read(self, text: str) -> list[str] | None:
        """The lines that Python would have written; None where a line belongs to no box."""
        if _TOP.match(text):
            self.known, self.place = True, ""
            return [HEAD]
        side = _SIDE.match(text)
        if side is None:
            ended, self.known, self.place = self.known and bool(_BOTTOM.match(text)), False, ""
            return [] if ended else None
        said = side["said"].rstrip()
        if self.known and (arrow := _ARROW.match(said)):
            self.place = ""
            return [f"    {arrow['code'].rstrip()}"]
        if not said or _SOURCE.match(said) or len(self.place) > LONGEST:
            self.place = ""
            return [] if self.known else None
        self.place += said[1:]
        if match := _PLACE.match(self.place):
            self.known, self.place = True, ""
            return [f'  File "{match["file"]}", line {match["line"]}, in {match["function"]}']
        return [] if self.known else None


@dataclass
class _Document:
    """A document of torch elastic that is being read."""

    open: bool = False
    said: str = ""  # the exception: the first text of its messages
    listed: bool = False  # its frames stand in a list
    last: str = ""  # the last line that was given

    def read(self, text: str) -> list[str] | None:
        """The lines that Python would have written; None where a line belongs to no document."""
        if not self.open and not ("{" in text and _OPENS.search(text)):
            return None
        text = _MARK.sub("", text)
        first, self.open = not self.open, True
        found: list[str] = []
        for match in _FIELD.finditer(text):
            if match["list"]:
                self.listed = True
                found.append(HEAD)
            elif match["key"] == "message":
                said = _plain(match["said"])
                if not self.said and not _EXCEPTION.match(said):
                    self.open = self.listed = False
                    return None  # it is no exception's, and to be read as what it is
                self.said = self.said or said
            else:
                found += _plain(match["said"]).splitlines()
        item = _ITEM.match(text) if self.listed and not found else None
        found += [line for line in _plain(item["said"]).splitlines() if line.strip()] if item else []
        self.last = next((line for line in reversed(found) if line.strip()), self.last)
        if _ENDS.match(text) or (text.rstrip().endswith("}}}")):
            return found + self.close()
        if found or first or item or '"message":' in text or _STRUCTURE.match(text):
            return found
        return None

    def close(self) -> list[str]:
        """What is still to be given, at the end of it."""
        said, last = self.said.splitlines(), self.last
        self.open, self.listed, self.said, self.last = False, False, "", ""
        if not said or last == said[-1]:
            return [""]
        return [*([] if last else [HEAD]), *said, ""]


def _plain(text: str) -> str:
    """A text of JSON, also where its end is cut off."""
    for cut in (text, text.rpartition("\\")[0]):
        try:
            return str(json.loads(f'"{cut}"', strict=False))
        except ValueError:
            continue
    return ""


@dataclass
class _Form:
    at: LogLine
    box: _Box = field(default_factory=_Box)
    document: _Document = field(default_factory=_Document)


class Forms(Tracebacks):
    """Puts tracebacks together as its base does, in whatever form they are written.

    Args:
        raised: called with (stream, exception) once its message is complete.
        died: called with (stream, fault) for faulthandler's text.
    """

    def __init__(self, raised: Callable[[Hashable, Found], None], died: Callable[[Hashable, Fault], None]):
        super().__init__(self._once, died)
        self._tell = raised
        self._forms: dict[Hashable, _Form] = {}
        self._told: Counter[tuple[Hashable, str, str]] = Counter()  # by documents, and not yet by Python
        self._giving = False  # lines of a document

    def _once(self, key: Hashable, found: Found) -> None:
        """An exception; after torch elastic has logged one it raises it again, and Python prints it."""
        said = (key, found.type.rpartition(".")[2], found.message.partition("\n")[0])
        if self._giving:
            self._told[said] += bool(found.frames)
        elif self._told[said]:
            self._told[said] -= 1
            return
        self._tell(key, found)

    @property
    def waiting(self) -> bool:
        """Whether a traceback is open, so that every line counts."""
        return super().waiting or any(one.document.open or one.box.known for one in self._forms.values())

    def feed(self, key: Hashable, text: str, at: LogLine, sure: bool) -> bool:
        """One line of a stream; returns whether it was part of a traceback. The arguments are those of the base."""
        form = self._forms.get(key)
        if form is None:
            if "\u2502" not in text and "{" not in text and "\u2500" not in text:
                return super().feed(key, text, at, sure)
            form = self._forms.setdefault(key, _Form(at))
        was_open, said = form.document.open, form.document.said
        lines = form.document.read(text)
        if form.document.said and not said:
            form.at = at
        if lines is None:
            if was_open:
                self._give(key, form.document.close(), form.at, sure)
            lines = form.box.read(text)
        if lines is None:
            return super().feed(key, text, at, sure)
        self._give(key, lines, at, sure)
        return True

    def finish(self) -> None:
        """The file has ended: what is open stays incomplete."""
        for key, form in self._forms.items():
            if form.document.open:
                self._give(key, form.document.close(), form.at, True)
        self._forms.clear()
        super().finish()

    def _give(self, key: Hashable, lines: list[str], at: LogLine, sure: bool) -> None:
        ended = lines[-1:] == [""]
        self._giving = self._forms[key].document.open or ended
        for line in lines:
            super().feed(key, line, replace(at, text=shortened(line.strip(), WIDTH)), sure)
        if ended and key in self._streams:
            self._emit(self._streams[key], key)
        self._giving = False
