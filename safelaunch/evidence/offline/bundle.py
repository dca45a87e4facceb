"""Bundles: what a run of safelaunch left of its incidents, in folders or in a tar file, on whichever machine."""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, TypeVar

from safelaunch.codec import from_json
from safelaunch.codes import CATALOGUE
from safelaunch.model import Case, Verdict

CASE = "evidence/case.json"
DEPTH = 5  # folders below the one that was named: run id, host, incident
MAX_DOCUMENT = 64 << 20  # bytes; the case of eight ranks is about 300 KB
MAX_UNPACKED = 2 << 30  # bytes of a tar file, unpacked: a bomb must end somewhere
MAX_MEMBERS = 100_000
MOST_RANKS = 1 << 20
# Advice in words: nothing that a shell takes for more than a word, but a signal to processes by their numbers.
WORDS = re.compile(r"(?:[\w ,;:()'%/=.+-]|`kill -CONT(?: \d{1,10}){1,64}`)*", re.ASCII)
WANTED = ("case.json", "verdict.json", "notice.json", "run.json", "result.json", "agent.jsonl")

T = TypeVar("T")


class UnreadableError(Exception):
    """A bundle that cannot be read; the message says why."""


@dataclass(frozen=True)
class Recorded:
    """One incident of one node. `verdict` and `notice` are what was said while the run lived. `wall_offset` turns its
    CLOCK_MONOTONIC into the wall clock (None: not known)."""

    path: str
    case: Case
    verdict: Verdict | None = None
    notice: Verdict | None = None
    run_id: str = ""
    wall_offset: float | None = None


@dataclass(frozen=True)
class Run:
    """What one PATH holds: incidents, and how the run ended where it left none."""

    incidents: tuple[Recorded, ...] = ()
    exit_code: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    unreadable: tuple[str, ...] = ()


def knows(path: str) -> bool:
    """Whether a path is a bundle, or holds some."""
    if os.path.isfile(path):
        if path.endswith((".tar", ".tar.gz", ".tgz")):
            return True
        return os.path.basename(path) == "case.json"
    return next(_documents(path), None) is not None


def read(path: str) -> Run:
    """All incidents at or below a path, in the order of their folders.

    Raises:
        UnreadableError: when it is no tar file, or one that unpacks without end.
    """
    if os.path.isfile(path) and os.path.basename(path) != "case.json":
        documents, damage = _from_tar(path)
        run = _run(path, documents, in_tar=True)
        return replace(run, unreadable=(*run.unreadable, f"{path}: {damage}")) if damage else run
    return _run(path, dict(_documents(path)), in_tar=False)


def _documents(path: str) -> Iterator[tuple[str, bytes | None]]:
    """Documents below a folder by their paths, without what is in them (None). Nothing is read here."""
    if os.path.isfile(path):
        folder = os.path.dirname(os.path.abspath(path))
        path = os.path.dirname(folder) if os.path.basename(folder) == "evidence" else folder
    if os.path.basename(os.path.abspath(path)) == "evidence":
        path = os.path.dirname(os.path.abspath(path))
    depth = path.rstrip(os.sep).count(os.sep) + DEPTH
    for folder, below, names in os.walk(path):
        below.sort(key=_natural)
        below[:] = [name for name in below if not name.startswith(("rank_", "attempt_"))]
        if folder.count(os.sep) >= depth:
            below.clear()
        if "case.json" in names or "run.json" in names or "verdict.json" in names:
            for name in WANTED:
                if name in names:
                    yield os.path.join(folder, name), None


def _from_tar(path: str) -> tuple[dict[str, bytes | None], str]:
    """The documents of a tar file by their names in it, and why there may be more. Nothing is unpacked to disk, and
    links are not followed."""
    found: dict[str, bytes | None] = {}
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            source: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            bounded: Any = _Bounded(source)
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for count, member in enumerate(archive):
                    if count >= MAX_MEMBERS:
                        raise UnreadableError(f"it has more than {MAX_MEMBERS} members")
                    name = os.path.normpath(member.name)
                    if not member.isreg() or os.path.basename(name) not in WANTED or name in found:
                        continue
                    file = archive.extractfile(member)
                    if file is not None and member.size <= MAX_DOCUMENT:
                        found[name] = file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        if not found:
            raise UnreadableError(f"it is no tar file, or damaged: {error}") from error
        return found, f"it is cut off or damaged ({error})"
    return found, ""


