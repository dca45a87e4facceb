"""Who may have been first, by what each kind of line says, and one suspect for each process."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from safelaunch.diagnosis.crash.first_failure import IMPORT_ERRORS
from safelaunch.diagnosis.frames import first_of_user
from safelaunch.diagnosis.logs.story import Suspect, before, quote
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Location
from safelaunch.model.logs import Ended, LogFacts, LogLine, Raised, Sighting

# torch elastic waits 30 s for SIGTERM to work (TORCH_ELASTIC_SHUTDOWN_TIMEOUT may shorten that), and it ends the others
# within a second of the first death that it notices.
SHUTDOWN_S = 2.0

# Of failures that are alike, so many are compared with each other: among tens of thousands, more would take minutes.
EARLIEST = 100

ABORTED = ("nccl-aborted", "nccl2-timeout", "nccl2-abort")  # SIGABRT follows these
OUTSIDE_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def user_place(raised: Raised) -> Location | None:
    """The innermost line of a traceback that belongs to the program."""
    return first_of_user(reversed(raised.frames))


def exits(facts: LogFacts) -> dict[int, Ended]:
    """How ranks ended by themselves, with an error, in the words that come first."""
    found: dict[int, Ended] = {}
    for end in facts.ended:
        if end.rank is not None and end.code and not end.ordered:
            found.setdefault(end.rank, end)
    return found


def from_raised(end: Ended | None, one: Raised, cleaning_up: bool = False) -> Suspect:
    """The suspect of an exception; with `cleaning_up` that from which it came: it tells of a lost peer."""
    place = user_place(one)
    name = one.type.rpartition(".")[2]
    code = one.known.code if one.known is not None and one.known.code else "SL401"
    code = "SL409" if name in IMPORT_ERRORS and code == "SL401" else code
    first = one.chain[0] if one.chain else ""
    own = f"{name}: {one_line(one.message, 140)}".rstrip(": ")
    if one.chain and cleaning_up:
        return Suspect(
            one.rank,
            one.host,
            "SL401",
            one.at,
            f"raised {one_line(first, 150)}",
            frozenset({"traceback"}),
            (first[:60],),
            traceback=one.traceback,
            pid=end.pid if end is not None and end.pid else None,
            times=one.times,
            guessed=True,
            local=one.local,
            more=(f"while it handled that, it raised {own}",),
        )
    return Suspect(
        one.rank,
        one.host,
        code,
        one.at,
        f"raised {own}",
        frozenset({"traceback" if one.whole else "message", *({"launcher"} if end is not None else ())}),
        (one.type, place or (one.message[:60] if not one.frames else one.frames[-1])),
        place,
        one.known.remedy if one.known is not None else "",
        one.traceback,
        end.pid if end is not None and end.pid else None,
        one.times,
        one.whole,
        local=one.local,
        more=(f"it came from {one_line(first, 150)}",) if first and first[:60] not in own else (),
    )


def attributed(facts: LogFacts, suspects: list[Suspect], victims: set[int | None]) -> list[Suspect]:
    """Give an exception without a rank to the only rank that failed and has none."""
    unknown = [s for s in suspects if s.rank is None]
    named = {s.rank for s in suspects}
    ends = {
        e.rank: e for e in facts.ended if e.rank is not None and e.by != "faulthandler" and e.code and not e.ordered
    }
    failed = [e for rank, e in ends.items() if (e.code or 0) > 0 and rank not in named | victims]
    others = [e for rank, e in ends.items() if e not in failed and rank not in named | victims and e.code != -15]
    if len(unknown) != 1 or unknown[0].times != 1 or len(failed) != 1 or others or None in victims:
        return suspects
    end = failed[0]
    found = replace(
        unknown[0],
        rank=end.rank,
        host=unknown[0].host or end.host,
        pid=end.pid or None,
        sources=unknown[0].sources | {"launcher"},
        guessed=True,
        more=(*unknown[0].more, f"{quote(end.at, 120)}: the only rank that failed by itself"),
    )
    return [found if s is unknown[0] else s for s in suspects]


def from_ended(
    facts: LogFacts, suspects: list[Suspect], victims: set[int | None], pids: dict[int, Ended]
) -> tuple[list[Suspect], list[Ended]]:
    ordered = {end.pid for end in facts.ended if end.ordered} | _ended_by_launcher(facts)
    aborting = bool(facts.timed_out) or any(s.known.name in ABORTED for s in facts.sightings)
    named = {s.rank for s in suspects}
    of_nodes, memory = _of_nodes(facts), [s for s in facts.sightings if s.known.code == "SL404"]
    memory = [s for s in memory if s.known.role == "outside"][:EARLIEST]
    failed_first = _failed_first(facts)
    found: list[Suspect] = []
    unexplained: list[Ended] = []
    for end in facts.ended:
        told = end.ordered or (end.pid != 0 and end.pid in ordered)
        if (told or not end.code) and (end.ordered or not end.memory):
            continue
        rank = end.rank if end.rank is not None else (pids[end.pid].rank if end.pid in pids else None)
        if rank is None and end.task is not None and not of_nodes:
            rank = end.task
        end = replace(end, rank=rank)
        number = -end.code if end.code is not None and end.code < 0 else 0
        if (end.code is not None and end.code > 0) or number in OUTSIDE_SIGNALS:
            if rank not in named and rank not in victims:
                unexplained.append(end)
            continue
        if end.by == "slurm" and number == signal.SIGKILL and not end.memory and _after_another(failed_first, end):
            unexplained.append(end)  # srun ends the rest of a step in this way
            continue
        if number == signal.SIGABRT and (aborting or rank in victims or rank in named):
            continue
        if number == signal.SIGABRT and end.by != "faulthandler" and not end.frames:
            unexplained.append(end)  # who aborts says why on stderr; without that it may have followed
            continue
        found.append(_ended_suspect(end, number, _counted_oom(memory, end)))
    return found, unexplained


def without_terminated(ends: list[Ended]) -> list[Ended]:
    """Of tasks of Slurm, those that ended by themselves: the rest was terminated when they did."""
    own = [end for end in ends if end.by == "slurm" and (end.code or 0) > 0]
    return [end for end in ends if not own or end.by != "slurm" or end.code != -signal.SIGTERM]


def of_loaders(facts: LogFacts, suspects: list[Suspect]) -> list[Suspect]:
    """Suspects without those that are loader workers of another: the kernel's line says why the worker ended."""
    found = list(suspects)
    for one in facts.raised:
        pids = re.search(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)", one.message)
        owner = next((s for s in found if s.at == one.at), None) if pids else None
        for number in re.findall(r"\d+", pids[1]) if pids and owner is not None else ():
            worker = next((s for s in found if "kernel" in s.sources and f"process {number} " in s.at.text), None)
            if worker is not None and owner is not None:
                found.remove(worker)
                known = replace(owner, sources=owner.sources | {"kernel"}, more=(quote(worker.at), *owner.more))
                found[found.index(owner)] = owner = known
    return found


