"""What stands before a message: times, colours, and the marks of launchers, schedulers and collectors of logs."""

from __future__ import annotations

import calendar
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from safelaunch import escapes

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LEAP_YEAR = 2000  # stands in for a year that is not given

_ISO = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(Z|[+-]\d\d:?\d\d)?\]?(?:\s*[-|:])?\s?"
)
_DAY = re.compile(r"\[?(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\]?\s")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? (\S+) (?:\S+?(?:\[\d+\])?): ")
_DMESG = re.compile(r"\[ *(\d+\.\d+)\] ")
_DMESG_T = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\] ")
# torch's C++ logger `[E321 02:07:08.408271257 file.cpp:1] ` and torchrun's `E0321 02:07:08.408000 123 torch/...] `.
_GLOG = re.compile(r"\[?[EWIF](\d{3,4}) (\d\d):(\d\d):(\d\d)\.(\d+) ")

_RANK = re.compile(r"\[rank(\d+)\]:[ \t]?")  # torch from 2.2 on: the global rank
_RANK_WITHIN = re.compile(r"\[rank(\d+)\]:[ \t]?")
WITHIN = 200  # characters from its start in which a line may name its rank, behind marks that nobody knows
_NAMED_RANK = re.compile(r"\[(?:RANK[ :]|rank[ :=]) ?(\d+)\]:?\s?(?:\|\| )?")  # lightning, determined and others
_MPI = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>:\s?")  # mpirun --tag-output
_ROLE = re.compile(r"\[([A-Za-z_]+?)(\d+)\]:")  # torchrun's tee: role and local rank
_TASK = re.compile(r" *(\d{1,6}):(?: (?!\d\d\b)|(?![ \d]))")  # srun --label; `19:14:43` and `9: 14` are times
_KUBECTL = re.compile(r"\[pod/([^/\]\s]+)/[^\]\s]+\] ?")
_CRI = re.compile(r"std(?:out|err) [FP] ")
_LOKI = re.compile(r"\{[^{}]*?\bpod=\"([^\"]+)\"[^{}]*\}\s?")
_POD = re.compile(
    r"([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?-\d+(?:-[a-z0-9]{5})?)(?: \u203a | )([a-z][-a-z0-9]*) (?:\u2502 ?)?"
)  # stern
_STREAM = re.compile(r"std(?:out|err): ")  # accelerate's and ray's way to hand on what a child says
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,252}?) {1,200}\| ")
_PDSH = re.compile(r"(?=[\w.-]{0,253}: )([A-Za-z][A-Za-z_.-]*\d[\w.-]*): ")  # a name of a host has 253 characters
_DETERMINED = re.compile(r"([0-9a-f]{8}) \|\| ")
# Processes of Ray and of vLLM: `(Worker pid=7, ip=10.0.0.9)`, `(VllmWorker rank=3 pid=7)`, `(Worker_DP1_TP3 pid=7)`.
_PROCESS = re.compile(
    r"\((?P<name>[A-Za-z_][\w.:<>\[\]-]{0,99})(?: rank=(?P<rank>\d+))? pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\)\s?"
)
_RAYLET = re.compile(r"\((raylet|gcs_server|autoscaler[^),]{0,20})(?:, ip=([\w.:]+))?\)\s?")
_TENSOR_PARALLEL = re.compile(r"Worker_TP(\d+)$")  # with nothing beside it that is the rank
# SGLang: `[2025-05-15 18:36:47 TP3] `; with DP or PP beside it, the number is no rank.
_SGLANG = re.compile(r"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) ((?:[A-Z]{2,4}\d+ ?){1,6})\] ?")
_SGLANG_BARE = re.compile(r"(\[) ?((?:(?:DP|TP|PP|EP)\d+ ?){1,4})\] ?")
# vLLM's logger, which marks each line of a traceback.
_LEVEL = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) \[?[\w./-]{1,80}:\d+\] ?"
)
# The same with a pid in place of the time, behind a time of its own.
_LEVEL_BARE = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{1,9} )?\[[\w./-]{1,80}\.py:\d+\] ?")
_COMPOSER = re.compile(r"rank(\d+)\[\d+\]\[[^\]]{1,40}\]: ?(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL): [\w.]{1,80}: ?)?")
_KAGGLE = re.compile(r"(\d{1,7}\.\d)s\t(?:\d+\t)?")
# Only where most lines of a file have them: torchrun's own template, people's own marks, mpiexec -prepend-rank.
_NUMBERED_HOST = re.compile(r"(?!\S*\.\w{1,3}:)([A-Za-z][\w.-]*):(\d{1,3}):(?!\d) ?")
_SELF = re.compile(r"(?:rank|Rank|RANK)[ _]?(\d{1,6}) ?[:|] ?")
# Marks that nobody knows before one that is known: `[Error] (Process) (EngineCore pid=7) ...`.
_MARKS = re.compile(
    r"(?:(?:\[[\w .:/-]{1,40}\]|\([\w .:/-]{1,40}\)|\d\d:\d\d(?::\d\d)?|[A-Z]{4,8}|[\w.-]{1,40}[|:>])[ \t]{1,4}){1,4}"
    r"(?P<rest>\([A-Za-z_][^)]{0,120}\bpid=\d+.*)"
)
_TEXTS = ("data", "message", "msg", "line", "text", "output")  # of a record, the field with the program's own words
_BESIDE = {"pipe", "stream"}  # without such a field a record is of a service of logs, which is not understood
_BARE = re.compile(r"\[(\d{1,6})\] ")
# Markdown, as it is copied from a page: a quotation, bold or code, of the whole line.
_MARKED_UP = re.compile(
    r"(?:> ?)(?P<quoted>(?!>).*)$|(?P<star>\*{1,3}|_{2})(?=[^\s*_])(?P<bold>.*[^\s*_])(?P=star)\s*$"
    r"|(?P<tick>`{1,2})(?=[^`])(?P<code>[^`]+)(?P=tick)\s*$"
)
_ROLES_OF_OTHERS = {
    "node", "gpu", "step", "epoch", "iter", "layer", "stage", "fold", "try", "attempt", "run", "round", "batch",
    "phase", "expert", "chunk", "shard", "level", "thread", "version",
}  # fmt: skip
COUNTED = 4  # numbers, each one more than the one before: lines, steps or items of a list, and no ranks


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Who wrote a line. `rank` is global, `local` a local rank, `task` Slurm's, `host` a node or pod; `process` is
    another name of the process that wrote it."""

    rank: int | None = None
    local: int | None = None
    task: int | None = None
    host: str = ""
    process: str = ""

    @property
    def marked(self) -> bool:
        """Whether it is known which process wrote it."""
        return not (self.rank is None and self.local is None and self.task is None) or bool(self.process)


@dataclass(frozen=True)
class Stripped(Writer):
    """A message without what stood before it, and who wrote it."""

    text: str
    t: float | None = None
    clock: str = ""


@dataclass(frozen=True)
class Habits:
    """How the lines of one file begin, where a single line does not tell for sure."""

    tasks: bool = False
    pods: bool = False
    compose: bool = False
    hosts: bool = False
    numbered: bool = False
    selves: bool = False
    bare: bool = False


def habits(lines: Sequence[str]) -> Habits:
    """What most of the lines of a sample have in front."""
    filled = [_plain(line) for line in lines if line.strip()]
    if len(filled) < 2:
        return Habits()

    def most(pattern: re.Pattern[str], share: float, *, several: bool = False) -> bool:
        found = [match[1] for line in filled if (match := pattern.match(line))]
        names = Counter(found)
        return len(found) >= share * len(filled) and (not several or len(names) <= 1 + len(filled) // 2)

    def ranks(pattern: re.Pattern[str], *, several: bool = False) -> bool:
        found = [int(match[1]) for line in filled if (match := pattern.match(line))]
        return most(pattern, 0.5, several=several) and not _counts(found)

    return Habits(
        tasks=ranks(_TASK),
        pods=most(_POD, 0.5, several=True),
        compose=most(_COMPOSE, 0.8, several=True),
        hosts=most(_PDSH, 0.8, several=True),
        numbered=most(_NUMBERED_HOST, 0.5, several=True),
        selves=ranks(_SELF),
        bare=ranks(_BARE, several=True),
    )


def _counts(numbers: Sequence[int]) -> bool:
    """Whether numbers before lines count something: they only grow, and are more than ranks that speak in turn."""
    grows = all(one < other for one, other in pairwise(numbers))
    if not grows or len(numbers) < COUNTED:
        return False
    return numbers[0] != 0 or numbers[-1] != len(numbers) - 1


def strip(line: str, known: Habits) -> Stripped:
    """Take from a line all that stands before its message."""
    text = _plain(line)
    found = Stripped(text)
    if text.startswith('{"'):
        found = _docker(text) if text.startswith('{"log":') else _recorded(text)
    start = True
    while True:
        step = _step(found, known, start)
        if step is None:
            return _within(found)
        found, start = step, False


def _plain(line: str) -> str:
    """The line without what steers a terminal, and without what marks it in a page: quoted, bold or as code."""
    text = escapes.within(line)
    if text[:1] in ">*`_" and (match := _MARKED_UP.match(text)):
        return match["quoted"] or match["bold"] or match["code"] or ""
    return text


def _recorded(text: str) -> Stripped:
    """The text of a record in JSON that has one line of a program in it, such as of a runner of tests."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return Stripped(text)
    said = [record[name] for name in _TEXTS if isinstance(record.get(name), str)] if isinstance(record, dict) else []
    return Stripped(said[0].rstrip("\n")) if len(said) == 1 and set(record) & _BESIDE else Stripped(text)


