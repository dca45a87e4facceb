"""What can be said of a hang of which nothing but Flight Recorder dumps is left, and how sure that is.

A dump says which calls a rank made, and no more: not what it does instead, and not that it still lives.
"""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.diagnosis.waitgraph.counters import UNTOLD, idle, of_nccl
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.record import WORLD
from safelaunch.diagnosis.waitgraph.wait import Wait, away_of
from safelaunch.diagnosis.wording import at, names, of_group
from safelaunch.model import Case, Collective, Confidence, Gap, RankFacts

OF_GLOO = "gloo records no messages and no monitored_barrier"
SINCE = "{since}"
FEW = 3.0  # usual pauses
PAUSE_S = 3.0  # a pause that is usual enough, where nothing tells which are: an estimate


def doubt(case: Case, culprits: Iterable[int], blocked: Iterable[Wait]) -> str:
    """Why ranks that have not come cannot be blamed for it, or nothing.

    Several that may be waiting in messages which nobody recorded may wait for one another. And where more ranks are
    missing than wait, and none of those has ever made such a call, those who wait may be the ones that are wrong: a
    collective below `if rank == 0` looks just like that.
    """
    late = [facts for facts in case.ranks if facts.rank in set(culprits)]
    if of_gloo(case) and len(late) > max(1, len({wait.rank for wait in blocked})):
        return f"those who did not come may wait in what gloo does not record: {OF_GLOO}"
    if case.origin == "dumps" and of_gloo(case) and any(facts.recorded is None for facts in case.ranks):
        return f"those who did not come may wait for a rank that left no dump: {OF_GLOO}"
    if len(late) > 1 and any(facts.missing for facts in late):
        return "which of those who did not come waits for another one cannot be told"
    calls = {_site(wait.call) for wait in blocked}
    usual = any(own.done and _site(own) in calls for facts in late for own in facts.calls)
    if len(late) > len({wait.rank for wait in blocked}) and not usual:
        return "those who did not come have never made such a call: it may be one that only some ranks make"
    return ""


def of_gloo(case: Case) -> bool:
    """Whether the job used gloo: NCCL's dumps always tell the members of the world, gloo's never do."""
    return all(group.name != WORLD for group in case.groups)


def of_nccl2(case: Case) -> bool:
    """Whether all dumps are of torch's nccl2: its watchdog writes those of ranks whose calls have timed out, and asks
    no other rank for one."""
    backends = [one.backend for facts in case.ranks for one in facts.progress]
    return bool(backends) and set(backends) == {"nccl2"}


def of_several_moments(case: Case) -> bool:
    """Whether dumps contradict one another, so that some were taken later than others: what one rank has completed and
    another has not proves nothing then."""
    return any(gap.kind == "another moment" for facts in case.ranks for gap in facts.missing)


