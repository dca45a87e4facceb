"""What an ELF library says of itself: the words in its constants, and what it loads and from where. No code is read.

The libraries of torch and NCCL are gigabytes, nearly all of it code for GPUs. The names of variables lie in the
sections of constants, which are a few megabytes; only these pages are touched.

Format: System V ABI, chapters 4 (object files) and 5 (dynamic section); elf(5).
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass

# Linkers keep string literals here; the second name is for objects above 64 kB with -mcmodel=medium.
CONSTANTS = (".rodata", ".lrodata")

# A whole constant, or the end of one: linkers fold a string into another that ends with it, and constants that are no
# strings stand before a string without a NUL between. Digits before a name are such a constant.
WORD = re.compile(rb"[A-Z0-9_]+\0")

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")
_SHT_DYNAMIC, _SHT_NOBITS = 6, 8
_DT_NULL, _DT_NEEDED, _DT_RPATH, _DT_RUNPATH = 0, 1, 15, 29
_SHORTEST = 4  # shorter words are never names of variables that anybody asks for


@dataclass(frozen=True)
class Loads:
    """The libraries that one names, and the folders in which the loader is to look for them, `$ORIGIN` as it is."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    start: int
    size: int
    link: int


class Elf:
    """One library, mapped into memory; use it as a context manager.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no 64-bit little-endian ELF file, or is damaged, or has no table of sections.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # an empty file
                raise ValueError(f"{path}: {error}") from None
        try:
            self._sections = self._read_sections()
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            self._map.close()
            raise ValueError(f"{path}: {error}") from None

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *exception: object) -> None:
        self._map.close()

    def words(self) -> frozenset[str]:
        """Every word of capitals, digits and at least one `_` that ends a constant, without digits before it."""
        found: set[bytes] = set()
        for start, end in self._constants():
            found.update(WORD.findall(self._map, start, end))
        words = {word[:-1].lstrip(b"0123456789") for word in found if b"_" in word}
        return frozenset(word.decode("ascii") for word in words if len(word) >= _SHORTEST)

    def search(self, pattern: re.Pattern[bytes]) -> str:
        """The first group of a pattern where it first matches in the constants; "" where it does not."""
        for start, end in self._constants():
            match = pattern.search(self._map, start, end)
            if match:
                return match[1].decode("ascii", "replace")
        return ""

    def loads(self) -> Loads:
        """What the dynamic loader will look for on behalf of this library, and where.

        Raises:
            ValueError: the dynamic section is damaged.
        """
        needed, rpath, runpath = [], "", ""
        try:
            for section in self._sections:
                if section.kind == _SHT_DYNAMIC:
                    strings = self._sections[section.link].start
                    for tag, value in _DYNAMIC.iter_unpack(self._map[section.start : section.start + section.size]):
                        if tag == _DT_NULL:
                            break
                        if tag == _DT_NEEDED:
                            needed.append(self._string(strings + value))
                        elif tag == _DT_RPATH:
                            rpath = self._string(strings + value)
                        elif tag == _DT_RUNPATH:
                            runpath = self._string(strings + value)
        except (struct.error, IndexError, OverflowError) as error:
            raise ValueError(f"damaged dynamic section: {error}") from None
        return Loads(tuple(needed), tuple(filter(None, rpath.split(":"))), tuple(filter(None, runpath.split(":"))))

    def _constants(self) -> list[tuple[int, int]]:
        return [
            (section.start, section.start + section.size)
            for section in self._sections
            if section.kind != _SHT_NOBITS and section.name.startswith(CONSTANTS)
        ]

    def _read_sections(self) -> tuple[_Section, ...]:
        if self._map[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(self._map, 0)
        table, entry_size, count, names_at = header[6], header[11], header[12], header[13]
        if not table or not count:
            raise ValueError("no table of sections")
        raw = [_SECTION.unpack_from(self._map, table + index * entry_size) for index in range(count)]
        names = raw[names_at][4]
        sections = tuple(_Section(self._string(names + row[0]), row[1], row[4], row[5], row[6]) for row in raw)
        for section in sections:
            if section.kind != _SHT_NOBITS and section.start + section.size > len(self._map):
                raise ValueError(f"truncated: {section.name} ends behind the end of the file")
        return sections

    def _string(self, at: int) -> str:
        end = self._map.find(b"\0", at)
        if not 0 <= at < len(self._map) or end < 0:
            raise IndexError("a name lies outside of the file")
        return self._map[at:end].decode("utf-8", "replace")
