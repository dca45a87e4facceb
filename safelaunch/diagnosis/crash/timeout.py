"""Collectives that reached their own timeout: the rank that gave up is the victim of one that did not come."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from safelaunch.codes import CATALOGUE, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis.crash.first_failure import (
    SIMULTANEOUS_S,
    Failure,
    failures,
    is_peer_loss,
    secondary,
    unaccounted,
)
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import responsible
from safelaunch.diagnosis.waitgraph.graph import Graph, build
from safelaunch.diagnosis.waitgraph.record import LEAVING
from safelaunch.diagnosis.waitgraph.wait import Node, Wait
from safelaunch.diagnosis.wording import at, label, names, one_line
from safelaunch.model import Case, Collective, Incident, Location, RankFacts, Verdict

# How a timeout reads on the rank that waited, with its milliseconds or seconds.
TIMED_OUT = re.compile(
    r"Timed out waiting (\d+)ms for (?:recv|send) operation"  # gloo/transport/tcp/unbound_buffer.cc
    r"|Application timeout caused pair closure"  # gloo: another wait of the same rank has timed out
    r"|wait timeout after (\d+)ms|Timed out after (?P<s>\d+) seconds waiting for"  # c10d TCPStore
    r"|failed to pass monitoredBarrier in (\d+) ms"  # ProcessGroupGloo.cpp
    r"|Timeout\(ms\)=(\d+)\).{0,80}(?:timed out|timing out|timeout)"  # ProcessGroupNCCL.cpp
    r"|Watchdog caught collective operation timeout: .*?Timeout\(ms\)=(\d+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class _Timeout:
    """The first wait that timed out: whose, in which call, after how many seconds, and when."""

    failure: Failure
    call: Collective | None
    seconds: float | None

    @property
    def moment(self) -> float:
        """CLOCK_MONOTONIC at which it gave up; the exception may have been on its way for a while."""
        if self.call is None or self.seconds is None:
            return self.failure.t
        return min(self.failure.t, self.call.t + self.seconds)

    @property
    def what(self) -> str:
        """`rank 0's all_reduce #12 timed out after 5 s`."""
        after = f" after {self.seconds:g} s" if self.seconds is not None else ""
        if self.call is None:
            return f"rank {self.failure.rank} waited for its peers and timed out{after}"
        return f"rank {self.failure.rank}'s {label(self.call)} timed out{after}"


@dataclass(frozen=True)
class _Blame:
    """For whom a call waited that timed out.

    Args:
        wait: of the rank that gave up.
        ends: the ranks, each with its thread, that it waited for in the end: they waited for nobody.
        late: ranks that came after the timeout, and when.
    """

    wait: Wait
    ends: dict[int, int]
    late: dict[int, float]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks at the end."""
        return tuple(sorted(self.ends))


def collective_timeout(view: View) -> Verdict | None:
    """A collective (or a message, or a meeting at the store) reached its timeout, and the waiting rank gave up.

    Example:
        error[SL414]: rank 0's all_reduce #12 timed out after 5 s: rank 1 had not entered it

    The rank that times out is the victim: it was there, and somebody else was not. The number is the timeout of its
    process group: `process_group` in [timeouts], `timeout=` in the script, or torch's default.

    How it was concluded: the first failure says itself that a wait took too long (gloo: `Timed out waiting 5000ms for
    recv operation`). No rank of this node had failed or left for a reason of its own. The ranks' records, as they were
    when the wait began to be too long, show who had not entered that call.

    - Where that one waited for others too, the end of the chain is named, with the line at which it stands.
    - A rank that came after the timeout is named as too late.
    - Nobody is named where a record is not whole, or where all ranks of this node had come. Nor is anybody where DDP's
      backward pass made the call, which keeps no such record.

    What to do: look at the named line. If it may take that long (a checkpoint, an evaluation on one rank), give the
    group more time. With a timeout above 10 s or so the hang is told of before it ends in this way, and that verdict
    stands.

    What it is not: a connection that broke (SL412).
    """
    first = _first_timeout(view.case)
    if first is None:
        return None
    before = _as_it_was(view.case, first)
    graph = build(before)
    wait = _wait_of(graph, first)
    blame = _blame(before, graph, wait, view.case, first) if wait is not None else None
    return _nobody(view.case, first, wait) if blame is None else _named(view, first, graph, blame)


def _wait_of(graph: Graph, first: _Timeout) -> Wait | None:
    """The wait that timed out, where it is in the graph."""
    if first.call is None:
        return None
    own = (wait for wait in graph.waits if wait.rank == first.failure.rank)
    return next((wait for wait in own if _same(wait.call, first.call)), None)


