"""Ranks that have come to one number of a group with different calls: their programs have come apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.blame import history, loop_bounds, loop_exit, peer_groups, rank_guard, uneven_data
from safelaunch.diagnosis.blame.apart import Apart, came_apart
from safelaunch.diagnosis.blame.began_anew import began_anew
from safelaunch.diagnosis.blame.loop_exit import CLOSING, UNEVEN, LoopExit, has_left
from safelaunch.diagnosis.blame.rank_guard import Guard
from safelaunch.diagnosis.blame.skipped import skipped_pass
from safelaunch.diagnosis.blame.variants import Place, Variant, placed, same_place, variants_at
from safelaunch.diagnosis.blame.ways_out import Ways, cut_short, ways_out
from safelaunch.diagnosis.crash.swapped import Swapped, swapped
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.hang.handlers import in_handlers
from safelaunch.diagnosis.hang.headlines import deviation
from safelaunch.diagnosis.hang.two_threads import OWN_GROUP, TwoThreads, two_threads
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import canonical, frames_at, is_irreversible, stack_of, threads_inside
from safelaunch.diagnosis.waitgraph.wait import Wait, away_of
from safelaunch.diagnosis.wording import SAME_ORDER, call_at, names
from safelaunch.model import Case, Collective, Confidence, Location, RankFacts, Verdict

SAME_OP = "pass the same `op` on all ranks"
SHOWN = 3  # variants that a headline has room for
MAJORITY_OF_DUMPS = 3  # ranks that have to agree against one, where nothing but dumps is left


@dataclass(frozen=True)
class Desync:
    """The ranks that have come to a number at which they disagree, by what they came with."""

    view: View
    wait: Wait
    variants: list[Variant]

    @cached_property
    def participants(self) -> set[int]:
        return {facts.rank for variant in self.variants for facts, _ in variant}

    @cached_property
    def threaded(self) -> RankFacts | None:
        """A rank that uses process groups in two threads at once: their order differs from rank to rank."""
        return next((f for variant in self.variants for f, _ in variant if len(threads_inside(f)) > 1), None)

    @cached_property
    def in_one_group(self) -> TwoThreads | None:
        """The ranks of which two threads wait in this very group."""
        return two_threads((facts for variant in self.variants for facts, _ in variant), self.wait.call.group)

    @cached_property
    def loop(self) -> LoopExit:
        """Who has left a loop in which others still are."""
        # Dumps hold neither lines of loops nor counts of batches: who left one, and who skipped a barrier, look alike.
        if self.view.from_dumps:
            return loop_exit.NOBODY
        return (
            loop_exit.left_the_loop(self.view.case.source, self.variants)
            if self.threaded is None
            else loop_exit.UNCLEAR
        )

    @cached_property
    def apart(self) -> Apart | None:
        """The call that one side has made and the other has not, before they came to this number."""
        if self.threaded is not None or len(self.variants) != 2 or self.view.from_dumps:
            return None
        one, other = ([facts.rank for facts, _ in variant] for variant in self.variants)
        return came_apart(self.view.case, one, other, self.view.lines)

    @property
    def at_the_end(self) -> bool:
        """Whether nothing but dumps is left, and a side has come to what programs end their loops with."""
        return self.view.from_dumps and any(canonical(variant[0][1].op) in CLOSING for variant in self.variants)


@dataclass(frozen=True)
class Blame:
    """Who deviates: `sure` says that the evidence proves it, `text` what the rank has done otherwise than before, and
    `ways` how it came to do so, where the detector knows."""

    code: str = "SL302"
    ranks: tuple[int, ...] = ()
    sure: bool = True
    text: str = ""
    ways: Ways | None = None


def different_operation(view: View) -> Verdict | None:
    """Ranks are inside different collectives at the same number of the same group. They wait for each other for ever.

    Example:
        error[SL302]: rank 2 makes broadcast #12 (train.py:63), while its peers make all_reduce #12 (train.py:61)

    How it was concluded: the records of the ranks that wait show different operations, roots or reductions at one
    number. Who is wrong is told by the first of these that holds:
    - one side has left a loop in which the other still is, by stacks and source (that is SL303);
    - one rank differs from all others, who are two at least (three, where nothing but dumps is left);
    - one rank's call stands below a condition for that rank alone (`if rank == 0`), and all others have passed it by;
    - one rank departs from what it has always done, or from what groups of its kind do, and all others do as always;
    - one of two has come to what is done every so many passes of a loop, and the source lets a rank cut a pass short.
    Otherwise nobody is named, and the lines of both sides are shown. So it is where two threads of a rank wait in this
    group at once: nothing orders their calls, and each may come first. A call that a rank skipped, and one that it made
    once too often, look alike. The headline says "skipped" where the lines show that the rank has gone past that call.

    What to do: compare the two lines. Every rank must make the same collectives in the same order. For uneven data use
    `drop_last`, DistributedSampler or DDP's `join()`.

    What it is not: a late rank. Nobody will come, however long one waits, so the run is ended after seconds.
    """
    wait = next(wait for wait in view.graph.waits if wait.differing)
    desync = Desync(view, wait, variants_at(view.case, wait.call))
    threads = desync.in_one_group or swapped(itertools.chain(*desync.variants))
    if len(desync.variants) > 1 and threads is not None:
        return _of_two_threads(desync, threads)
    if len(desync.variants) < 2:
        return None
    return in_handlers(view, desync.variants) or _verdict(desync, _blame(desync))


# ------------------------------------------------------------------------------------------------ who deviates


def _one_call_apart(desync: Desync) -> Blame | None:
    """They had come apart before, by a call that one side never made."""
    apart = desync.apart
    if apart is None or not apart.culprits:
        return None
    return Blame(ranks=apart.culprits, sure=apart.is_sure, text=apart.summary)


def _left_the_loop(desync: Desync) -> Blame | None:
    return Blame("SL303", desync.loop.ranks) if desync.loop.ranks else None


def _began_anew(desync: Desync) -> Blame | None:
    """It has begun the function anew in whose loop its peers still are."""
    if desync.threaded is not None or desync.view.from_dumps:
        return None
    found = began_anew(desync.variants, desync.view.lines)
    if found is None:
        return None
    return Blame("SL303", (found.who[0].rank,), bool(found.caller.caught), found.summary, found.ways)


def _ran_out(desync: Desync) -> Blame | None:
    if desync.threaded is not None:
        return None
    ranks = uneven_data.ran_out([[facts for facts, _ in variant] for variant in desync.variants])
    return Blame("SL303", ranks) if ranks else None


def _outlier(desync: Desync) -> Blame | None:
    """One rank against all others, where those that nobody has seen could not turn the vote."""
    if desync.loop.unclear:
        return None
    outliers = [variant for variant in desync.variants if len(variant) == 1]
    most = max(len(variant) for variant in desync.variants)
    waits = desync.view.graph.waits
    unseen = away_of(other for other in waits if same_place(other.call, desync.wait.call))
    others = len(unseen | desync.participants) - most
    enough = most >= (MAJORITY_OF_DUMPS if desync.view.from_dumps else 2)
    return Blame(ranks=(outliers[0][0][0].rank,)) if len(outliers) == 1 and enough and most > others else None


def _bypassed_by_peers(desync: Desync) -> Blame | None:
    """One rank stands below a condition for it alone, which all others have passed by."""
    if desync.threaded is not None:
        return None
    ranks = rank_guard.bypassed_by_peers(desync.view.case, desync.variants)
    return Blame(ranks=ranks, sure=False) if ranks else None


def _skipped_a_pass(desync: Desync) -> Blame | None:
    """One of two has come to what is done every so many passes, of which it has cut one short."""
    if desync.threaded is not None or desync.view.from_dumps or [len(one) for one in desync.variants] != [1, 1]:
        return None
    pairs = itertools.permutations(one[0] for one in desync.variants)
    found = next((found for who, peer in pairs if (found := skipped_pass(who, peer, desync.view.lines))), None)
    if found is None:
        return None
    return Blame(ranks=(found.who[0].rank,), sure=False, text=found.summary, ways=Ways(found.because, found.remedy))


DETECTORS: tuple[Callable[[Desync], Blame | None], ...] = (
    _one_call_apart,
    _left_the_loop,
    _began_anew,
    _ran_out,
    _outlier,
    _bypassed_by_peers,
)


def _blame(desync: Desync) -> Blame:
    """By the first detector that names somebody. What ranks have always done counts where nobody is named, or where all
    but one have left a loop: then that one may be right."""
    blame = next((blame for detect in DETECTORS if (blame := detect(desync)) is not None), Blame())
    if desync.threaded is None and (not blame.ranks or _stays_alone(desync, blame)):
        blame = _by_history(desync) or blame
    return blame if blame.ranks else _skipped_a_pass(desync) or blame


def _by_history(desync: Desync) -> Blame | None:
    """Who of these deviates from what it has always done, while all others do as always, or from what others do."""
    if desync.view.from_dumps:
        return None
    case, graph = desync.view.case, desync.view.graph
    waits = [wait for wait in graph.waits if wait.rank in desync.participants]
    changed_order = history.changed_order(case, waits) if len(waits) == len(desync.participants) else None
    outlier = (
        changed_order
        or history.changed_group(case)
        or peer_groups.changed_interval(desync.variants)
        or peer_groups.unlike_similar_groups(case, desync.variants)
    )
    if outlier is None or outlier.rank not in desync.participants:
        return None
    return Blame(ranks=(outlier.rank,), sure=False, text=outlier.text)


def _stays_alone(desync: Desync, blame: Blame) -> tuple[str, ...]:
    left = blame.code == "SL303" and not blame.text
    return loop_exit.stays_alone(desync.participants, blame.ranks) if left else ()


# ------------------------------------------------------------------------------------------------ the verdict


@dataclass(frozen=True)
class _Shown:
    """The call that is shown first, and one of its peers'."""

    facts: RankFacts
    call: Collective
    peer: RankFacts
    peers: Collective
    others: list[tuple[RankFacts, Collective]]

    @property
    def mine(self) -> Place:
        return self.facts, self.call

    @property
    def theirs(self) -> Place:
        return self.peer, self.peers

    @property
    def by_reduction(self) -> bool:
        """Whether the calls are alike but for what is done with the elements."""
        mine, theirs = ((canonical(one.op), one.peer, one.location) for one in (self.call, self.peers))
        return mine == theirs and self.call.how != self.peers.how

    @property
    def place(self) -> Location | None:
        return self.call.location or user_frame(stack_of(self.facts, self.call.thread))


