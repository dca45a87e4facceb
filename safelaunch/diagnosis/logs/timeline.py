"""What the lines of a log amount to: who may have been first, and who only followed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safelaunch.diagnosis.logs.quoting import HEADLINE, LINE, fit
from safelaunch.diagnosis.wording import names
from safelaunch.model import Location
from safelaunch.model.logs import Ended, LogFacts, LogLine, Raised, Sighting

# Times of different processes closer than this say nothing: stamps are taken when a line is written. An estimate.
SIMULTANEOUS_S = 1.0

_LOGGER = re.compile(r"^\[?[EWIF](?:\d{3,4} [\d:.]+ (?:\d+ )?)? ?\S+?\.(?:cpp|cc|cu|hpp|h|ts|rs|py):\d+\] ")
_NCCL = re.compile(r"^.{0,200}?NCCL WARN ")
_DATE = re.compile(r"^[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d ")
_SOURCE = re.compile(r"\[[\w./+-]{1,200}\.(?:cc|cpp|hpp|h):\d{1,6}\] ")
# `ERROR:root:`, `| ERROR | trainer |`, `[ERROR] [launch.py:341:handler]`, `E 393 393]`
_LEVEL = re.compile(
    r"^(?:(?:\[[\w.]{1,120}\])?\[(?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\] - "
    r"|[|\s-]{0,4}\[?(?:ERROR|CRITICAL|FATAL|WARNING|WARN)\]?(?:[:|\s-]{1,4}[\w.]{1,60}(?=[:|]|\s[-|]))?[:|\s-]{1,4})"
)


# What other loggers put there: Ray's, xinference's, zap's, CANN's; a line number that another mark has left.
_OTHERS = re.compile(
    r"^(?:(?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+ (?:[\w.-]{1,60} \d+ )?(?:-- )?"
    r"|\d\.\d{3,20}e\+\d\d\s+(?:DEBUG|INFO|WARN|ERROR|DPANIC)\s+(?:[\w.-]{1,60}\s+)?"
    r"|(?:\[(?:ERROR|EVENT|WARNING)\] )?[A-Z]{2,12}\(\d+,[\w.-]*\):\d{4}-\d\d-\d\d-[\d:.]+ ?"
    r"(?:\[[\w./]+:\d+\] ?)?(?:\d+ )?"
    r"|(?:ERROR )?(?:[\w./]{1,80}\.py:)?\d{1,5} -- )"
)
# What a logger of fields puts behind a message.
_FIELDS = re.compile(r"\s+\{\"[^\n]*$")


@dataclass(frozen=True)
class Candidate:
    """Something that may have been first: one process and how it failed.

    Args:
        sources: the independent witnesses of it: a traceback, the launcher's record, the kernel, the scheduler, a
            message.
        alike: equal for processes that failed in the same way.
        message_only: a message says so, and nothing else.
        guessed: its rank was found by counting, not told.
        vague: an error of NCCL that does not say why.
        blameless: it tells of what several processes do to each other.
        error: the name of the error, equal for ranks that met the same one at whatever place.
    """

    rank: int | None
    host: str
    code: str
    at: LogLine
    what: str
    sources: frozenset[str]
    alike: object
    location: Location | None = None
    remedy: str = ""
    traceback: str = ""
    pid: int | None = None
    times: int = 1
    message_only: bool = False
    guessed: bool = False
    local: int | None = None
    process: str = ""
    vague: bool = False
    blameless: bool = False
    more: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Timeline:
    """What the lines amount to.

    Args:
        candidates: they may be the cause.
        victims: ranks that only followed, each with the line that says so.
        outside: what came from outside the job.
        unexplained: processes that failed, and nothing says why.
        launcher: exceptions of launchers.
        survived: exceptions after which their process went on.
        cut: exceptions whose traceback has no end.
        earlier: exceptions of an attempt, or a job, before the last one.
        alarms: messages that speak of a failure, after which no job says that it ended well.
    """

    facts: LogFacts
    candidates: tuple[Candidate, ...] = ()
    victims: tuple[tuple[int | None, LogLine], ...] = ()
    outside: tuple[Sighting, ...] = ()
    unexplained: tuple[Ended, ...] = ()
    launcher: tuple[Raised, ...] = ()
    survived: tuple[Raised, ...] = ()
    cut: tuple[Raised, ...] = ()
    earlier: tuple[Raised, ...] = ()
    alarms: tuple[Sighting, ...] = ()


def before(one: LogLine, other: LogLine) -> bool | None:
    """Whether a line was written before another; None where that cannot be told."""
    if one.t is not None and other.t is not None and one.clock == other.clock:
        if abs(one.t - other.t) >= SIMULTANEOUS_S:
            return one.t < other.t
        if one.file != other.file:
            return None
    if one.file == other.file:
        return one.line < other.line
    return None


def quote(line: LogLine, limit: int = LINE) -> str:
    """`train.log:12: RuntimeError: ...`, without what torch's loggers put before a message."""
    return f"{line.file}:{line.line}: {fit(_LOGGER.sub('', line.text), limit)}"


def bare(line: LogLine) -> str:
    """A line without what torch's loggers put before a message."""
    return _LOGGER.sub("", line.text).strip()


def words(line: LogLine, limit: int = HEADLINE) -> str:
    """What a line says, without what loggers put before it."""
    text = line.text
    for before_message in (_LOGGER, _OTHERS, _LEVEL, _NCCL, _DATE, _SOURCE):
        text = before_message.sub("", text, count=1)
    text = _FIELDS.sub("", text) if not text.startswith("{") else text
    return fit(text.strip(), limit)


def missing(facts: LogFacts, *, recorder: bool = False) -> tuple[str, ...]:
    """What would have told more, as `because` lines."""
    said: list[str] = []
    if facts.world_size is not None:
        unread = {rank for file in facts.files if file.unreadable for rank in file.ranks}
        away = sorted(set(range(facts.world_size)) - set(facts.ranks) - unread)
        if away and facts.ranks:
            said.append(f"no log of {names(away)} was given")
    if any(s.known.name == "flight-recorder-off" for s in facts.sightings):
        said.append(
            "the watchdog shows no stack of the call, potentially since the Flight Recorder was off: set "
            "TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before 2.8)"
        )
    elif recorder:
        said.append("a dump of the Flight Recorder would tell where each rank was (TORCH_FR_BUFFER_SIZE=2000)")
    said += [f"{file.path} was not read to its end: {file.unreadable}" for file in facts.files if file.unreadable][:2]
    return tuple(said)