def _ended_by_launcher(facts: LogFacts) -> set[int]:
    """Processes that torch elastic killed: they died of SIGKILL long after the failure that it had noticed first."""
    listed = [end for end in facts.ended if end.by == "elastic" and end.rank is not None and end.at.t is not None]
    first = min((end.at.t for end in listed if end.at.t is not None), default=0.0)
    return {
        end.pid
        for end in listed
        if end.code == -signal.SIGKILL and not end.first
        if end.at.t is not None and end.at.t - first >= SHUTDOWN_S
    }


def _of_nodes(facts: LogFacts) -> bool:
    """Whether Slurm's tasks stand for nodes: torch elastic ran below them."""
    elastic = any(end.by == "elastic" for end in facts.ended) or any(one.launcher for one in facts.raised)
    return elastic or any(s.host.startswith("task ") for s in (*facts.sightings, *facts.raised, *facts.timed_out))


def _failed_first(facts: LogFacts) -> list[tuple[LogLine, int | None]]:
    """The first tasks that failed, by lines and by times, and where the step was being cancelled (task None)."""
    lines: list[tuple[LogLine, int | None]] = [(e.at, e.task) for e in facts.ended if e.by == "slurm" and e.code]
    cancelled = ("slurm-step-cancelled", "slurm-cancelled")
    lines += [(s.at, None) for s in facts.sightings if s.known.name in cancelled]
    kept: dict[tuple[str, str], list[tuple[LogLine, int | None]]] = {}
    for one in sorted(lines, key=lambda one: one[0].line):
        kept.setdefault(("file", one[0].file), []).append(one)
    for one in sorted(lines, key=lambda one: one[0].t or 0.0):
        kept.setdefault(("clock", one[0].clock), []).append(one)
    return [one for ones in kept.values() for one in ones[:EARLIEST]]


def _after_another(failed_first: Sequence[tuple[LogLine, int | None]], end: Ended) -> bool:
    """Whether another task had failed before, or the step was already being cancelled."""
    return any(task != end.task and at != end.at and before(at, end.at) for at, task in failed_first)


def _counted_oom(said: Sequence[Sighting], end: Ended) -> bool:
    """Whether the scheduler counted an OOM kill where this process died."""
    return any(not s.host or not end.host or s.host == end.host for s in said)