def _within(found: Stripped) -> Stripped:
    """The rank that stands behind other things: marks that nobody knows, or a progress bar without a line's end."""
    if not found.marked and (before := _MARKS.match(found.text)) and "pid=" in before["rest"]:
        step = _process(replace(found, text=before["rest"]))
        if step is not None:
            return replace(_time(step) or step, t=found.t, clock=found.clock)
    if found.rank is None and "[rank" in found.text and (match := _RANK_WITHIN.search(found.text, 0, WITHIN)):
        rest = replace(found, text=found.text[match.end() :], rank=int(match[1]))
        return (_time(rest) or rest) if not rest.clock else rest
    return found


def _step(found: Stripped, known: Habits, start: bool) -> Stripped | None:
    text = found.text
    if start and known.tasks and (match := _TASK.match(text)):
        return replace(found, text=text[match.end() :], task=int(match[1]))
    if start and (step := _by_habit(found, known)):
        return step
    if match := _RANK.match(text) or _NAMED_RANK.match(text) or _MPI.match(text) or _COMPOSER.match(text):
        return replace(found, text=text[match.end() :], rank=int(match[1]) if found.rank is None else found.rank)
    if found.local is None and (match := _ROLE.match(text)) and match[1].lower() not in _ROLES_OF_OTHERS:
        return replace(found, text=text[match.end() :], local=int(match[2]))
    if match := _KUBECTL.match(text) or _LOKI.match(text):
        return replace(found, text=text[match.end() :], host=found.host or match[1])
    if start and (match := _STREAM.match(text)):
        return replace(found, text=text[match.end() :])
    if text[:1] == "(" and (step := _process(found)):
        return step
    if match := _SGLANG.match(text) or _SGLANG_BARE.match(text):
        return _of_sglang(found, match)
    for wanted, pattern in ((known.pods, _POD), (known.compose, _COMPOSE), (known.hosts, _PDSH)):
        if wanted and not found.host and (match := pattern.match(text)):
            return replace(found, text=text[match.end() :], host=match[1])
    if found.clock and (match := _CRI.match(text) or _DETERMINED.match(text)):
        return replace(found, text=text[match.end() :])
    return _time(found)


