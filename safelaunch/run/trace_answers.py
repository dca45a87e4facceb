"""What supervisors answer to `safelaunch trace` (`run.traces`), checked as it is read: whoever owns the run directory
may have written it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field

from safelaunch import trace_words
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence.traces import LATEST_S
from safelaunch.model.hosts import host_name
from safelaunch.model.ranks import MOST_RANKS
from safelaunch.open_folder import OpenFolder
from safelaunch.run.traces import ANSWER, ENDED, MOST, STATES

_NUMBER = re.compile(r"0|[1-9][0-9]{0,6}")
FASTEST = 1e6  # steps a second


@dataclass(frozen=True)
class RankAnswer:
    """What a supervisor says of a rank."""

    pid: int = 0
    state: str = STATES[0]
    steps: int = 0
    marks: int = 0
    pace: tuple[float, ...] = (0.0, 0.0)

    def count(self, by: int) -> int:
        """How far it is."""
        return self.steps if by == trace_words.STEPS else self.marks


@dataclass(frozen=True)
class Answer:
    """What a supervisor says."""

    number: int
    first: int = 0
    host: str = ""
    offset_s: float | None = 0.0
    clock_error_s: float | None = 0.0
    no_kernels: str = ""
    world_size: int = 0
    ranks: dict[str, RankAnswer] = field(default_factory=dict)

    @property
    def shown_host(self) -> str:
        """Its host, as it may be shown."""
        return host_name(self.host)


def read(folder: OpenFolder) -> Answer:
    """The answer in a run directory.

    Raises:
        FileNotFoundError: there is none yet.
        OSError, ValueError: it cannot be read, or is no answer; the message says why.
    """
    try:
        answer = checked(Answer, json.loads(folder.read(os.path.join(folder.path, ANSWER), MOST)))
    except (RecursionError, ShapeError) as error:
        raise ValueError(str(error).lstrip(": ")) from error
    if not all(-LATEST_S < clock < LATEST_S for clock in (answer.offset_s or 0.0, answer.clock_error_s or 0.0)):
        raise ValueError("its clock is none")
    if not 0 <= answer.world_size <= MOST_RANKS:
        raise ValueError("no job is of so many ranks")
    for number, rank in answer.ranks.items():
        if not _NUMBER.fullmatch(number) or int(number) >= MOST_RANKS:
            raise ValueError("it names a rank that is none")
        if not _is_sound(rank):
            raise ValueError(f"what it says of rank {number} is out of bounds")
    return answer


def _is_sound(rank: RankAnswer) -> bool:
    counts = all(0 <= count < trace_words.LARGEST for count in (rank.steps, rank.marks))
    return counts and rank.state in (*STATES, ENDED) and all(0 <= pace <= FASTEST for pace in rank.pace)
