"""Reading large files quickly: only lines that may tell something come through, with their numbers.

Most lines of a log are one of a few, with other numbers in it. A line without its digits is therefore looked at once;
what told nothing then is passed over whenever it comes again. Of lines that are new, the words are looked at first.
"""

from __future__ import annotations

import bz2
import errno
import io
import lzma
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, cast

from safelaunch import limits, open_folder, regular
from safelaunch.evidence.logs import error_file
from safelaunch.evidence.logs.coding import Decoded, coding_of

BLOCK = 1 << 20
MOST_BUSY_S = 30.0  # for reading a pipe, without the time in which nothing comes
MOST_PIPED = 256 << 20  # bytes of a pipe: one may never end, and each byte of it buys time
DICTIONARY = 128 << 20  # bytes of memory for xz: its best mode takes 65 MiB, and a file may ask for 4 GiB
# Unicode's other blanks (category Zs) in UTF-8, which what is copied from a page or a mail has in place of plain ones;
# and the cursor's way forward, which some terminals write for a run of blanks (CUF; ECMA-48, 8.3.20).
OTHER_BLANKS = re.compile(rb"\xc2\xa0|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xaf]|\xe2\x81\x9f|\xe3\x80\x80")
FORWARD = re.compile(rb"\x1b\[\d{0,3}C")
PACKED = 1 << 16  # of a compressed file at once
WRITER_S = 5  # for the first byte of a pipe that was named
UNPACKED, UNPACKED_PER_BYTE = 32 << 20, 100  # bytes of a compressed file: lines that differ take a thirtieth
LONGEST = 1 << 18  # of a line without an end, this much is held at once
SEGMENT = 1 << 14  # of a line, this much is looked at
TAIL = 1 << 16
FIRST = 200  # lines of a log that begins within a box of rich: its parts have nothing to know them by
_BOX = re.compile(rb"[^\r\n\xe2]{0,60}\xe2\x94\x82[^\r\n]{0,400}\xe2\x94\x82[ \t]*\n")
REMEMBERED = 50_000  # lines and words that told nothing; with the width below about 10 MB each
MOSTLY_NEW = 0.8  # of the lines of a block
SKIP = 15  # blocks
_WIDTH = 512
_WORD = 64

# A text that a file holds this often is the job's daily bread. Lines that have nothing else to offer are passed over
# then, but for the end of the file, where a job says why it ended.
ENOUGH = 10_000
END = 4 << 20

_WIDE = re.compile(rb"[^\0](?:\0|\0{3})[^\0](?:\0|\0{3})|(?:\0|\0{3})[^\0](?:\0|\0{3})[^\0]")
_DIGITS = b"0123456789"
_BREAKS = bytes.maketrans(b"\r", b"\n")  # progress bars write over themselves


