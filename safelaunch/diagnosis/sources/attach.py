"""A job that runs, looked at twice from outside: what stacks and the kernel say where nothing recorded its collectives.

Who waits, and who does something else, can be seen; in which group and at which number, cannot. So nothing here is of
high confidence, and nobody is named while another explanation is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.sources.stack_samples import (
    INIT,
    Waiter,
    has_moved,
    is_busy,
    is_explained,
    places,
    reason_of,
    stays_inside,
    tries_to_connect,
    waiter_of,
    waiting_lines,
    waits_for_a_person,
)
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import ENDED, stopped
from safelaunch.diagnosis.wording import in_brackets, names, peers_wait, verb
from safelaunch.model import RankFacts, Verdict

# Steps in which one rank is so much later than all others are rare; an estimate.
SURE_S = 10.0


def at_work(view: View) -> Verdict | None:
    """The ranks make progress, and there is nothing to tell.

    Example:
        note[SL502]: the job makes progress: ranks 0-2 moved within 12 s

    How it was concluded: `safelaunch attach` looked at the ranks twice. Every rank came to another line, or at least
    moved data and slept and woke. No rank stayed inside one call of torch.distributed. A run that safelaunch has
    started comes to this code where a suspicion that it is slow does not hold. Nothing is told then.

    What to do: nothing. If the job is believed to hang, look again with a longer `--wait`.

    What it is not: a proof of speed. It is one moment of the job: whether it is slow, or hung before and went on, is
    not known. A late rank that is at work while others wait for it is SL399.
    """
    alive = view.living
    if not alive or any(stays_inside(facts) for facts in alive) or not all(has_moved(facts) for facts in alive):
        return None
    return Verdict(
        code="SL502",
        slug=CATALOGUE["SL502"].slug,
        kind="none",
        summary=f"the job makes progress: {names(f.rank for f in alive)} moved within {_seconds(alive)}",
        host=view.case.host,
        because=places(alive),
        remedy="if it should be faster than this, look again with a longer --wait",
        confidence="medium",
        exit_code=EXIT_OK,
    )


def late_and_at_work(view: View) -> Verdict | None:
    """Ranks wait for one that is late, and that one is at work: nothing says that it will not come.

    How it was concluded: as for SL301, of a job that was attached to. But the rank that has not come used CPU time,
    moved data or went from line to line between the two looks.

    What to do: look again, with a longer `--wait`; if the line stays the same, see what that rank computes there.
    """
    late = {rank for rank, _ in view.graph.sinks}
    busy = [facts for facts in view.living if facts.rank in late and is_busy(facts)]
    return _at_work_verdict(view, busy, waiters(view)) if busy else None


def by_stacks(view: View) -> Verdict | None:
    """What stacks alone tell of a job that was attached to: who waits inside torch.distributed, and who does not come.

    How it was concluded: two looks at every rank of this node showed the same stacks. A rank is named only if

    - all others here wait at one line in one operation,
    - it does something else that the kernel or the stack explains: it sleeps, reads a file, waits for its loader, is
      stopped,
    - and it used no CPU time meanwhile.

    Groups and numbers of collectives are not known, so the confidence is never high. It is low with two ranks, with
    ranks on other nodes, or with less than 10 s between the looks.

    What to do: look at the line that is named; `--wait` makes the time between the looks longer. Under safelaunch, or
    with torch's Flight Recorder, more is known.
    """
    if not view.case.ranks:
        return None
    seen = _seen(view)
    return next((verdict for answer in ANSWERS if (verdict := answer(seen)) is not None), None) or _late(seen)


@dataclass(frozen=True)
class _Seen:
    """The living ranks of a job that was attached to, by what they do.

    Args:
        view: of the case.
        halted: those that are stopped.
        waiters: those that stay inside a call of torch.distributed.
        others: all that are left.
    """

    view: View
    halted: list[RankFacts]
    waiters: list[Waiter]
    others: list[RankFacts]

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Who waits where."""
        return waiting_lines(self.waiters)

    @cached_property
    def gone(self) -> list[RankFacts]:
        """The ranks that have no process any more."""
        return [facts for facts in self.view.case.ranks if facts.state == ENDED]

    @property
    def waiting(self) -> list[int]:
        return [waiter.facts.rank for waiter in self.waiters]

    @cached_property
    def reasons(self) -> dict[int, Stall]:
        """What keeps those that do not wait."""
        return {facts.rank: reason_of(facts, self.view.case) for facts in self.others}

    @property
    def not_come(self) -> str:
        """`rank 2 is not in all_reduce, where the others wait`."""
        return f"{_are(self.others)} not in {self.waiters[0].op}, where the others wait"