def _by_habit(found: Stripped, known: Habits) -> Stripped | None:
    """Marks that are some only where most lines have them."""
    text = found.text
    if known.numbered and (match := _NUMBERED_HOST.match(text)):
        return replace(found, text=text[match.end() :], host=match[1], local=int(match[2]))
    if (known.selves and (match := _SELF.match(text))) or (known.bare and (match := _BARE.match(text))):
        return replace(found, text=text[match.end() :], rank=int(match[1]))
    return None


def _process(found: Stripped) -> Stripped | None:
    """Marks of processes of Ray and vLLM."""
    if match := _PROCESS.match(found.text):
        alone = _TENSOR_PARALLEL.match(match["name"])
        number = match["rank"] or (alone[1] if alone else None)
        return replace(
            found,
            text=found.text[match.end() :],
            process=f"{match['name']} pid={match['pid']}",
            host=found.host or match["ip"] or "",
            rank=int(number) if number is not None and found.rank is None else found.rank,
        )
    if match := _RAYLET.match(found.text):
        return replace(found, text=found.text[match.end() :], process=match[1], host=found.host or match[2] or "")
    return None


def _of_sglang(found: Stripped, match: re.Match[str]) -> Stripped:
    names = dict(re.findall(r"([A-Z]+)(\d+)", match[2]))
    rank = int(names["TP"]) if "TP" in names and not {"DP", "PP"} & set(names) else None
    text = found.text[match.end() :]
    text = f"{match[1]}] {text}" if match[1] != "[" else text  # the time is read next
    return replace(found, text=text, rank=rank, process="" if rank is not None else match[2].strip())


