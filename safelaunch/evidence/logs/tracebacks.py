"""Python tracebacks in streams of text, also where the lines of several processes are mixed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from safelaunch.model import Location
from safelaunch.model.logs import LogLine

HEADER = re.compile(r"Traceback \(most recent call last\):")
# Ray shows a line once, and counts the processes that wrote it as well.
FRAME = re.compile(r'^(\s*)File "([^"]+)", line (\d{1,9}), in (.+?)(?:\s*\[repeated \d{1,6}x across cluster\])?\s*$')
FATAL = re.compile(r"Fatal Python error: (\w[\w ]*)")
FAULT_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d{1,9}) in (.+)$')
SPAWNED = re.compile(r"-- Process (\d{1,5}) terminated with the following error:")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$")
_NAMED_LIKE_ONE = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|Failed|Fault|Abort|Iteration|Stop|ExceptionGroup)$"
)
# Names that a module stands before are those of exceptions, however they end: `triton.runtime.errors.OutOfResources`.
_OF_A_MODULE = re.compile(r"^(?:[a-z_]\w*\.){1,8}[A-Z]\w*[a-z]\w*(?:: |$)")
# The lines of an ExceptionGroup, which stand behind bars: those of the exceptions within it deeper than its own.
_BAR = re.compile(r"^ {2,40}(?:\| ?|\+ (?=Exception Group))")
_WITHIN = re.compile(r"^ {2,40}\+[-+]+ *\d* *-*\s*$")
_WEAK = re.compile(r"^(?!Lustre)[A-Za-z_][\w.]*(?:Error|Exception|Interrupt): \S")
_CHAINED = re.compile(r"^(?:The above exception was the direct cause|During handling of the above exception)")
_BACKGROUND = re.compile(
    r"^(?:Exception in thread|Exception ignored in|Error in atexit|Error in sys\.excepthook)"
    r"|^(?=.{0,600}?\bignore)(?:.{0,600}?\b(?:safe to ignore|safely ignore this|can (?:be )?safely (?:be )?ignored)\b)"
)
_LAUNCHER = re.compile(
    r"/torch/distributed/(?:run|launch)\.py|/torch/distributed/launcher/|/torch/distributed/elastic/(?!multiprocessing"
    r"/errors)|/bin/(?:torchrun|accelerate|deepspeed)$|/accelerate/commands/|/deepspeed/launcher/|/torch/multiprocessing"
    r"/spawn\.py"
)
_LAUNCHER_TYPES = re.compile(
    r"(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|SignalException|Rendezvous\w{1,20}Error)$"
)
_STARTED = re.compile(
    r"^Command '?\[?['\"]?(?:\S{0,200}/)?(?:torchrun|accelerate|deepspeed|mpirun|srun|safelaunch)\b"
    r"|^Command .{0,200}'-m', '(?:torch\.distributed\.|accelerate\.|deepspeed\.|safelaunch)"
)
_PART = re.compile(r"\(RANK (\d{1,7})\)")  # torch/distributed/checkpoint/api.py
# Right above the head of a traceback that no mark gives to anybody.
_FAILED = re.compile(
    r"\b[Rr]ank ?[:#=]? ?\[?(\d{1,7})\]?:? (?:has |had )?(?:failed|crashed|raised|(?:got|caught|hit|met) an?)"
    r"(?: (?:with )?(?:the |this )?(?:following )?(?:error|exception))?\W{0,4}$"
)
_RELAYED = re.compile(
    r"^(?:ray\.exceptions\.)?RayTaskError\([\w.]+\): "
    r"ray::(?P<name>[\w.<>]+)\(\) \(pid=(?P<pid>\d{1,9})(?:, ip=(?P<ip>[\w.:]+))?"
)
_NO_MESSAGE = re.compile(r"^(?:frame #|\[|[EWIF]\d{4} |=+$|-+$)")

# What belongs to a message behind an empty line: what every rank brought to a call.
_LISTED = re.compile(
    r"^\s*(?:Operation: \S|Input shapes:\s*$|(?:[-*] )?(?:[Pp]rocess|[Rr]ank) ?\[?\d{1,7}\]?: ?(?:torch\.Size\()?[\[(])"
)

LONGEST_MARK = 200  # characters before the head of a traceback
# Below a frame, whatever stands before the name of an exception is a mark: `[node3] 14:37 | RuntimeError: ...`.
_BEHIND_A_MARK = re.compile(
    r"^(?=\S)[^\"'{}]{1,120}?[\]:|)>\d] {1,8}"
    r"(?=(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception|Interrupt)(?:: \S|\s*$))"
)

OPEN_AT_ONCE = 256  # more processes do not write into one stream
PATIENCE = 300  # lines of a stream that a traceback may wait for its next line
MESSAGE_LINES, MESSAGE = 6, 4000  # lines; characters
FRAMES = 60


def of_launcher(frames: Iterable[Location]) -> bool:
    """Whether these are frames of torchrun or another launcher, and not of a worker that it forked."""
    return any(_LAUNCHER.search(frame.file) and frame.function != "_wrap" for frame in frames)


@dataclass
class Found:
    """An exception as it was put together, line by line."""

    opened: int
    at: LogLine
    type: str = ""
    message: str = ""
    frames: list[Location] = field(default_factory=list)
    chain: tuple[str, ...] = ()
    text: list[str] = field(default_factory=list)
    whole: bool = True
    tangled: bool = False
    background: bool = False
    rank: int | None = None  # whose it is, where its head says so: of a part of a distributed checkpoint
    relayed: str = ""  # the process of Ray that raised it first
    cause: Found | None = None  # the exception that it was raised for, or while it was handled

    @property
    def launcher(self) -> bool:
        """Whether torchrun or another launcher raised it, or a program that had started one."""
        started = self.type.endswith("CalledProcessError") and _STARTED.search(self.message) is not None
        return of_launcher(self.frames) or bool(_LAUNCHER_TYPES.search(self.type)) or started


@dataclass
class Fault:
    """A fatal error of the interpreter, as faulthandler writes it."""

    at: LogLine
    words: str
    frames: list[Location] = field(default_factory=list)
    current: bool = False
    over: bool = False


@dataclass
class _Stream:
    open: list[Found] = field(default_factory=list)
    mixed: list[Location] = field(default_factory=list)  # all frames since several tracebacks were open
    several: int = 0  # how many tracebacks those belong to
    closed: Found | None = None  # may get more lines of its message
    message_left: int = 0
    chained: bool = False
    background: int = -10  # the line at which a traceback was announced that ends no process
    direct: bool = False  # whether the last line was one of a traceback
    quiet: int = 0
    fault: Fault | None = None
    failed: tuple[int, int] = (-1, -1)  # the line that said last that a rank failed, and which
    grouped: bool = False  # its last line was one of an ExceptionGroup
    prefix: re.Pattern[str] | None = None  # what stood before the head of its last traceback, with any numbers


class Tracebacks:
    """Puts tracebacks together from lines that come in any mixture of streams.

    Args:
        raised: called with (stream, exception) once its message is complete.
        died: called with (stream, fault) for faulthandler's text.
    """

    def __init__(self, raised: Callable[[Hashable, Found], None], died: Callable[[Hashable, Fault], None]):
        self._raised, self._died = raised, died
        self._streams: dict[Hashable, _Stream] = {}
        self._open_streams: set[Hashable] = set()

    @property
    def waiting(self) -> bool:
        """Whether a traceback is open, so that every line counts."""
        return bool(self._open_streams)

    def feed(self, key: Hashable, text: str, at: LogLine, sure: bool) -> bool:
        """One line of a stream; returns whether it was part of a traceback.

        Args:
            key: the stream.
            text: the line without prefixes.
            at: the line as it is quoted.
            sure: whether the stream is that of one process.
        """
        stream = self._streams.setdefault(key, _Stream())
        taken = self._fault(stream, key, text, at) or self._line(stream, key, text, at, sure)
        stream.quiet = 0 if taken else stream.quiet + 1
        if stream.quiet > PATIENCE:
            self._give_up(stream, key)
        if stream.open or stream.closed or (stream.fault and not stream.fault.over):
            self._open_streams.add(key)
        else:
            self._open_streams.discard(key)
        return taken

    def finish(self) -> None:
        """The file has ended: what is open stays incomplete."""
        for key, stream in self._streams.items():
            self._give_up(stream, key)
        self._streams.clear()
        self._open_streams.clear()

    def _give_up(self, stream: _Stream, key: Hashable) -> None:
        stream.chained = stream.chained and bool(stream.open)  # of what was to follow, nothing is there
        self._emit(stream, key)
        for found in stream.open:
            found.whole = False
            # What is cut off says nothing any more, and what it was raised for does.
            self._raised(key, found if found.cause is None else found.cause)
        stream.open.clear()
        if stream.fault is not None:
            self._died(key, stream.fault)
            stream.fault = None

    def _emit(self, stream: _Stream, key: Hashable) -> None:
        if stream.closed is not None and not stream.chained:
            self._raised(key, stream.closed)
            stream.closed = None

    # ------------------------------------------------------------------------------------------ lines

    def _line(self, stream: _Stream, key: Hashable, text: str, at: LogLine, sure: bool) -> bool:
        text = self._ungrouped(stream, text)
        if stream.prefix is not None and (match := stream.prefix.match(text)):
            text = text[match.end() :]
        if "Traceback" in text and (match := HEADER.search(text)):
            self._open(stream, key, text, match, at, sure)
            return True
        if 'File "' in text and (match := FRAME.match(text)):
            self._frame(stream, text, match, at)
            return True
        if stream.closed is not None and _CHAINED.match(text):
            stream.chained = True
            return True
        if stream.open and (match := _RELAYED.match(text)):
            found = stream.open[0]
            found.frames.clear()  # they led to the call that waited for that process
            found.relayed = f"{match['name']} pid={match['pid']}" + (f", ip={match['ip']}" if match["ip"] else "")
            return True
        if _BACKGROUND.match(text):
            self._emit(stream, key)
            stream.background = at.line
            return True
        if stream.open and self._close(stream, key, text, at, sure):
            return True
        if stream.open and (not text.strip() or text[0] in " \t" or text.lstrip()[:1] in "^~|+"):
            stream.direct = bool(text.strip())
            for found in stream.open[:1]:
                if len(found.text) < 3 * FRAMES:
                    found.text.append(text)
            return bool(text.strip())
        if stream.closed is not None and self._more_message(stream, key, text, at):
            return True
        stream.direct = False
        return self._alone(stream, text, at)

    def _alone(self, stream: _Stream, text: str, at: LogLine) -> bool:
        """A line beside tracebacks: an exception that has none in the log, or a word on whose the next one is."""
        if "ank" in text and (match := _FAILED.search(text)):
            stream.failed = (at.line, int(match[1]))
        match = _EXCEPTION.match(text) if not stream.open and _WEAK.match(text) else None
        if match is None:
            return False
        stream.closed = Found(at.line, at, _once(match[1]), (match[2] or "").strip(), text=[text], whole=False)
        stream.message_left = MESSAGE_LINES
        return True

    def _ungrouped(self, stream: _Stream, text: str) -> str:
        """A line of an ExceptionGroup as it would stand alone. What is within a group is why it was raised."""
        if stream.grouped or "Exception Group Traceback" in text:
            stream.grouped = bool(text.strip())
            if _WITHIN.match(text):
                if stream.closed is not None and stream.closed.type.endswith("ExceptionGroup"):
                    stream.closed = None
                return ""
            return _BAR.sub("", text)
        return text

    def _open(self, stream: _Stream, key: Hashable, text: str, match: re.Match[str], at: LogLine, sure: bool) -> None:
        stream.prefix = _shape(text[: match.start()])
        inner = text[: match.start()].strip().endswith("Original") and stream.closed is not None
        found = Found(at.line, at, text=[text[match.start() :]])
        found.background = 0 <= at.line - stream.background <= 3
        part = _PART.search(text, match.end())
        above = stream.failed[1] if stream.failed[0] == at.line - 1 and not sure else None
        found.rank = int(part[1]) if part else above
        if stream.closed is not None and (stream.chained or inner):
            before = stream.closed
            said = f"{before.type}: {before.message}"
            found.chain = (*before.chain, said)
            found.background, found.cause = before.background, before
            stream.closed = None
            if inner:
                found.frames = list(before.frames)
        self._emit(stream, key)
        stream.chained = False
        stream.open.append(found)
        if len(stream.open) > 1:
            if not stream.several:
                stream.several, stream.mixed = 1, list(stream.open[0].frames)
            stream.several += 1
            for each in stream.open:
                each.tangled = True
        if len(stream.open) > OPEN_AT_ONCE:
            self._raised(key, stream.open.pop(0))
        stream.direct = True

    def _frame(self, stream: _Stream, text: str, match: re.Match[str], at: LogLine) -> None:
        if not stream.open:
            stream.open.append(Found(at.line, at, whole=False))
        frame = Location(match[2], int(match[3]), match[4])
        if stream.several and len(stream.mixed) < OPEN_AT_ONCE * FRAMES:
            stream.mixed.append(frame)
        found = stream.open[0]
        if len(found.frames) < FRAMES:
            found.frames.append(frame)
            found.text.append(text)
        stream.direct = True

    def _close(self, stream: _Stream, key: Hashable, text: str, at: LogLine, sure: bool) -> bool:
        if stream.direct and not _WEAK.match(text) and (behind := _BEHIND_A_MARK.match(text)):
            text = text[behind.end() :]
        match = _EXCEPTION.match(text.rstrip())
        if match is None:
            return False
        name = _once(match[1])
        last = name.rpartition(".")[2]
        like = bool(_NAMED_LIKE_ONE.search(last))
        foreign = stream.direct and (_OF_A_MODULE.match(text) is not None or (sure and last[:1].isupper()))
        if not (like or foreign):
            return False
        found = stream.open.pop(0)
        if found.tangled:
            found.frames = _shared(stream.mixed, stream.several)
        if not stream.open:
            stream.several = 0
        found.type, found.message, found.at = name, (match[2] or "").strip(": ").strip(), at
        found.text.append(text)
        self._emit(stream, key)
        stream.closed, stream.message_left, stream.chained = found, MESSAGE_LINES, False
        return True

    def _more_message(self, stream: _Stream, key: Hashable, text: str, at: LogLine) -> bool:
        closed = stream.closed
        assert closed is not None
        if not stream.chained and _LISTED.match(text) and len(closed.message) < MESSAGE:
            closed.message += f"\n{text}"
            closed.text.append(text)
            return True
        if stream.chained or not text.strip():
            stream.message_left = min(0, stream.message_left - 1)  # what stands behind an empty line is another's
            if stream.message_left < -MESSAGE_LINES:
                stream.chained = False
                self._emit(stream, key)
            return stream.chained
        stamped = bool(at.clock) and not closed.at.clock  # a logger's line, behind a traceback that none has written
        if (
            stream.message_left <= 0
            or closed.tangled
            or stamped
            or re.match(r"^(?:frame #|\[|[EWIF]\d{4} |=+$|-+$)", text)
        ):
            self._emit(stream, key)
            return False
        stream.message_left -= text[:1] != "\t"  # Ray tells of an actor in such lines
        closed.message = f"{closed.message}\n{text}"[:2000]
        closed.text.append(text)
        return True

    def _fault(self, stream: _Stream, key: Hashable, text: str, at: LogLine) -> bool:
        if "Fatal Python error" in text and (match := FATAL.search(text)):
            stream.fault = Fault(at, match[1].strip())
            return True
        fault = stream.fault
        if fault is None or fault.over:
            return False
        if text.startswith(("Current thread", "Thread 0x")):
            fault.over = fault.current and bool(fault.frames)
            if not fault.over:
                fault.current, fault.frames = text.startswith("Current"), []
        elif match := FAULT_FRAME.match(text):
            if len(fault.frames) < FRAMES:
                fault.frames.append(Location(match[1], int(match[2]), match[3].strip()))
        elif text.startswith("Extension modules") or (fault.frames and text.strip() and not text.startswith(" ")):
            fault.over = True
        if fault.over:
            self._died(key, fault)
            stream.fault = None
        return True


def _shape(prefix: str) -> re.Pattern[str] | None:
    """What finds a prefix again, with other numbers in it; None where there is none, or it is more than a mark."""
    if (
        not prefix
        or len(prefix) > LONGEST_MARK
        or '"' in prefix
        or prefix.strip().endswith(("Original", "Exception Group"))
    ):
        return None
    return re.compile(re.sub(r"\d+", lambda _: r"\d+", re.escape(prefix)))


def _once(name: str) -> str:
    """A name that two processes wrote at once (`RuntimeErrorRuntimeError`), once."""
    half = len(name) // 2
    return name[:half] if len(name) % 2 == 0 and name[:half] == name[half:] else name


def _shared(mixed: list[Location], several: int) -> list[Location]:
    """The frames of mixed tracebacks where all have the same; else none, because they may belong to any of them."""
    counts = Counter(mixed)
    return list(counts) if all(count == several for count in counts.values()) else []


_FAULT_CODES = {
    "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Illegal instruction": -4, "Floating point": -8,
}  # fmt: skip


def code_of(fault: Fault) -> int | None:
    """The exit code of the signal that faulthandler tells of, below zero."""
    return next((code for words, code in _FAULT_CODES.items() if fault.words.startswith(words)), None)
