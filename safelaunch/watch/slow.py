"""From heartbeats and meetings to a suspicion that a run is slow, and whether it is over. Nothing is ever ended for it.

Everything here is arithmetic on times that are handed in, so that a test can let hours pass.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from safelaunch.model.slow import Slow, Slowness
from safelaunch.pulse import Pulse
from safelaunch.watch import loaders
from safelaunch.watch.device_times import Judged, Look, follow_s, judge
from safelaunch.watch.lateness import SECONDS, STEPS, Late, Lateness
from safelaunch.watch.meetings import Arrival, Meetings
from safelaunch.watch.pace import SLOWER, WARM_UP, Bin, Pace, enough, growth, jumped, window
from safelaunch.watch.slowness import is_same, of_bins, of_late, of_stalls, with_devices
from safelaunch.watch.stalls import Stalls

KEPT_LOOKS = 8  # at GPUs: ones from before it began are compared with those after
BELOW = 1.5  # times what the profile expects; an estimate: who writes a number down rounds it
LONG = 25  # steps for which everybody must be slow: more than it takes to see who is late, which is the better answer
CERTAIN_S = 10.0  # ... and how long
BINS = 6  # ... in so many bins
JUDGE_S = 2.0  # how often it is thought about
LATE_S = 3.0  # our own loop was not scheduled (suspended laptop, SIGSTOP): that time counts for nobody
LOOK_S = 0.5  # meetings of steps that are shorter are taken together
COVERED = 0.5  # of the time must lie between meetings that our own record holds
COUNTED = 20  # collectives by which it is told whether C++ makes some that our record does not hold
ASK_S = 15.0  # after the first steps the Flight Recorders are asked, where it does not ...
ASK_STEPS = 25  # ... and after so many steps, of which `STEPS` and some more can be judged then ...
ASK_AGAIN = 2.0  # ... then after twice the time, and so on, and whenever steps become longer
LONGER = 1.3  # by this factor
ANSWER_S = 10.0  # how long to wait for them
FRESH_S = 60.0  # how long an answer holds
REST_S = 2.0  # a rank that has made steps, and none for so long ...
REST_STEPS = 5  # ... and for the time of so many, only answers the others' collectives (DDP's join, uneven data)
HOSTS_AHEAD = "calls end on GPUs, and hosts run ahead of these; the GPUs were not looked at"
AGAIN_S = 60.0  # the same kind is told again after this, then after twice as long


@dataclass
class Told:
    """What was told at the moment `at`. `cleared`: a later answer of the Flight Recorders says that it is over."""

    slowness: Slowness
    at: float
    cleared: bool = False


@dataclass
class SlowWatch:
    """One run's pace. `expect` is the time of a step that the profile expects, in seconds."""

    expect: float | None = None
    told: dict[Slow, Told] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    meetings: Meetings = field(default_factory=Meetings)
    on_device: bool = False  # calls end on GPUs (NCCL): when a host comes to them says nothing
    devices: list[Judged] = field(default_factory=list)  # what the latest looks at GPUs have said, the last one last
    stalls: Stalls = field(default_factory=Stalls)
    _lateness: Lateness = field(default_factory=Lateness)
    _recorded: Late | None = None
    _recorder_says: str = ""
    _asked: float = 0.0
    _answered: float = 0.0
    _ask_next: float = 0.0
    _ask_pause: float = ASK_S
    longer: float = 0.0  # since when steps are longer: a median over all bins, taken when it is thought about
    _longer_asked: float = float("-inf")
    _polled: float | None = None
    _judge_next: float = 0.0
    _learn_from: float = 0.0
    _counted: tuple[int, int] = (0, 0)
    _hidden: bool = False
    _groups: bool = False
    _doubt: bool = False
    _slow_for_all: float = 0.0  # when this was last suspected
    _not_before: dict[Slow, float] = field(default_factory=dict)
    _pauses: dict[Slow, float] = field(default_factory=dict)

    def restart(self) -> None:
        """A new attempt: nothing of before counts."""
        self.pace.restart()
        self.meetings.restart()
        self._lateness.restart()
        self.stalls.restart()
        self.told = {}
        self._recorded, self._polled, self._recorder_says = None, None, ""
        self._ask_next, self._ask_pause, self._asked, self._answered = 0.0, ASK_S, 0.0, 0.0
        self._counted, self._hidden, self.longer, self._longer_asked = (0, 0), False, 0.0, float("-inf")
        self._slow_for_all = 0.0
        self.devices, self.on_device = [], False

    def interrupt(self) -> None:
        """Ranks are held up (a hang, a debugger): this time counts for nobody."""
        self._polled = None

    def poll(
        self, pulses: Mapping[int, Pulse], calls: Mapping[int, Sequence[Arrival]], groups: bool, now: float
    ) -> Slowness | None:
        """One round.

        Args:
            pulses: of the living ranks.
            calls: what is new in their records of collectives, oldest first.
            groups: they use torch.distributed.
            now: CLOCK_MONOTONIC.

        Returns:
            What is suspected, to be looked into; `tell` or `dismiss` is the answer.
        """
        if self._polled is None or now - self._polled > LATE_S:
            self.pace.interrupt()
            self._lateness.interrupt()
        self._polled, self._groups = now, groups
        self.on_device = any(pulse.device_calls or pulse.on_device for pulse in pulses.values())
        intervals = self.meetings.add(calls)
        self.pace.poll(pulses, now, self.meetings.sites if self.pace.unit == "collective" else None)
        if self.pace.unit and self.pace.count >= WARM_UP:
            each = self._each() if self.pace.unit != "collective" else 0.0
            self._lateness.add(intervals, max(LOOK_S, each), each or None)
            if not self.on_device:
                self.stalls.add(intervals)
        if now < self._judge_next or not self.pace.bins:
            return None
        self._judge_next = now + JUDGE_S
        self.longer = self._longer_from()
        self._count_hidden(pulses)
        return self._suspect(pulses, now)

    def _each(self) -> float:
        return self.pace.each() or 0.0

    # ------------------------------------------------------------------------------------- the Flight Recorder

    def wants_recorders(self, now: float) -> bool:
        """Whether it is time to ask the ranks for their Flight Recorders: the collectives are made in C++ (DDP, FSDP),
        where Python does not see them, or are too many for our own record."""
        if not self._groups or not self.pace.bins or self._asked > self._answered or self.sees_meetings():
            return False
        if self.pace.count < WARM_UP + ASK_STEPS:
            return False
        self._ask_next = self._ask_next or self.pace.bins[0].t + ASK_S
        doubt = self._asked < self._slow_for_all or (self._doubt and now - self._asked > FRESH_S)
        return doubt or now >= self._ask_next or now >= self.longer_due()

    def asked(self, now: float) -> None:
        """They have been asked."""
        if now >= self.longer_due():
            self._longer_asked = self.longer
        self._asked = now
        self._ask_pause *= ASK_AGAIN
        self._ask_next = now + self._ask_pause

    def recorded(self, calls: Mapping[int, Sequence[Arrival]], now: float, missing: str = "") -> None:
        """They have answered, or could not."""
        self._answered = now
        meetings, lateness = Meetings(), Lateness()
        intervals = meetings.add(calls, keep=max((len(own) for own in calls.values()), default=0))
        warm = [one for one in intervals if self.pace.at(one.since) >= WARM_UP]
        self.stalls.add(warm)
        lateness.add(warm, max(self._each(), 0.05), self._each() or None)
        self._recorded = lateness.judge(self.pace.at)
        self._recorder_says = missing or meetings.unknown or ("" if warm else "they hold no meetings of these ranks")
        told = self.told.get("straggler")
        if told is not None and told.slowness.source == "recorder" and self._recorded is None:
            told.cleared = lateness.clear(told.slowness.ranks, self.pace.at)

    def follow_s(self) -> tuple[float, float]:
        """For how many seconds GPUs are to be followed, and seconds between two looks."""
        return follow_s(self._each())

    def followed(self, looks: Mapping[int, Look], now: float, missing: str = "") -> None:
        """The GPUs of all ranks have been followed, or could not be."""
        self._answered = now
        counts = self.pace.unit != "collective"
        judged = judge(looks, self.pace.at if counts else None) if looks else Judged(unknown=missing or HOSTS_AHEAD)
        self._recorder_says, self._recorded = judged.unknown, judged.late
        if judged.unknown:
            return
        self.devices = [*self.devices[1 - KEPT_LOOKS :], judged]
        if judged.late is not None and self.longer:
            self._recorded = dataclasses.replace(judged.late, since=self.longer, first=False)
        told = self.told.get("straggler")
        if told is not None and told.slowness.source == "device":
            late = judged.late.ranks if judged.late is not None else ()
            told.cleared = not set(late) & set(told.slowness.ranks)

    def sees_meetings(self) -> bool:
        """Whether our own record holds the meetings of whole steps."""
        if self.on_device:
            return False
        if self.pace.unit == "collective":
            return True
        looks = self._lateness.looks[-4:]
        if self._hidden or len(looks) < 4 or looks[-1].t < self.pace.bins[-1].t - max(JUDGE_S, 3 * self._each()):
            return False
        # Time between meetings of one group is also time between those of another.
        covered = sum(min(max(all_ for _, _, all_ in look.sums.values()), look.t - look.since) for look in looks)
        return covered >= COVERED * (looks[-1].t - looks[0].since)

    def _count_hidden(self, pulses: Mapping[int, Pulse]) -> None:
        """Whether C++ makes collectives that Python does not see: the groups' own counter runs faster than ours."""
        rank = min(pulses)
        counted = pulses[rank].enqueued, self.meetings.last(rank)
        enqueued, own = (now - then for now, then in zip(counted, self._counted, strict=True))
        if self._counted == (0, 0):
            self._counted = counted
        elif enqueued >= COUNTED:  # of fewer, as in slow steps, those under way are too many
            self._hidden, self._counted = enqueued > 1.1 * own + 2, counted

    def _longer_from(self) -> float:
        """When steps became longer; 0 where they have not."""
        bins = self.pace.bins
        usual = self._usual(len(bins) - 4)
        if usual is None or any(one.each <= LONGER * usual for one in bins[-4:]):
            return 0.0
        return next((one.t for one in reversed(bins) if one.each <= LONGER * usual), 0.0)

    def longer_due(self) -> float:
        """When the Flight Recorders are worth asking because steps have become longer; infinite where they have not, or
        have been asked for that."""
        begun, bins = self.longer, self.pace.bins[-4:]
        length = 1.25 * max(STEPS * statistics.median(one.each for one in bins), SECONDS) if begun else 0.0
        return float("inf") if not begun or begun - self._longer_asked < length else begun + length

    # ----------------------------------------------------------------------------------------------- suspicion

    def _suspect(self, pulses: Mapping[int, Pulse], now: float) -> Slowness | None:
        """One rank that is late comes first, then ranks whose loaders are, and what is slow for all comes last."""
        bins, unit = self.alike(), self.pace.unit
        if not bins or (unit == "step" and self._some_rest(pulses)):
            return None
        late = self._late(now)
        found = self._of_late(late, bins, pulses, now) if late is not None else None
        if found is not None:
            return found
        hungry = loaders.hungry(bins, window(bins, STEPS, CERTAIN_S, BINS))
        some = loaders.some_are(hungry, bins, len(pulses))
        self._doubt = some and late is None and self._groups and not self.sees_meetings()
        if "straggler" in self.told or self._may_be_straggler(now):
            return None
        if some and late is None:
            found = self._of_loaders("straggler", bins, hungry, pulses)
            return self._open(dataclasses.replace(found, unknown=self._unknown()), now)
        return self._of_all(bins, hungry, pulses, now)

    def _of_late(self, late: Late, bins: list[Bin], pulses: Mapping[int, Pulse], now: float) -> Slowness | None:
        unit = self.pace.unit
        since = late.seq if unit == "collective" else self.pace.at(late.since) + 1
        source = "device" if self.on_device else "calls" if self.sees_meetings() else "recorder"
        return self._open(of_late(late, bins, pulses, unit, (since, self.pace.count), source), now)

    def _of_loaders(
        self, kind: Slow, bins: list[Bin], hungry: Mapping[int, int], pulses: Mapping[int, Pulse]
    ) -> Slowness:
        ranks = () if len(hungry) == len(pulses) else tuple(sorted(hungry))
        begun = min(hungry.values())
        return of_bins(kind, bins, begun, pulses, ranks=ranks, unit=self.pace.unit, source="loader")

    def _of_all(
        self, bins: list[Bin], hungry: Mapping[int, int], pulses: Mapping[int, Pulse], now: float
    ) -> Slowness | None:
        stalled = self.stalls.judge()
        if stalled is not None:
            return self._open(of_stalls(stalled, bins, pulses, self.pace.unit), now)
        slower, unknown = self._slower(bins), self._unknown()
        if slower is not None:
            begun, usual, grows = slower
            if self._asks_first(now):
                return None
            found = of_bins("slower", bins, begun, pulses, unit=self.pace.unit, usual=usual, unknown=unknown)
            return self._open(dataclasses.replace(found, grows=grows), now)
        if hungry and "slower" not in self.told:
            return self._open(self._of_loaders("loader", bins, hungry, pulses), now)
        if self._is_below(bins):
            return self._open(of_bins("below", bins, 0, pulses, expect=self.expect, unknown=unknown), now)
        return None

    def _some_rest(self, pulses: Mapping[int, Pulse]) -> bool:
        """Whether ranks have come to the end of their steps before others: their time is no measure for those."""
        longest = max(REST_S, REST_STEPS * max(one.each for one in self.pace.bins[-4:]))
        latest = max(pulse.stepped for pulse in pulses.values())
        return any(pulse.stepped and latest - pulse.stepped > longest for pulse in pulses.values())

    def _open(self, slowness: Slowness, now: float) -> Slowness | None:
        known = self.told.get(slowness.kind)
        if known is not None and is_same(known.slowness, slowness):
            return None
        if self.on_device:
            slowness = with_devices(slowness, self.devices)
        return slowness if now >= self._not_before.get(slowness.kind, 0.0) else None

    def tell(self, slowness: Slowness, now: float) -> None:
        """It has been told; it is over when `over` says so."""
        self.told[slowness.kind] = Told(slowness, now)
        self._later(slowness.kind, now)

    def dismiss(self, slowness: Slowness, now: float) -> None:
        """Nothing is wrong, or a person holds a rank up: not again for a while."""
        self._later(slowness.kind, now)
        if slowness.kind == "slower":
            self._learn_from = now

    def _later(self, kind: Slow, now: float) -> None:
        pause = self._pauses.get(kind, AGAIN_S)
        self._not_before[kind], self._pauses[kind] = now + pause, 2 * pause

    def over(self) -> list[Told]:
        """What was told and is over now; it is forgotten."""
        ended = [kind for kind, told in self.told.items() if self._is_over(told)]
        return [self.told.pop(kind) for kind in ended]

    def _is_over(self, told: Told) -> bool:
        slowness = told.slowness
        since = [one for one in self.alike() if one.since > told.at]
        start = window(since, STEPS, CERTAIN_S, BINS)
        if start is None:
            return False
        recent = since[start:]
        if slowness.stalled is not None:
            return False  # it is summed up at the end
        if slowness.source == "calls":
            return self._lateness.clear(slowness.ranks, self.pace.at)
        if slowness.source == "loader":
            ranks = slowness.ranks or tuple(recent[-1].loading)
            return loaders.are_fed(ranks, recent)
        if slowness.source in ("recorder", "device"):
            return told.cleared
        limit = slowness.expect_s or slowness.usual_s
        return limit is not None and statistics.median(one.each for one in recent) < LONGER * limit

    # ------------------------------------------------------------------------------------------- what is wrong

    def _late(self, now: float) -> Late | None:
        if self.sees_meetings():
            return self._lateness.judge(self.pace.at)
        return self._recorded if self._recorded is not None and now - self._answered < FRESH_S else None

    def _may_be_straggler(self, now: float) -> bool:
        """Whether the Flight Recorders are still to say who is late."""
        if not self._groups or self.sees_meetings():
            return False
        if self._asked > self._answered or (self._doubt and now - self._asked > FRESH_S):
            return True
        due = self.longer_due()
        return due < float("inf") and now < due + ANSWER_S

    def _asks_first(self, now: float) -> bool:
        """Whether the Flight Recorders are asked before something is said of all ranks: they may know of one."""
        if not self._groups or self.sees_meetings():
            return False
        if now - self._slow_for_all > FRESH_S:
            self._slow_for_all = now
        return self._asked < self._slow_for_all

    def _unknown(self) -> str:
        """Why it cannot be told who is late; empty where it could be."""
        if not self._groups:
            return "the ranks use no torch.distributed"
        if self.meetings.unknown or self.sees_meetings():
            return self.meetings.unknown
        silent = HOSTS_AHEAD if self.on_device else "the Flight Recorders have said nothing"
        return self._recorder_says if self._answered else silent

    def alike(self) -> list[Bin]:
        """The bins of the present kind of step, from where we learn."""
        kind = self.pace.bins[-1].kind if self.pace.bins else None
        return [one for one in self.pace.bins if one.kind == kind and one.since >= self._learn_from]

    def _usual(self, end: int) -> float | None:
        before = [one for one in self.pace.bins[: max(end, 0)] if one.since >= self._learn_from]
        return statistics.median(one.each for one in before) if enough(before) else None

    def _slower(self, bins: Sequence[Bin]) -> tuple[int, float, bool] | None:
        """Where everybody became slower, what was usual before, and whether it came bit by bit."""
        start = window(bins, LONG, CERTAIN_S, BINS)
        if start is None or "slower" in self.told:
            return None
        recent = statistics.median(one.each for one in bins[start:])
        if recent <= SLOWER * min(one.each for one in bins[: start : max(start // 50, 1)] or bins):
            return None  # a cheap look at some of them, for the many runs in which all is well
        found = jumped(bins, start, recent)
        if found is not None:
            return (*found, False)
        usual = growth(bins)
        return (start, usual, True) if usual is not None and recent > SLOWER * usual else None

    def _is_below(self, bins: Sequence[Bin]) -> bool:
        if not self.expect or self.pace.unit != "step" or set(self.told) - {"below"}:
            return False
        known = not self._groups or self.sees_meetings() or self._answered
        if window(bins, LONG, CERTAIN_S if known else 2 * ASK_S + ANSWER_S, BINS) is None:
            return False  # who is late would be the better answer
        return statistics.median(one.each for one in bins) > BELOW * self.expect