def _time(found: Stripped) -> Stripped | None:
    text = found.text
    if found.clock:
        digit = text[:1].isdecimal()
        match = _ISO.match(text) or _DAY.match(text) if digit else _LEVEL.match(text) or _LEVEL_BARE.match(text)
        return replace(found, text=text[match.end() :]) if match else None
    if match := _ISO.match(text):
        year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
        t = seconds(year, month, day, hour, minute, second, match[7])
        zone = match[8]
        if t is not None and zone and zone != "Z":
            sign = -1 if zone[0] == "+" else 1
            t += sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
        return replace(found, text=text[match.end() :], t=t, clock="utc" if zone else "local")
    if match := _GLOG.match(text):  # it stays: it says where the message comes from
        month, day = int(match[1][:-2]), int(match[1][-2:])
        t = seconds(LEAP_YEAR, month, day, int(match[2]), int(match[3]), int(match[4]), match[5])
        return replace(found, t=t, clock="year")
    if (match := _SYSLOG.match(text)) and match[1] in MONTHS:
        t = seconds(LEAP_YEAR, MONTHS.index(match[1]) + 1, int(match[2]), int(match[3]), int(match[4]), int(match[5]))
        return replace(found, text=text[match.end() :], t=t, clock="year", host=found.host or match[6])
    if (match := _DMESG_T.match(text)) and match[1] in MONTHS:
        date = (int(match[6]), MONTHS.index(match[1]) + 1, int(match[2]))
        t = seconds(*date, int(match[3]), int(match[4]), int(match[5]))
        return replace(found, text=text[match.end() :], t=t, clock="local")
    if match := _LEVEL.match(text):
        month, day, hour, minute, second = (int(match[i]) for i in range(1, 6))
        t = seconds(LEAP_YEAR, month, day, hour, minute, second)
        return replace(found, text=text[match.end() :], t=t, clock="year")
    if match := _KAGGLE.match(text):
        return replace(found, text=text[match.end() :], t=float(match[1]), clock="boot")
    if match := _DMESG.match(text):
        return replace(found, text=text[match.end() :], t=float(match[1][:20]), clock="boot")
    if match := _DAY.match(text):
        t = seconds(LEAP_YEAR, 1, 1, int(match[1]), int(match[2]), int(match[3]), match[4])
        return replace(found, text=text[match.end() :], t=t, clock="day") if t is not None else None
    return None


def seconds(
    year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None = ""
) -> float | None:
    """Seconds of a date as if it were UTC; None where it is no date."""
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 62 and year >= 1970):
        return None
    return calendar.timegm((year, month, day, hour, minute, second)) + (float(f"0.{fraction}") if fraction else 0.0)


def _docker(text: str) -> Stripped:
    """A line of Docker's json-file driver."""
    try:
        record = json.loads(text)
        message = str(record["log"]).rstrip("\n")
        stamp = _ISO.match(str(record.get("time", "")))
    except (ValueError, KeyError, TypeError):
        return Stripped(text)
    timed = _time(Stripped(stamp[0])) if stamp else None
    return Stripped(message, timed.t, timed.clock) if timed else Stripped(message)