def _shown(desync: Desync, named: tuple[int, ...]) -> _Shown:
    variants = desync.variants
    variant = next((variant for variant in variants if any(facts.rank in named for facts, _ in variant)), variants[0])
    facts, call = next((pair for pair in variant if pair[0].rank in named), variant[0])
    peer, peers = next(other[0] for other in variants if other is not variant)
    return _Shown(
        facts,
        placed(facts, call),
        peer,
        placed(peer, peers),
        [pair for other in variants if other is not variant for pair in other],
    )


def _verdict(desync: Desync, blame: Blame) -> Verdict:
    view, named = desync.view, blame.ranks
    shown = _shown(desync, named)
    lonely = _stays_alone(desync, blame)
    guard = _guard(desync, blame, shown)
    uneven = uneven_data.compared(view.case, named)
    ways = _ways(desync, shown, blame, uneven=bool(uneven))
    unsure = lonely or (named and not blame.sure) or shown.by_reduction
    return hang_verdict(
        view,
        blame.code,
        _summary(desync, blame, shown, guard),
        () if lonely and len(named) > 1 else named,
        location=_place(desync, shown),
        call=shown.call,
        because=(
            *_caveat(desync),
            *_came_apart(desync, guard),
            *uneven,
            *ways.because,
            *lonely,
            *waiters(view),
        ),
        remedy=ways.remedy or (UNEVEN if blame.code == "SL303" else SAME_OP if shown.by_reduction else SAME_ORDER),
        confidence="medium" if unsure else _confidence(desync, blame),
        conclusive=is_irreversible(pair for pair in itertools.chain(*desync.variants) if not pair[1].done),
        waiting=desync.participants,
    )


