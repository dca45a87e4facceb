"""Ranks whose watchdogs gave up on a collective.

The rank that timed out first is a victim. Whoever is to be named has to be shown to be elsewhere by its own words, or
to have come with something else than all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.logs import limits_of
from safelaunch.diagnosis.logs.limits_of import UNKNOWN_GROUP, label
from safelaunch.diagnosis.logs.timeline import Timeline, before, missing, quote
from safelaunch.diagnosis.logs.waits import DEFAULT_GROUPS, hang_verdict, odd_one, of_silence, peers
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, Progress, TimedOut

# Operations in which every rank must bring the same number of elements. Gathers and all_to_all may be uneven.
SAME_SIZE = {
    "ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLREDUCE_COALESCED",
    "ALLGATHER_BASE", "REDUCE_SCATTER_BASE",
}  # fmt: skip
# Operations that no member leaves before all have come.
_UNEVEN = {"ALLGATHER", "REDUCE_SCATTER", "ALLTOALL", "ALLTOALL_BASE", "BARRIER"}
SYMMETRIC = {*SAME_SIZE, *_UNEVEN} - {"BROADCAST", "REDUCE"}
MESSAGES = {"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"}


def timed_out(timeline: Timeline) -> Verdict | None:
    """The verdict on collectives that timed out; None where none did."""
    facts = timeline.facts
    if not facts.timed_out:
        return None
    short = limits_of.too_short(facts.timed_out)
    if short is not None:
        return short
    first = _first_timeouts(facts.timed_out)
    if _of_several_groups(facts.timed_out):
        return _unknown_blocker(timeline, first)
    groups: dict[str, dict[int, TimedOut]] = {}
    for t in first:
        if t.rank is not None:
            groups.setdefault(t.group, {})[t.rank] = t
    if not groups:
        return _unknown_blocker(timeline, list(facts.timed_out))
    apart = [_apart(timeline, group, calls) for group, calls in groups.items()]
    apart += [_out_of_step(timeline, group, calls) for group, calls in groups.items()]
    verdict = next((one for one in apart if one is not None), None)
    if verdict is not None:
        return verdict
    group, calls = max(groups.items(), key=lambda item: len(item[1]))
    return _together(timeline, group, calls) or _unknown_blocker(timeline, first)


def _apart(timeline: Timeline, group: str, calls: dict[int, TimedOut]) -> Verdict | None:
    """The verdict where members of one group are shown to be at different calls."""
    verdict = _different(timeline, calls) if _same_group(calls) else None
    return verdict or _behind(timeline, group, calls) or _shifted(timeline, group, calls)


def _first_timeouts(timeouts: Iterable[TimedOut]) -> list[TimedOut]:
    """Of each rank and group, the earliest work that did not end."""
    found: dict[tuple[int | None, str], TimedOut] = {}
    for t in timeouts:
        earliest = found.get((t.rank, t.group))
        if earliest is None or t.seq < earliest.seq:
            found[t.rank, t.group] = t
    return list(found.values())


def _of_several_groups(timeouts: Sequence[TimedOut]) -> bool:
    """Whether calls stand in several groups that no line names: a rank has one call at a time that a group waits for
    first, and numbers of different groups compare with nothing."""
    unnamed: dict[int | None, set[int]] = {}
    for t in timeouts:
        if not t.group and not t.torn:
            unnamed.setdefault(t.rank, set()).add(t.seq)
    return len(unnamed) > 1 and any(len(numbers) > 1 for numbers in unnamed.values()) and _differ(unnamed)


def _differ(numbers: dict[int | None, set[int]]) -> bool:
    """Whether not all ranks have the same numbers."""
    return len({frozenset(one) for one in numbers.values()}) > 1


def _same_group(calls: dict[int, TimedOut]) -> bool:
    """Whether the members' numbers speak against different groups of one name."""
    members = [t.member for t in calls.values()]
    return len(set(members)) == len(members)


def _different(timeline: Timeline, calls: dict[int, TimedOut]) -> Verdict | None:
    """Ranks that waited at the same number, in different operations or with different sizes."""
    by_seq: dict[int, dict[int, TimedOut]] = {}
    for rank, t in calls.items():
        by_seq.setdefault(t.seq, {})[rank] = t
    for seq in sorted(by_seq):
        meeting = {rank: t for rank, t in by_seq[seq].items() if t.op not in MESSAGES}
        operations = {t.op for t in meeting.values()}
        sizes = {t.numel_in for t in meeting.values() if t.numel_in >= 0}
        if len(operations) > 1:
            return _disagree(timeline, "SL302", meeting, {rank: t.op for rank, t in meeting.items()})
        if operations and operations <= SAME_SIZE and len(sizes) > 1:
            return _disagree(
                timeline, "SL410", meeting, {rank: f"{t.op} of {t.numel_in} elements" for rank, t in meeting.items()}
            )
    return None