def young(case: Case, waits: Iterable[Wait]) -> float | None:
    """How long the oldest of these waits had lasted when the dumps were written, in seconds, where that is so short
    that the job may simply have been running; else None.

    What is usual is the longest pause between two calls of a group in a row, in the middle rank, of the few that are
    kept, or PAUSE_S. FEW is an estimate. Copies of files may be younger than the dumps: then a wait seems longer than
    it was, and `ground` says so. Where a watchdog had given up a call, the job did hang.
    """
    if case.now is None or case.gave_up:
        return None
    # Of a wait that counters alone show, nobody knows when it began.
    age = case.now - min((wait.call.t for wait in waits if wait.call.t), default=case.now)
    pauses = sorted(filter(None, (_longest_pause(facts) for facts in case.ranks))) or [PAUSE_S]
    return age if 0.0 <= age <= FEW * pauses[len(pauses) // 2] else None


def ground(case: Case, waits: Iterable[Wait]) -> tuple[str, ...]:
    """What says that these waits did not end, where a job may still have been running: one line, or nothing."""
    if case.gave_up:
        by = ", by the times of the files" if of_nccl2(case) else ""
        return (f"a watchdog had given up a call when the dumps were written{by}",)
    since = [wait.call.t for wait in waits]
    if since and not any(since):
        return ("how long they had waited is not known: counters alone do not tell a hang from a job that runs",)
    age = (case.now or 0.0) - min(since, default=0.0)
    if case.now is None or age < 0.0:
        return (
            ("how long they had waited is not known: the files are older than the calls in them",) if case.now else ()
        )
    lasted = f"{age:.3g} s" if age < 120 else f"{age / 60:.0f} min" if age < 7200 else f"{age / 3600:.0f} h"
    return (f"they had waited {lasted} by the times of the files: of copies, those may be too late",)


def _longest_pause(facts: RankFacts) -> float:
    last: dict[str, Collective] = {}
    longest = 0.0
    for call in facts.calls:
        before = last.get(call.group)
        if before is not None and call.peer is None and call.seq == before.seq + 1:
            longest = max(longest, call.t - before.t)
        if call.op not in ("send", "recv"):
            last[call.group] = call
    return longest


def _site(call: Collective) -> tuple[object, ...]:
    return (call.op, call.group, call.location, call.numel, call.peer)


def unbegun(facts: RankFacts, wait: Wait) -> bool:
    """Whether the rank has enqueued what others wait in, and its GPU has not begun it."""
    return any(own.issued and (own.group, own.seq) == (wait.call.group, wait.call.seq) for own in facts.calls)


def unstarted(case: Case, wait: Wait) -> tuple[str, ...]:
    """What is said where all ranks have enqueued a call of NCCL, and it is not known that all GPUs have begun it: a
    line, or nothing."""
    if not wait.call.state:  # no call of a device: new_group, for one
        return ()
    members = [facts for facts in case.ranks if facts.rank in wait.partners]
    begun = [
        any((own.group, own.seq, own.state) == (wait.call.group, wait.call.seq, "started") for own in facts.calls)
        for facts in members
    ]
    if all(begun) or not any(of_nccl(facts) for facts in members):
        return ()
    return ("all have enqueued it, and the recorder does not say whose GPU has begun it: one may not have come so far",)


def last_seen(case: Case, ranks: Iterable[int]) -> tuple[str, ...]:
    """The last calls of ranks that wait for nothing, as far as their dumps show: one line for those that are alike."""
    alike: dict[str, list[int]] = {}
    wanted = set(ranks)
    for facts in case.ranks:
        if facts.rank in wanted:
            alike.setdefault(_last(facts), []).append(facts.rank)
    since = f"no recorded call since ({OF_GLOO})" if of_gloo(case) else "no call since"
    return tuple(f"{names(those)} {text.replace(SINCE, since)}" for text, those in alike.items())


def _last(facts: RankFacts) -> str:
    behind = next((call for call in facts.calls if call.issued), None)
    if behind is not None:
        call = f"{_name(behind)}{of_group(behind)}{at(behind.location)}"
        return f"had enqueued {call}, and its GPU has not begun it: look at the kernels before it"
    done = [call for call in facts.calls if call.done]
    if not done and any(one.enqueued for one in facts.progress) and idle(facts):
        return "had completed all that was enqueued: the GPU waits for its host, and what that does is not in a dump"
    if not done:
        return "had made no call at all"
    last = done[-1]
    call = f"{_name(last)}{of_group(last)}{at(last.location)}"
    return f"had finished {call}, and made {SINCE}; what it did then is not in a dump"


def missed(blocked: Iterable[Wait], culprits: Iterable[int]) -> tuple[str, ...]:
    """Who missed what, where culprits did not all miss the same."""
    late = set(culprits)
    found: dict[tuple[str, int, str], set[int]] = {}
    for wait in blocked:
        what = f"{_name(wait.call)} of group {wait.call.group}"
        if wait.call.is_message:
            what = f"what rank {wait.rank} {'receives from' if 'recv' in wait.call.op else 'sends to'} it"
        found.setdefault((wait.call.group, wait.call.seq, what), set()).update(late & set(wait.blockers))
    if all(ranks == late for ranks in found.values()):
        return ()
    return tuple(f"{names(ranks)} did not come to {what}" for (_, _, what), ranks in found.items())


def behind(case: Case) -> tuple[str, ...]:
    """Of ranks none of which waits: who did not come to the last call of its peers. Gloo marks what failed as done."""
    last: dict[str, dict[int, Collective]] = {}
    for facts in case.ranks:
        for call in facts.calls:
            if call.op not in ("send", "recv"):
                last.setdefault(call.group, {})[facts.rank] = call
    lines = []
    for group, calls in last.items():
        top = max(calls.values(), key=lambda call: call.seq)
        absent = [rank for rank, call in calls.items() if call.seq < top.seq]
        if absent:
            did = "enqueued" if top.issued else "ended or failed in"
            whose = "its" if len(absent) == 1 else "their"
            lines.append(f"{names(absent)} did not come to {_name(top)} of group {group}, which {whose} peers {did}")
    return tuple(lines)


def gaps(case: Case, ranks: Iterable[int] | None = None) -> tuple[str, ...]:
    """What is missing of ranks (of all without `ranks`): one line for each reason."""
    wanted = None if ranks is None else set(ranks)
    found: dict[Gap, list[int]] = {}
    for facts in case.ranks:
        for gap in facts.missing if wanted is None or facts.rank in wanted else ():
            found.setdefault(gap, []).append(facts.rank)
    return tuple(f"{names(those)}: {gap.reason}" for gap, those in found.items())


def confidence(case: Case, culprits: Iterable[int], graph: Graph, blocked: Iterable[Wait]) -> Confidence:
    """Dumps are one kind of evidence, so never high. Medium where every member of the groups concerned is known and
    the dumps of those who wait and of those who are missing, processes of their own, say the same."""
    late = set(culprits)
    doubtful = any(facts.missing for facts in case.ranks if facts.rank in late)
    blocked = tuple(blocked)
    waiting = len({wait.rank for wait in blocked})
    # In gloo's messages and monitored_barrier a rank may wait for one that waits for it.
    alone = waiting < len(late) or (of_gloo(case) and waiting < 2)
    unseen = away_of(graph.waits)
    if all(idle(facts) for facts in case.ranks if facts.rank in late):
        # They wait for nobody, whatever their peers have enqueued: only a rank without a dump may be late as well.
        unseen = {facts.rank for facts in case.ranks if facts.recorded is None}
    guessed = any(wait.call.op == UNTOLD for wait in blocked)
    return "low" if doubtful or alone or unseen or guessed else "medium"


def _name(call: Collective) -> str:
    if call.op in ("send", "recv"):
        return f"{call.op} {'from' if call.op == 'recv' else 'to'} rank {call.peer}"
    return f"{call.op} #{call.seq}"