def _of_two_threads(desync: Desync, threads: TwoThreads | Swapped) -> Verdict:
    """Where two threads of a rank are in one group, no rank is to be named: their order is a race."""
    others = [pair for variant in desync.variants for pair in variant if pair[0].rank not in threads.ranks]
    return hang_verdict(
        desync.view,
        "SL302",
        threads.summary,
        (),
        location=threads.place,
        call=desync.wait.call,
        because=(
            *threads.because,
            *(f"rank {facts.rank} is in {call_at(call)}" for facts, call in others[:SHOWN]),
        ),
        remedy=OWN_GROUP,
        conclusive=is_irreversible(pair for pair in itertools.chain(*desync.variants) if not pair[1].done),
        waiting=desync.participants,
    )


def _place(desync: Desync, shown: _Shown) -> Location | None:
    return desync.apart.extra.location if desync.apart is not None else shown.place


def _came_apart(desync: Desync, guard: Guard | None) -> tuple[str, ...]:
    """Where the calls of ranks came apart: before, or by a condition here."""
    if desync.apart is not None:
        return desync.apart.because
    return (guard.in_words,) if guard is not None else ()


def _ways(desync: Desync, shown: _Shown, blame: Blame, *, uneven: bool) -> Ways:
    """How the named rank may have come past the call in which its peers are; data that were uneven say it all."""
    if desync.view.from_dumps or not blame.ranks or uneven or desync.apart is not None:
        return Ways()
    if blame.ways is not None:
        return blame.ways
    lines, (peer, call), (facts, own) = desync.view.lines, shown.theirs, shown.mine
    inside, left = loop_exit.way_to(peer, call, lines), blame.code == "SL303"
    ways = ways_out(inside, lines, left=left)
    if ways.remedy or not left:
        return ways
    bounds = loop_bounds.of_loop(inside, frames_at(facts, own, own.thread), lines)
    return bounds if bounds.remedy else cut_short(inside, lines)


