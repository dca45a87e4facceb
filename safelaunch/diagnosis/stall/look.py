"""A rank that does not come, as the reasons look at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.activity import doing, kernel_of
from safelaunch.diagnosis.waitgraph.calls import AWAY_PHASES, stack_of
from safelaunch.diagnosis.waitgraph.threads import Chain, follow, thread_name
from safelaunch.model import Kernel, Location, Phase, RankFacts, SourceLine, Stack


@dataclass(frozen=True)
class Look:
    """A rank as the reasons look at it.

    Args:
        facts: of the rank.
        thread: the one that makes no collective.
        now: of the look.
        source: describes the lines at which its threads are.
        at_least: it may have been there for longer, before anybody looked.
    """

    facts: RankFacts
    thread: int
    now: float
    source: tuple[SourceLine, ...]
    at_least: bool = False

    @cached_property
    def own(self) -> Stack | None:
        """The stack of that thread."""
        return stack_of(self.facts, self.thread)

    @cached_property
    def chain(self) -> Chain:
        """From that thread, over those that it waits for."""
        return follow(self.facts, self.own, self.source)

    @property
    def stack(self) -> Stack | None:
        """That of the thread which waits for no other one."""
        return self.chain.end

    @cached_property
    def kernel(self) -> Kernel | None:
        """Where the kernel has seen it."""
        return kernel_of(self.facts, self.stack)

    @property
    def syscall(self) -> str:
        return self.kernel.syscall if self.kernel is not None else ""

    @cached_property
    def does(self) -> str:
        """What it does, in words; with its name, where it is another thread than the first."""
        what = doing(self.facts, self.stack)
        if self.stack is not None and self.stack != self.own:
            return f"waits for {thread_name(self.stack)}, which {what}"
        return what

    @cached_property
    def place(self) -> Location | None:
        """Where that one is in the program."""
        return user_frame(self.stack) or user_frame(self.own)

    @cached_property
    def phase(self) -> Phase | None:
        """The innermost phase that the thread is in."""
        open_ = [phase for phase in self.facts.phases if phase.thread in (0, self.thread)]
        ours = [phase for phase in open_ if phase.name.startswith(AWAY_PHASES)]
        found = ours or open_
        return found[-1] if found else None

    def in_phase(self, name: str) -> bool:
        """Whether it is in a phase whose name begins so."""
        return self.phase is not None and self.phase.name.startswith(name)

    @property
    def since_s(self) -> float:
        """For how long it is in that phase."""
        return self.now - self.phase.since if self.phase is not None else 0.0

    @property
    def waited(self) -> str:
        """The same in words: `8 s`, `at least 8 s`."""
        return f"{'at least ' if self.at_least else ''}{self.since_s:.0f} s"

    @property
    def sources(self) -> tuple[str, ...]:
        """The kinds of evidence that were looked at."""
        there = (("stack", self.stack is not None), ("kernel", self.facts.kernel is not None))
        return tuple(name for name, known in there if known)

    @property
    def sources_and_beat(self) -> tuple[str, ...]:
        """The same, where the rank's own heartbeat says so too."""
        return (*self.sources, "heartbeat")
