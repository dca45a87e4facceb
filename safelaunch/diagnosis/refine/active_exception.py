"""Exceptions that a program has caught and still handles, and those that have ended a thread of it: nobody else sees
them, or looks at them, and they say why a rank is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from safelaunch.codes import CATALOGUE, Trait, has
from safelaunch.diagnosis.crash.first_failure import is_peer_loss
from safelaunch.diagnosis.verdicts import knows_no_cause
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names, one_line, short
from safelaunch.model import PyError, Verdict

NO_COLLECTIVE = (
    "let a rank that fails fail: no collective in `except`, `finally` or `__exit__`, which its peers never make"
)


def refine(verdict: Verdict, view: View) -> Verdict:
    """A verdict with the exception that a rank is handling, or that has ended a thread of it.

    Of a rank that is named it is one more reason. Where nobody is, the one rank that is handling an exception is: what
    it does in its `except` or `finally` its peers do not do.
    """
    if verdict.kind == "hang":
        verdict = _with_lost_threads(verdict, view)
    handling = _handling(view)
    if verdict.culprit_ranks:
        # A rank that has failed has done so for a reason of its own.
        return _with_handling(verdict, handling, view) if verdict.kind == "hang" else verdict
    if len(handling) != 1:
        return verdict
    rank, error = next(iter(handling.items()))
    if has(verdict.code, Trait.ELSEWHERE) and _is_alone(rank, verdict, view):
        return _in_its_handler(verdict, view, rank, error)
    if knows_no_cause(verdict) and verdict.kind == "crash":
        return _failed_first(verdict, view, rank, error)
    return verdict


def _handling(view: View) -> dict[int, PyError]:
    """The exceptions that living ranks are handling, but for those that tell of a lost peer."""
    handling = ((facts, facts.handling) for facts in view.living if facts.handling is not None)
    return {facts.rank: error for facts, error in handling if not is_peer_loss(dataclasses.replace(facts, error=error))}


def _with_handling(verdict: Verdict, handling: Mapping[int, PyError], view: View) -> Verdict:
    lines = tuple(_line(rank, handling[rank]) for rank in verdict.culprit_ranks if rank in handling)
    verdict = dataclasses.replace(verdict, because=(*lines, *verdict.because))
    named = verdict.culprit_ranks
    if len(named) != 1 or {*handling} != {*named} or not _is_alone(named[0], verdict, view):
        return verdict
    return _led_there(verdict, named[0], handling[named[0]]) if has(verdict.code, Trait.DIVERGED) else verdict


def _led_there(verdict: Verdict, rank: int, error: PyError) -> Verdict:
    """The verdict on a rank whose call stands in its handler, or in a clean-up: the exception is why it is there, and
    nobody has seen it yet."""
    who, begins = f"rank {rank} ", verdict.summary.startswith(f"rank {rank} ")
    does = f"it {verdict.summary.removeprefix(who)}" if begins else verdict.summary
    at = f" ({short(error.location)})" if error.location is not None else ""
    said = f"{error.type}: {one_line(error.message, 80)}".rstrip(": ")
    return dataclasses.replace(
        verdict,
        summary=f"{who}is handling {said}{at}: {does}",
        remedy=NO_COLLECTIVE,
    )


def _with_lost_threads(verdict: Verdict, view: View) -> Verdict:
    ended = [(f.rank, f.lost_thread) for f in view.living if f.rank in verdict.culprit_ranks and f.lost_thread]
    lines = (f"a thread of rank {rank} has ended with {raised(error)}" for rank, error in ended)
    new = tuple(line for line in lines if line not in verdict.because)
    return dataclasses.replace(verdict, because=(*new, *verdict.because))


def _line(rank: int, error: PyError) -> str:
    return f"rank {rank} is handling {raised(error)}"


def raised(error: PyError) -> str:
    """An exception with the line that raised it."""
    at = f", raised at {error.location.file}:{error.location.line}" if error.location is not None else ""
    return f"{error.type}: {one_line(error.message)}".rstrip(": ") + at


def _is_alone(rank: int, verdict: Verdict, view: View) -> bool:
    """Whether no other rank does what this one does: else it is not the exception that led it there."""
    waits = {wait.rank: wait.call for wait in view.graph.waits}
    own = waits.get(rank)
    return rank in verdict.waiting and own is not None and sum(_same(own, call) for call in waits.values()) == 1


def _same(one: object, other: object) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("group", "seq", "op", "peer", "location"))


def _in_its_handler(verdict: Verdict, view: View, rank: int, error: PyError) -> Verdict:
    wait = view.graph.of(rank)
    facts = view.by_rank[rank]
    doing = f"in its handler it waits in {wait.call.op}, its peers elsewhere" if wait is not None else ""
    return dataclasses.replace(
        verdict,
        summary=f"rank {rank} is handling {error.type}: {one_line(error.message, 80)}; {doing}",
        culprit_ranks=(rank,),
        pid=facts.pid,
        location=error.location or verdict.location,
        because=(_line(rank, error), *verdict.because),
        remedy=NO_COLLECTIVE,
        confidence="medium",
    )


def _failed_first(verdict: Verdict, view: View, rank: int, error: PyError) -> Verdict:
    facts = view.by_rank[rank]
    lost = [other.rank for other in view.case.ranks if other.error is not None]
    because = (f"{names(lost)} failed only because the connection to a peer was lost",) if lost else ()
    return dataclasses.replace(
        verdict,
        code="SL401",
        slug=CATALOGUE["SL401"].slug,
        summary=f"rank {rank} was still handling {error.type}: {one_line(error.message, 80)}",
        culprit_ranks=(rank,),
        pid=facts.pid,
        location=error.location,
        because=(_line(rank, error), *because),
        secondary=tuple(lost),
        remedy="the exception above was the first failure: its peers report that they lost this rank",
        confidence="medium",
        traceback="",
    )
