"""What one file of a log holds, before it is known which ranks wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.evidence.logs import habitual, last_words, prefixes
from safelaunch.evidence.logs.complaints import Complaints
from safelaunch.evidence.logs.names import PathHint, hint
from safelaunch.evidence.logs.survival import Steps
from safelaunch.model import Location
from safelaunch.model.logs import Event, LogFile, LogLine, Noted, Odd, WellEnded

_WORKER = re.compile(r"\(ip=[^,\s)]{1,64}, pid=(?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,6})\b")
_AMBIGUOUS = -1  # one pid, on several nodes
FIELDS = 12  # lines of a result that a program prints
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
    of_ray: dict[str, int] = field(default_factory=dict)  # ranks by the pids of Ray's workers
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

    def note_workers(self, sample: bytes) -> None:
        """Which rank is which process, as Ray Train lists its workers at the start of a group."""
        for match in _WORKER.finditer(sample.decode("utf-8", "replace")):
            if self.of_ray.setdefault(match["pid"], int(match["rank"])) != int(match["rank"]):
                self.of_ray[match["pid"]] = _AMBIGUOUS

    def rank_of_process(self, process: str) -> int | None:
        """The rank of a process of Ray, as its mark names it (`RayTrainWorker pid=12`), where the list tells it."""
        rank = self.of_ray.get(process.partition("pid=")[2].partition(",")[0])
        return None if rank == _AMBIGUOUS else rank

    def note_end(self, at: LogLine, text: str, origin: Origin) -> None:
        """A line near the end, by this process: whether it tells of a step, or that all went well."""
        if habitual.STEP.search(text):
            self.stepped = at.line
        self.steps.setdefault(origin, Steps()).note(at, text)
        if last_words.ERROR_OF_RESULT.match(text) and self.finished and at.line - self.finished[-1].at.line < FIELDS:
            self.finished.pop()
        if said := last_words.well_ended(text):
            self.finished.append(WellEnded(at, said == "proof", origin.rank, self.stepped))


def unread(path: str, why: str) -> Contents:
    """A file that is not read."""
    return Contents(path, hint(path), LogFile(path, unreadable=why))


def world_of(files: Iterable[Contents]) -> int:
    """The size of the job, as far as any line tells it; 0 where none does."""
    return max((file.world for file in files), default=0)
