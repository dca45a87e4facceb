"""From heartbeats to a suspicion, to a notice, to the decision that a hang is one. Speak early, kill late.

Everything here is arithmetic on times that are handed in, so that a test can let hours pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from safelaunch.codes import CATALOGUE, Trait, has
from safelaunch.model import Case, RankFacts, Verdict
from safelaunch.pulse import Pulse

QUIET_S = 2.0  # no progress for so long, while it waits: worth a look. A look costs each rank some 0.1 s of one core
CONFIRM_S = 0.7  # between two looks that must agree
IDLE_CONFIRM_S = 5.0  # ... where nobody waits: one slow read must be told from one that never ends
LOOP_S = 30.0  # ... and that a rank sleeps shortly in each pass of a `for` loop: a paced evaluation looks like this
# ... and that all are inside one call with ranks of other nodes: TCP tries again after 1, 2, 4 and 8 s
NETWORK_S = 15.0
# ... and that all are inside a call that makes a group, or its first one, in which NCCL connects it: 4 ranks needed 9 s
# for their CUDA contexts on a busy H200, and the connections of many nodes take longer
MAKING_S = 30.0
MAKING = ("init_process_group", "new_group", "split_group")
UNTOLD_S = 30.0  # ... and that everybody waits and nobody knows for whom (a rank of another node, perhaps)
IDLE_S = 30.0  # nobody waits, and nothing is done: programs may have ended, or all may be in a dead file system
NOTICE_S = 6.0  # what can still end by itself is told after so long, and what cannot as soon as it is confirmed
FACTOR = 5.0  # ... but not before five times the longest silence seen at the same place (as NVRx has it)
LIMIT_S = 600.0  # ... and never later than this
LOADING_S = 60.0  # how long a file may be loaded that is a module: 3 GB at 50 MB/s. An estimate
LOADING_CPU, LOADING_BYTES = 0.1, 4 << 20  # cores, and bytes since the look before, which itself may take 1 MB
SHORT_S = 1.0  # silences below this are not worth learning
CONCLUSIVE_ABORT_S = 10.0  # grace after a finding that nothing can reverse
DEFAULT_ABORT_S = 600.0  # for `--on-hang abort` without a limit: torch's own timeout with NCCL
LATE_S = 3.0  # our own loop was not scheduled (suspended laptop, SIGSTOP): that time counts for nobody
PAUSE_LOOK_S = 10.0  # while a person is at the keyboard

# System calls that input from outside ends: a service may wait in them for as long as it likes.
ANSWERED = {
    *("read", "readv", "recvfrom", "recvmsg", "accept", "accept4"),
    *("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
}

PATIENT = {Trait.UNKNOWN: UNTOLD_S, Trait.QUIET: IDLE_S}  # what is told late

Step = Literal["", "look", "returned", "abort"]


@dataclass(frozen=True)
class Notice:
    """What was told of a stall: `progress` is the time of the last progress of each rank when it was told."""

    verdict: Verdict
    t: float
    since: float
    progress: Mapping[int, float]


class Suspicion(Enum):
    """How far the suspicion of one attempt has come. `HangWatch` alone moves it; what it waits for stands beside it."""

    NONE = "the ranks go on"
    SUSPECTED = "ranks stand still: looks are taken until two agree"
    CONFIRMED = "two looks agree: it is told once the patience is over"
    NOTICED = "it has been told: progress, or a limit"
    ENDING = "the ranks are ended for it"
    PAUSED = "a person holds a rank up: the next look"


@dataclass
class HangWatch:
    """One attempt's suspicion.

    Args:
        on_hang: `auto`, `report`, `abort` or `restart`, as `--on-hang` has them.
        abort_after: in seconds, None for never before the group's own timeout.
    """

    on_hang: str = "auto"
    abort_after: float | None = None
    phase: Suspicion = Suspicion.NONE
    notice: Notice | None = None  # from NOTICED on
    nobody_waits: bool = False  # a look then asks only for what needs no wait
    learned: dict[str, float] = field(default_factory=dict)
    _progress: dict[int, float] = field(default_factory=dict)
    _silences: dict[int, tuple[str, float]] = field(default_factory=dict)
    _sites: dict[int, str] = field(default_factory=dict)
    _floor: float = 0.0
    _polled: float | None = None
    _next_look: float = 0.0
    _seen: tuple[str, tuple[int, ...]] | None = None  # code and culprits of the latest look
    _until: float = 0.0

    def __post_init__(self) -> None:
        if self.on_hang in ("abort", "restart") and self.abort_after is None:
            self.abort_after = DEFAULT_ABORT_S

    def restart(self) -> None:
        """A new attempt: what was learned stays, what was suspected goes."""
        self.notice = self._polled = self._seen = None
        self.phase = Suspicion.NONE
        self._next_look = self._until = 0.0
        self._progress, self._silences, self._sites = {}, {}, {}

    def quiet(self, rank: int, now: float) -> float:
        """Seconds without progress of a rank, as far as they count."""
        return now - max(self._progress.get(rank, self._floor), self._floor)

    def is_quiet(self, pulse: Pulse, now: float) -> bool:
        """Whether it is worth asking where a rank stands."""
        return bool(now - max(pulse.progress, self._floor) > SHORT_S)

    def poll(self, pulses: Mapping[int, Pulse], sites: Mapping[int, str], now: float) -> Step:
        """One round over the living ranks' pulses.

        Args:
            pulses: by rank; ranks that write none are left out.
            sites: where each quiet rank stands: a name under which its silences are learned; empty at the start.
            now: CLOCK_MONOTONIC.

        Returns:
            What is to be done: take a look, tell that progress is back, or end the ranks.
        """
        if self._polled is None or now - self._polled > LATE_S:
            self._floor = now
        self._polled = now
        for rank, pulse in pulses.items():
            self._follow(rank, pulse, sites.get(rank, ""), now)
        if self.notice is not None:
            if self.has_returned(pulses):
                return "returned"
            return "abort" if now >= self._abort_at() else ""
        if self._stands_still(pulses, now):
            if self.phase is Suspicion.NONE:
                self.phase = Suspicion.SUSPECTED
            return "look" if now >= self._next_look else ""
        self._seen = None
        if self.phase is not Suspicion.PAUSED or now >= self._next_look:
            self.phase = Suspicion.NONE
        return ""

    def waiting(self, pulses: Mapping[int, Pulse], now: float) -> dict[int, float]:
        """For how many seconds each rank has made no progress that waits for others."""
        return {rank: self.quiet(rank, now) for rank, pulse in pulses.items() if pulse.waiting}

    def _stands_still(self, pulses: Mapping[int, Pulse], now: float) -> bool:
        """Whether ranks have waited, or all have done nothing, for so long that it is worth a look."""
        waiting = [rank for rank, pulse in pulses.items() if pulse.waiting]
        if not waiting and all(pulse.asks_store for pulse in pulses.values()):
            waiting = list(pulses)  # somebody else has to set the keys, and there is nobody left
        self.nobody_waits = bool(pulses) and not waiting
        if self.nobody_waits:
            return all(self.quiet(rank, now) >= self._at_most(IDLE_S) for rank in pulses)
        return any(self.quiet(rank, now) >= max(QUIET_S, self._learned(rank)) for rank in waiting)

    def has_returned(self, pulses: Mapping[int, Pulse]) -> bool:
        """Whether one of those that the notice is about has made progress since."""
        return bool(self.moved(pulses))

    def moved(self, pulses: Mapping[int, Pulse]) -> dict[int, float]:
        """Those of them that have, with the time of it."""
        before = self.notice.progress if self.notice is not None else {}
        return {
            rank: pulses[rank].progress for rank, t in before.items() if rank in pulses and pulses[rank].progress > t
        }

    def gave_up(self, moved: Mapping[int, float]) -> None:
        """What these have done so far is no progress."""
        assert self.notice is not None
        self.notice = dataclasses.replace(self.notice, progress={**self.notice.progress, **moved})

    def looked(self, verdict: Verdict, case: Case, paused: bool, now: float, *, in_passes: bool = False) -> bool:
        """Take in what a look has found; true when it is time to tell it.

        Args:
            verdict: what the rules say of it.
            case: what was found.
            paused: whether a person holds a rank up.
            now: CLOCK_MONOTONIC.
            in_passes: whether who is late sleeps shortly in each pass of a loop that ends by itself.
        """
        self._polled = now  # a look takes its time, and that is not time in which we did not run
        if paused:
            self.pause(now)
            return False
        concerned = self._concerned(verdict, case)
        quiet = min((self.quiet(rank, now) for rank in concerned), default=0.0)
        if self._says_nothing(verdict, case):
            self._look_again(None, now + max(QUIET_S, quiet))  # twice as long each time
            return False
        seen = (verdict.code, verdict.culprit_ranks)
        if self._seen != seen:
            self._look_again(seen, now + (IDLE_CONFIRM_S if self.nobody_waits else CONFIRM_S))
            return False
        self.phase = Suspicion.CONFIRMED
        self._until = _announced(verdict, case, quiet, now)
        due = max(now + self._patience(verdict, concerned, case, in_passes=in_passes) - quiet, self._until)
        if not verdict.conclusive and due > now:
            # Meanwhile the evidence may become better, where it did not tell who is late.
            soon = now + max(CONFIRM_S, quiet) if has(verdict.code, Trait.UNKNOWN) else due
            self._next_look = max(min(due, soon), now + CONFIRM_S)
            return False
        # Whose progress ends the stall: the culprits', and that of those who wait for them.
        watched = {*concerned, *verdict.waiting} & set(_living(case))
        involved = {rank: self._progress.get(rank, self._floor) for rank in watched}
        since = max([self._floor, *involved.values()]) if involved else now
        self.notice = Notice(verdict, now, since, involved)
        self.phase = Suspicion.NOTICED
        return True

    def _says_nothing(self, verdict: Verdict, case: Case) -> bool:
        """Whether a look is no reason to suspect anybody."""
        # A rank that does something else than wait may be all that the others need, unless it does nothing at all.
        still = {facts.rank for facts in case.ranks if _does_nothing(facts)}
        unknown = has(verdict.code, Trait.UNKNOWN) and not set(_living(case)) <= {*verdict.waiting, *still}
        return unknown or (self.nobody_waits and not has(verdict.code, Trait.QUIET))

    def _look_again(self, seen: tuple[str, tuple[int, ...]] | None, at: float) -> None:
        self.phase = Suspicion.SUSPECTED
        self._seen = seen
        self._next_look = at

    def _patience(self, verdict: Verdict, concerned: Sequence[int], case: Case, *, in_passes: bool) -> float:
        """Seconds of silence after which what has been confirmed is told."""
        late = [seconds for trait, seconds in PATIENT.items() if has(verdict.code, trait)]
        late += [LOOP_S] if in_passes else []
        if has(verdict.code, Trait.NOBODY) and not verdict.culprit_ranks:
            late += [NETWORK_S] if case.world_size > len(case.ranks) else []
            late += [MAKING_S] if verdict.operation in MAKING or verdict.seq == 1 else []
        least = self._at_most(max(late)) if late else NOTICE_S
        return max([least, *(self._learned(rank) for rank in concerned)])

    def refine(self, verdict: Verdict) -> None:
        """What was told a moment ago, as it is known now."""
        assert self.notice is not None
        self.notice = dataclasses.replace(self.notice, verdict=verdict)

    def ends_in(self, now: float) -> float | None:
        """Seconds until the ranks are ended as things stand; None for never."""
        at = self._abort_at()
        return None if at == float("inf") else max(0.0, at - now)

    def pause(self, now: float) -> None:
        """A person is at the keyboard: nothing before this moment counts any more. What was told stays told."""
        if self.notice is None:
            self.phase = Suspicion.PAUSED
        self._floor = now
        half = self.abort_after / 2 if self.abort_after is not None else PAUSE_LOOK_S
        self._next_look = now + min(PAUSE_LOOK_S, half)

    def postpone(self, now: float) -> None:
        """Not yet: the culprit is at work (a checkpoint that is being written), or what was told as final no longer
        looks so."""
        self._until = now + CONCLUSIVE_ABORT_S

    def returned(self, now: float) -> Notice:
        """Progress is back: forget the suspicion, and learn how long it was."""
        notice = self.notice
        assert notice is not None
        for rank in notice.verdict.culprit_ranks:
            site = self._sites.get(rank)
            if not site:
                continue
            self.learned[site] = max(self.learned.get(site, 0.0), now - notice.since)
        self.notice = self._seen = None
        self.phase = Suspicion.NONE
        self._next_look = now + CONFIRM_S
        return notice

    def end(self) -> None:
        """The ranks are ended for it."""
        assert self.notice is not None
        self.phase = Suspicion.ENDING

    def _follow(self, rank: int, pulse: Pulse, site: str, now: float) -> None:
        before = self._progress.get(rank)
        if before is not None and pulse.progress > before and rank in self._silences:
            where, silence = self._silences.pop(rank)
            self.learned[where] = max(self.learned.get(where, 0.0), silence)
        self._progress[rank] = max(pulse.progress, self._progress.get(rank, 0.0))
        silence = self.quiet(rank, now)
        if silence > SHORT_S:
            self._sites[rank] = site
            if site:  # nothing is learned from the start of a program: its imports say nothing of what follows
                self._silences[rank] = (site, silence)

    def _learned(self, rank: int) -> float:
        return self._at_most(FACTOR * self.learned.get(self._sites.get(rank, ""), 0.0))

    def _at_most(self, seconds: float) -> float:
        # Who has set a limit wants to hear of it before it has passed, whatever was normal until now.
        return min(seconds, LIMIT_S if self.abort_after is None else min(LIMIT_S, self.abort_after / 2))

    def _concerned(self, verdict: Verdict, case: Case) -> tuple[int, ...]:
        """Whose silence counts: the culprits', or of those who wait where no culprit is known or alive, or where what
        the culprit does from now on does not end their wait: it has gone another way."""
        living = _living(case)
        waiting = tuple(rank for rank in verdict.waiting if rank in living)
        if has(verdict.code, Trait.DIVERGED) and waiting:
            return waiting
        return tuple(rank for rank in verdict.culprit_ranks if rank in living) or waiting or living

    def limit_passed(self, now: float) -> bool:
        """Whether the limit that somebody has set has passed since the last progress."""
        return now >= self._limit_at()

    def _limit_at(self) -> float:
        assert self.notice is not None
        if self.abort_after is None:
            return float("inf")
        return max(self.notice.since, self._floor) + self.abort_after

    def _abort_at(self) -> float:
        assert self.notice is not None
        if self.on_hang == "report":
            return float("inf")
        at = self._limit_at()
        if self.notice.verdict.conclusive:
            at = min(at, max(self.notice.t, self._floor) + CONCLUSIVE_ABORT_S)
        return max(at, self._until)


def _does_nothing(facts: RankFacts) -> bool:
    """Whether two looks have found a rank asleep at one line, in a call that nobody outside is to answer."""
    kernel = facts.kernel
    if kernel is None or kernel.cpu_s is None or facts.stack is None or facts.earlier is None:
        return False
    asked = kernel.peer is not None or kernel.syscall in ANSWERED or any(phase.expect_s for phase in facts.phases)
    return facts.stack.frames == facts.earlier.frames and not asked and not kernel.worked(LOADING_CPU, LOADING_BYTES)


def _living(case: Case) -> tuple[int, ...]:
    return tuple(facts.rank for facts in case.ranks if facts.exit is None)


def _announced(verdict: Verdict, case: Case, quiet: float, now: float) -> float:
    """Until when (CLOCK_MONOTONIC) the culprits have said that they are busy, or load a module; 0 for neither."""
    culprits = [facts for facts in case.ranks if facts.rank in verdict.culprit_ranks]
    expected = [phase.since + phase.expect_s for facts in culprits for phase in facts.phases if phase.expect_s]
    until = max(expected, default=0.0)
    return max(until, now + QUIET_S) if quiet < LOADING_S and any(map(_loads, culprits)) else until


def _loads(facts: RankFacts) -> bool:
    """Whether a rank reads, compiles or links the file of a module at this moment. What the module itself does then is
    another matter: all of a training may run below an import."""
    frames, kernel = facts.stack.frames if facts.stack is not None else (), facts.kernel
    if not frames or not frames[0].file.startswith("<frozen importlib._bootstrap") or kernel is None:
        return False
    return kernel.worked(LOADING_CPU, LOADING_BYTES)


def slow(notice: Notice, now: float) -> Verdict:
    """Ranks waited for one that was late, and then it came: progress returned before anything was ended.

    Example:
        warning[SL501]: rank 0 is in a checkpoint save for 8 s (train.py:120), and 3 peers wait for it in all_reduce
            #12; progress returned after 42 s

    How it was concluded: a notice had told of ranks that wait, and of the rank they wait for. Then that rank, or one of
    those who waited, went on. The evidence is that of the notice. A long evaluation or checkpoint on one rank looks
    like this. So does a stopped process that was continued.

    What to do: nothing, if the wait was meant. To have it told later, give the phase a name and a limit: `with
    safelaunch.phase("evaluate", expect="10m")`.

    What it is not: a rank that is late in every step (SL503). A wait that did not end keeps the code of its hang
    (SL3xx).
    """
    return dataclasses.replace(
        notice.verdict,
        code="SL501",
        slug=CATALOGUE["SL501"].slug,
        kind="slow",
        summary=f"{notice.verdict.summary}; progress returned after {now - notice.since:.0f} s",
        remedy="nothing, if the wait was meant; safelaunch.phase(name, expect=...) announces it",
        concluded_after_s=round(now - notice.since, 3),
        exit_code=0,
        conclusive=False,
    )
