"""What plain log files of a job say, as far as it can be read from their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safelaunch.model.diagnostic import Location

DIGITS = 18  # of a number in a message; one with more was written into another, or is none

# cause: the message says itself why a process failed. consequence: it tells that something else failed first.
# outside: somebody or something outside the job ended it. alarm: it speaks of a failure, and does not say of which: no
# log that holds it is said to be all right. note: worth quoting, no more.
Role = Literal["cause", "consequence", "outside", "alarm", "note"]


@dataclass(frozen=True)
class LogLine:
    """A line that is quoted as evidence. `t` is in seconds, and compares only with lines of the same `clock`
    (`utc`, `local`, `year`: a date without a year, `day`: a time without a date, `boot`; empty: the line has no time).
    """

    file: str
    line: int
    text: str
    t: float | None = None
    clock: str = ""


@dataclass(frozen=True)
class Known:
    """What a signature says of a message: what it means and which code it leads to."""

    name: str
    role: Role
    code: str = ""
    means: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events share: the line, and who wrote it. `rank` is None where that cannot be told. `host` is a node
    or a pod; `attempt` counts torch elastic's restarts, and jobs that follow one another in one file; `local` is the
    local rank that its line was marked with, `process` another mark of its process (`EngineCore_DP0 pid=300`)."""

    at: LogLine
    rank: int | None = None
    host: str = ""
    attempt: int = 0
    local: int | None = None
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class Raised(Event):
    """A Python exception that was printed. `frames` are outermost first; `chain` holds the types and messages that it
    came from, first one first.

    `whole` is false where only the last line of a traceback is there, `cut` true where its message ends with the file,
    within a line. `tangled` is true where its frames were mixed with those of another process. `background` says that
    it did not end its process (a helper thread, an exception that was ignored), `launcher` that torchrun or another
    launcher raised it, `survived` that its process went on to write ordinary output, `stepped` that steps of its own
    prove it. `times` counts the same exception
    of the same rank, or, where ranks cannot be told, of any process. `relayed` is the process of Ray that had raised it
    first, where this one only passes it on.
    """

    type: str
    message: str
    frames: tuple[Location, ...] = ()
    chain: tuple[str, ...] = ()
    traceback: str = ""
    whole: bool = True
    cut: bool = False
    tangled: bool = False
    background: bool = False
    launcher: bool = False
    survived: bool = False
    stepped: bool = False
    times: int = 1
    relayed: str = ""
    known: Known | None = None


@dataclass(frozen=True, kw_only=True)
class TimedOut(Event):
    """The watchdog of a rank gave up on a collective. `member` is the rank's number within the group. `torn` marks a
    piece of a line that two processes wrote at once: whose it is, and of which group, is not known (`member` is -1).
    `limit_ms` and `ran_ms` are its timeout and the time that it had taken (-1: not said)."""

    member: int
    group: str
    seq: int
    op: str
    numel_in: int = -1
    torn: bool = False
    limit_ms: int = -1
    ran_ms: int = -1


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """How far a rank had come in a group, in its watchdog's own words (-1: it had made none; None: not said).
    `work` is the number that timed out, None where the watchdog answers for another rank's timeout, or (`own`) does
    not say which of its own."""

    member: int
    group: str
    work: int | None = None
    own: bool = False
    enqueued: int | None = None
    completed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Desync(Event):
    """TORCH_NCCL_DESYNC_DEBUG's report: `late` had finished collective `seq` and did not join the next one (-1: they
    never joined any); `inside` had joined `seq` and did not finish."""

    seq: int
    late: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Brought(Event):
    """What a rank came with to a collective, as TORCH_DISTRIBUTED_DEBUG=DETAIL compared it."""

    op: str
    shape: str = ""
    dtype: str = ""
    seq: int = -1


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """How a process ended, in the words of whoever saw it (`by`: elastic, slurm, kubernetes, launcher, parent, kernel,
    faulthandler).

    `code` is negative for a signal, None where only words are there. `first` marks what torch elastic noticed first,
    `ordered` that a launcher had told the process to end, `launcher` that it was a launcher itself. `task` is Slurm's
    number of the task. `frames` are innermost first.
    """

    by: str
    code: int | None = None
    pid: int = 0
    local_rank: int | None = None
    task: int | None = None
    first: bool = False
    ordered: bool = False
    memory: bool = False
    said: str = ""
    frames: tuple[Location, ...] = ()
    launcher: bool = False


@dataclass(frozen=True, kw_only=True)
class Sighting(Event):
    """A known message. `fields` are the named parts of it; `times` counts how often it was seen from this rank in this
    file; `inside` says that it was part of a traceback."""

    known: Known
    fields: tuple[tuple[str, str], ...] = ()
    times: int = 1
    inside: bool = False

    def field(self, name: str) -> str:
        """A named part of the message, or nothing."""
        return dict(self.fields).get(name, "")

    def number(self, name: str) -> int | None:
        """A named part of the message, where it is a number that a program counts."""
        text = self.field(name)
        return int(text) if text.isdecimal() and len(text) <= DIGITS else None


# How a verdict's lines begin that it does not rest on: what else a log says.
ALSO, WENT_ON = "the log also says: ", "it said as well, and went on: "


