"""A job that runs, looked at twice from outside: what stacks and the kernel say where nothing recorded its collectives.

Who waits, and who does something else, can be seen; in which group and at which number, cannot. So nothing here is of
high confidence, and nobody is named while another explanation is left.
"""

from __future__ import annotations

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.sources.stack_samples import (
    Held,
    has_moved,
    held_in,
    is_busy,
    is_explained,
    places,
    reason_of,
    stays_inside,
    tries_to_connect,
    waiting_lines,
    waits_for_a_person,
)
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import ENDED, stopped
from safelaunch.diagnosis.wording import names
from safelaunch.model import Location, RankFacts, Verdict

# Steps in which one rank is so much later than all others are rare; an estimate.
SURE_S = 10.0


def at_work(view: View) -> Verdict | None:
    """The ranks of a job that was attached to make progress: there is nothing to tell.

    How it was concluded: between two looks every rank came to another line, or at least moved data and slept and woke
    in between, and no rank stayed inside one call of torch.distributed all the time. It is one moment of the job:
    whether it is slow, or hung before and went on, is not known.

    What to do: nothing. If the job is believed to hang, look again with a longer `--wait`.
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

    How it was concluded: as for SL301, of a job that was attached to; but the rank that has not come used CPU time,
    moved data or went from line to line between the two looks.

    What to do: look again, with a longer `--wait`; if the line stays the same, see what that rank computes there.
    """
    late = {rank for rank, _ in view.graph.sinks}
    busy = [facts for facts in view.living if facts.rank in late and is_busy(facts)]
    return _at_work_verdict(view, busy, waiters(view)) if busy else None


def apart(view: View) -> Verdict | None:
    """What stacks alone tell of a job that was attached to: who waits inside torch.distributed, and who does not come.

    How it was concluded: two looks at every rank of this node showed the same stacks. A rank is named only if all
    others here wait at one line in one operation, if it does something else that the kernel or the stack explains (it
    sleeps, reads a file, waits for its loader, is stopped), and if it used no CPU time meanwhile. Groups and numbers
    of collectives are not known, so the confidence is never high; with two ranks, with ranks on other
    nodes, or with less than 10 s between the looks, it is low.

    What to do: look at the line that is named; `--wait` makes the time between the looks longer. Under safelaunch, or
    with torch's Flight Recorder, more is known.
    """
    if not view.case.ranks:
        return None
    alive = view.living
    halted = [facts for facts in alive if stopped(facts)]
    held = [found for facts in alive if not stopped(facts) and (found := held_in(facts))]
    waiting = {found.facts.rank for found in held}
    others = [facts for facts in alive if facts.rank not in waiting and not stopped(facts)]
    lines = waiting_lines(held)
    person = next((why for facts in alive if (why := waits_for_a_person(facts))), "")
    if person:
        return _untold(view, f"{person}: the job waits for a person", lines, held)
    if halted:
        return _halted(view, halted, held, lines)
    sites = {(found.op, found.place) for found in held}
    if not any(facts.stack is not None for facts in alive):
        gaps = dict.fromkeys(str(gap) for facts in alive for gap in facts.missing if gap.source == "stack")
        summary = f"no stack of {names(f.rank for f in alive)} could be had: nobody can tell where they are"
        return _untold(
            view, summary, tuple(gaps), held, remedy="see the notes: py-spy is needed, and the right to use it"
        )
    if not held:
        return _untold(view, "no rank of this node was seen inside torch.distributed", places(alive), held)
    if len(sites) > 1:
        what = f"ranks of this node wait in {len(sites)} different places"
        return _untold(view, f"{what}, and the stacks do not say for whom", (*lines, *places(others)), held)
    gone = [facts for facts in view.case.ranks if facts.state == ENDED]
    if not others:
        return _ended(view, gone, held, lines) if gone else _all_inside(view, held, lines)
    busy = [facts for facts in others if is_busy(facts)]
    if busy:
        return _at_work_verdict(view, busy, (*lines, *places(f for f in others if f not in busy)))
    return _late(view, others, held, lines, bool(gone))


def _late(view: View, others: list[RankFacts], held: list[Held], lines: tuple[str, ...], gone: bool) -> Verdict:
    """The verdict on ranks that stand still elsewhere while all others wait at one line."""
    op = held[0].op
    unclear = [facts for facts in others if not is_explained(facts, view.case)]
    what = f"{names(f.rank for f in others)} {'is' if len(others) == 1 else 'are'} not in {op}, where the others wait"
    if unclear:
        return _untold(view, f"{what}, and it cannot be seen what for", (*places(others), *lines), held)
    reasons = {facts.rank: reason_of(facts) for facts in others}
    first = reasons[others[0].rank]
    alike = len({reason.location for reason in reasons.values()}) == 1
    if gone or not alike or (len(others) >= len(held) and (len(others), len(held)) != (1, 1)):
        # It may be that those who wait are wrong, or that one of the late waits for another.
        return _untold(view, f"{what}, and nothing says who is wrong", (*places(others), *lines), held)
    here = view.sees_all_ranks
    does, peers = f"rank {others[0].rank} {first.what}", _peers(held, len(reasons))
    init = op == "init_process_group" and first.code == "SL301"
    return hang_verdict(
        view,
        "SL309" if init else first.code,
        f"{does}, and {peers} in {op}"
        if len(reasons) == 1
        else f"{names(reasons)} have not come to {op}; {peers}: {does}",
        tuple(sorted(reasons)),
        location=first.location,
        because=(*first.because, *lines, _unmoved(others)),
        remedy=first.remedy,
        confidence="medium" if len(held) > 1 and len(others) == 1 and here and _span(others) >= SURE_S else "low",
        waiting=[found.facts.rank for found in held],
    )


