"""Lines of a traceback that have no mark, because a logger marks the first line of a message only."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TypeVar

from safelaunch.evidence.logs.tracebacks import FRAME, HEADER

# What torch's logger writes in a marked line, before the words of NCCL, which have a line of their own.
_ANNOUNCES = re.compile(r"NCCL error\b.*(?:NCCL version|details\))|async exception:")
_ANNOUNCED = re.compile(r"nccl\w+Error: |torch\.distributed\.\w+Error: ")

Key = TypeVar("Key", bound=Hashable)


class Loose:
    """Gives the lines that follow the marked head of a traceback to the stream of that head."""

    def __init__(self) -> None:
        self._head: tuple[int, Hashable] | None = None
        self._owners: dict[Hashable, Hashable] = {}

    def owner(self, number: int, stream: Key, text: str, *, marked: bool) -> Key:
        """The stream that a line belongs to.

        Args:
            number: of the line.
            stream: by its own marks.
            text: the line without marks.
            marked: whether it has any.
        """
        head, self._head = self._head, None
        if marked:
            self._head = (number, stream) if HEADER.search(text) or _ANNOUNCES.search(text) else None
        elif head is not None and head[0] + 1 == number and _ANNOUNCED.match(text):
            return head[1]  # type: ignore[return-value]
        elif head is not None and head[0] + 1 == number and FRAME.match(text):
            self._owners[stream] = head[1]
        return self._owners.get(stream, stream)  # type: ignore[return-value]

    def settle(self, stream: Hashable, text: str, *, inside: bool) -> None:
        """A line that was no part of a traceback ends what followed its head."""
        if stream in self._owners and not inside and text.strip() and text[0] not in " \t":
            del self._owners[stream]