def _ended_suspect(end: Ended, number: int, counted: bool) -> Suspect:
    memory = end.memory or counted
    name = _signal_name(number)
    local = f" (local rank {end.local_rank})" if end.rank is None and end.local_rank is not None else ""
    if number == signal.SIGKILL:
        code = "SL404" if memory else "SL403"
        what = f"{'was ended by the kernel for memory' if memory else 'was killed by SIGKILL'}{local}"
        remedy = (
            "use less host memory (loader workers, prefetch, pinned memory) or ask for more"
            if memory
            else "look at the kernel log and the scheduler's log for who sent it; most often it is the OOM killer"
        )
    else:
        code = "SL406" if number == signal.SIGABRT else "SL405"
        what = f"{'aborted' if number == signal.SIGABRT else 'crashed in native code'} ({name}){local}"
        remedy = "look at the native call at the top of the stack"
        if number == signal.SIGBUS:
            remedy = "SIGBUS most often means that /dev/shm, or a disk behind a mapped file, is full"
    place = first_of_user(end.frames)
    sources = {"scheduler"} if counted and number == signal.SIGKILL else set()
    witness = {"elastic": "launcher", "slurm": "scheduler", "kubernetes": "scheduler"}.get(end.by, end.by)
    return Suspect(
        end.rank,
        end.host,
        code,
        end.at,
        what,
        frozenset({witness, *sources}),
        (code, number),
        place,
        remedy,
        pid=end.pid or None,
    )


def merged(suspects: list[Suspect]) -> list[Suspect]:
    """What several witnesses say of one process, as one suspect: the one that says most leads."""
    found: list[Suspect] = []
    places: dict[tuple[str, object], list[int]] = {}

    def keep(at: int, one: Suspect) -> None:
        for key in _keys(one):
            places.setdefault(key, []).append(at)

    for one in suspects:
        near = {at for key in _keys(one) for at in places.get(key, ())[:EARLIEST]}
        place = next((at for at in sorted(near) if _same_process(found[at], one)), None)
        if place is None:
            keep(len(found), one)
            found.append(one)
            continue
        same = found[place]
        lead, other = (one, same) if _weight(one) > _weight(same) else (same, one)
        killed, memory = ("SL403" in (lead.code, other.code)), ("SL404" in (lead.code, other.code))
        code = "SL404" if killed and memory else lead.code
        source = other if code != lead.code else lead
        both = replace(
            lead,
            code=code,
            what=source.what,
            remedy=source.remedy,
            sources=lead.sources | other.sources,
            location=lead.location or other.location,
            pid=lead.pid or other.pid,
            rank=lead.rank if lead.rank is not None else other.rank,
            host=lead.host or other.host,
            more=(*lead.more, quote(other.at)),
        )
        keep(place, both)
        found[place] = both
    return found


def _keys(one: Suspect) -> list[tuple[str, object]]:
    """What two suspects share that may be of one process. Of each, the first few are compared: a log that holds tens of
    thousands of failures says nothing else by the rest."""
    keys: list[tuple[str, object]] = [("alike", one.alike)]
    keys += [("rank", one.rank)] if one.rank is not None else []
    return keys + ([("pid", one.pid)] if one.pid is not None else [])


def _same_process(one: Suspect, other: Suspect) -> bool:
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    if one.pid is not None and other.pid is not None:
        return one.pid == other.pid
    # A fatal error by faulthandler, and by the launcher's record, where neither tells the rank.
    if {"faulthandler", "launcher"} == one.sources | other.sources and one.alike == other.alike:
        return one.times == 1
    return (
        one.alike == other.alike
        and one.host == other.host
        and not one.sources & other.sources
        and one.rank == other.rank
    )


def _weight(suspect: Suspect) -> int:
    order = ("message", "scheduler", "launcher", "kernel", "faulthandler", "traceback")
    return max(order.index(source) for source in suspect.sources)


def from_messages(
    facts: LogFacts, suspects: list[Suspect], victims: set[int | None], pids: dict[int, Ended]
) -> list[Suspect]:
    """Causes that were said without a traceback: they lead only where nothing says more of that rank."""
    known = {s.rank for s in suspects} | victims | {None}
    found: list[Suspect] = []
    for s in facts.sightings:
        rank = s.rank
        if rank is None and (pid := s.number("pid")) in pids and pid is not None:
            rank = pids[pid].rank
        hardware = s.known.name.startswith("xid")
        if s.known.role != "cause" or s.inside or (not hardware and rank in known and (rank is not None or suspects)):
            continue
        if any(_explains(s, other) for other in suspects):
            continue
        found.append(
            Suspect(
                rank,
                s.host,
                s.known.code or "SL401",
                s.at,
                s.known.means,
                frozenset({"kernel" if hardware else "message"}),
                s.known.name,
                remedy=s.known.remedy,
                whole=hardware,
            )
        )
    return found


def _explains(sighting: Sighting, suspect: Suspect) -> bool:
    return suspect.code == sighting.known.code and suspect.rank in (None, sighting.rank)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
