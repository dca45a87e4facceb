"""One log file: lines of interest in, raw events out, each with what its line says about who wrote it."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from safelaunch.codec import LARGEST
from safelaunch.evidence.logs import (
    cuts,
    failing,
    habitual,
    harmless,
    last_words,
    noted,
    numbers,
    overcome,
    own_words,
    prefixes,
    tracebacks,
    wrapped,
)
from safelaunch.evidence.logs.coding import BYTE_ORDER, HOW_TO, is_binary
from safelaunch.evidence.logs.contents import SPAWNED, Contents, Origin, unread
from safelaunch.evidence.logs.forms import Forms
from safelaunch.evidence.logs.loose import Loose
from safelaunch.evidence.logs.messages import Messages
from safelaunch.evidence.logs.names import hint
from safelaunch.evidence.logs.needles import needles
from safelaunch.evidence.logs.prefixes import Habits, Stripped
from safelaunch.evidence.logs.sieve import Sieve, open_log
from safelaunch.evidence.logs.signatures import Signature, of_exception
from safelaunch.evidence.logs.tracebacks import Fault, Found
from safelaunch.model.logs import Desync, Ended, Event, LogFile, LogLine, Raised, Sighting, TimedOut
from safelaunch.model.ranks import MOST_RANKS
from safelaunch.shortened import shortened

SAMPLE, WIDE, WIDTH = 1 << 16, 256, 1000  # bytes; some lines of UTF-16; of a quoted line
CONTEXT = 100  # lines of a stream before its last one, in which a secret may be announced or begin
FAR = 400  # a message that begins later, behind a progress bar, is quoted from its own beginning
LAST, VARIANTS = 3, 50  # lines of a file, that show what it was about; of one message, with other numbers in it
OF_A_LINE, EVENTS = 2000, 20_000  # a single line may tell of a million tasks; a job that says more says it again
_OF_RANKS = ("rank", "local", "local_rank", "member", "task")

_ELASTIC = re.compile(r"torch[./]distributed[./](?:elastic|run|launcher)|\btorchrun\b")


class Reader:
    """Reads files one after the other.

    Args:
        signatures: the known messages, first ones first.
    """

    def __init__(self, signatures: Sequence[Signature]):
        self._signatures = tuple(signatures)
        self._sieve = Sieve(*needles(signatures))
        texts = [re.escape(text) for signature in signatures for text in signature.contains]
        blind = any(not signature.contains for signature in signatures)
        self._gate = None if blind else re.compile("|".join(texts))

    def read(self, number: int, path: str) -> Contents:
        """The contents of one file; a file that cannot be read says so."""
        try:
            stream = open_log(path)
        except OSError as error:
            return unread(path, error.strerror or str(error))
        with stream:
            return _Pass(number, path, self._signatures, self._sieve, self._gate).run(stream)


class _Pass:
    def __init__(
        self,
        number: int,
        path: str,
        signatures: tuple[Signature, ...],
        sieve: Sieve,
        gate: re.Pattern[str] | None,
    ):
        self._number, self._path, self._signatures, self._sieve = number, path, signatures, sieve
        self._gate = gate  # in every line that a signature may fit; None: in all
        self._contents = Contents(path, hint(path), LogFile(path))
        self._messages = Messages(attempt=self._contents.hint.attempt)
        self._tracebacks = Forms(self._raised, self._died)
        self._seen: dict[Hashable, int] = {}
        self._variants: dict[Hashable, int] = {}
        self._redirected: dict[Origin, Origin] = {}
        self._loose = Loose()
        self._troubles: list[tuple[Origin, Event]] = []  # lines at the end that speak of a failure in unknown words
        self._indents: dict[Origin, int | None] = {}  # of tracebacks that stand within torch elastic's record
        self._habits: Habits | None = None
        self._attempts: dict[Origin, int] = {}
        self._role = ""  # of the known message in the line that is looked at
        self._torn: set[int] = set()
        self._left_out = 0
        self._records = self._shown = 0  # of the lines at the end: those that are fields of JSON, and all
        self._steps = self._marked = 0  # lines at the beginning and at the end that tell of a step, or have marks

    def run(self, stream: Any) -> Contents:
        contents = self._contents
        for line, raw in wrapped.joined(self._sieve, stream, contents.complaints):
            if self._habits is None:
                self._learn()
            try:
                if self._line(line, raw):
                    self._sieve.told = True
            except Exception:  # two processes wrote at once: whatever is wrong in it, the next one is read
                self._torn.add(line)
                self._sieve.told = True  # one like it may be whole
            self._sieve.attend(tracebacks.PATIENCE if self._tracebacks.waiting else 0)
        if self._habits is None:
            self._learn()
        self._tracebacks.finish()
        if self._sieve.unfinished:
            self._mark_cut(self._sieve.lines)
        self._tails()
        self._look_at_the_rest()
        ended = self._messages.finish(LogLine(self._path, self._sieve.lines, ""))
        contents.events += self._troubles
        overcome_at = overcome.lines(contents, self._sieve)
        contents.events = [one for one in contents.events if one[1].at.line not in overcome_at]
        if contents.parting is not None and contents.parting.line in overcome_at:
            contents.parting = None
        contents.events += [(Origin(file=self._number), event) for event in ended]
        contents.world, contents.attempt = self._messages.world, self._messages.attempt
        contents.of_nccl, sieve = self._messages.of_nccl, self._sieve
        contents.odd = numbers.of(self._path, sieve, self._habits or Habits(), self._signatures)
        if sieve.wide > min(WIDE, sieve.size // 4) or (not contents.events and sieve.sample[:2] in BYTE_ORDER):
            sieve.broken = sieve.broken or f"it is UTF-16 or UTF-32, or parts of it are: {HOW_TO}"
        elif not contents.events and is_binary(sieve.sample + sieve.tail):
            sieve.broken = sieve.broken or "it is no text, and nothing in it is known"
        contents.file = LogFile(
            self._path, sieve.lines, sieve.size, unreadable=sieve.broken, torn=len(self._torn), left_out=self._left_out,
            wrapped=2 * self._records > self._shown, steps=self._steps >= habitual.STEPS,
            known=self._marked > 1, cut=cuts.of(sieve.sample, sieve.tail, has_end=not sieve.unfinished),
        )  # fmt: skip
        return contents

    def _mark_cut(self, last: int) -> None:
        """Messages that end with the file, within a line, may go on."""
        for index, (origin, event) in enumerate(self._contents.events):
            if isinstance(event, Raised) and event.at.line == last:
                self._contents.events[index] = (origin, replace(event, cut=True))

    def _learn(self) -> None:
        sample = self._sieve.sample[:SAMPLE].decode("utf-8", "replace").splitlines()
        self._habits = prefixes.habits(sample)
        self._contents.labelled = self._habits.tasks
        self._steps = sum(habitual.STEP.search(line) is not None for line in sample)
        self._marked = sum(habitual.MARK.match(line) is not None for line in sample)

    def _origin(self, line: Stripped) -> Origin:
        found = self._contents.hint
        if max(line.rank or 0, line.local or 0, line.task or 0) > MOST_RANKS:
            raise ValueError("it names a rank that no job has")
        origin = Origin(file=self._number, host=line.host or found.host)
        if line.rank is not None or line.local is not None or line.process:
            return replace(origin, rank=line.rank, local=line.local, task=line.task, process=line.process)
        if line.task is not None:
            return replace(origin, task=line.task)
        return replace(origin, rank=found.rank, local=found.local, task=found.task)

    # ------------------------------------------------------------------------------------------ lines

    def _line(self, number: int, raw: bytes) -> bool:
        assert self._habits is not None
        whole = raw.decode("utf-8", "replace")
        line = prefixes.strip(whole, self._habits)
        text = line.text
        origin = self._origin(line)
        at = LogLine(self._path, number, shortened(text.strip(), WIDTH), line.t, line.clock)
        if _ELASTIC.search(text):
            self._contents.elastic.add(line.task)
        source, own = origin, self._loose.owner(number, origin, text, marked=origin.marked)
        origin = self._redirected.get(own, own)
        if origin in self._indents and not text.lstrip().startswith("["):
            text = self._dedented(origin, text)
        told = self._tracebacks.feed(origin, text, at, origin.marked)
        inside = told
        self._role = ""
        self._loose.settle(source, text, inside=told)
        self._attempts[origin] = self._messages.attempt
        if match := tracebacks.SPAWNED.search(text):
            self._redirected[origin] = replace(origin, local=int(match[1]), process=SPAWNED)
            told = True
        elif origin in self._redirected.values() and text.startswith("====="):
            self._redirected = {key: value for key, value in self._redirected.items() if value != origin}
        for event in itertools.islice(self._messages.read(text, at, origin.host, origin), OF_A_LINE):
            told = True
            if isinstance(event, Event):
                if not self._keep(origin, event):
                    break
                if isinstance(event, Ended) and event.said.startswith("Traceback"):
                    worker = replace(source, rank=event.rank, local=None, host=event.host or source.host)
                    self._redirected[source] = worker
                    self._indents[worker] = None
                    self._tracebacks.feed(worker, event.said, event.at, True)
            elif event[0] == "waiting":
                self._contents.waiting.append(event[1])
            elif event[0] == "attend":
                self._sieve.attend(event[1])
        seen = self._sight(origin, habitual.with_level(whole, text), at, told)
        if not seen and not told and habitual.LOUD.search(whole):
            seen = self._sight(origin, whole, at, told)  # a level that stood before the message
        self._contents.complaints.look(origin, text, whole, at, known="note" if inside else self._role)
        return seen or told

    def _dedented(self, origin: Origin, text: str) -> str:
        """A line of a traceback that torch elastic moved to the right, as it was."""
        indent = self._indents[origin]
        if indent is None and text.lstrip().startswith('File "'):
            indent = self._indents[origin] = max(0, len(text) - len(text.lstrip()) - 2)
        own = len(text) - len(text.lstrip())
        return text[min(own, indent or 0) :]

    def _sight(self, origin: Origin, text: str, at: LogLine, inside: bool) -> bool:
        if self._gate is not None and self._gate.search(text) is None:
            return False
        for signature in self._signatures:
            match = signature.search(text)
            if match is None:
                continue
            if harmless.is_count(text, match.start()):
                continue
            if signature.known.role == "alarm" and not failing.may_tell(at.text):
                continue  # a ruler below code, a C++ frame: what is said stands beside it
            self._role = signature.known.role
            fields = tuple((name, value) for name, value in match.groupdict().items() if value is not None)
            if match.start() > FAR:
                at = replace(at, text=shortened(text[match.start() :].strip(), WIDTH))
            same = (signature.known.name, origin)
            whose = own_words.spoken(at.text), own_words.process_of(at.text)
            place: Hashable = (*same, fields, self._messages.attempt, whose)
            if place not in self._seen and self._variants.get(same, 0) >= VARIANTS:
                return True
            if place in self._seen:
                self._again(place)
            elif self._has_room():
                self._seen[place] = len(self._contents.events)
                self._variants[same] = self._variants.get(same, 0) + 1
                self._keep(
                    origin,
                    Sighting(
                        at=at,
                        rank=Sighting(at=at, known=signature.known, fields=fields).number("rank"),
                        host=origin.host,
                        attempt=self._messages.attempt,
                        known=signature.known,
                        fields=fields,
                        inside=inside,
                    ),
                )
            return True
        return False

    def _again(self, place: Hashable) -> None:
        """Count what stands in the events already."""
        index = self._seen[place]
        origin, event = self._contents.events[index]
        assert isinstance(event, (Sighting, Raised))
        self._contents.events[index] = (origin, replace(event, times=event.times + 1))

    def _keep(self, origin: Origin, event: Event) -> bool:
        """Whether there was room for it."""
        for name, value in vars(event).items():
            # A number that no program counts: two were written into one another.
            if isinstance(value, int) and abs(value) > (MOST_RANKS if name in _OF_RANKS else LARGEST):
                raise ValueError(f"{name} is a number that is none")
        if isinstance(event, Desync) and max((*event.late, *event.inside), default=0) > MOST_RANKS:
            raise ValueError("it names a rank that no job has")
        has_room = self._has_room(causes=isinstance(event, (Raised, TimedOut, Desync)))
        if has_room:
            self._contents.events.append((origin, event))
        self._left_out += not has_room
        return has_room

    def _has_room(self, *, causes: bool = False) -> bool:
        """Whether another event is kept: half of the room is for those that tell who failed."""
        return len(self._contents.events) < (EVENTS if causes else EVENTS // 2)

    # ------------------------------------------------------------------------------------------ tracebacks

    def _raised(self, key: Hashable, found: Found) -> None:
        assert isinstance(key, Origin)
        said = (*found.chain, f"{found.type}: {found.message}")
        may = self._gate is None or any(self._gate.search(text) for text in said)
        known = of_exception(self._signatures, said) if may else None
        event = Raised(
            at=found.at,
            rank=found.rank,
            host=key.host,
            attempt=self._attempts.get(key, self._messages.attempt),
            type=found.type,
            message=found.message,
            frames=tuple(found.frames),
            chain=found.chain,
            traceback="\n".join(found.text),
            whole=found.whole,
            tangled=found.tangled,
            background=found.background,
            launcher=found.launcher,
            relayed=found.relayed,
            known=known,
        )
        place = (key, event.rank, event.type, event.message, event.frames, event.attempt, event.whole)
        if place in self._seen:
            self._again(place)
        elif len(self._contents.events) < EVENTS:
            self._seen[place] = len(self._contents.events)
            self._keep(key, event)

        if found.type and not found.background and (found.message or not found.launcher):
            weight = failing.HINTED if found.launcher else failing.GRAVE
            self._contents.complaints.add(key, found.at, weight)

    def _died(self, key: Hashable, fault: Fault) -> None:
        assert isinstance(key, Origin)
        self._keep(
            key,
            Ended(
                at=fault.at,
                host=key.host,
                attempt=self._messages.attempt,
                by="faulthandler",
                code=tracebacks.code_of(fault),
                said=fault.words,
                frames=tuple(fault.frames),
                launcher=tracebacks.of_launcher(fault.frames),
            ),
        )

    # ------------------------------------------------------------------------------------------ last lines

    def _look_at_the_rest(self) -> None:
        """What the lines say that hold nothing that is known, at the beginning and at the end."""
        complaints, habits = self._contents.complaints, self._habits or Habits()
        self._contents.note_workers(self._sieve.sample)
        complaints.stacks(self._path, Origin(file=self._number), self._sieve)
        self._contents.noted = list(noted.of(self._path, self._sieve, habits, self._origin))
        for number, whole in complaints.rest(self._sieve):
            try:
                line = prefixes.strip(whole, habits)
                at = LogLine(self._path, number, "", line.t, line.clock)
                complaints.look(self._origin(line), line.text, whole, at)
            except (ValueError, RecursionError):
                self._torn.add(number)

    def _tails(self) -> None:
        """The last line of each stream, from the last part of the file, without a secret that the lines before it tell
        of: it is shown alone."""
        from safelaunch import redaction

        recent: dict[Origin, deque[str]] = defaultdict(lambda: deque(maxlen=CONTEXT))
        ending: deque[LogLine] = deque(maxlen=CONTEXT)
        first = (sieve := self._sieve).tail_line
        for number, raw in enumerate(sieve.tail.split(b"\n"), first):
            for part in raw.split(b"\r")[-2:]:
                text = part[-2000:].decode("utf-8", "replace")
                if not text.strip() or (number == first and sieve.tail_cut):
                    continue
                try:
                    self._tail(number, text, recent, ending)
                except (ValueError, RecursionError):
                    self._torn.add(number)
        shown = zip(ending, redaction.lines([at.text for at in ending]), strict=True)
        ended = [replace(at, text=text) for at, text in shown][-last_words.LINES :]
        told = (at for at in reversed(ended) if failing.ends_with(at.text, at.text, last=at is ended[-1]))
        self._contents.parting, self._contents.last = next(told, None), tuple(ended[-LAST:])
        for origin, (at, ordinary) in self._contents.tails.items():
            text = shortened(redaction.lines(recent[origin])[-1].strip(), WIDTH)
            if text != at.text:
                self._contents.tails[origin] = (replace(at, text=text), ordinary)

    def _noted(self, text: str) -> bool:
        """Whether a line is known to mean nothing."""
        return any(one.known.role == "note" and one.search(text) for one in self._signatures)

    def _tail(self, number: int, whole: str, recent: dict[Origin, deque[str]], ending: deque[LogLine]) -> None:
        line = prefixes.strip(whole, self._habits or Habits())
        if not line.text.strip():
            return
        self._shown += 1
        self._records += habitual.RECORD.match(line.text) is not None
        self._steps += self._sieve.size > SAMPLE and habitual.STEP.search(line.text) is not None
        at = LogLine(self._path, number, shortened(line.text.strip(), WIDTH), line.t, line.clock)
        ending.append(at)
        origin = self._origin(line)
        self._contents.note_end(at, line.text, origin)
        near = number > self._sieve.lines - habitual.LAST_LINES
        failed = near and "\0" not in whole and failing.ends_with(line.text, whole, last=number >= self._sieve.lines)
        if failed and not self._noted(line.text):
            self._troubles.append((origin, Sighting(at=at, host=origin.host, known=habitual.TROUBLED)))
        recent[origin].append(line.text)
        self._contents.tails[origin] = (at, not last_words.LAST_WORDS.search(line.text))