def _disagree(timeline: Timeline, code: str, meeting: dict[int, TimedOut], brought: dict[int, str]) -> Verdict:
    named = odd_one(timeline.facts, brought, next(iter(meeting.values())).group)
    votes = Counter(brought.values())
    call = next(t for rank, t in meeting.items() if not named or rank in named)
    sides = [f"{names(r for r, what in brought.items() if what == side)} came with {side}" for side in votes]
    usual = votes.most_common(1)[0][0]
    return hang_verdict(
        code,
        f"{names(named)} came with {brought[named[0]]} to #{call.seq}, its peers with {usual}"
        if named
        else f"ranks disagree about #{call.seq}, and the votes do not say who is wrong",
        named,
        because=(*sides[:3], quote(call.at), *missing(timeline.facts)[:1]),
        remedy="compare the shapes that the ranks bring to this collective"
        if code == "SL410"
        else "make the same collectives in the same order on all ranks",
        confidence="medium" if named and timeline.facts.world_size is not None else "low",
        call=call,
        waiting=set(meeting) - set(named),
    )


def _behind(timeline: Timeline, group: str, calls: dict[int, TimedOut]) -> Verdict | None:
    """Ranks that say themselves that they had not come to the collective in which others waited."""
    facts = timeline.facts
    call = max(calls.values(), key=lambda t: t.seq)
    late = _late(facts, group, call)
    waiting = {rank for rank, t in calls.items() if t.seq == call.seq}
    if not late or not waiting:
        return None
    single = len({t.group for t in facts.timed_out} | {p.group for p in facts.progress}) == 1
    return hang_verdict(
        "SL301",
        f"{names(late)} never entered {label(call)}; {peers(waiting)}",
        late,
        because=(
            quote(next(iter(late.values())).at),
            quote(call.at),
            *_place(facts, names(waiting), min(waiting)),
            *_last_line(facts, late, call),
            *missing(facts, recorder=True)[:1],
        ),
        remedy="look at what this rank did then: its own output around that time, its loader, its file system",
        confidence="medium" if single and len(waiting) > 1 else "low",
        call=call,
        waiting=waiting,
    )


def _late(facts: LogFacts, group: str, call: TimedOut) -> dict[int, Progress]:
    """The ranks that had done all that they had begun, and had not come to a call, each with its own words."""
    waited = {t.rank for t in facts.timed_out}
    found: dict[int, Progress] = {}
    for p in facts.progress:
        if p.rank is None or p.rank in waited or p.group != group or p.enqueued is None or p.completed is None:
            continue
        if p.enqueued < call.seq and p.completed >= p.enqueued:
            found[p.rank] = p
    return found


def _place(facts: LogFacts, who: str, rank: int) -> tuple[str, ...]:
    """At which line of the program ranks waited, by one of them."""
    place = dict(facts.waiting_at).get(rank)
    return (f"{who} waited at {place.file}:{place.line} in {place.function}",) if place is not None else ()


def _last_line(facts: LogFacts, late: dict[int, Progress], call: TimedOut) -> tuple[str, ...]:
    """What the first of the late ranks wrote last, before its peers gave up."""
    last = dict(facts.tails).get(min(late))
    if last is None or not before(last, call.at) or last.text in (p.at.text for p in late.values()):
        return ()
    return (f"its last line: {quote(last)}",)


def _shifted(timeline: Timeline, group: str, calls: dict[int, TimedOut]) -> Verdict | None:
    """One rank waited at another number than all others: it skipped a collective, or made one too many."""
    numbers = {rank: str(t.seq) for rank, t in calls.items()}
    named = odd_one(timeline.facts, numbers, group) if _same_group(calls) and len(set(numbers.values())) == 2 else ()
    if not named or len(calls) < 4 or any(t.op in MESSAGES for t in calls.values()):
        return None
    call = calls[named[0]]
    other = next(t for rank, t in calls.items() if rank not in named)
    return hang_verdict(
        "SL302",
        f"{names(named)} waited in {label(call)}, its peers in {label(other)}: their collectives have come apart",
        named,
        because=(quote(call.at), quote(other.at), *missing(timeline.facts, recorder=True)[:1]),
        remedy="make the same collectives in the same order on all ranks",
        confidence="low",
        call=call,
        waiting=set(calls) - set(named),
    )


