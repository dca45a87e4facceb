"""Sorting what was found: suspects, victims, and what came from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from safelaunch.diagnosis.crash.first_failure import PEER_LOSS, TRANSPORT
from safelaunch.diagnosis.logs.story import Story, Suspect, before
from safelaunch.diagnosis.logs.suspects import (
    attributed,
    exits,
    from_ended,
    from_messages,
    from_raised,
    merged,
    of_loaders,
    without_terminated,
)
from safelaunch.model import Location
from safelaunch.model.logs import Ended, Event, Known, LogFacts, LogLine, Raised

NEAR_END = 30  # lines; tracebacks of launchers come after the last words of a rank


LEAVING_ALONE = {"KeyboardInterrupt", "SystemExit", "GeneratorExit"}  # somebody asked for it
# Signatures that fit lost connections of any kind, not only those between ranks.
ANY_CONNECTION = {"gloo-lost-peer", "store-gone", "store-timeout"}


def tell(facts: LogFacts) -> Story:
    """Sort what was found; only the last attempt of torch elastic counts."""
    earlier = facts.raised
    facts = _last_attempt(facts)
    last = {id(one) for one in facts.raised}  # to compare each with each takes 20 s for 8,000 of them
    earlier = tuple(one for one in earlier if id(one) not in last and not one.launcher and not one.background)
    pids = _ranks_of_pids(facts)
    raised = [one for one in facts.raised if not one.background]
    launcher = tuple(one for one in raised if one.launcher)
    raised = [one for one in raised if not one.launcher and one.type.rpartition(".")[2] not in LEAVING_ALONE]
    ended_at = exits(facts)
    failed = bool(facts.timed_out or any(end.code and not end.ordered for end in facts.ended) or launcher)
    listed = {id(one) for one in _not_listed(facts, raised)}
    survived = tuple(
        one
        for one in raised
        if one.type  # a traceback without its end is not understood, such as one whose lines stand in another order
        if (one.survived and (not failed or one.rank not in ended_at))
        or (not failed and any(end.file == one.at.file and end.line > one.at.line for end in facts.finished))
        or id(one) in listed
    )
    raised = _without(raised, survived)
    cut = tuple(one for one in raised if not one.type or (one.cut and _of_torch(one)))
    raised = _without(raised, cut)
    counts = [one for one in raised if (one.whole or failed or _near_end(facts, one.at))]
    whole = _without_echoes(counts)
    victims: list[tuple[int | None, LogLine]] = [(one.rank, one.at) for one in whole if _follows(facts, one)]
    causes = [one for one in whole if not _follows(facts, one)]
    suspects = [
        from_raised(ended_at.get(one.rank) if one.rank is not None else None, one, _follows_at_last(one))
        for one in causes
    ]
    suspects = attributed(facts, suspects, {rank for rank, _ in victims})
    ended, unexplained = from_ended(facts, suspects, {rank for rank, _ in victims}, pids)
    unexplained = without_terminated(unexplained)
    suspects = of_loaders(facts, merged([*suspects, *_unless_ambiguous(ended)]))
    if failed or suspects or victims or any(_near_end(facts, s.at) for s in facts.sightings if s.known.role == "cause"):
        suspects += from_messages(facts, suspects, {rank for rank, _ in victims}, pids)
    victims += [
        (s.rank if s.rank is not None else s.number("self"), s.at)
        for s in facts.sightings
        if s.known.role == "consequence" and not s.inside
        if s.known.name not in ANY_CONNECTION or TRANSPORT.search(s.at.text)
    ]
    victims += [(t.rank, t.at) for t in facts.timed_out]
    outside = tuple(s for s in facts.sightings if s.known.role == "outside")
    return Story(facts, tuple(suspects), tuple(victims), outside, tuple(unexplained), launcher, survived, cut, earlier)


def _ranks_of_pids(facts: LogFacts) -> dict[int, Ended]:
    """The ends of ranks by their pids, without pids that ranks of several nodes have: those name nobody."""
    found: dict[int, Ended] = {}
    shared: set[int] = set()
    for end in facts.ended:
        if end.pid and end.rank is not None and found.setdefault(end.pid, end).rank != end.rank:
            shared.add(end.pid)
    return {pid: end for pid, end in found.items() if pid not in shared}


def _without(raised: list[Raised], others: Iterable[Raised]) -> list[Raised]:
    left_out = {id(one) for one in others}
    return [one for one in raised if id(one) not in left_out]


def _of_torch(one: Raised) -> bool:
    """Whether an exception was raised in torch.distributed, where its words decide whether a peer was lost."""
    return one.type.startswith("torch.distributed") or any("/torch/distributed/" in f.file for f in one.frames[-2:])


def _near_end(facts: LogFacts, at: LogLine) -> bool:
    """Whether a file ends soon after a line: a job that goes on says more."""
    lines = next((file.lines for file in facts.files if file.path == at.file), 0)
    return lines - at.line <= NEAR_END


def _not_listed(facts: LogFacts, raised: list[Raised]) -> list[Raised]:
    """Exceptions of ranks that torch elastic, in the same file, does not list among the failed, where one that it lists
    failed by itself: they were caught."""
    failed: dict[str, set[int]] = {}
    for end in facts.ended:
        if end.by == "elastic" and end.rank is not None and end.code:
            failed.setdefault(end.at.file, set()).add(end.rank)
    own = {one.at.file for one in raised if one.rank in failed.get(one.at.file, ()) and not _follows(facts, one)}
    return [
        one
        for one in raised
        if one.at.file in own and one.rank is not None and one.rank not in failed[one.at.file] and one.whole
    ]


def _unless_ambiguous(ended: list[Suspect]) -> list[Suspect]:
    """A fatal error by faulthandler without a rank comes last: it is of the one process that ended so, if it is one."""
    untold = [s for s in ended if s.rank is None and s.sources == {"faulthandler"}]
    others = [s for s in ended if s not in untold]
    if len(untold) == 1 and sum(s.alike == untold[0].alike for s in others) > 1:
        return [*others, replace(untold[0], times=2)]
    return [*others, *untold]


def _last_attempt(facts: LogFacts) -> LogFacts:
    events: list[Event] = [*facts.raised, *facts.timed_out, *(end for end in facts.ended if end.code)]
    last = max([facts.attempt, *(event.attempt for event in events)])
    if not last:
        return facts
    return replace(
        facts,
        raised=tuple(e for e in facts.raised if e.attempt == last),
        timed_out=tuple(e for e in facts.timed_out if e.attempt == last),
        progress=tuple(e for e in facts.progress if e.attempt == last),
        desyncs=tuple(e for e in facts.desyncs if e.attempt == last),
        brought=tuple(e for e in facts.brought if e.attempt == last),
        ended=tuple(e for e in facts.ended if e.attempt == last),
        sightings=tuple(e for e in facts.sightings if e.attempt == last or e.known.role == "outside"),
    )


def _without_echoes(raised: list[Raised]) -> list[Raised]:
    """Of one rank, only its last whole exception: what it raised before it had caught. Lines that stand alone count
    where nothing else is there."""
    last: dict[int, Raised] = {}
    for one in raised:
        if one.rank is not None and one.whole:
            known = last.get(one.rank)
            if known is None or before(known.at, one.at) is not False:
                last[one.rank] = one
    anything = any(one.whole for one in raised)
    kept = []
    for one in raised:
        if one.rank is not None and one.rank in last:
            if last[one.rank] is one:
                kept.append(one)
        elif one.whole or not anything:
            kept.append(one)
    return kept


def tells_of_peer(said: Iterable[str], known: Known | None, frames: tuple[Location, ...]) -> bool:
    """Whether an exception tells of a lost peer, or of one that did not come: the same words as of live failures."""
    if known is not None and known.role == "consequence" and known.name not in ANY_CONNECTION:
        return True
    texts = list(said)
    transport = any(TRANSPORT.search(text) for text in texts) or any(
        "/torch/distributed/" in f.file for f in frames[-2:]
    )
    lost = (known is not None and known.role == "consequence") or any(PEER_LOSS.search(text) for text in texts)
    return transport and lost


def _follows_at_last(one: Raised) -> bool:
    """Whether what was raised last, while another exception was handled, tells of a lost peer."""
    return bool(one.chain) and tells_of_peer([f"{one.type}: {one.message}"], None, one.frames)


def _follows(facts: LogFacts, one: Raised) -> bool:
    first = one.chain[0] if one.chain else f"{one.type}: {one.message}"
    if tells_of_peer([first], one.known, one.frames):
        return True
    if one.known is not None and one.known.role == "outside":
        return True
    own = (t.at for t in facts.timed_out if one.rank is None or t.rank == one.rank)
    return any(before(at, one.at) for at in own)  # it had been waiting, and its watchdog gave up
