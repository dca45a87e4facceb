"""What the edges of the wait-for graph are: a thread of a rank that cannot go on before others act."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from safelaunch.model import Collective

Node = tuple[int, int]  # rank and thread
Source = Literal["kernel", "self-report", "stack"]


@dataclass(frozen=True)
class Wait:
    """A thread of a rank that is blocked in `call`.

    `on` are ranks of this node that have not come, `differing` those that came with another operation, `gone` those
    that can never come (exited, or without the group), `stopped` those whose process does not run, `away` members
    that are not on this node or of which nothing is known. `partners` are all members, none where nobody knows whom it
    waits for.
    """

    rank: int
    thread: int
    call: Collective
    on: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    away: tuple[int, ...] = ()
    partners: tuple[int, ...] = ()

    @cached_property
    def blockers(self) -> tuple[int, ...]:
        """Ranks of this node that keep the wait from ending."""
        return tuple(sorted({*self.on, *self.gone, *self.stopped}))


def away_of(waits: Iterable[Wait]) -> set[int]:
    """The members for which these waits may be, and of which nothing is known. Waits in one group share them: a case
    may tell of 250,000 ranks, and of a thousand calls."""
    return set().union(*{id(wait.away): wait.away for wait in waits}.values())


@dataclass(frozen=True)
class Kind:
    """A kind of thing that is waited for outside of collectives.

    Args:
        called: how sentences call it, such as `the lock on {}`, with a place for its name.
        unnamed: how they call one whose name is not known.
        has: what a rank has for which others wait, such as `the lock`; nothing where no rank can be seen to have it.
        exclusive: who has it keeps it from all others, and has to give it back.
        owner: what can be seen of the rank that others wait for. `seen`: it is found, or is no rank. `never`: nobody
            can say who it is, and whoever waits so is no end of a chain. `sometimes`: where it is not found it may be
            any rank, and there is no end.
    """

    called: str
    unnamed: str = ""
    has: str = ""
    exclusive: bool = False
    owner: Literal["seen", "sometimes", "never"] = "seen"

    @property
    def leads_on(self) -> bool:
        """Whether one who waits so may wait for another rank, so that it is no end of a chain for certain."""
        return bool(self.has) or self.owner == "never"


@dataclass(frozen=True)
class Resource:
    """What a thread waits for. `name` is a path, an address, keys of the store, a thread, or a condition."""

    kind: Kind
    name: str = ""

    @property
    def called(self) -> str:
        """`the lock on /data/index`, `the key lr/39 of the store`."""
        return self.kind.called.format(self.name) if self.name else self.kind.unnamed or self.kind.called.format("")


@dataclass(frozen=True)
class ExternalWait:
    """A thread of a rank that waits for something else than a collective.

    Args:
        rank: whose thread waits.
        thread: its native id.
        resource: what it waits for.
        source: what says so.
        on: the rank that has it, where one alone does, and it is known.
        on_thread: the thread of that rank which has it, 0 where that is not known.
        asked: whoever has it waits for this thread's word in turn, as services do between two requests.
    """

    rank: int
    thread: int
    resource: Resource
    source: Source
    on: int | None = None
    on_thread: int = 0
    asked: bool = False