@dataclass(frozen=True)
class Complaint:
    """A kind of line that speaks of a failure: the first of its kind, and how often it was seen. `weight` is 3 where it
    tells of an end, 2 where it says that something failed, 1 where it may belong to that. `echo` says that it only
    passes on, or follows any failure; `wrong` that a number or a size in it cannot be as it is. `mark` is what stood
    before its message; `ranks` and `processes` are whose lines they are, as far as marks say."""

    at: LogLine
    weight: int
    echo: bool = False
    wrong: bool = False
    mark: str = ""
    times: int = 1
    ranks: tuple[int, ...] = ()
    processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Odd:
    """What is odd about the numbers or the warnings of a job that runs. `kind` is `value` (of a loss or a count),
    `pace` (of its steps), `warning` (of its own log, of what may end or slow it) or `remark` (any other warning)."""

    at: LogLine
    what: str
    kind: Literal["value", "pace", "warning", "remark"]


NotedKind = Literal[
    "rank", "reason", "returned", "solution", "native", "xid", "ras", "recorder", "hccl", "stack", "state", "silence",
    "backwards",
]  # fmt: skip


@dataclass(frozen=True)
class Noted:
    """A line that tells something beside a failure, or belongs to a report that several lines make: whose rank it
    names, a reason, a way out or what a call gave back in the words of a library, a frame of native code, a piece of a
    monitor's report. `said` is the part that tells it, `rank` whose line it is by its mark, or the rank that it names
    where its kind is `rank`."""

    at: LogLine
    kind: NotedKind
    said: str
    rank: int | None = None
    process: str = ""


@dataclass(frozen=True)
class LogFile:
    """One file that was read, whole or in part (`unreadable` says why not). `ranks` are those that wrote to it, `torn`
    counts its lines that could not be read, as when two processes wrote at once, and `left_out` what was read and was
    too much to keep. `wrapped` says that most of its lines stand in JSON that is not understood, `steps` that lines of
    it tell of the job's steps, `known` that some have a time or the mark of a program that writes logs, and `marked`
    that marks tell which process wrote some of them. `cut` says how a file shows that it is a part of a longer
    one, such as by a last line that ends within a sentence: what is not in it may have been said all the same."""

    path: str
    lines: int = 0
    size: int = 0
    ranks: tuple[int, ...] = ()
    unreadable: str = ""
    torn: int = 0
    left_out: int = 0
    wrapped: bool = False
    steps: bool = False
    known: bool = False
    marked: bool = False
    cut: str = ""


@dataclass(frozen=True)
class WellEnded:
    """A line that says that the job ended well. `proof`: torch elastic or a trainer says so, which know it; else it may
    be the `echo` of a script, which comes whatever happened. `rank` is that of whoever wrote it, as its mark says;
    `stepped` is the number of the last line before it that tells of a step, 0 for none."""

    at: LogLine
    proof: bool
    rank: int | None = None
    stepped: int = 0


@dataclass(frozen=True)
class Paced:
    """A rank that wrote lines of steps: its last line that has a time, and the longest time between two of its lines
    near the end of its file, in seconds."""

    rank: int
    last: LogLine
    pause_s: float


@dataclass(frozen=True)
class Parted:
    """The last line of a process whose mark tells its pid, with its node and its rank as far as they are known."""

    at: LogLine
    pid: int
    host: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class LogFacts:
    """All that was found in the logs of one job. `world_size` is None where no line tells it. `tails` are the last
    lines of ranks; `waiting_at` are the lines of the program at which ranks waited in a collective that timed out.
    `finished` are lines near the ends of files that say that the job ended well, and `parting` the last one of each
    file there that says that something failed; `attempt` is the latest one begun. `odd` is what is odd about the
    numbers of steps, `complaints` are the lines that speak of a failure in whatever words, and `last` the last lines of
    each file, `parted` those of processes whose marks tell their pids. `passed_over` are files whose names do
    not say what they are: they were not read. `noted` are lines that tell something beside failures, in the order of
    each file. `paced` are the ranks that wrote lines of steps.
    """

    files: tuple[LogFile, ...] = ()
    raised: tuple[Raised, ...] = ()
    timed_out: tuple[TimedOut, ...] = ()
    progress: tuple[Progress, ...] = ()
    desyncs: tuple[Desync, ...] = ()
    brought: tuple[Brought, ...] = ()
    ended: tuple[Ended, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    tails: tuple[tuple[int, LogLine], ...] = ()
    waiting_at: tuple[tuple[int, Location], ...] = ()
    world_size: int | None = None
    ranks: tuple[int, ...] = ()
    finished: tuple[WellEnded, ...] = ()
    parting: tuple[LogLine, ...] = ()
    attempt: int = 0
    odd: tuple[Odd, ...] = ()
    last: tuple[LogLine, ...] = ()
    parted: tuple[Parted, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    passed_over: tuple[str, ...] = ()
    noted: tuple[Noted, ...] = ()
    paced: tuple[Paced, ...] = ()

    @property
    def cut(self) -> str:
        """How a file shows that it is a part of a longer one, or nothing."""
        return next((f"{file.path} {file.cut}" for file in self.files if file.cut), "")
