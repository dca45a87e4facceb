"""Parameters that a step left unused on some ranks: DistributedDataParallel's reduction then never completes. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.verdicts import knows_no_cause
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import BACKWARD, in_backward
from safelaunch.model import Case, Location, RankFacts, Reducer, Verdict

SHOWN = 3  # modules
REMEDY = "use all parameters in every step, or DistributedDataParallel(..., find_unused_parameters=True)"


def of_exception(facts: RankFacts) -> tuple[str, tuple[str, ...]]:
    """What DDP's own error means, which completes "rank 3 ...", and which parameters, by their names; nothing for other
    errors."""
    model = next((model for model in facts.reducers if model.raised and model.without), None)
    if model is None:
        return "", ()
    few = f" ({', '.join(model.without)})" if 1 < len(model.without) <= SHOWN else ""
    what = f"used {_share(model, model.without)} in no loss, so DDP could not finish its reduction"
    return what, (f"without a gradient on rank {facts.rank}: {modules(model.without)}{few}",)


def refine(verdict: Verdict, view: View) -> Verdict:
    """A rank used some parameters in no loss, and DistributedDataParallel waits on its peers for their gradients.

    Example:
        error[SL314]: rank 2 used 2 of 10 parameters of Net in no loss, and DDP waits for their gradients

    How it was concluded: the rank is past its backward pass and has no gradient of some parameters, of which all known
    peers have one. A peer waits inside its backward pass, where DDP reduces gradients. No other rule names a rank, and
    the model was not told to expect it (`find_unused_parameters`, `static_graph`). Where another rule names the same
    rank, its verdict gets this as a reason. A job whose connections broke gets the reason too, and nobody is named.

    What to do: use all parameters in every step, on all ranks, or DistributedDataParallel(...,
    find_unused_parameters=True). Look for a branch, a frozen layer or a skipped loss that depends on the data.

    What it is not: DDP's own exception about unused parameters. That is SL401, which names them too.
    """
    missing = {facts.rank: lacking for facts in view.case.ranks if (lacking := _lacks(facts, view.case))}
    if len(missing) != 1 or not _waits_in_backward(view):
        return verdict
    if knows_no_cause(verdict):
        return _beside(verdict, *next(iter(missing.items())))
    if verdict.kind != "hang":
        return verdict
    rank, (model, without) = next(iter(missing.items()))
    if verdict.culprit_ranks not in ((), (rank,)):
        return verdict
    line = f"rank {rank} left its backward pass without gradients that its peers have: {modules(without)}"
    found = dataclasses.replace(verdict, because=(line, *verdict.because), remedy=REMEDY)
    if verdict.culprit_ranks:
        return found
    facts = view.by_rank[rank]
    return dataclasses.replace(
        found,
        code="SL314",
        slug=CATALOGUE["SL314"].slug,
        summary=f"rank {rank} used {_share(model, without)} in no loss, and DDP waits for their gradients",
        culprit_ranks=(rank,),
        pid=facts.pid,
        location=_place(facts, view),
        secondary=tuple(other for other in verdict.secondary if other != rank),
        confidence="medium",
    )


def _beside(verdict: Verdict, rank: int, lacking: tuple[Reducer, tuple[str, ...]]) -> Verdict:
    """The verdict on broken connections, with what may have come before."""
    line = f"rank {rank} had no gradients of {modules(lacking[1])}, and its peers had: DDP would wait for them"
    remedy = f"if a step leaves parameters unused: {REMEDY}; else {verdict.remedy}"
    return dataclasses.replace(verdict, because=(line, *verdict.because), remedy=remedy)


def _place(facts: RankFacts, view: View) -> Location | None:
    """Where the rank itself stands, or what it raised."""
    if facts.error is not None:
        return facts.error.location
    wait = view.graph.of(facts.rank)
    return wait.call.location if wait is not None else user_frame(facts.stack)


def _share(model: Reducer, without: Sequence[str]) -> str:
    return f"{len(without)} of {model.parameters} parameters of {model.model}"


def modules(parameters: Iterable[str]) -> str:
    """`encoder.layer.3: 4 parameters, head: 2 parameters`."""
    found: dict[str, int] = {}
    for name in parameters:
        module = name.rpartition(".")[0] or name
        found[module] = found.get(module, 0) + 1
    shown = [f"{module}: {count} parameter{'s' * (count != 1)}" for module, count in list(found.items())[:SHOWN]]
    return ", ".join(shown) + (f" and {len(found) - SHOWN} more modules" if len(found) > SHOWN else "")


def _lacks(facts: RankFacts, case: Case) -> tuple[Reducer, tuple[str, ...]] | None:
    """The first model of a rank some of whose parameters, and not all, have no gradient, where all peers have one."""
    if _in_backward(facts):
        return None  # they may still come
    for place, model in enumerate(facts.reducers):
        peers = [
            other.reducers[place]
            for other in case.ranks
            if other.rank != facts.rank and len(other.reducers) > place
            if (other.reducers[place].model, other.reducers[place].parameters) == (model.model, model.parameters)
        ]
        theirs = {name for peer in peers for name in peer.without}
        without = tuple(name for name in model.without if name not in theirs)
        if peers and without and not model.tolerant and len(model.without) < model.parameters:
            return model, without
    return None


def _in_backward(facts: RankFacts) -> bool:
    if facts.error is not None:
        return BACKWARD in facts.error.traceback
    return in_backward(facts)


def _waits_in_backward(view: View) -> bool:
    """Whether a rank was left inside its backward pass, waiting for what DDP reduces."""
    if any(_in_backward(facts) for facts in view.case.ranks):
        return True
    # What only the Flight Recorder has, while the rank's own record is whole, no Python line called: DDP's reducer did.
    whole = {facts.rank for facts in view.case.ranks if facts.watched and facts.recording and facts.collectives}
    return any(not wait.call.thread and wait.rank in whole for wait in view.graph.waits)
