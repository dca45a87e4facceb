"""Verdicts from logs on ranks that waited, by other witnesses than the watchdogs: the store, barriers, comparisons.

A rank is named only where a witness shows it to be elsewhere: the store that all ranks write to, the coordinator of a
barrier, or the count of those that came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from safelaunch.diagnosis.frames import first_of_user
from safelaunch.diagnosis.logs import nccl2
from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.waits import hang_verdict, odd_one, peers
from safelaunch.diagnosis.logs.watchdogs import answered, timed_out
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import Desync, LogFacts, LogLine, Sighting, TimedOut
from safelaunch.model.ranks import MOST_RANKS


def hung(timeline: Timeline) -> Verdict | None:
    """The verdict on a hang; None where no line tells of one."""
    return (
        _barrier(timeline)
        or _mismatched(timeline)
        or _desynced(timeline)
        or timed_out(timeline)
        or nccl2.timed_out(timeline)
        or _never_came(timeline)
        or _first_collective(timeline)
        or answered(timeline)
    )


def _desynced(timeline: Timeline) -> Verdict | None:
    """The report of TORCH_NCCL_DESYNC_DEBUG: each rank writes to the store where it is."""
    facts = timeline.facts
    report = _agreed_report(facts)
    timed_out = {t.rank for t in facts.timed_out}
    if report is None or timed_out.intersection(report.late):
        return None  # where a late rank waited, too, that was in another group
    late = set(report.late)
    waiting = {rank for rank in timed_out if rank is not None}
    call = next((t for t in facts.timed_out if t.rank is not None), None)
    what = "any collective" if report.seq < 0 else f"collective #{report.seq + 1}"
    return hang_verdict(
        "SL301",
        f"{names(late)} never entered {what}; {peers(waiting)}" if waiting else f"{names(late)} never entered {what}",
        late,
        because=(
            quote(report.at),
            *((quote(call.at),) if call else ()),
            "the report counts the collectives of all groups, so its numbers differ from the watchdog's",
            *missing(facts, recorder=True)[:1],
        ),
        remedy="look at what this rank did then: its own output around that time, its loader, its file system",
        confidence="high" if call is not None and _says_so_itself(facts, late, call) else "medium",
        waiting=waiting,
    )


def _agreed_report(facts: LogFacts) -> Desync | None:
    """The report that names late ranks; None where reports are of different moments, or of different groups."""
    reports = [one for one in facts.desyncs if one.late]
    if not reports or any((one.late, one.seq) != (reports[0].late, reports[0].seq) for one in reports):
        return None
    inside = {rank for one in facts.desyncs for rank in one.inside}
    return None if inside.intersection(reports[0].late) else reports[0]


def _says_so_itself(facts: LogFacts, late: set[int], call: TimedOut) -> bool:
    """Whether a late rank's own watchdog says that it had not come to a call."""
    return any(p.rank in late and p.enqueued is not None and p.enqueued < call.seq for p in facts.progress)


def _barrier(timeline: Timeline) -> Verdict | None:
    """monitored_barrier: its coordinator, rank 0, says who did not come."""
    facts = timeline.facts
    said = next((s for s in facts.sightings if s.known.name == "monitored-barrier"), None)
    if said is None:
        return None
    late = {int(number) for number in re.findall(r"\d{1,9}", said.field("ranks"))}
    came = _selves(s for s in facts.sightings if s.known.name == "monitored-barrier-victim")
    waited = said.number("ms")
    if not late or late & came:
        return None
    return hang_verdict(
        "SL301",
        f"{names(late)} never entered monitored_barrier, and rank 0 waited "
        + ("in vain" if waited is None else f"{waited / 1000:.0f} s"),
        late,
        because=(
            quote(said.at),
            *(
                (f"{names(came)} {_say(came)} that {'it' if len(came) == 1 else 'they'} had reached it",)
                if came
                else ()
            ),
            *(
                ()
                if "," in said.field("ranks")
                else ("with wait_all_ranks=False the barrier names only the first one",)
            ),
            *missing(facts)[:1],
        ),
        remedy="look at what this rank did then: its own output around that time",
        confidence="medium",
        waiting=came | {0},
    )


