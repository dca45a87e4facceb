"""Bundles: what a run of safelaunch left of its incidents, in folders or in a tar file, on whichever machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from safelaunch import regular
from safelaunch.codec import ShapeError, checked
from safelaunch.codes import CATALOGUE
from safelaunch.evidence.offline.archives import (
    ARCHIVES,
    MAX_DOCUMENT,
    WANTED,
    UnreadableError,
    from_tar,
    from_zip,
    is_zip,
)
from safelaunch.evidence.offline.job import JobResult, result_of
from safelaunch.model import Case, RankFacts, Verdict
from safelaunch.model.hosts import host_name
from safelaunch.model.ranks import MOST_RANKS

CASE = "evidence/case.json"
CASE_BEGINS = re.compile(rb'\s*\{\s*"incident"\s*:\s*\{\s*"kind"')  # as `codec` writes one
DEPTH = 5  # folders below the one that was named: run id, host, incident
MAX_LINE = 1 << 20  # of agent.jsonl

MOST_PIDS = 1 << 22  # PID_MAX_LIMIT of Linux


T = TypeVar("T")


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
class _Started:
    """What is read of run.json."""

    run_id: str = ""


@dataclass(frozen=True)
class _Result:
    """What is read of result.json. Its verdicts are taken apart one by one: a wrong one costs itself."""

    exit_code: int | None = None
    verdicts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Moment:
    """What is read of a line of agent.jsonl: its time by the wall clock, and by CLOCK_MONOTONIC."""

    time: float
    t: float


@dataclass(frozen=True)
class Run:
    """What one PATH holds: incidents, and how the run ended where it left none. `unended` says that a node of it has
    left no result: it was ended from outside, or still runs. `notes` tell whose words these are, where they are those
    of other nodes."""

    incidents: tuple[Recorded, ...] = ()
    exit_code: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    unreadable: tuple[str, ...] = ()
    unended: bool = False
    notes: tuple[str, ...] = ()


def knows(path: str) -> bool:
    """Whether a path is a bundle, or holds some."""
    if os.path.isfile(path):
        if path.endswith(ARCHIVES) or is_zip(path):
            return True
        return os.path.basename(path) == "case.json" or _is_case(path)
    return next(_documents(path), None) is not None


def read(path: str) -> Run:
    """All incidents at or below a path, in the order of their folders.

    Raises:
        UnreadableError: when it is no archive, one that unpacks without end, or one without a document of a run.
    """
    if os.path.isfile(path) and os.path.basename(path) != "case.json":
        if _is_case(path):
            return _run(path, {"case.json": regular.beginning(path, MAX_DOCUMENT + 1)}, in_tar=True)
        documents, damage = from_zip(path) if is_zip(path) else from_tar(path)
        if not documents:
            what = damage or "it holds no run of safelaunch; of dumps or logs, name the folder they are unpacked to"
            raise UnreadableError(what)
        run = _run(path, documents, in_tar=True)
        return replace(run, unreadable=(*run.unreadable, f"{path}: {damage}")) if damage else run
    return _run(path, dict(_documents(path)), in_tar=False)


def _is_case(path: str) -> bool:
    """Whether a file begins as a case does, whatever it is called."""
    try:
        return bool(CASE_BEGINS.match(regular.beginning(path, 200)))
    except (OSError, ValueError):
        return False


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


def _run(path: str, documents: Mapping[str, bytes | None], *, in_tar: bool) -> Run:
    incidents: list[Recorded] = []
    unreadable: list[str] = []
    bare: list[Verdict | None] = []  # of incidents whose case cannot be read

    def read(cls: type[T], name: str) -> T | None:
        try:
            # What a tar file does not hold is not looked for in the current folder.
            return None if in_tar and name not in documents else _document(cls, name, documents)
        except UnreadableError as error:
            unreadable.append(f"{name}: {error}")
            return None

    for name in sorted((name for name in documents if os.path.basename(name) == "case.json"), key=_natural):
        folder = os.path.dirname(name)
        folder = os.path.dirname(folder) if os.path.basename(folder) == "evidence" else folder
        case = read(Case, name)
        if case is None:
            bare.append(read(Verdict, os.path.join(folder, "verdict.json")))
            continue
        started = read(_Started, _above(folder, "run.json", documents))
        incidents.append(
            Recorded(
                path if in_tar else folder,
                case,
                read(Verdict, os.path.join(folder, "verdict.json")),
                read(Verdict, os.path.join(folder, "notice.json")),
                started.run_id if started is not None else "",
                _offset(_above(folder, "agent.jsonl", documents), documents),
            )
        )
    ends = [read(_Result, name) for name in documents if os.path.basename(name) == "result.json"]
    above = None if in_tar or incidents or ends else _of_job(documents)
    if above is not None:
        ends = [_Result(above.exit_code, above.verdicts)]
    codes = [end.exit_code for end in ends if end is not None and end.exit_code is not None]
    verdicts: list[Verdict] = []
    for end in ends:
        for item in end.verdicts if end is not None else ():
            try:
                verdicts.append(without_advice(checked(Verdict, item)))
            except ShapeError as error:
                unreadable.append(f"a verdict of result.json: {error}")
    verdicts = verdicts or [verdict for verdict in bare if verdict is not None]
    unreadable = list(dict.fromkeys(unreadable))
    ended = {os.path.dirname(name) for name in documents if os.path.basename(name) == "result.json"}
    unended = any(os.path.dirname(name) not in ended for name in documents if os.path.basename(name) == "run.json")
    notes = (f"as the other nodes of the job concluded it ({above.path}): this one left no result",) if above else ()
    return Run(tuple(incidents), max(codes, default=None), tuple(verdicts), tuple(unreadable), unended, notes)


def _of_job(documents: Mapping[str, bytes | None]) -> JobResult | None:
    """What others have concluded, where one node's folder holds neither an incident nor a result."""
    folders = [os.path.dirname(name) for name in documents if os.path.basename(name) == "run.json"]
    return result_of(folders[0]) if len(folders) == 1 else None


