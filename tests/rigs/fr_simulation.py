"""A job of ranks that enqueue calls ahead of their GPUs, played until nothing moves: the truth behind its dumps.

A rank's GPU runs its calls in order. A collective ends when the GPUs of all members are in it; a message when both ends
are. The program of each rank may stop somewhere (it is late), and is otherwise `ahead` calls before its GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fr_dumps import Recorder


@dataclass(frozen=True)
class Call:
    """A collective of a group, or a message to or from `peer` (a global rank)."""

    op: str
    group: str = "0"
    peer: int | None = None
    line: int = 88


@dataclass
class Rank:
    """`stops_at` is the call that its program does not come to; `limit` bounds the dump to what it had enqueued when
    that many of its calls were done (a dump that was taken early). Where its GPU fails, its host goes on: `unseen` of
    the calls that its peers have done with it never end on it."""

    number: int
    program: Sequence[Call]
    stops_at: int | None = None
    ahead: int = 1
    done: int = 0
    unseen: int | None = None

    def enqueued(self) -> int:
        end = len(self.program) if self.stops_at is None else min(self.stops_at, len(self.program))
        return min(end, self.done + self.ahead)

    def current(self) -> Call | None:
        return self.program[self.done] if self.done < self.enqueued() else None


@dataclass
class Job:
    ranks: Sequence[Rank]
    groups: Mapping[str, Sequence[int]]
    steps: list[tuple[int, ...]] = field(default_factory=list)

    def play(self, rounds: int = 10_000) -> Job:
        for _ in range(rounds):
            if not any(self._advance(rank) for rank in self.ranks):
                break
            self.steps.append(tuple(rank.done for rank in self.ranks))
        return self

    def _advance(self, rank: Rank) -> bool:
        call = rank.current()
        if call is None:
            return False
        if call.peer is not None:
            other = self.ranks[call.peer]
            theirs = other.current()
            if theirs is None or theirs.peer != rank.number or theirs.op == call.op:
                return False
            rank.done += 1
            other.done += 1
            return True
        members = self.groups[call.group]
        number = sum(one.group == call.group and one.peer is None for one in rank.program[: rank.done])
        for member in members:
            theirs = self.ranks[member].current()
            own = self.ranks[member]
            mine = sum(one.group == call.group and one.peer is None for one in own.program[: own.done])
            if theirs is None or (theirs.group, theirs.op, theirs.peer, mine) != (call.group, call.op, None, number):
                return False
        for member in members:
            self.ranks[member].done += 1
        return True

    def recorder(self, number: int, *, done: int | None = None, room: int = 2000, backend: str = "") -> Recorder:
        """What the rank's recorder holds at the end, or at the moment when `done` of its calls were done; with counters
        where a backend is named."""
        rank = self.ranks[number]
        done = rank.done if done is None else min(done, rank.done)
        recorder = Recorder(number, self.groups, room=room, backend=backend or "nccl", counters=bool(backend))
        end = len(rank.program) if rank.stops_at is None else min(rank.stops_at, len(rank.program))
        if rank.unseen is not None:
            end = len(rank.program)
        end = min(end, done + rank.ahead)
        done = max(0, done - (rank.unseen or 0))
        for index, call in enumerate(rank.program[:end]):
            state = "completed" if index < done else "scheduled"
            if call.peer is None:
                recorder.call(call.op, call.group, state=state, line=call.line)
                continue
            members = list(self.groups[call.group])
            arrow = "->" if call.op == "send" else "<-"
            name = f"{call.op} {members.index(number)}{arrow}{members.index(call.peer)}"
            recorder.call(name, call.group, state=state, line=call.line, message=True)
        return recorder