def _mismatched(timeline: Timeline) -> Verdict | None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compared what the ranks brought."""
    facts = timeline.facts
    if not facts.brought:
        return _half_of_a_mismatch(timeline)
    operations = {b.rank: b.op for b in facts.brought if b.rank is not None}
    shapes = {b.rank: f"{b.op} [{b.shape}] {b.dtype}".strip() for b in facts.brought if b.rank is not None}
    differ = len(set(operations.values())) > 1
    brought, code = (operations, "SL411") if differ else (shapes, "SL410")
    if len(set(brought.values())) < 2:
        return _other_numbers(timeline) or _half_of_a_mismatch(timeline)
    named = odd_one(facts, brought, "")
    sides = [
        f"{names(r for r, what in brought.items() if what == side)} brought {side}"
        for side in Counter(brought.values())
    ]
    place = next((one.frames for one in facts.raised if "Detected mismatch" in one.message), ())
    user = first_of_user(reversed(place))
    usual = Counter(brought.values()).most_common(1)[0][0]
    return hang_verdict(
        code,
        f"{names(named)} brought {brought[named[0]]}, its peers {usual}"
        if named
        else "ranks met with different collectives, and the votes do not say who is wrong"
        if differ
        else "ranks brought different tensors to one collective, and the votes do not say who is wrong",
        named,
        because=(*sides[:3], *_numbers(facts), quote(facts.brought[0].at), *missing(facts)[:1]),
        remedy="look for a collective under a condition that differs between ranks"
        if differ
        else "compare the shapes at this line on all ranks",
        confidence="medium",
        location=user,
    )


def _numbers(facts: LogFacts) -> tuple[str, ...]:
    """The numbers of the collectives that met, where they differ: the one that is behind skipped some, or is new."""
    numbers = {b.rank: b.seq for b in facts.brought if b.rank is not None and b.seq >= 0}
    if len(set(numbers.values())) < 2:
        return ()
    sides = [
        f"{names(r for r, seq in numbers.items() if seq == number)} in #{number}"
        for number in Counter(numbers.values())
    ]
    return (f"their numbers differ: {', '.join(sides[:4])}",)


def _other_numbers(timeline: Timeline) -> Verdict | None:
    """Ranks met in the same operation, with different numbers: one has made more collectives than another."""
    facts = timeline.facts
    differ = _numbers(facts)
    if not differ:
        return None
    op = facts.brought[0].op
    return hang_verdict(
        "SL411",
        f"ranks met in {op}, and have made different numbers of collectives before: {differ[0].partition(': ')[2]}",
        because=(quote(facts.brought[0].at), *missing(facts)[:1]),
        remedy="look for a collective under a condition that differs between ranks: one skipped some, or made more",
        confidence="low",
    )


def _half_of_a_mismatch(timeline: Timeline) -> Verdict | None:
    """torch saw that ranks met with different collectives, and what not all of them brought is in the logs."""
    facts = timeline.facts
    said = next((s for s in facts.sightings if s.known.name == "collective-mismatch"), None)
    raised = next((one for one in facts.raised if "Detected mismatch between collectives" in one.message), None)
    at = said.at if said is not None else raised.at if raised is not None else None
    if at is None:
        return None
    known = {b.rank: f"{b.op} [{b.shape}] {b.dtype}".strip() for b in facts.brought if b.rank is not None}
    sides = ", ".join(f"{names([rank])} brought {what}" for rank, what in list(known.items())[:3])
    return hang_verdict(
        "SL411",
        "ranks met with different collectives, and the line that says who brought which is cut off"
        + (f": {sides}" if sides else ""),
        because=(quote(at), *missing(facts)[:1]),
        remedy="give the whole line, or the logs of the other ranks: each says what it brought",
        confidence="low",
    )


def _never_came(timeline: Timeline) -> Verdict | None:
    """The store's barrier of init_process_group counted who came."""
    said = _counts(timeline)
    if not said:
        return None
    world, came = said[0].number("world"), max(s.number("came") or 0 for s in said)
    if world is None or world > MOST_RANKS:
        return None
    reported = _selves(said) | {s.rank for s in said if s.rank is not None} or _holds_the_store(timeline.facts)
    if came >= world:
        return _all_came(said[0], came, world, reported)
    absent = set(range(world)) - reported
    named = absent if reported and len(reported) == came else set()
    return hang_verdict(
        "SL309",
        f"{names(named)} never came to init_process_group; {peers(reported)}"
        if named
        else f"{world - came} of {world} ranks never came to init_process_group",
        named,
        because=(
            quote(said[0].at),
            f"{came} of {world} came" + (f": {names(reported)} {_say(reported)} so" if reported else ""),
            *missing(timeline.facts)[:1],
        ),
        remedy="look at the output of the missing ranks; on several nodes, check that each was started",
        confidence="medium" if named else "low",
        waiting=reported,
    )


