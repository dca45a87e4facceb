"""A rank that left in good order while its peers still needed it."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.codes import CATALOGUE, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis import pasted
from safelaunch.diagnosis.blame import uneven_data
from safelaunch.diagnosis.blame.apart import Apart, came_apart
from safelaunch.diagnosis.blame.rank_guard import OnlyCaller, only_caller_left_behind, told_frames
from safelaunch.diagnosis.blame.ways_out import Ways, ways_out
from safelaunch.diagnosis.crash.first_failure import SIMULTANEOUS_S, departure, failures, left_group, primary, secondary
from safelaunch.diagnosis.crash.unwaited import Unwaited, needed_by
from safelaunch.diagnosis.verdicts import after_effects, place_of, waiters, waiting
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import frames_at, main_blocked, record_is_complete
from safelaunch.diagnosis.waitgraph.record import LEAVING, left_cleanly
from safelaunch.diagnosis.wording import OUT_OF_THE_CONDITION, below, call_at, last_collective, names
from safelaunch.model import Case, Location, RankFacts, Verdict
from safelaunch.sizes import plural

# Elastic waits on for a rank that has exited with 0, so that an exit in a handler looks like a success.
STOP_TOGETHER = (
    "see who sent {signal} to it; let the handler set a flag that all ranks all_reduce, to stop at one step, or exit "
    "with an error code"
)


def early_exit(view: View) -> Verdict | None:
    """A rank ended with exit code 0 while its peers still waited for it in a collective.

    Example:
        error[SL408]: rank 3 exited with 0 while peers still waited

    How it was concluded: the rank left without an error, and nothing else was wrong on any rank. Then its peers lost
    the connection to it, or stayed inside a collective of a group that it belongs to. Nothing can release them: a
    process that has exited enters no collective any more. torch elastic waits on, because an exit of 0 is a success to
    it.

    - A rank that has destroyed its process group and still lives counts as well, with less confidence: it may be about
      to fail.
    - One rank alone may be left, in a collective below a condition for that rank (`if rank == 0`) that no other rank
      has ever made. Then that rank is named, with low confidence: the others may have been right to leave.
    - The calls of ranks may have come apart before: one made a call that its peers never made, and met them all the
      same, as two barriers of one number do. Then the exits are what follows, and the line of that call is named.
    - The rank may have started the call that its peers waited in, and waited for it no more (`isend`, `async_op=True`).
      What is only started ends with the process. Then that call is named, and the advice is to wait for it.
    - A handler of a signal (SIGTERM, SIGUSR1) may have called `sys.exit(0)`. Then that signal is named.
    - `safelaunch attach` sees only that the process of a rank is gone. Its exit code is not known, and confidence is
      low.

    What to do: make all ranks take the same number of steps (uneven data: `drop_last`, DistributedSampler, DDP's
    `join()`). Look for an early `return` or `exit` under a condition that differs between ranks.

    What it is not: a rank that has left the loop and whose process lives in its group (SL303), or an exit with an error
    code (SL407).
    """
    found = _who_left(view)
    if found is None:
        return None
    left, held_up = found
    ranks = tuple(facts.rank for facts in left)
    rest = [facts for facts in view.case.ranks if facts not in left]
    if len(rest) == 1 and not record_is_complete(rest[0]):
        return None  # what it was in may be a call that only that rank makes
    only = only_caller_left_behind(view.case, list(ranks))
    if only is not None:
        return _only_one(view.case, only, list(ranks))
    apart = came_apart(view.case, (facts.rank for facts in rest if not left_cleanly(facts)), ranks, view.lines)
    if apart is not None:
        return _apart(view, apart, ranks, held_up)
    for facts in left:
        started = needed_by(facts, rest)
        if started is not None:
            return _left(view, [facts], rest, held_up, started)
    return _left(view, left, rest, held_up)


def _left(
    view: View, left: list[RankFacts], rest: list[RankFacts], held_up: set[int], started: Unwaited | None = None
) -> Verdict:
    """The verdict on those who left too early, or without waiting for what they had `started`."""
    ranks = tuple(facts.rank for facts in left)
    first = left[0]
    gone = [left_group(facts) for facts in left]
    how = "destroyed its process group" if all(gone) else "left in good order" if any(gone) else "exited with 0"
    if _on_signal(left) and started is None:
        how = f"exited with 0 in its handler of {_on_signal(left)},"
    when = f"while {'a peer' if len(view.case.ranks) == 2 else 'peers'} still waited{_where(view, held_up)}"
    reasons, remedy = ((started.because,), started.remedy) if started is not None else _why(view, left, rest)
    return Verdict(
        code="SL408",
        slug=CATALOGUE["SL408"].slug,
        kind="crash",
        summary=f"{names(ranks)} {how} {when if started is None else f'without {started.told}'}",
        culprit_ranks=tuple(sorted(ranks)),
        host=view.case.host,
        pid=first.pid,
        location=_left_at(first) if started is None else started.call.location,
        because=(*reasons, *after_effects(view.case, ranks), *(waiting(view.case, ranks) or waiters(view))),
        secondary=secondary(view.case, ranks),
        confidence="high" if len(ranks) == 1 and left_cleanly(first) else "medium",
        remedy=remedy,
        exit_code=EXIT_SCRIPT_FAILED,
        conclusive=all(main_blocked(f) for f in view.case.ranks if f.rank in held_up),
        waiting=tuple(sorted(held_up)),
    )


def _why(view: View, left: list[RankFacts], rest: list[RankFacts]) -> tuple[tuple[str, ...], str]:
    """Why ranks may have left too early, as `because` lines, and what to do."""
    last = last_collective(left[0], alone=len(left) == 1)
    signal = _on_signal(left)
    if signal:
        because = f"its handler of {signal} called exit: a signal had come, and the program was not at its end"
        return (because, *((last,) if last else ())), STOP_TOGETHER.format(signal=pasted.signal_name(signal))
    uneven = uneven_data.compared(view.case, tuple(facts.rank for facts in left))
    ways = Ways() if uneven else _ways(view, rest)
    remedy = ways.remedy or "all ranks must make the same collectives: look for uneven data or an early return"
    return (*uneven, *_fewer_steps(left, rest), *ways.because, *((last,) if last else ())), remedy


def _where(view: View, held_up: set[int]) -> str:
    """In which call of one kind all of these wait, as a headline has it; nothing where they wait in several."""
    waits = [wait for wait in view.graph.waits if wait.rank in held_up]
    calls = {call_at(replace(wait.call, location=place_of(view, wait))) for wait in waits}
    return f" in {calls.pop()}" if len(calls) == 1 else ""


def _fewer_steps(left: list[RankFacts], rest: list[RankFacts]) -> tuple[str, ...]:
    """That those who left had made fewer steps of their optimizers than all who stayed."""
    here, there = {facts.step for facts in left}, {facts.step for facts in rest}
    if len(here) > 1 or len(there) > 1 or not here or not there or not 0 < max(here) < min(there):
        return ()
    gone, stayed = names(facts.rank for facts in left), names(facts.rank for facts in rest)
    return (f"{gone} ended after {plural(max(here), 'optimizer step')}; {stayed} had made {max(there)}",)


def _on_signal(left: list[RankFacts]) -> str:
    """The signal in whose handler all of these called exit, or nothing."""
    signals = {facts.exit_call.signal if facts.exit_call is not None else "" for facts in left}
    return signals.pop() if len(signals) == 1 else ""


def _ways(view: View, rest: list[RankFacts]) -> Ways:
    """How those who left may have come past the call in which the rest stayed."""
    for facts in rest:
        last = facts.last_collective
        told = told_frames(facts) or (frames_at(facts, last, last.thread) if last is not None else [])
        ways = ways_out(told, view.lines)
        if ways.because:
            return ways
    return Ways()


def _apart(view: View, apart: Apart, left: tuple[int, ...], held_up: set[int]) -> Verdict:
    """The verdict of `early_exit` where the exits follow from a call that one side made, and the other did not."""
    case, culprits = view.case, apart.culprits
    unknown = () if culprits else ("which of them is wrong the records do not say",)
    pid = next((facts.pid for facts in case.ranks if facts.rank in culprits), None)
    return Verdict(
        code="SL408",
        slug=CATALOGUE["SL408"].slug,
        kind="crash",
        summary=apart.summary,
        culprit_ranks=culprits,
        host=case.host,
        pid=pid,
        location=apart.extra.location,
        operation=apart.extra.op,
        seq=apart.extra.seq,
        process_group=apart.extra.group,
        because=(
            *apart.because,
            f"{names(left)} came to the end and exited with 0, while {names(apart.more)} still had a call to make",
            *unknown,
            *waiting(case, culprits),
        ),
        secondary=tuple(rank for rank in secondary(case, culprits) if rank not in left),
        confidence="high" if apart.is_sure else "medium",
        remedy=OUT_OF_THE_CONDITION if apart.condition is not None else "all ranks must make the same collectives",
        exit_code=EXIT_SCRIPT_FAILED,
        conclusive=all(main_blocked(facts) for facts in case.ranks if facts.rank in held_up),
        waiting=tuple(sorted(held_up)),
    )


def _who_left(view: View) -> tuple[list[RankFacts], set[int]] | None:
    """The ranks that left too early, the first one first, and those that a hang shows to wait for them.

    None where nobody left, or where something else may be why the others are in trouble.
    """
    left = _leavers(view.case)
    if not left or primary(view.case):
        return None
    failed = failures(view.case)
    if failed and failed[0].t + SIMULTANEOUS_S < departure(left[0]):
        return None  # the peers were in trouble before it left
    waits = view.graph.waits if view.case.incident.kind == "hang" else ()
    missed = {rank for wait in waits for rank in wait.gone} & {facts.rank for facts in left}
    if not missed:
        return (left, set()) if failed else None
    left = [facts for facts in left if facts.rank in missed]
    if all(facts.exit is None for facts in left):
        return None  # of those who have left their group and live, `departed` speaks
    return left, {wait.rank for wait in waits if missed & set(wait.gone)}


def _leavers(case: Case) -> list[RankFacts]:
    """The ranks that left in good order, the first one first."""
    left = sorted((facts for facts in case.ranks if left_cleanly(facts) or left_group(facts)), key=departure)
    # Who left because a collective failed, when another one had left already, has followed that one; who is still
    # inside destroy_process_group may wait there for what it has enqueued.
    return left[:1] + [facts for facts in left[1:] if not _gave_up(facts) and not _is_leaving(facts)]


def _left_at(facts: RankFacts) -> Location | None:
    """The line at which a rank called exit, or else destroyed its process group."""
    if facts.exit_call:
        return facts.exit_call.location
    last = facts.last_collective
    return last.location if last is not None and last.op == LEAVING else None


def _is_leaving(facts: RankFacts) -> bool:
    """Whether a rank is inside destroy_process_group."""
    last = facts.last_collective
    return facts.exit is None and last is not None and last.op == LEAVING and not last.done


def _gave_up(facts: RankFacts) -> bool:
    """Whether the last collective that a rank made has raised an exception; its program may have caught that."""
    calls = [call for call in facts.collectives if call.op != LEAVING]
    return bool(calls) and calls[-1].raised


def _only_one(case: Case, only: OnlyCaller, left: list[int]) -> Verdict:
    """The verdict of `early_exit` where those who left may be right: what held the last one may be its own alone."""
    rank, call = only.wait.rank, only.wait.call
    culprits = (rank,) if only.condition is not None else ()
    what = f"rank {rank} was in {call.op} #{call.seq}"
    if only.condition is not None:
        what += ", which may be called on that rank only, as its peers exited"
        why = f"it {below(only.condition, only.file)}"
    else:
        what += " as its peers exited with 0: who is wrong, the evidence does not say"
        why = "no other rank has ever made this call: it may be that rank's alone, or they have left too early"
    return Verdict(
        code="SL408",
        slug=CATALOGUE["SL408"].slug,
        kind="crash",
        summary=what,
        culprit_ranks=culprits,
        host=case.host,
        pid=next(facts.pid for facts in case.ranks if facts.rank == rank),
        location=call.location,
        because=(why, f"{names(left)} left in good order"),
        secondary=secondary(case, culprits),
        confidence="low",
        remedy=OUT_OF_THE_CONDITION
        if culprits
        else "compare that line with what the others did last: all ranks must make the same collectives",
        exit_code=EXIT_SCRIPT_FAILED,
        waiting=(rank,),
    )
