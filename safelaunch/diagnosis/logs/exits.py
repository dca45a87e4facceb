"""How processes ended, in the words of launchers and schedulers: who may have been first, and who only followed."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from safelaunch.diagnosis.frames import first_of_user
from safelaunch.diagnosis.logs.timeline import Candidate, before
from safelaunch.diagnosis.wording import short
from safelaunch.model.logs import Ended, LogFacts, LogLine, Sighting

# torch elastic waits 30 s for SIGTERM to work (TORCH_ELASTIC_SHUTDOWN_TIMEOUT may shorten that), and it ends the others
# within a second of the first death that it notices.
SHUTDOWN_S = 2.0

# Of failures that are alike, so many are compared with each other: among tens of thousands, more would take minutes.
EARLIEST = 100

ABORTED = ("nccl-aborted", "nccl2-timeout", "nccl2-abort", "nccl-heartbeat")  # SIGABRT follows these
WATCHDOG = "watchdog thread terminated with exception"  # and what that was: then it ends its process
STACK = 6  # frames that are shown
CANCELLED = ("slurm-step-cancelled", "slurm-cancelled")
OUTSIDE_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}

# Who says how a process ended -> which of the independent witnesses of a candidate that is.
WITNESSES = {"elastic": "launcher", "parent": "launcher", "slurm": "scheduler", "kubernetes": "scheduler"}


def failed_by_itself(end: Ended) -> bool:
    """Whether a process ended with an error, and no launcher had told it to end."""
    return bool(end.code) and not end.ordered


def own_exits(facts: LogFacts) -> dict[int, Ended]:
    """How ranks ended by themselves, with an error, in the words that come first."""
    found: dict[int, Ended] = {}
    for end in facts.ended:
        if end.rank is not None and failed_by_itself(end):
            found.setdefault(end.rank, end)
    return found


def only_failed(facts: LogFacts, explained: set[int | None]) -> Ended | None:
    """The one rank that failed by itself, with an exit code, and is not explained; None where there are more."""
    ends = {
        end.rank: end
        for end in facts.ended
        if end.rank is not None and end.by != "faulthandler" and failed_by_itself(end)
    }
    left = [end for rank, end in ends.items() if rank not in explained and end.code != -signal.SIGTERM]
    return left[0] if len(left) == 1 and (left[0].code or 0) > 0 else None


def from_exits(
    facts: LogFacts, explained: set[int | None], by_pid: Mapping[int, Ended]
) -> tuple[list[Candidate], list[Ended]]:
    """Candidates by how processes ended, and the ends that need a reason which the logs do not show.

    Args:
        facts: of the last attempt.
        explained: the ranks whose failure an exception explains, as a cause or as a consequence.
        by_pid: the ends of processes whose rank is known.
    """
    context = _Context(facts, explained, by_pid)
    found: list[Candidate] = []
    unexplained: list[Ended] = []
    for end in facts.ended:
        if context.is_expected(end):
            continue
        end = replace(end, rank=context.rank_of(end))
        role = context.role_of(end)
        if role == "unexplained":
            unexplained.append(end)
        elif role == "candidate":
            found.append(_candidate(end, context.counts_oom(end)))
    return found, unexplained


@dataclass(frozen=True)
class _Context:
    """What the other lines say that decides how one end is read."""

    facts: LogFacts
    explained: set[int | None]
    by_pid: Mapping[int, Ended]

    @cached_property
    def ended_by_launcher(self) -> set[int]:
        """Processes that a launcher told to end, or killed."""
        return {end.pid for end in self.facts.ended if end.ordered} | _ended_by_launcher(self.facts)

    @cached_property
    def aborting(self) -> bool:
        """Whether watchdogs aborted ranks, so that SIGABRT is no sign of a cause."""
        said = self.facts.sightings
        return bool(self.facts.timed_out) or any(s.known.name in ABORTED or WATCHDOG in s.at.text for s in said)

    @cached_property
    def tasks_are_nodes(self) -> bool:
        """Whether Slurm's tasks stand for nodes: torch elastic ran below them."""
        facts = self.facts
        elastic = any(end.by == "elastic" for end in facts.ended) or any(one.launcher for one in facts.raised)
        labelled = any(s.host.startswith("task ") for s in (*facts.sightings, *facts.raised, *facts.timed_out))
        return elastic or labelled or not self.tasks_are_ranks

    @cached_property
    def tasks_are_ranks(self) -> bool:
        """Whether something shows that a task is a rank, and not a node whose ranks another launcher starts: several
        of them on one host, as many of them as there are ranks, or ranks that all have the number of a task."""
        tasks = {(end.host, end.task) for end in self.facts.ended if end.by == "slurm" and end.task is not None}
        numbers = {task for _, task in tasks}
        shared = len(tasks) > len({host for host, _ in tasks})
        as_many = self.facts.world_size == max(numbers, default=-1) + 1
        return shared or as_many or (bool(self.facts.ranks) and numbers.issuperset(self.facts.ranks))

    @cached_property
    def failed_first(self) -> list[tuple[LogLine, int | None]]:
        """The first tasks that failed, by lines and by times, and where the step was being cancelled (task None)."""
        lines: list[tuple[LogLine, int | None]] = [
            (end.at, end.task) for end in self.facts.ended if end.by == "slurm" and end.code
        ]
        lines += [(s.at, None) for s in self.facts.sightings if s.known.name in CANCELLED]
        kept: dict[tuple[str, str], list[tuple[LogLine, int | None]]] = {}
        for one in sorted(lines, key=lambda one: one[0].line):
            kept.setdefault(("file", one[0].file), []).append(one)
        for one in sorted(lines, key=lambda one: one[0].t or 0.0):
            kept.setdefault(("clock", one[0].clock), []).append(one)
        return [one for ones in kept.values() for one in ones[:EARLIEST]]

    @cached_property
    def oom_kills(self) -> list[Sighting]:
        """The first OOM kills that a scheduler counted."""
        said = [s for s in self.facts.sightings if s.known.code == "SL404" and s.known.role == "outside"]
        return said[:EARLIEST]

    def counts_oom(self, end: Ended) -> bool:
        """Whether the scheduler counted an OOM kill where this process died."""
        return any(not s.host or not end.host or s.host == end.host for s in self.oom_kills)

    def is_expected(self, end: Ended) -> bool:
        """Whether a process ended well, or because a launcher ended it. A word on memory counts all the same."""
        ended_by_launcher = end.ordered or (end.pid != 0 and end.pid in self.ended_by_launcher)
        return (ended_by_launcher or not end.code) and (end.ordered or not end.memory)

    def rank_of(self, end: Ended) -> int | None:
        """The rank of a process: as its line says, by its pid, or by its task."""
        if end.rank is not None:
            return end.rank
        same = self.by_pid.get(end.pid)
        if same is not None:
            return same.rank
        return None if self.tasks_are_nodes else end.task

    def role_of(self, end: Ended) -> Literal["candidate", "unexplained", "consequence"]:
        """Whether an end may have been first, whether it needs a reason, or whether it follows from another failure."""
        number = _signal(end)
        explained = end.rank in self.explained
        if (end.code or 0) > 0 or number in OUTSIDE_SIGNALS:
            return "consequence" if explained else "unexplained"
        if number == signal.SIGKILL and self._killed_by_srun(end):
            return "unexplained"
        if number == signal.SIGABRT:
            if self.aborting or explained:
                return "consequence"
            if end.by not in ("faulthandler", "parent") and not end.frames:
                return "unexplained"  # who aborts says why on stderr; without that it may have followed
        return "candidate"

    def _killed_by_srun(self, end: Ended) -> bool:
        """Whether srun may have killed a task: it ends the rest of a step when one task fails, or when the step is
        cancelled."""
        if end.by != "slurm" or end.memory:
            return False
        return any(task != end.task and at != end.at and before(at, end.at) for at, task in self.failed_first)