class _Bounded:
    """A file that ends with an error when more than `MAX_UNPACKED` bytes are read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MAX_UNPACKED

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UnreadableError(f"it unpacks to more than {MAX_UNPACKED >> 30} GiB")
        return data


def _run(path: str, documents: Mapping[str, bytes | None], *, in_tar: bool) -> Run:
    incidents: list[Recorded] = []
    unreadable: list[str] = []
    for name, data in sorted(documents.items(), key=lambda item: _natural(item[0])):
        if os.path.basename(name) != "case.json":
            continue
        folder = os.path.dirname(name)
        folder = os.path.dirname(folder) if os.path.basename(folder) == "evidence" else folder
        run = _above(folder, "run.json", documents)
        try:
            case = from_json(Case, _json(name, data))
            if not 0 < int(case.world_size) <= MOST_RANKS:
                raise UnreadableError(f"a world of {case.world_size} ranks")
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError, UnreadableError) as error:
            shown = error.strerror if isinstance(error, OSError) else f"it holds no case ({str(error)[:80]})"
            unreadable.append(f"{name}: {shown}")
            continue
        incidents.append(
            Recorded(
                path if in_tar else folder,
                case,
                _verdict(os.path.join(folder, "verdict.json"), documents),
                _verdict(os.path.join(folder, "notice.json"), documents),
                str((_maybe(run, documents) or {}).get("run_id", "")),
                _offset(_above(folder, "agent.jsonl", documents), documents),
            )
        )
    results = [_maybe(name, documents) for name in documents if os.path.basename(name) == "result.json"]
    ends = [result for result in results if isinstance(result, dict)]
    codes = [code for result in ends if isinstance(code := result.get("exit_code"), int)]
    verdicts = [v for result in ends for item in result.get("verdicts") or () if (v := _as_recorded(item))]
    return Run(tuple(incidents), max(codes, default=None), tuple(verdicts), tuple(unreadable))


def _above(folder: str, name: str, documents: Mapping[str, bytes | None]) -> str:
    """The nearest document of that name beside an incident's folder or above it, or a name that is none."""
    while folder:
        path = os.path.join(folder, name)
        if path in documents or (not any(documents.values()) and os.path.isfile(path)):
            return path
        if os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
    return name


def _json(name: str, data: bytes | None) -> Any:
    if data is None:
        with open(name, "rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise UnreadableError(f"larger than {MAX_DOCUMENT >> 20} MiB")
    return json.loads(data.decode("utf-8", errors="replace"))


def _maybe(name: str, documents: Mapping[str, bytes | None]) -> Any:
    try:
        return _json(name, documents.get(name))
    except (OSError, ValueError, UnreadableError, RecursionError):
        return None


def _decoded(cls: type[T], data: Any) -> T | None:
    try:
        return from_json(cls, data) if data is not None else None
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return None


def _as_recorded(data: Any) -> Verdict | None:
    """A verdict as a file has it. Whoever wrote the file may have put any command into its advice: words stay."""
    found = _decoded(Verdict, data)
    if found is None or found.code not in CATALOGUE:
        return None
    return found if WORDS.fullmatch(found.remedy) and "://" not in found.remedy else replace(found, remedy="")


def _verdict(name: str, documents: Mapping[str, bytes | None]) -> Verdict | None:
    return _as_recorded(_maybe(name, documents))


def _offset(name: str, documents: Mapping[str, bytes | None]) -> float | None:
    """Wall clock less CLOCK_MONOTONIC, as the journal's first line has both."""
    data = documents.get(name)
    try:
        if data is None:
            with open(name, "rb") as file:
                data = file.readline(1 << 20)
        first = json.loads(data.partition(b"\n")[0])
        return float(first["time"]) - float(first["t"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _natural(name: str) -> list[tuple[int, str]]:
    """`incident-10` after `incident-2`."""
    parts: list[tuple[int, str]] = []
    for part in name.split(os.sep):
        stem, _, number = part.rpartition("-")
        parts.append((int(number), stem) if stem and number.isdigit() and len(number) < 10 else (0, part))
    return parts