def _holds_the_store(facts: LogFacts) -> set[int]:
    """Rank 0, where a rank counts in init_process_group who came: only who holds the store waits so, and that is rank 0
    (torch/distributed/rendezvous.py)."""
    counted = (one for one in facts.raised if one.known is not None and one.known.name == "store-clients")
    return {0} if any("init_process_group" in one.traceback and not one.launcher for one in counted) else set()


def _counts(timeline: Timeline) -> list[Sighting]:
    """The lines in which ranks count who came to the store. What a launcher raised is no word of a rank."""
    launchers = {(one.at.file, one.at.line) for one in timeline.launcher}
    return [
        s
        for s in timeline.facts.sightings
        if s.known.name in ("store-barrier", "store-clients") and (s.at.file, s.at.line) not in launchers
    ]


def _all_came(said: Sighting, came: int, world: int, reported: set[int]) -> Verdict:
    if came == world:
        return hang_verdict(
            "SL309",
            f"all {world} ranks came to init_process_group, and one of them at least too late",
            because=(quote(said.at),),
            remedy="see what took the last rank so long: its start, an import, a download; or raise the timeout",
            confidence="low",
            waiting=reported,
        )
    return hang_verdict(
        "SL309",
        f"{came} ranks came to init_process_group, and the job was to have {world}",
        because=(quote(said.at), "ranks of an earlier attempt count as well: the store is used again"),
        remedy="use a new store (another --rdzv-id, MASTER_PORT, or file) for each start, and check WORLD_SIZE",
        confidence="medium",
        waiting=reported,
    )


def _selves(said: Iterable[Sighting]) -> set[int]:
    """The ranks that these messages say that they are of."""
    return {rank for one in said if (rank := one.number("self")) is not None}


def _say(ranks: set[int]) -> str:
    return "says" if len(ranks) == 1 else "say"


def _first_collective(timeline: Timeline) -> Verdict | None:
    """Ranks waited for the id that the first rank of a group writes to the store in its first collective."""
    facts = timeline.facts
    said = [s for s in facts.sightings if s.known.name == "nccl-id" and "timeout" in s.field("error").lower()]
    if not said:
        return None
    waiting, root = _selves(said), said[0].number("root")
    if root is None or not waiting:
        return None
    one_group = {s.field("root") for s in said} == {said[0].field("root")} and root not in waiting
    sure = one_group and "default_pg" in said[0].field("error") and len(waiting) > 1
    return hang_verdict(
        "SL301" if sure else "SL399",
        f"rank {root} never entered its first collective; {peers(waiting)}"
        if sure
        else f"{names(waiting)} waited in the first collective of a group for its rank {root}",
        (root,) if sure else (),
        because=(quote(said[0].at), *missing(facts)[:1]),
        remedy="look at what that rank did then: its own output around that time",
        confidence="low",
        waiting=waiting,
    )


def stuck_watchdog(timeline: Timeline) -> Verdict | None:
    """The heartbeat monitor ended a rank whose watchdog was stuck, and nothing else is known."""
    said = next((s for s in timeline.facts.sightings if s.known.name == "nccl-heartbeat"), None)
    if said is None:
        return None
    who = f"rank {said.rank}" if said.rank is not None else "a rank"
    line: LogLine = said.at
    return hang_verdict(
        "SL399",
        f"the watchdog of {who} was stuck, and the logs do not say in what",
        because=(quote(line), *missing(timeline.facts, recorder=True)[:2]),
        remedy="a rank may hold the GIL in a CUDA call, or wait for NCCL: stacks of a running job tell (py-spy dump)",
        confidence="low",
        waiting=() if said.rank is None else (said.rank,),
    )