def _blame(before: Case, graph: Graph, wait: Wait, case: Case, first: _Timeout) -> _Blame | None:
    """Whom to name; None where a chain is not known to its end, or ends at a rank that has failed as well."""
    ends = _ends(before, graph, wait)
    late = {facts.rank: t for facts in case.ranks if (t := _came_at(facts, first.call, first.moment)) is not None}
    alive = {facts.rank for facts in case.ranks if facts.exit is None and facts.error is None}
    return _Blame(wait, ends, late) if ends and not wait.differing and ends.keys() <= alive | set(late) else None


def _named(view: View, first: _Timeout, graph: Graph, blame: _Blame) -> Verdict:
    """The verdict where the end of the chain is known."""
    culprits, late, ranks = blame.culprits, blame.late, view.by_rank
    away = sorted(blame.wait.away)
    stalls = {
        rank: stall_of(ranks[rank], thread, view.now, view.case.source)
        for rank, thread in blame.ends.items()
        if rank not in late
    }
    stall = stalls.get(culprits[0])
    doing = [
        f"rank {rank} {why.what}{at(why.location) if why is not stall else ''}" for rank, why in sorted(stalls.items())
    ]
    seen = culprits[0] in late or any(ranks[rank].stack is not None for rank in stalls)
    return _verdict(
        view.case,
        f"{first.what}: {_why(culprits, blame.wait, late, first.moment)}",
        culprits,
        location=stall.location if stall is not None else _call_of(ranks[culprits[0]], first.call),
        call=first.call,
        because=(*doing, *(stall.because if stall is not None else ()), *_waited(graph, culprits), *_elsewhere(away)),
        confidence="high" if seen and not away and len(culprits) == 1 else "medium",
        remedy="look at what keeps that rank; if it may take so long: a longer timeout (`process_group` in [timeouts])",
    )


def _first_timeout(case: Case) -> _Timeout | None:
    """The first failure, if it is a timeout; a peer may have noticed the end of its rank before it was recorded."""
    found = failures(case)
    if not found or any(not failure.consequence for failure in found):
        return None
    for failure in found:
        error = failure.facts.error
        if error is None or failure.t > found[0].t + SIMULTANEOUS_S or not is_peer_loss(failure.facts):
            continue
        for text in (f"{error.type}: {error.message}", *error.chain):
            match = TIMED_OUT.search(text)
            if match is not None:
                return _Timeout(failure, _unfinished(failure.facts), _seconds(match))
    return None


def _seconds(match: re.Match[str]) -> float | None:
    if match["s"]:
        return float(match["s"])
    number = next(filter(None, match.groups()), None)
    return float(number) / 1000 if number is not None else None


def _unfinished(facts: RankFacts) -> Collective | None:
    """The call that a rank gave up in: the last one, if it never came back."""
    last = facts.last_collective
    return last if last is not None and not last.done and last.op != LEAVING else None


def _same(one: Collective, other: Collective) -> bool:
    return (one.op, one.group, one.seq, one.t) == (other.op, other.group, other.seq, other.t)


def _as_it_was(case: Case, first: _Timeout) -> Case:
    """The case as a hang, at the moment of the timeout: ranks that failed of it are still in their calls, and what
    ranks began later has not been."""
    failed = {failure.rank for failure in failures(case)}
    incident = Incident("hang", case.incident.attempt, (), first.moment)
    ranks = tuple(_rank_as_it_was(facts, facts.rank in failed, first.moment) for facts in case.ranks)
    return dataclasses.replace(case, incident=incident, ranks=ranks)


def _rank_as_it_was(facts: RankFacts, failed: bool, moment: float) -> RankFacts:
    calls = tuple(call for call in facts.collectives if call.t <= moment)
    if failed:
        if calls and calls[-1].raised:
            calls = (*calls[:-1], dataclasses.replace(calls[-1], raised=False))
        facts = dataclasses.replace(facts, exit=None, error=None, exit_call=None, shut_down=None, raised=False)
    if len(calls) < len(facts.collectives):  # its stack is of a later moment
        facts = dataclasses.replace(facts, stack=None, stacks=())
    return dataclasses.replace(facts, collectives=calls)


def _came_at(facts: RankFacts, call: Collective | None, moment: float) -> float | None:
    """When the rank entered the call, if that was after the timeout."""
    if call is None or call.is_message:
        return None
    own = [c for c in facts.collectives if (c.group, c.seq) == (call.group, call.seq) and c.op == call.op]
    return own[-1].t if own and own[-1].t > moment else None


