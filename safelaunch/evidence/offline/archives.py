"""The documents of a run in archives that others have packed: tar and zip. Nothing is unpacked to disk."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import tarfile
import zlib
from typing import IO, Any

from safelaunch import regular

MAX_DOCUMENT = 64 << 20  # bytes; the case of eight ranks is about 300 KB
# Bytes that an archive may unpack to, and at most. JSON is packed to a twentieth, a log of one line to a hundredth.
UNPACKED, UNPACKED_PER_BYTE, MAX_UNPACKED = 32 << 20, 64, 2 << 30
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
MAX_MEMBERS = 100_000
TWICE = "{} is in it more than once, and the last one counts"
LINKED = "{} is a link in it, and no link is followed (GNU tar packs the files with --hard-dereference)"
WANTED = ("case.json", "verdict.json", "notice.json", "run.json", "result.json", "agent.jsonl")
ENDS = 8  # reads behind the end of a file: tarfile makes two

# What comes of members that are damaged or encrypted, or packed in a way that is not known.
DAMAGED = (
    OSError, EOFError, ValueError, RuntimeError, OverflowError, LookupError, struct.error, zlib.error, lzma.LZMAError,
)  # fmt: skip


class UnreadableError(Exception):
    """A bundle that cannot be read; the message says why."""


def from_tar(path: str) -> tuple[dict[str, bytes | None], str]:
    """The documents of a tar file by their names in it, and why there may be more. Nothing is unpacked to disk, and
    links are not followed. Of two of one name the last one counts, as where it is unpacked."""
    found: dict[str, bytes | None] = {}
    twice = linked = ""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            source: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            bounded: Any = _Bounded(source, _most(path))
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for count, member in enumerate(archive):
                    if count >= MAX_MEMBERS:
                        raise UnreadableError(f"it has more than {MAX_MEMBERS} members")
                    name = os.path.normpath(member.name)
                    if os.path.basename(name) not in WANTED:
                        continue
                    if not member.isreg():
                        linked = LINKED.format(name) if member.islnk() or member.issym() else linked
                        continue
                    twice = TWICE.format(name) if name in found else twice
                    file = archive.extractfile(member)
                    if file is not None and member.size <= MAX_DOCUMENT:
                        found[name] = file.read()
    except UnreadableError as error:
        if not found:
            raise
        return found, f"the rest of it: {error}"
    except (*DAMAGED, tarfile.TarError) as error:
        if not found:
            raise UnreadableError(f"it is no tar file, or damaged: {error}") from error
        return found, f"it is cut off or damaged ({error})"
    return found, "; ".join(filter(None, [linked, twice]))


def _most(path: str) -> int:
    return min(UNPACKED + UNPACKED_PER_BYTE * os.path.getsize(path), MAX_UNPACKED)


class _Bounded:
    """A file that ends with an error when more than `most` bytes are read from it, or when it is read on and on behind
    its end: a header may tell of a member of 10^18 bytes."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file = file
        self._most = self._left = most
        self._ends = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        self._ends += not data
        if self._left < 0:
            raise UnreadableError(f"it unpacks to more than {self._most >> 20} MiB, the limit for its size")
        if self._ends > ENDS:
            raise EOFError("a member is longer than the file")
        return data


def is_zip(path: str) -> bool:
    """Whether a file begins as a zip file does."""
    try:
        return regular.beginning(path, 4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


def from_zip(path: str) -> tuple[dict[str, bytes | None], str]:
    """As `from_tar`, of a zip file: programs for mail pack what is attached."""
    import zipfile

    found: dict[str, bytes | None] = {}
    twice = ""
    left = most = _most(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise UnreadableError(f"it has more than {MAX_MEMBERS} members")
            for member in members:
                name = os.path.normpath(member.filename)
                if member.is_dir() or os.path.basename(name) not in WANTED:
                    continue
                twice = TWICE.format(name) if name in found else twice
                with archive.open(member) as file:
                    data = file.read(min(left, MAX_DOCUMENT) + 1)
                left -= len(data)
                if left < 0:
                    raise UnreadableError(f"it unpacks to more than {most >> 20} MiB, the limit for its size")
                if len(data) <= MAX_DOCUMENT:
                    found[name] = data
    except UnreadableError as error:
        if not found:
            raise
        return found, f"the rest of it: {error}"
    except (*DAMAGED, MemoryError, zipfile.BadZipFile) as error:  # MemoryError: LZMA with a dictionary of gigabytes
        if not found:
            raise UnreadableError(f"it is no zip file, damaged or encrypted: {error!r}") from error
        return found, f"it is cut off or damaged ({error})"
    return found, twice
