"""The incidents of several nodes of one run as one case: who was first is told across nodes as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.codes import Trait, has
from safelaunch.model import Case, PyError, RankFacts, StreamMark, StreamProgress, Verdict

if TYPE_CHECKING:  # a run puts cases together, and reads no archives
    from safelaunch.evidence.offline.bundle import Recorded

# Incidents of nodes whose runs have names of their own (no --rdzv-id) belong together within this time: half an hour is
# torch's longest default timeout of a process group, after which nobody waits for anybody.
SAME_MOMENT_S = 1800.0


def together(incidents: Sequence[Recorded]) -> list[list[Recorded]]:
    """Incidents by what they are parts of: the same attempt of the same run, seen by nodes with other ranks.

    A node that saw several counts with its latest one; the earlier ones stand for themselves, and so does what a node
    saw of slow ranks.
    """
    found: list[list[Recorded]] = []
    open_: list[list[Recorded]] = []
    for incident in incidents:
        if len(incident.case.ranks) >= incident.case.world_size or incident.case.incident.kind == "slow":
            found.append([incident])
            continue
        for others in open_:
            own = [other for other in others if _ranks(other) == _ranks(incident)]
            if all(_one_job(other, incident) for other in others if other not in own):
                for earlier in own:
                    found.append([earlier])
                    others.remove(earlier)
                others.append(incident)
                break
        else:
            open_.append([incident])
    return found + open_


def _ranks(incident: Recorded) -> tuple[str, frozenset[int]]:
    return incident.case.host, frozenset(facts.rank for facts in incident.case.ranks)


def _one_job(one: Recorded, other: Recorded) -> bool:
    if one.case.world_size != other.case.world_size or one.case.incident.attempt != other.case.incident.attempt:
        return False
    if _ranks(one)[1] & _ranks(other)[1]:
        return False
    if one.run_id and one.run_id == other.run_id:
        return True
    if one.wall_offset is None or other.wall_offset is None:
        return not (one.run_id and other.run_id)
    apart = (one.case.incident.t + one.wall_offset) - (other.case.incident.t + other.wall_offset)
    return abs(apart) < SAME_MOMENT_S


def concluded_over_more(part: Sequence[Recorded]) -> Verdict | None:
    """What the run itself concluded over all of its nodes, where that rests on more than is here: on nodes that are
    missing here, or on how one was lost. None where the rules can be applied again, and where nodes disagree. Of a lost
    node that node itself has other words, and most have the same."""
    said = [one.verdict for one in part if one.verdict is not None and one.verdict.nodes > 1]
    if len(said) < len(part):
        return None
    of_one_node = said[0].host and has(said[0].code, Trait.LEFT_OUT)
    if len({(verdict.code, verdict.host if of_one_node else verdict.summary) for verdict in said}) > 1:
        return None
    whole = len(part) >= max(verdict.nodes for verdict in said)
    if whole and not has(said[0].code, Trait.INFRASTRUCTURE):
        return None
    summaries = [verdict.summary for verdict in said]
    return max(said, key=lambda verdict: summaries.count(verdict.summary))


def comparable(incidents: Sequence[Recorded]) -> bool:
    """Whether times of these nodes can be put in order: CLOCK_MONOTONIC is each machine's own."""
    return all(incident.wall_offset is not None for incident in incidents)


def merged(incidents: Sequence[Recorded]) -> Case:
    """One case of all these nodes, with all times on the wall clock where that is known."""
    return one_case([shifted(incident.case, incident.wall_offset or 0.0) for incident in incidents])


def one_case(cases: Sequence[Case]) -> Case:
    """One case of all these nodes, whose times are of one clock."""
    failed = [case for case in cases if case.incident.kind == "exit"]
    first = min(failed or cases, key=lambda case: case.incident.t)
    ordered = [first, *(case for case in cases if case is not first)]  # what else `first` tells is of node 0
    ports = [replace(port, host=case.host) for case in cases for port in case.ports_down]
    kills = [case.oom_kills for case in cases if case.oom_kills is not None]
    of_nodes = [replace(facts, node=node) for node, case in enumerate(ordered) for facts in case.ranks]
    ranks = sorted(of_nodes, key=lambda facts: facts.rank)
    return replace(
        first,
        host=", ".join(dict.fromkeys(case.host for case in cases)),
        ranks=tuple(ranks),
        oom_kills=sum(kills) if kills else None,
        groups=tuple(dict.fromkeys(group for case in cases for group in case.groups)),
        source=tuple(dict.fromkeys(line for case in cases for line in case.source)),
        now=max((case.now for case in cases if case.now is not None), default=None),
        gpus=tuple(replace(gpu, node=node, host=case.host) for node, case in enumerate(ordered) for gpu in case.gpus),
        ports_down=tuple(ports),
        ras=next((case.ras for case in ordered if case.ras), ""),
    )


def shifted(case: Case, by: float) -> Case:
    """The case as another clock has it, which is `by` seconds ahead."""
    now = case.now + by if case.now is not None else None
    incident = replace(case.incident, t=case.incident.t + by)
    gpus = tuple(replace(gpu, ahead_s=gpu.ahead_s + by) for gpu in case.gpus)
    return replace(case, incident=incident, ranks=tuple(_moved(facts, by) for facts in case.ranks), now=now, gpus=gpus)


def _moved(facts: RankFacts, by: float) -> RankFacts:
    return replace(
        facts,
        exit=replace(facts.exit, t=facts.exit.t + by) if facts.exit else None,
        error=_raised(facts.error, by),
        handling=_raised(facts.handling, by),
        lost_thread=_raised(facts.lost_thread, by),
        shut_down=_at(facts.shut_down, by),
        stepped=_at(facts.stepped, by),
        loaders=tuple(replace(one, ended=_at(one.ended, by)) for one in facts.loaders),
        stream=_enqueued(facts.stream, by),
        collectives=tuple(replace(call, t=call.t + by) for call in facts.collectives),
        recorded=None if facts.recorded is None else tuple(replace(call, t=call.t + by) for call in facts.recorded),
        phases=tuple(replace(phase, since=phase.since + by) for phase in facts.phases),
        exhausted=_at(facts.exhausted, by),
    )


def _at(t: float | None, by: float) -> float | None:
    return t + by if t is not None else None


def _raised(error: PyError | None, by: float) -> PyError | None:
    return replace(error, t=error.t + by) if error is not None else None


def _enqueued(stream: StreamProgress | None, by: float) -> StreamProgress | None:
    def mark(one: StreamMark | None) -> StreamMark | None:
        return replace(one, t=one.t + by) if one is not None else None

    return StreamProgress(mark(stream.reached), mark(stream.outstanding)) if stream is not None else None