def _out_of_step(timeline: Timeline, group: str, calls: dict[int, TimedOut]) -> Verdict | None:
    """Members of one group waited at different numbers, and in calls that no member leaves alone: whoever is behind
    meets a call of another number, and who is wrong is not told."""
    first, last = (pick(calls.values(), key=lambda t: t.seq) for pick in (min, max))
    # Of two ranks, all groups have the same members; of more, numbers compare only within a group that a line names.
    unnamed = not group and not (timeline.facts.world_size == len(calls) == 2)
    if (
        first.seq == last.seq
        or group == UNKNOWN_GROUP
        or unnamed
        or not _same_group(calls)
        or first.op not in SYMMETRIC
    ):
        return None
    if any(t.op in MESSAGES for t in calls.values()):
        return None
    sides = {rank: label(t) for rank, t in sorted(calls.items())}
    said = [
        f"{names(r for r, label in sides.items() if label == side)} in {side}" for side in dict.fromkeys(sides.values())
    ]
    return hang_verdict(
        "SL302",
        f"ranks of one group are out of step: {', '.join(said[:3])}",
        because=(quote(first.at), quote(last.at), *missing(timeline.facts, recorder=True)[:1]),
        remedy="make the same collectives in the same order on all ranks; a rank skipped one, or made one too many",
        confidence="low",
        call=first,
        waiting=calls,
    )


def _together(timeline: Timeline, group: str, calls: dict[int, TimedOut]) -> Verdict | None:
    """All ranks waited in the same collective."""
    facts = timeline.facts
    call = next(iter(calls.values()))
    certain = _all_came(facts, calls)
    alike = {(t.seq, t.op, t.numel_in if t.op in SAME_SIZE else 0) for t in calls.values()}
    if len(alike) != 1 or call.op in MESSAGES or group not in DEFAULT_GROUPS:
        return None
    if not certain and not _all_known_came(facts, calls):
        return None
    silent = sorted(set(range(max(calls) + 1)) - set(calls))
    return hang_verdict(
        "SL310" if certain else "SL399",
        f"{names(calls)} waited in the same {label(call)}, and it did not end",
        because=(
            quote(call.at),
            *_place(facts, "they", min(calls)),
            *_of_silence(facts, silent, certain=certain),
            *missing(facts, recorder=True)[:1],
        ),
        remedy=_where_to_look(call, silent, certain=certain),
        confidence="medium" if certain else "low",
        call=call,
        location=dict(facts.waiting_at).get(min(calls)),
        waiting=calls,
    )


def _all_came(facts: LogFacts, calls: dict[int, TimedOut]) -> bool:
    """Whether all ranks of the job wait."""
    world = facts.world_size
    return world is not None and world >= 2 and set(calls) >= set(range(world))


def _all_known_came(facts: LogFacts, calls: dict[int, TimedOut]) -> bool:
    """Whether all ranks that wrote anything wait, where no line tells how many there were."""
    return facts.world_size is None and len(calls) >= 2 and set(calls) >= set(facts.ranks)


def _of_silence(facts: LogFacts, silent: list[int], *, certain: bool) -> tuple[str, ...]:
    """What is not known of ranks that reported no timeout."""
    if silent:
        return (of_silence(facts, silent),)
    return () if certain else ("how many ranks there were is not known: one that wrote nothing may have been late",)


def _where_to_look(call: TimedOut, silent: list[int], *, certain: bool) -> str:
    if not certain:
        return f"look at the output of {names(silent)} first" if silent else "give the logs of all ranks"
    if call.seq <= 1:
        return "it was the first collective: look at the network interface (NCCL_SOCKET_IFNAME) and the links"
    return "no rank was late: look at the network, the links and the GPUs (Xid messages, NCCL_DEBUG=WARN)"


def _unknown_blocker(timeline: Timeline, calls: list[TimedOut]) -> Verdict:
    """Ranks timed out, and no line says for whom they waited."""
    facts = timeline.facts
    call = min(calls, key=lambda t: t.seq)
    ranks = sorted({t.rank for t in calls if t.rank is not None})
    meetings = {(t.seq, t.op): t for t in calls}
    lines = [quote(t.at, limits_of.LONG) for t in list(meetings.values())[:2]]
    lines += _sizes(calls)
    lines += limits_of.of_limits(facts.timed_out)
    lines += _place(facts, names(ranks[:1]), ranks[0]) if ranks else ()
    lines += _of_others(facts, ranks)
    who, they = names(ranks) if ranks else "ranks", "it" if len(ranks) == 1 else "they"
    return hang_verdict(
        "SL399",
        f"{who} timed out in {label(call)}, and the logs do not say for whom {they} waited"
        if len(meetings) == 1
        else f"{who} timed out in different collectives, and the logs do not say for whom they waited",
        because=(*lines, *missing(facts, recorder=True)[:2]),
        remedy="give the logs of all ranks, and dumps of the Flight Recorder where there are some",
        confidence="low",
        call=call,
        waiting=ranks,
    )