def _ends(case: Case, found: Graph, wait: Wait) -> dict[int, int]:
    """The ranks, each with its thread, that a wait comes to in the end: they wait for nobody. Empty where a chain is
    not known to its end."""
    ranks = {facts.rank: facts for facts in case.ranks}
    following: dict[Node, list[Wait]] = {}
    for other in found.waits:
        following.setdefault((other.rank, other.thread), []).append(other)
    ends: dict[int, int] = {}
    seen, open_ = {id(wait)}, [wait]
    while open_:
        current = open_.pop()
        if current is not wait and (not current.blockers or current.differing):
            return {}
        for rank in current.blockers:
            node = (rank, responsible(ranks[rank], current.call.group))
            nexts = following.get(node, [])
            if not nexts:
                ends[rank] = node[1]
            open_ += [other for other in nexts if id(other) not in seen]
            seen.update(map(id, nexts))
    return ends


def _why(culprits: tuple[int, ...], wait: Wait, late: dict[int, float], moment: float) -> str:
    if set(culprits) <= set(late):
        return f"{names(culprits)} came {max(late[rank] for rank in culprits) - moment:.1f} s too late"
    if not set(culprits) <= set(wait.blockers):
        return f"it waited, through {names(wait.blockers)}, for {names(culprits)}"
    if set(culprits) & set(wait.stopped):
        return f"{names(culprits)} {'is' if len(culprits) == 1 else 'are'} stopped"
    if wait.call.is_message:
        return f"{names(culprits)} had not {'sent' if 'recv' in wait.call.op else 'received'} it"
    return f"{names(culprits)} had not {'called' if wait.call.group == 'init' else 'entered'} it"


def _nobody(case: Case, first: _Timeout, wait: Wait | None) -> Verdict:
    """The verdict where no rank can be named."""
    error = first.failure.facts.error
    assert error is not None
    said = f"rank {first.failure.rank} said: {one_line(error.message, 120)}"
    here = {facts.rank for facts in case.ranks}
    away = sorted(wait.away) if wait is not None else []
    all_came = wait is not None and bool(wait.partners) and not (wait.blockers or wait.differing or here & set(away))
    why = "no rank of this node was late" if all_came else "the evidence does not say for whom it waited"
    other_nodes = len(case.ranks) < case.world_size
    remedy = "compare the ranks' stacks in the evidence folder"
    if all_came:
        remedy = "read the verdicts of the other nodes" if other_nodes else "look at the network that the ranks use"
    living = (
        f"rank {f.rank} was in no collective that is recorded{at(user_frame(f.stack))}" for f in unaccounted(case)
    )
    location = first.call.location if first.call is not None else None
    verdict = _verdict(
        case,
        f"{first.what}, and {why}",
        (),
        location=location or error.location,
        call=first.call,
        because=(said, *list(living)[:2], *_elsewhere([rank for rank in away if rank not in here])),
        confidence="medium" if all_came else "low",
        remedy=remedy,
    )
    return dataclasses.replace(verdict, traceback=error.traceback)


def _verdict(
    case: Case, summary: str, culprits: tuple[int, ...], *, call: Collective | None, **facts: object
) -> Verdict:
    first = next((rank for rank in case.ranks if rank.rank in culprits), None)
    return Verdict(
        code="SL414",
        slug=CATALOGUE["SL414"].slug,
        kind="crash",
        summary=summary,
        culprit_ranks=culprits,
        host=case.host,
        pid=first.pid if first is not None else None,
        operation=call.op if call is not None else None,
        seq=call.seq if call is not None else None,
        process_group=call.group if call is not None else None,
        secondary=secondary(case, culprits),
        exit_code=EXIT_SCRIPT_FAILED,
        **facts,  # type: ignore[arg-type]
    )


def _waited(found: Graph, culprits: tuple[int, ...]) -> tuple[str, ...]:
    """Who waited where, besides those that are named."""
    places: dict[str, list[int]] = {}
    for wait in found.waits:
        if wait.rank not in culprits:
            places.setdefault(f"{label(wait.call)}{at(wait.call.location)}", []).append(wait.rank)
    return tuple(f"{names(set(ranks))} waited in {place}" for place, ranks in places.items())


def _elsewhere(away: list[int]) -> tuple[str, ...]:
    return (f"nothing is known here of {names(away)}",) if away else ()


def _call_of(facts: RankFacts, call: Collective | None) -> Location | None:
    own = [c for c in facts.collectives if call is not None and (c.group, c.seq) == (call.group, call.seq)]
    return own[-1].location if own else None