def _seen(view: View) -> _Seen:
    running = [facts for facts in view.living if not stopped(facts)]
    waiters = [waiter for facts in running if (waiter := waiter_of(facts))]
    waiting = {waiter.facts.rank for waiter in waiters}
    return _Seen(
        view,
        halted=[facts for facts in view.living if stopped(facts)],
        waiters=waiters,
        others=[facts for facts in running if facts.rank not in waiting],
    )


# ------------------------------------------------------------------------------------------------ nobody is late


def _waits_for_a_person(seen: _Seen) -> Verdict | None:
    person = next((why for facts in seen.view.living if (why := waits_for_a_person(facts))), "")
    return _cannot_tell(seen, f"{person}: the job waits for a person", seen.lines) if person else None


def _is_halted(seen: _Seen) -> Verdict | None:
    """Ranks that are stopped cannot come, whatever else is the matter."""
    halted = seen.halted
    if not halted:
        return None
    everybody = len(halted) == len(seen.view.living)
    pids = " ".join(str(facts.pid) for facts in halted)
    who = "all ranks of this node are" if everybody else _are(halted)
    peers = [waiter.facts.rank for waiter in seen.waiters]
    return hang_verdict(
        seen.view,
        "SL304",
        f"{who} stopped (SIGSTOP or SIGTSTP)" + (f"; {peers_wait(peers, len(halted))}" if peers else ""),
        () if everybody else tuple(sorted(facts.rank for facts in halted)),
        location=None if everybody else reason_of(halted[0], seen.view.case).location,
        because=seen.lines,
        remedy=f"`kill -CONT {pids}` lets {'it' if len(halted) == 1 else 'them'} go on",
        confidence="medium" if seen.waiters or everybody else "low",
        waiting=seen.waiting,
    )


def _has_no_stacks(seen: _Seen) -> Verdict | None:
    alive = seen.view.living
    if any(facts.stack is not None for facts in alive):
        return None
    gaps = dict.fromkeys(str(gap) for facts in alive for gap in facts.missing if gap.source == "stack")
    summary = f"no stack of {names(f.rank for f in alive)} could be had: nobody can tell where they are"
    return _cannot_tell(seen, summary, tuple(gaps), remedy="see the notes: py-spy is needed, and the right to use it")


def _nobody_waits(seen: _Seen) -> Verdict | None:
    if seen.waiters:
        return None
    return _cannot_tell(seen, "no rank of this node was seen inside torch.distributed", places(seen.view.living))


def _wait_in_several_calls(seen: _Seen) -> Verdict | None:
    sites = {(waiter.op, waiter.place) for waiter in seen.waiters}
    if len(sites) == 1:
        return None
    what = f"ranks of this node wait in {len(sites)} different places"
    return _cannot_tell(seen, f"{what}, and the stacks do not say for whom", (*seen.lines, *places(seen.others)))


def _has_ended(seen: _Seen) -> Verdict | None:
    """All who are left wait in one call, and a rank of this node has no process any more."""
    if seen.others or not seen.gone:
        return None
    ranks = tuple(sorted(facts.rank for facts in seen.gone))
    waits = "a peer still waits" if len(seen.waiters) == 1 else f"{len(seen.waiters)} peers still wait"
    return hang_verdict(
        seen.view,
        "SL408",
        f"{names(ranks)} {'has' if len(ranks) == 1 else 'have'} ended, and {waits} in {seen.waiters[0].op}",
        ranks if _are_few(seen.gone, seen.waiters) else (),
        because=(
            f"the launcher has started {verb(ranks, 'it', 'them')}; no process is left, and no exit code is known",
            *seen.lines,
        ),
        remedy="see the end of that rank's log; all ranks must make the same collectives",
        confidence="low",
        waiting=seen.waiting,
    )


def _all_inside(seen: _Seen) -> Verdict | None:
    if seen.others:
        return None
    waiters = seen.waiters
    summary, note, remedy = _all_here(seen)
    because = (*seen.lines, note)
    lost = [waiter.facts for waiter in waiters if tries_to_connect(waiter.facts)]
    if lost:
        who = f"{names(f.rank for f in lost)} {'tries' if len(lost) == 1 else 'try'}"
        line = f"{who} again and again to connect to the store, and nobody answers"
        because = (*because[:1], line, *because[1:])
        remedy = "see that MASTER_ADDR and MASTER_PORT (or init_method) name a place where rank 0 listens"
    return hang_verdict(
        seen.view,
        "SL310",
        summary,
        (),
        location=waiters[0].place,
        because=because,
        remedy=remedy,
        confidence="low",
        waiting=seen.waiting,
    )


def _all_here(seen: _Seen) -> tuple[str, str, str]:
    """What is said where all ranks of this node are inside one call: headline, note and remedy."""
    away = seen.view.case.world_size - len(seen.view.case.ranks)
    one = len(seen.waiters) == 1
    who, op = names(seen.waiting), seen.waiters[0].op
    if away:
        return (
            f"{who} {'waits' if one else 'wait'} in {op}, and no rank of this node is late",
            f"{away} of the job's ranks {'is' if away == 1 else 'are'} not on this node, and not known",
            "attach on the other nodes as well",
        )
    return (
        f"{who} {'is' if one else 'are'} inside {op} at the same line, and it does not end: no rank is seen to be late",
        "nothing recorded groups and numbers: they may be at different turns of a loop",
        "no rank is seen to be late: look at the network, the links and the GPUs",
    )