def _of_others(facts: LogFacts, ranks: Sequence[int]) -> list[str]:
    """What is known of the ranks whose own timeout is not in the logs."""
    silent = sorted(set(range(facts.world_size or 0)) - set(ranks)) or sorted(set(facts.ranks) - set(ranks))
    detected = sorted({p.rank for p in facts.progress if p.rank in silent and (p.work is not None or p.own)})
    silent = [rank for rank in silent if rank not in detected]
    say = "say" if len(detected) > 1 else "says"
    said = [f"{names(detected)} {say} that a timeout was detected there, too"] if detected else []
    return [*said, of_silence(facts, silent)] if silent else said


def _sizes(calls: list[TimedOut]) -> list[str]:
    """What ranks brought to one call, where that differs: of messages and uneven gathers it may."""
    numbers = {t.seq for t in calls}
    sizes = {t.rank: t.numel_in for t in calls if t.numel_in >= 0 and t.rank is not None}
    if len(numbers) != 1 or len(set(sizes.values())) < 2:
        return []
    sides = [
        f"{names(r for r, size in sizes.items() if size == side)} {side}" for side in dict.fromkeys(sizes.values())
    ]
    return [f"they came with different numbers of elements: {', '.join(sides[:4])}"]


def by_counters(timeline: Timeline) -> Verdict | None:
    """Ranks tell how far they had come in a group, and no line says which collective timed out: who had begun less than
    another, and had done all of it, did not come to what the other began."""
    groups: dict[str, dict[int, Progress]] = {}
    for p in timeline.facts.progress:
        if p.rank is not None and p.enqueued is not None and p.completed is not None:
            groups.setdefault(p.group, {})[p.rank] = p
    verdicts = (_behind_by_counters(timeline, group, said) for group, said in groups.items())
    return next((verdict for verdict in verdicts if verdict is not None), None)


def _behind_by_counters(timeline: Timeline, group: str, said: dict[int, Progress]) -> Verdict | None:
    waiting = {rank: p for rank, p in said.items() if p.enqueued != p.completed}
    late = {rank: p for rank, p in said.items() if rank not in waiting}
    ends = {p.completed or 0 for p in late.values()}
    if not waiting or len(ends) != 1:
        return None
    ahead = min(waiting.values(), key=lambda p: p.completed or 0)
    last = next(iter(late.values()))
    if (ahead.completed or 0) > min(ends) or (ahead.enqueued or 0) <= min(ends):
        return None  # what the others wait for is another call than the next one of these
    of_group = "" if group in DEFAULT_GROUPS else f" of group {group}"
    return hang_verdict(
        "SL301",
        f"{names(late)} never entered #{(last.enqueued or 0) + 1}{of_group}; {peers(waiting)}",
        late,
        because=(quote(last.at), quote(ahead.at), *missing(timeline.facts, recorder=True)[:1]),
        remedy="look at what this rank did then: its own output around that time, its loader, its file system",
        confidence="low",
        waiting=waiting,
    )


def answered(timeline: Timeline) -> Verdict | None:
    """Watchdogs speak of a timeout, and the line that says in which collective is not there."""
    said = timeline.facts.progress
    if not said:
        return None
    verdict = by_counters(timeline)
    if verdict is not None:
        return verdict
    ranks = sorted({p.rank for p in said if p.rank is not None})
    numbers = sorted({p.work for p in said if p.work is not None})
    number = f" (#{numbers[0]})" if len(numbers) == 1 else ""
    tell = "tells" if len(ranks) == 1 else "tell"
    return hang_verdict(
        "SL399",
        f"{names(ranks) if ranks else 'ranks'} {tell} of a collective that timed out{number}, "
        "and these lines do not say which",
        because=(*(quote(p.at) for p in said[:2]), *missing(timeline.facts, recorder=True)[:2]),
        remedy="give the whole logs of all ranks, and dumps of the Flight Recorder where there are some",
        confidence="low",
        waiting=ranks,
    )