def _document(cls: type[T], name: str, documents: Mapping[str, bytes | None]) -> T | None:
    """A document, None where there is none.

    Raises:
        UnreadableError: it is damaged, or of another shape.
    """
    try:
        document = checked(cls, _json(name, documents.get(name)))
        if isinstance(document, Verdict):
            document = cast(T, without_advice(document))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(error.strerror or "it cannot be read") from None
    except RecursionError:
        raise UnreadableError("it is nested too deep") from None
    except MemoryError:
        raise UnreadableError("reading it takes more memory than the limit for its size") from None
    except ShapeError as error:
        raise UnreadableError(f"it holds no {cls.__name__.strip('_').lower()} ({str(error)[:120]})") from None
    except ValueError as error:
        raise UnreadableError(f"it is no JSON ({str(error)[:80]})") from None
    if isinstance(document, Case):
        _check(document)
        document = cast(T, replace(document, host=host_name(document.host), ranks=tuple(map(_told, document.ranks))))
    return document


def without_advice(verdict: Verdict) -> Verdict:
    """A verdict as a file has it. Its advice goes: whoever wrote the file may have put any command there.

    Raises:
        ShapeError: its code is none.
    """
    if verdict.code not in CATALOGUE:
        raise ShapeError(f".code: expected a code of safelaunch, got {verdict.code[:40]!r}")
    return replace(verdict, remedy="")


def _told(facts: RankFacts) -> RankFacts:
    """A rank without what is known of its exception under a code that we do not have, as a newer version may, and with
    last lines that may be shown one by one: bundles of older versions have them as they were printed."""
    error = facts.error
    if error is not None and error.known is not None and error.known.code and error.known.code not in CATALOGUE:
        facts = replace(facts, error=replace(error, known=None))
    if not facts.last_lines:
        return facts
    from safelaunch import redaction

    return replace(facts, last_lines=tuple(redaction.lines(facts.last_lines)))


def _check(case: Case) -> None:
    """Refuse numbers of ranks that no job has: rules count up to them."""
    ranks = [facts.rank for facts in case.ranks]
    ranks += [rank for group in case.groups for rank in group.ranks]
    ranks += [call.peer for facts in case.ranks for call in facts.calls if call.peer is not None]
    if not 0 < case.world_size <= MOST_RANKS:
        raise UnreadableError(f"it tells of a world of {case.world_size} ranks")
    if len({facts.rank for facts in case.ranks}) < len(case.ranks):
        raise UnreadableError("it tells of one rank twice")
    if any(not -1 <= rank < MOST_RANKS for rank in ranks):
        raise UnreadableError("it tells of a rank that no job has")
    if not all(map(_has_pid, case.ranks)):
        raise UnreadableError("it tells of a process that no rank is")


def _has_pid(facts: RankFacts) -> bool:
    """Whether the pid of a rank is one, or 0 where none is known. It stands in commands: `kill -CONT -1` goes to all
    processes, and 0 stands for one's own group."""
    seen = facts.state not in ("", "X", "Z") or facts.kernel is not None  # proc(5): X and Z have ended
    port = facts.error.around.port if facts.error is not None and facts.error.around is not None else None
    holder = port.pid if port is not None else None
    owns = 1 < facts.pid <= MOST_PIDS or (facts.pid == 0 and not seen)
    return owns and (holder is None or 0 < holder <= MOST_PIDS)


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
        data = regular.beginning(name, MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise UnreadableError(f"larger than {MAX_DOCUMENT >> 20} MiB")
    return json.loads(data.decode("utf-8", errors="replace"))


def _offset(name: str, documents: Mapping[str, bytes | None]) -> float | None:
    """Wall clock less CLOCK_MONOTONIC, as the journal's first line has both."""
    data = documents.get(name)
    try:
        if data is None:
            data = b"" if any(documents.values()) else regular.beginning(name, MAX_LINE)
        first = checked(_Moment, json.loads(data[:MAX_LINE].partition(b"\n")[0]))
    except (OSError, ValueError, RecursionError, ShapeError):
        return None
    return float(first.time) - float(first.t)


def _natural(name: str) -> list[tuple[int, str]]:
    """`incident-10` after `incident-2`."""
    parts: list[tuple[int, str]] = []
    for part in name.split(os.sep):
        stem, _, number = part.rpartition("-")
        parts.append((int(number), stem) if stem and number.isdecimal() and len(number) < 10 else (0, part))
    return parts