class Sieve:
    """The lines of interest of one file after the other.

    Args:
        needles: texts of which one is in every line of interest.
        always: a pattern that is searched in every line besides, or None.
    """

    def __init__(self, needles: Sequence[bytes], always: re.Pattern[bytes] | None = None):
        # Needles are compared with lines that have lost their digits.
        self._needles = tuple(dict.fromkeys(needle.translate(None, _DIGITS) for needle in needles))
        self._fragments: dict[bytes, tuple[bytes, ...]] = {}
        for needle in self._needles:
            part = _fragment(needle)
            self._fragments[part] = (*self._fragments.get(part, ()), needle)
        self._always = always
        self._dull: set[bytes] = set()
        self._dull_words: set[bytes] = set()
        self._telling_words: dict[bytes, tuple[bytes, ...]] = {}  # with the needles that they may belong to
        self._blocks_to_skip = 0
        self._left: dict[bytes, int] = {}
        self._ending = True
        self.lines = 0
        self.size = 0
        self.sample = b""  # how the file begins
        self.wide = 0  # bytes of characters that take two or four of them (UTF-16, UTF-32)
        self.tail = b""  # how it ends
        self.tail_line = 1  # the number of the tail's first line
        self.tail_cut = False  # whether the tail begins within a line
        self.broken = ""
        self.unfinished = False  # the last line has no end
        self._until = self._now = 0
        self.told = False  # set by the reader while it looks at a line: it told something

    def attend(self, lines: int) -> None:
        """Let the next lines through, whatever they are."""
        self._until = max(self._until, self._now + lines)

    def lines_of(self, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """The number and the bytes of each line of interest; parts of one line between carriage returns count as
        lines of the same number. Ends early where the file is damaged (`broken` says how)."""
        self.lines, self.size, self.broken, self._until, self._now = 0, 0, "", 0, 0
        self.wide = 0
        self.sample, self.tail, self.tail_line, self.tail_cut = b"", b"", 1, False
        self._left = dict.fromkeys(self._needles, ENOUGH)
        whole = _size(stream)
        rest, within = b"", False
        while True:
            try:
                block = stream.read(BLOCK)
            except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                block, self.broken = b"", f"{type(error).__name__}: {error}"
            self.size += len(block)
            self._ending = whole - self.size < END if whole else False
            data = rest + block
            if not block:
                self.broken = self.broken or getattr(stream, "broken", "")
                self.unfinished = bool(data) or within
                self.lines += within and not data
                if data:
                    yield from self._block(data, last=True)
                return
            cut = data.rfind(b"\n") + 1
            if not cut and len(data) < LONGEST:
                rest = data
                continue
            within = not cut  # a line without an end is looked at in parts
            cut = cut or len(data)
            rest = data[cut:]
            yield from self._block(data[:cut])

    def _block(self, data: bytes, last: bool = False) -> Iterator[tuple[int, bytes]]:
        data = data if data.isascii() else OTHER_BLANKS.sub(b" ", data)
        data = FORWARD.sub(b" ", data) if b"\x1b[" in data else data
        first = self.lines + 1
        ends = data.count(b"\n")
        self.sample = self.sample or data[:TAIL]
        if first == 1 and _BOX.match(data):
            self.attend(FIRST)
        if b"\0" in data:
            self.wide += 4 * len(_WIDE.findall(data))
        self._keep_tail(data, first, ends)
        if self._until >= first or self._interesting(data):
            yield from self._walk(data, first)
        self.lines += ends + (1 if last and not data.endswith(b"\n") else 0)

    def _keep_tail(self, data: bytes, first: int, ends: int) -> None:
        if len(data) < TAIL and self.tail:
            data = self.tail + data
            first = self.tail_line
            ends = data.count(b"\n")
        kept = data[-TAIL:]
        self.tail_cut = len(kept) < len(data) or (self.tail_cut and first == self.tail_line)
        self.tail = kept
        self.tail_line = first + ends - kept.count(b"\n")

    # ------------------------------------------------------------------------------------------ what tells

    def _interesting(self, data: bytes) -> bool:
        if self._always is not None and self._always.search(data):
            return True
        bare = data.translate(_BREAKS, _DIGITS)
        if self._blocks_to_skip:
            self._blocks_to_skip -= 1
            return self._worth(bare)
        lines = {*bare.split(b"\n")}
        new = lines - self._dull
        if not new:
            return False
        if len(new) > MOSTLY_NEW * bare.count(b"\n"):
            self._blocks_to_skip = SKIP  # running text: remembering its lines is of no use
        if self._worth(b"\n".join(new)):
            return True
        if not self._blocks_to_skip:
            _remember(self._dull, new, _WIDTH)
        return False

    def _worth(self, text: bytes) -> bool:
        """Whether a text holds a needle that has not been seen often enough."""
        words = self._telling(text.split())
        needles = {needle for word in words for needle in self._telling_words.get(word, ())}
        return any(needle in text for needle in needles if self._ending or self._left[needle] > 0)

    def _telling(self, words: Iterable[bytes]) -> set[bytes]:
        """Those of the words that may be part of a needle."""
        words = {*words}
        known = self._telling_words.keys() & words
        new = words - self._dull_words
        new -= known
        if new:
            text = b" ".join(new)
            found = [fragment for fragment in self._fragments if fragment in text]
            telling = {word for word in new if any(fragment in word for fragment in found)} if found else set()
            _remember(self._dull_words, new - telling, _WORD)
            if len(self._telling_words) > REMEMBERED:
                self._telling_words.clear()
            for word in telling:
                parts = [fragment for fragment in found if fragment in word]
                self._telling_words[word] = tuple(needle for part in parts for needle in self._fragments[part])
            known |= telling
        return known

    def _walk(self, data: bytes, first: int) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(data.split(b"\n"), first):
            for part in line.split(b"\r") if b"\r" in line else (line,):
                self._now = number
                if len(part) > SEGMENT:
                    yield from ((number, piece) for piece in self._pieces(part))
                    continue
                template = part.translate(None, _DIGITS)
                wanted = number <= self._until
                if not wanted and template in self._dull:
                    continue
                hit = self._hit(part, template)
                if not (hit or wanted):
                    continue
                self.told = False
                yield number, part
                if hit and not self.told and self._always is None:
                    _remember(self._dull, {template}, _WIDTH)

    def _hit(self, part: bytes, template: bytes) -> bool:
        if self._always is not None and self._always.search(part) is not None:
            return True
        words = self._telling(template.split())
        needles = {needle for word in words for needle in self._telling_words.get(word, ())}
        found = [needle for needle in needles if needle in template]
        if not found:
            _remember(self._dull, {template}, _WIDTH)
            return False
        hit = self._ending
        for needle in found:
            self._left[needle] -= 1
            hit = hit or self._left[needle] >= 0
        return hit

    def _pieces(self, part: bytes) -> Iterator[bytes]:
        """What surrounds the needles in a line that is too long to be looked at as a whole."""
        end = 0
        for at in sorted(at for needle in self._needles if (at := part.find(needle)) >= 0):
            if at >= end:
                start = max(end, at - SEGMENT // 2)
                end = start + SEGMENT
                yield part[start:end]


def _remember(known: set[bytes], more: set[bytes], width: int) -> None:
    if len(known) > REMEMBERED:
        known.clear()
    if len(more) < REMEMBERED:
        known.update(text for text in more if len(text) <= width)


def _fragment(needle: bytes) -> bytes:
    """The part of a needle that is searched in single words: the one that ordinary words have least."""
    return max(needle.split(), key=lambda part: (not part.islower(), len(part)))


def _size(stream: IO[bytes]) -> int:
    """The size of a plain file, 0 where it is not known."""
    try:
        return os.fstat(stream.fileno()).st_size if isinstance(stream, io.BufferedReader) else 0
    except OSError:
        return 0


class Unpacked(io.RawIOBase):
    """What a compressed file holds. A file that is cut gives all that it holds, and then says so by an error."""

    def __init__(self, file: IO[bytes], start: Callable[[], Any]):
        super().__init__()
        self._file, self._start = file, start
        self._most = self._left = UNPACKED + UNPACKED_PER_BYTE * _size(file)
        self._decoder = start()
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes."""
        size = BLOCK if size < 0 else size
        while True:
            if self._decoder.eof:
                self._rest = self._decoder.unused_data or self._file.read(PACKED)
                if not self._rest.strip(b"\0"):
                    return b""
                self._decoder = self._start()  # files that were appended to
            data = self._rest or (self._file.read(PACKED) if self._hungry() else b"")
            if not data and self._hungry():
                raise EOFError("the compressed file is cut")
            text: bytes = self._decoder.decompress(data, size)
            self._left -= len(text)
            if self._left < 0:
                raise EOFError(f"it unpacks to more than {self._most >> 20} MiB, the limit for its size")
            self._rest = getattr(self._decoder, "unconsumed_tail", b"")
            if text:
                return text

    def _hungry(self) -> bool:
        return bool(getattr(self._decoder, "needs_input", not self._rest))

    def close(self) -> None:
        """Close the file below."""
        self._file.close()
        super().close()


class _Piped(io.RawIOBase):
    """What somebody else writes while it is read: the clock of `limits` stands still while nothing comes."""

    def __init__(self, file: IO[bytes]):
        super().__init__()
        self._file = file
        self._left, self._busy = MOST_PIPED, 0.0
        self._came = time.monotonic()

    def read(self, size: int = -1) -> bytes:
        self._busy += time.monotonic() - self._came
        with limits.waiting():
            data: bytes = getattr(self._file, "read1", self._file.read)(size)
        self._came = time.monotonic()
        self._left -= len(data)
        if self._busy > MOST_BUSY_S:
            raise EOFError(f"what comes takes more than {MOST_BUSY_S:.0f} s to read, the limit for a pipe")
        if self._left < 0:
            raise EOFError(f"it does not end within {MOST_PIPED >> 20} MiB, the limit for a pipe")
        limits.longer(len(data))
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def _is_piped(file: IO[bytes], path: str) -> bool:
    """Whether its end cannot be foreseen: somebody writes it while it is read, or it was not named.

    Raises:
        OSError: it is a device, which may never end.
    """
    try:
        mode = os.fstat(file.fileno()).st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISCHR(mode) and not os.isatty(file.fileno()):
        raise OSError(errno.EINVAL, "it is a device")
    return path == "-" or not stat.S_ISREG(mode)


def _given(path: str) -> IO[bytes]:
    file = open(regular.given(path, WRITER_S), "rb")  # noqa: SIM115
    try:
        open_folder.demand_not_led(path, file.fileno())
    except BaseException:
        file.close()
        raise
    return file


def open_log(path: str) -> IO[bytes]:
    """Open a file, or what a compressed file holds (gzip, bzip2, xz), as UTF-8 where it marks its coding; `-` is the
    standard input.

    Raises:
        OSError: it cannot be opened, is a device, or a pipe into which nobody writes.
    """
    file: IO[bytes] = sys.stdin.buffer if path == "-" else _given(path)
    if os.path.basename(path) == error_file.NAME:
        with file:
            return io.BytesIO(error_file.text_of(file))
    source = cast(IO[bytes], _Piped(file)) if _is_piped(file, path) else file
    head = file.peek(SEGMENT)[:SEGMENT] if isinstance(file, io.BufferedReader) else b""
    starts: dict[bytes, Callable[[], Any]] = {
        b"\x1f\x8b": lambda: zlib.decompressobj(31),
        b"BZh": bz2.BZ2Decompressor,
        b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=DICTIONARY),
    }
    for magic, start in starts.items():
        if head.startswith(magic):
            return cast(IO[bytes], Unpacked(source, start))
    coding = coding_of(head)
    return cast(IO[bytes], Decoded(source, coding)) if coding else source