def without_terminated(ends: list[Ended]) -> list[Ended]:
    """Of tasks of Slurm, those that ended by themselves: the rest was terminated when they did."""
    own = [end for end in ends if end.by == "slurm" and (end.code or 0) > 0]
    return [end for end in ends if not own or end.by != "slurm" or end.code != -signal.SIGTERM]


def _ended_by_launcher(facts: LogFacts) -> set[int]:
    """Processes that torch elastic killed: they died of SIGKILL long after the failure that it had noticed first."""
    listed = [end for end in facts.ended if end.by == "elastic" and end.rank is not None and end.at.t is not None]
    first = min((end.at.t for end in listed if end.at.t is not None), default=0.0)
    return {
        end.pid
        for end in listed
        if end.code == -signal.SIGKILL and not end.first
        if end.at.t is not None and end.at.t - first >= SHUTDOWN_S
    }


def _candidate(end: Ended, oom_counted: bool) -> Candidate:
    number = _signal(end)
    code, what, remedy = _words(number, out_of_memory=end.memory or oom_counted)
    if end.launcher:
        what, code = f"the launcher itself crashed in native code ({_signal_name(number)})", "SL601"
        remedy = "the stack is torchrun's and no rank's: look at its rendezvous and the versions of torch and Python"
    told = end.by == "parent" and end.rank is None
    if told and number == signal.SIGABRT:
        remedy = "read what that process wrote before: who aborts says why on stderr, and the line is its parent's"
    scheduler = {"scheduler"} if oom_counted and number == signal.SIGKILL else set()
    return Candidate(
        rank=end.rank,
        host=end.host,
        code=code,
        at=end.at,
        what=what,
        local=end.local_rank if end.rank is None else None,
        process=f"process {end.pid}" if told else "",
        message_only=told and number == signal.SIGABRT,  # it may have followed from what another one did
        blameless=end.launcher,
        more=_stack(end),
        sources=frozenset({WITNESSES.get(end.by, end.by), *scheduler}),
        alike=(code, number),
        location=first_of_user(end.frames),
        remedy=remedy,
        pid=end.pid or None,
    )


def _stack(end: Ended) -> tuple[str, ...]:
    """The stack of a process that crashed, innermost first."""
    shown = [f"{frame.function} ({short(frame)})" for frame in end.frames[:STACK]]
    more = ", ..." if len(end.frames) > STACK else ""
    return (f"its stack, the latest call first: {', '.join(shown)}{more}",) if shown else ()


def _words(number: int, *, out_of_memory: bool) -> tuple[str, str, str]:
    """The code of a signal, what it did to the rank, and the remedy."""
    name = _signal_name(number)
    native = "look at the native call at the top of the stack (PYTHONFAULTHANDLER=1 prints it)"
    if number == signal.SIGKILL and out_of_memory:
        remedy = "use less host memory (loader workers, prefetch, pinned memory) or ask for more"
        return "SL404", "was ended by the kernel for memory", remedy
    if number == signal.SIGKILL:
        remedy = "look at the kernel log and the scheduler's log for who sent it; most often it is the OOM killer"
        return "SL403", "was killed by SIGKILL", remedy
    if number == signal.SIGABRT:
        return "SL406", f"aborted ({name})", native
    if number == signal.SIGBUS:
        native = "SIGBUS most often means that /dev/shm, or a disk behind a mapped file, is full"
    return "SL405", f"crashed in native code ({name})", native


def _signal(end: Ended) -> int:
    """The signal that ended a process, or 0."""
    return -end.code if end.code is not None and end.code < 0 else 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
