"""How the bytes of a log are text. Of two or four bytes for each character are files that some shells write, or go on
so in one that they find."""

from __future__ import annotations

import codecs
import io
import re
from typing import IO

BYTE_ORDER = (b"\xff\xfe", b"\xfe\xff")  # marks at the beginning of a text in UTF-16
BINARY = 0.2  # of the characters of a text that are none: a log in Latin-1 has fewer
HOW_TO = "`iconv -f UTF-16` makes a text of it that can be read"
# Marks of UTF-32 begin with those of UTF-16.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (BYTE_ORDER[0], "utf-16"),
    (BYTE_ORDER[1], "utf-16"),
)
_PLAIN = 0.1  # of the characters, at least, are of ASCII: also a log in Chinese has numbers, blanks and ends of lines
_NARROW = re.compile(rb"[\t\n\r -~]{64}")  # no 32 characters of any language that follow each other


def coding_of(head: bytes) -> str:
    """`utf-16`, `utf-32`, or nothing where a file that begins so has another coding, or does not say."""
    found = next((coding for mark, coding in _MARKS if head.startswith(mark)), "")
    text = codecs.getincrementaldecoder(found)("replace").decode(head) if found else ""
    return found if sum(char.isascii() and char != "\0" for char in text) > _PLAIN * len(text) else ""


def is_binary(sample: bytes) -> bool:
    """Whether a file begins with something else than text. Holes that are full of NULs are left by file systems."""
    text = sample.replace(b"\0", b"").decode("utf-8", "replace")
    odd = sum(char == "\ufffd" or (char < " " and char not in "\t\n\r\x1b\b\f\v") for char in text)
    return bool(sample) and odd >= len(text) * BINARY


class Decoded(io.RawIOBase):
    """A text in UTF-16 or UTF-32 as one in UTF-8. `broken` says that part of it is in another coding."""

    def __init__(self, file: IO[bytes], coding: str):
        super().__init__()
        self._file = file
        self._decoder = codecs.getincrementaldecoder(coding)("replace")
        self.broken = ""

    def read(self, size: int = -1) -> bytes:
        """The next part, of about `size` bytes."""
        while True:
            data = self._file.read(size)
            if _NARROW.search(data):
                self.broken = f"parts of it are UTF-16, and others are not: {HOW_TO}"
            text = self._decoder.decode(data, not data).encode("utf-8", "replace")
            if text or not data:
                return text

    def close(self) -> None:
        """Close the file below."""
        self._file.close()
        super().close()
