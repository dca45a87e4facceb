"""What one file of a log holds, before it is known which ranks wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field

from safelaunch.evidence.logs import habitual, last_words, prefixes
from safelaunch.evidence.logs.complaints import Complaints
from safelaunch.evidence.logs.names import PathHint, hint
from safelaunch.evidence.logs.survival import Steps
from safelaunch.model import Location
from safelaunch.model.logs import Event, LogFile, LogLine, Noted, Odd, WellEnded

SPAWNED = "spawned"  # by torch.multiprocessing, on this node


@dataclass(frozen=True)
class Origin(prefixes.Writer):
    """Who wrote a line, as far as the line and its file say: the key of a stream."""

    file: int


@dataclass
class Contents:
    """What one file holds. Events stand with their origins; their ranks are not settled yet."""

    path: str
    hint: PathHint
    file: LogFile
    events: list[tuple[Origin, Event]] = field(default_factory=list)
    waiting: list[tuple[Origin, tuple[Location, ...]]] = field(default_factory=list)
    tails: dict[Origin, tuple[LogLine, bool]] = field(default_factory=dict)  # with: is it ordinary output
    elastic: set[int | None] = field(default_factory=set)  # the tasks below which torch elastic runs
    world: int = 0
    of_nccl: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # ranks and sizes by host and pid
    labelled: bool = False
    finished: list[WellEnded] = field(default_factory=list)
    stepped: int = 0  # the number of the last line near the end that tells of a step
    parting: LogLine | None = None
    attempt: int = 0
    odd: tuple[Odd, ...] = ()
    last: tuple[LogLine, ...] = ()
    complaints: Complaints[Origin] = field(default_factory=Complaints)
    noted: list[tuple[Origin, Noted]] = field(default_factory=list)
    steps: dict[Origin, Steps] = field(default_factory=dict)  # near the end

    def note_end(self, at: LogLine, text: str, origin: Origin) -> None:
        """A line near the end, by this process: whether it tells of a step, or that all went well."""
        if habitual.STEP.search(text):
            self.stepped = at.line
        self.steps.setdefault(origin, Steps()).note(at, text)
        if said := last_words.well_ended(text):
            self.finished.append(WellEnded(at, said == "proof", origin.rank, self.stepped))


def unread(path: str, why: str) -> Contents:
    """A file that is not read."""
    return Contents(path, hint(path), LogFile(path, unreadable=why))