# ------------------------------------------------------------------------------------- ranks that are somewhere else


def _is_at_work(seen: _Seen) -> Verdict | None:
    busy = [facts for facts in seen.others if is_busy(facts)]
    idle = [facts for facts in seen.others if facts not in busy]
    return _at_work_verdict(seen.view, busy, (*seen.lines, *places(idle))) if busy else None


def _is_unexplained(seen: _Seen) -> Verdict | None:
    if all(is_explained(facts, seen.view.case) for facts in seen.others):
        return None
    return _cannot_tell(seen, f"{seen.not_come}, and it cannot be seen what for", (*places(seen.others), *seen.lines))


def _either_may_be_wrong(seen: _Seen) -> Verdict | None:
    """It may be that those who wait are wrong, or that one of the late waits for another."""
    alike = len({reason.location for reason in seen.reasons.values()}) == 1
    if alike and _are_few(seen.others, seen.waiters) and not seen.gone:
        return None
    return _cannot_tell(seen, f"{seen.not_come}, and nothing says who is wrong", (*places(seen.others), *seen.lines))


ANSWERS: tuple[Callable[[_Seen], Verdict | None], ...] = (
    _waits_for_a_person,
    _is_halted,
    _has_no_stacks,
    _nobody_waits,
    _wait_in_several_calls,
    _has_ended,
    _all_inside,
    _is_at_work,
    _is_unexplained,
    _either_may_be_wrong,
)


def _late(seen: _Seen) -> Verdict:
    """The verdict on ranks that stand still elsewhere while all others wait at one line."""
    others, waiters, reasons = seen.others, seen.waiters, seen.reasons
    op, first = waiters[0].op, reasons[others[0].rank]
    does = f"rank {others[0].rank} {first.what}{in_brackets(first.location)}"
    peers = peers_wait([waiter.facts.rank for waiter in waiters], len(reasons))
    init = op == INIT and first.code == "SL301"
    sure = len(waiters) > 1 and len(others) == 1 and seen.view.sees_all_ranks and _span(others) >= SURE_S
    return hang_verdict(
        seen.view,
        "SL309" if init else first.code,
        f"{does}, and {peers} in {op}"
        if len(reasons) == 1
        else f"{names(reasons)} have not come to {op}; {peers}: {does}",
        tuple(sorted(reasons)),
        location=first.location,
        because=(*first.because, *seen.lines, _unmoved(others)),
        remedy=first.remedy,
        confidence="medium" if sure else "low",
        waiting=seen.waiting,
    )


# ------------------------------------------------------------------------------------------------------- pieces


def _at_work_verdict(view: View, busy: list[RankFacts], lines: tuple[str, ...]) -> Verdict:
    verb = "has not come, and it is" if len(busy) == 1 else "have not come, and they are"
    return hang_verdict(
        view,
        "SL399",
        f"ranks wait; {names(facts.rank for facts in busy)} {verb} at work: nothing says that it hangs",
        (),
        location=user_frame(busy[0].stack),
        because=(*places(busy), *lines),
        remedy="look again, with --wait 30",
        confidence="low",
    )


def _cannot_tell(
    seen: _Seen,
    summary: str,
    because: tuple[str, ...],
    remedy: str = "compare the ranks' stacks in the evidence folder",
) -> Verdict:
    return hang_verdict(
        seen.view, "SL399", summary, (), because=because, remedy=remedy, confidence="low", waiting=seen.waiting
    )


def _are_few(ranks: list[RankFacts], waiters: list[Waiter]) -> bool:
    """Whether more ranks wait than these are: else those who wait may be wrong. Of two, the one that waits is right."""
    return len(ranks) < len(waiters) or (len(ranks), len(waiters)) == (1, 1)


def _unmoved(ranks: list[RankFacts]) -> str:
    return f"seen twice, {_seconds(ranks)} apart: the same stack, and no work done in between"


def _seconds(ranks: list[RankFacts]) -> str:
    return f"{_span(ranks):.0f} s" if _span(ranks) else "two looks"


def _span(ranks: list[RankFacts]) -> float:
    """Seconds between the looks."""
    spans = [facts.kernel.since_s for facts in ranks if facts.kernel is not None and facts.kernel.since_s]
    return min(spans, default=0.0)


def _are(ranks: list[RankFacts]) -> str:
    """`rank 2 is`, `ranks 2 and 3 are`."""
    return f"{names(facts.rank for facts in ranks)} {'is' if len(ranks) == 1 else 'are'}"
