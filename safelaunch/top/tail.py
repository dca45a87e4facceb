"""The lines of agent.jsonl and events.jsonl, as they come. Whoever started the run may have written anything there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from safelaunch import regular
from safelaunch.sizes import size

CHUNK = 4 << 20  # bytes that are read at once: of a large job's beginning
LONGEST = 16 << 20  # bytes of a line
# Of a file: a line of progress each minute comes to 64 MiB after 270 days, and twenty times that as Python's objects.
MOST, MOST_LINES = 64 << 20, 1 << 19
DEEPEST = 64  # values in values


@dataclass(frozen=True)
class Event:
    """One line. `time` is in seconds since the epoch."""

    name: str
    time: float
    fields: Mapping[str, Any]


class Tail:
    """A file of events, as it grows.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self.fault = ""  # why not all of it has been read
        self._path = path
        self._offset = self._lines = 0
        self._part = b""

    def new(self, owner: int) -> Iterator[Event]:
        """The events that have come since the last look; none where there is no such file of that user. Never raises:
        `fault` says what is missing."""
        if self._offset >= MOST or self._lines >= MOST_LINES:
            return
        try:
            file = open(regular.descriptor(self._path, owner), "rb")  # noqa: SIM115
        except FileNotFoundError:
            self.fault = ""  # it is still to come
            return
        except OSError as error:
            self.fault = f"{self._name} cannot be read: {error.strerror}"
            return
        with file:
            self.fault = ""
            try:
                file.seek(self._offset)
                while data := file.read(min(CHUNK, MOST - self._offset)):
                    yield from events(self._whole(data))
                    if self._lines >= MOST_LINES:
                        break
                self._told_cut(os.fstat(file.fileno()).st_size)
            except OSError as error:
                self.fault = f"{self._name} cannot be read: {error.strerror}"

    @property
    def _name(self) -> str:
        return os.path.basename(self._path)

    def _whole(self, data: bytes) -> list[bytes]:
        """The lines that end in what was read."""
        self._offset += len(data)
        *lines, self._part = (self._part + data).split(b"\n")
        if len(self._part) > LONGEST:
            self._part = b""  # no line of ours
        lines = lines[: MOST_LINES - self._lines]
        self._lines += len(lines)
        return lines

    def _told_cut(self, length: int) -> None:
        if self._lines >= MOST_LINES:
            self.fault = f"{self._name}: only its first {MOST_LINES} lines were read"
        elif length > self._offset >= MOST:
            self.fault = f"{self._name}: only its first {size(MOST)} were read, of {size(length)}"


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of whole lines."""
    for one in lines:
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(one)
            deep = one.count(b"[") + one.count(b"{") > DEEPEST and is_deep(said)
            if isinstance(said, dict) and not deep and (at := number(said.get("time"))) is not None:
                yield Event(str(said.get("event")), at, said)


def is_deep(document: object) -> bool:
    """Whether values lie in each other deeper than any of ours do: what could just be read may be too deep to print."""
    level = [document]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, (dict, list))
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def number(value: object) -> float | None:
    """A number of a document; None where it is none."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else None
