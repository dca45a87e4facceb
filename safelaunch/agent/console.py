"""Runs in: agent. What `agent.tail` writes: the lines that torch would have written, in pieces that stay whole."""

from __future__ import annotations

import codecs
import io
import locale
import os
import select
import stat
from collections.abc import Callable, Iterator
from typing import TextIO

# Characters of a line that are held back until it ends. Torch holds them until the rank pauses: then it takes what it
# has for a line, and what follows for the next.
LONGEST = 1 << 20
# Bytes that are read at once: the memory of more would come anew from the kernel each time (malloc(3),
# M_MMAP_THRESHOLD).
BLOCK = 1 << 16
WHOLE = select.PIPE_BUF  # what a pipe takes is passed on in one piece up to this size (pipe(7))


class Lines:
    """What torch writes for the content of a file: its lines, each behind a header, as Python reads text (any end of a
    line becomes a newline; what is not of the encoding is replaced).

    Args:
        header: goes before each line.
        keep: says which lines are wanted; None for all.
    """

    def __init__(self, header: str, keep: Callable[[str], bool] | None = None) -> None:
        self._header = header
        self._keep = keep
        decoder = codecs.getincrementaldecoder(locale.getpreferredencoding(False))("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._begun: list[str] = []  # of a line whose end is not known yet
        self._size = 0  # of these

    def feed(self, data: bytes) -> str:
        """The lines that end in this block, and what a line without an end has become `LONGEST` by."""
        text = self._decoder.decode(data)
        end = text.rfind("\n") + 1
        if not end and self._size + len(text) > LONGEST:
            end = len(text)
        if not end:
            self._begun.append(text)
            self._size += len(text)
            return ""
        whole = "".join([*self._begun, text[:end]])
        self._begun, self._size = [text[end:]], len(text) - end
        return self._headed(whole)

    def rest(self) -> str:
        """What is left when the file says no more for now. Torch takes it for a line, and what follows for the next."""
        text = "".join([*self._begun, self._decoder.decode(b"", final=True)])
        self._begun, self._size = [], 0
        return self._headed(text)

    @property
    def unfinished(self) -> bool:
        """Whether there is a rest."""
        held, flags = self._decoder.getstate()
        return bool(held or flags & 1 or any(self._begun))

    def _headed(self, text: str) -> str:
        if not text:
            return ""
        ended = text.endswith("\n")
        lines = text[:-1] if ended else text
        if self._keep is None:
            return self._header + lines.replace("\n", "\n" + self._header) + ("\n" if ended else "")
        ends = [line + "\n" for line in lines.split("\n")]
        if not ended:
            ends[-1] = ends[-1][:-1]
        return "".join(self._header + line for line in ends if self._keep(line))


class Console:
    """Where the lines go. A pipe or a terminal, which ranks and the supervisor use too, gets whole lines: what they
    write comes between two of ours."""

    def __init__(self, dst: TextIO) -> None:
        self._dst = dst
        try:
            self._descriptor = dst.fileno()
            self._piece = 0 if stat.S_ISREG(os.fstat(self._descriptor).st_mode) else WHOLE
        except (OSError, AttributeError, ValueError):
            self._descriptor = -1  # no file of the system: a test's

    def write(self, text: str) -> None:
        """Write it all.

        Raises:
            OSError: where the other end is gone.
        """
        if self._descriptor < 0:
            self._dst.write(text)
            return
        encoding, errors = self._dst.encoding, self._dst.errors or "strict"
        try:
            data = text.encode(encoding, errors)
        except UnicodeEncodeError:
            data = text.encode(encoding, "replace")
        self._dst.flush()
        for piece in pieces(data, self._piece or len(data)):
            self._send(piece)

    def _send(self, piece: memoryview) -> None:
        while piece:
            try:
                piece = piece[os.write(self._descriptor, piece) :]
            except BlockingIOError:  # somebody who shares it has made it so
                select.select([], [self._descriptor], [])


def pieces(data: bytes, size: int) -> Iterator[memoryview]:
    """Whole lines of at most `size` bytes together; a line that is longer comes by itself."""
    view = memoryview(data)
    start = 0
    while len(data) - start > size:
        end = data.rfind(b"\n", start, start + size) + 1
        if not end:
            end = data.find(b"\n", start) + 1 or len(data)
        yield view[start:end]
        start = end
    if start < len(data):
        yield view[start:]
