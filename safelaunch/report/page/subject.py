"""What a page tells of, as plain data: who writes a page hands in all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from safelaunch.model import Case, Collective, Finding, RankFacts, Verdict
from safelaunch.model.logs import LogFacts
from safelaunch.model.ranks import runs
from safelaunch.user_code import is_user_code


@dataclass(frozen=True)
class Waiting:
    """A wait of a rank: it is inside `call` and cannot go on before `on` have come; or it waits for a `resource` (`the
    lock on /data/index`) that `on` have. `why` says, for each of them that will not come, why (`exited`, `stopped`,
    `other operation`); `away` counts members on other nodes."""

    rank: int
    call: Collective | None
    on: tuple[int, ...] = ()
    why: tuple[tuple[int, str], ...] = ()
    away: int = 0
    resource: str = ""

    @property
    def what(self) -> str:
        """What it waits in, or for, in words that complete "rank 3 waits"."""
        return f"in {call_name(self.call)}" if self.call is not None else f"for {self.resource}"


@dataclass(frozen=True)
class Subject:
    """One verdict with what it rests on.

    Args:
        verdict: None where there is nothing to tell.
        folder: of the incident, empty where there is none.
        case: the evidence, None where there is none (logs).
        waits: the wait-for graph.
        notes: what was said before the verdict.
        logs: what log files said, None where none were read.
    """

    verdict: Verdict | None
    folder: str = ""
    case: Case | None = None
    waits: tuple[Waiting, ...] = ()
    notes: tuple[str, ...] = ()
    logs: LogFacts | None = None


@dataclass(frozen=True)
class Surroundings:
    """What is known of the run: run.json, env.txt, and what the preflight found (None: not known)."""

    run: Mapping[str, Any] = field(default_factory=dict)
    environment: str = ""
    findings: tuple[Finding, ...] | None = None


def names(ranks: Iterable[int], most: int = 8) -> str:
    """`rank 3`, `ranks 0-2, 4-7`; of many runs the first ones, and how many ranks there are."""
    numbers = sorted(set(ranks))
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs(numbers)]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"... ({len(numbers)} ranks)"]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(parts)}" if numbers else "no rank"


def place(facts: RankFacts) -> str:
    """The innermost line of the user's program that is known of a rank: `train.py:88 in step`."""
    locations = list(facts.stack.frames) if facts.stack is not None else []
    if facts.error is not None and facts.error.location is not None:
        locations.insert(0, facts.error.location)
    last = facts.calls[-1] if facts.calls else None
    if last is not None and last.location is not None:
        locations.append(last.location)
    for location in locations:
        if is_user_code(location.file):
            inside = f" in {location.function}" if location.function else ""
            return f"{location.file.rpartition('/')[2]}:{location.line}{inside}"
    return ""


def state(facts: RankFacts) -> str:
    """How a rank is: how it ended, or what it does."""
    if facts.exit is not None:
        code = facts.exit.code
        how = f"killed by signal {-code}" if code < 0 else f"exited with {code}"
        return f"{facts.error.type}, {how}" if facts.error is not None else how
    if facts.error is not None:
        return f"raised {facts.error.type}"
    letter = facts.state or (facts.kernel.state if facts.kernel is not None else "")
    words = {"R": "running", "S": "sleeping", "D": "in the kernel (D)", "T": "stopped", "t": "traced", "Z": "zombie"}
    return words.get(letter, letter or "unknown")


def call_name(call: Collective) -> str:
    """`all_reduce #12 of group 0`."""
    peer = f" with rank {call.peer}" if call.peer is not None else ""
    return f"{call.op} #{call.seq} of group {call.group}{peer}"