def _halted(view: View, halted: list[RankFacts], held: list[Held], lines: tuple[str, ...]) -> Verdict:
    """Ranks that are stopped cannot come, whatever else is the matter."""
    everybody = len(halted) == len(view.living)
    first = reason_of(halted[0])
    what = "all ranks of this node are" if everybody else f"{names(f.rank for f in halted)} {_is(halted)}"
    pids = " ".join(str(facts.pid) for facts in halted)
    return hang_verdict(
        view,
        "SL304",
        f"{what} stopped (SIGSTOP or SIGTSTP)" + (f"; {_peers(held, len(halted))}" if held else ""),
        () if everybody else tuple(sorted(facts.rank for facts in halted)),
        location=None if everybody else first.location,
        because=lines,
        remedy=f"`kill -CONT {pids}` lets {'it' if len(halted) == 1 else 'them'} go on",
        confidence="medium" if held or everybody else "low",
        waiting=[found.facts.rank for found in held],
    )


def _ended(view: View, gone: list[RankFacts], held: list[Held], lines: tuple[str, ...]) -> Verdict:
    """All who are left wait in one call, and a rank of this node has no process any more."""
    ranks = tuple(sorted(facts.rank for facts in gone))
    fewer = len(ranks) < len(held) or (len(ranks), len(held)) == (1, 1)
    waits = "a peer still waits" if len(held) == 1 else f"{len(held)} peers still wait"
    return hang_verdict(
        view,
        "SL408",
        f"{names(ranks)} {'has' if len(ranks) == 1 else 'have'} ended, and {waits} in {held[0].op}",
        ranks if fewer else (),
        because=("the launcher has started it, and it has no process any more: its exit code is not known", *lines),
        remedy="see the end of that rank's log; all ranks must make the same collectives",
        confidence="low",
        waiting=[found.facts.rank for found in held],
    )


def _all_inside(view: View, held: list[Held], lines: tuple[str, ...]) -> Verdict:
    away = view.case.world_size - len(view.case.ranks)
    who = names(found.facts.rank for found in held)
    because: tuple[str, ...] = lines
    if away:
        summary = f"{who} wait in {held[0].op}, and no rank of this node is late"
        because = (*lines, f"{away} ranks of the job are not on this node: nothing is known of them")
        remedy = "attach on the other nodes as well"
    else:
        summary = f"{who} are inside {held[0].op} at the same line, and it does not end: no rank is seen to be late"
        because = (*lines, "nothing recorded groups and numbers: they may be at different turns of a loop")
        remedy = "no rank is seen to be late: look at the network, the links and the GPUs"
    lost = [found.facts for found in held if tries_to_connect(found.facts)]
    if lost:
        who = f"{names(f.rank for f in lost)} {'tries' if len(lost) == 1 else 'try'}"
        because = (*because[:1], f"{who} again and again to connect to the store, and nobody answers", *because[1:])
        remedy = "see that MASTER_ADDR and MASTER_PORT (or init_method) name a place where rank 0 listens"
    if len(held) == 1:
        summary = summary.replace(" wait ", " waits ").replace(" are inside ", " is inside ")
    return hang_verdict(
        view,
        "SL310",
        summary,
        (),
        location=held[0].place,
        because=because,
        remedy=remedy,
        confidence="low",
        waiting=[found.facts.rank for found in held],
    )


def _at_work_verdict(view: View, busy: list[RankFacts], lines: tuple[str, ...]) -> Verdict:
    who = names(facts.rank for facts in busy)
    verb = "has not come, and it is" if len(busy) == 1 else "have not come, and they are"
    summary = f"ranks wait; {who} {verb} at work: nothing says that it hangs"
    return _untold(view, summary, (*places(busy), *lines), [], user_frame(busy[0].stack), "look again, with --wait 30")


def _untold(
    view: View,
    summary: str,
    because: tuple[str, ...],
    held: list[Held],
    location: Location | None = None,
    remedy: str = "compare the ranks' stacks in the evidence folder",
) -> Verdict:
    waiting = [found.facts.rank for found in held]
    return hang_verdict(
        view, "SL399", summary, (), location=location, because=because, remedy=remedy, confidence="low", waiting=waiting
    )


def _unmoved(ranks: list[RankFacts]) -> str:
    return f"seen twice, {_seconds(ranks)} apart: the same stack, and no work done in between"


def _seconds(ranks: list[RankFacts]) -> str:
    return f"{_span(ranks):.0f} s" if _span(ranks) else "two looks"


def _span(ranks: list[RankFacts]) -> float:
    """Seconds between the looks."""
    spans = [facts.kernel.since_s for facts in ranks if facts.kernel is not None and facts.kernel.since_s]
    return min(spans, default=0.0)


def _peers(held: list[Held], late: int) -> str:
    whom = "it" if late == 1 else "them"
    return f"rank {held[0].facts.rank} waits for {whom}" if len(held) == 1 else f"{len(held)} peers wait for {whom}"


def _is(ranks: list[RankFacts]) -> str:
    return "is" if len(ranks) == 1 else "are"