def _guard(desync: Desync, blame: Blame, shown: _Shown) -> Guard | None:
    """The condition that one of the two calls stands below; where nobody is named, only that of the first one."""
    lines = desync.view.lines
    if blame.code == "SL303" and blame.text:
        return None  # `ways` says all of it
    own = rank_guard.guard(shown.mine, shown.others, lines)
    return own if own is not None or not blame.ranks else rank_guard.guard(shown.theirs, [shown.mine], lines)


def _summary(desync: Desync, blame: Blame, shown: _Shown, guard: Guard | None) -> str:
    how = shown.by_reduction
    if blame.text:
        return blame.text
    if blame.ranks and blame.code == "SL303":
        return has_left(blame.ranks, shown.mine, shown.theirs, again=desync.loop.again)
    if blame.ranks:
        others = len(desync.participants) - 1
        return deviation(shown.mine, shown.theirs, others, guard, desync.view.lines, how=how)
    variants = (
        f"{names(f.rank for f, _ in variant)} in {call_at(placed(*variant[0]), reduction=how)}"
        for variant in desync.variants[:SHOWN]
    )
    more = ", ..." if len(desync.variants) > SHOWN else ""
    return f"ranks came apart: {', '.join(variants)}{more}; which of them is wrong is not known"


def _caveat(desync: Desync) -> tuple[str, ...]:
    if desync.at_the_end:
        return ("programs end their loops with a barrier: who skipped it, or left early, the dumps do not say",)
    several = desync.threaded
    if several is None:
        return ()
    return (f"two threads of rank {several.rank} use process groups at once: their order differs from rank to rank",)


def _confidence(desync: Desync, blame: Blame) -> Confidence:
    case: Case = desync.view.case
    if desync.view.from_dumps:
        has_members = any(group.name == desync.wait.call.group for group in case.groups)
        return "low" if desync.at_the_end or (blame.ranks and not has_members) else "medium"
    return "high" if blame.ranks and (blame.code == "SL302" or case.source) else "medium"
