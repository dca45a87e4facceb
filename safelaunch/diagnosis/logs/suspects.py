"""Who may have been first, by what each kind of line says, and one suspect for each process."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from safelaunch.diagnosis.failures import IMPORT_ERRORS, is_user_code
from safelaunch.diagnosis.logs.story import Suspect, before, quote
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Location
from safelaunch.model.logs import Ended, LogFacts, Raised, Sighting

# torch elastic waits 30 s for SIGTERM to work (TORCH_ELASTIC_SHUTDOWN_TIMEOUT may shorten that), and it ends the others
# within a second of the first death that it notices.
SHUTDOWN_S = 2.0

ABORTED = ("nccl-aborted", "nccl2-timeout", "nccl2-abort")  # SIGABRT follows these
OUTSIDE_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def user_place(raised: Raised) -> Location | None:
    """The innermost line of a traceback that belongs to the program."""
    return next((frame for frame in reversed(raised.frames) if is_user_code(frame)), None)


def exit_of(facts: LogFacts, rank: int | None) -> Ended | None:
    found = [end for end in facts.ended if end.rank == rank and end.code and not end.ordered]
    return found[0] if found and rank is not None else None


def from_raised(facts: LogFacts, one: Raised, cleaning_up: bool = False) -> Suspect:
    """The suspect of an exception; with `cleaning_up` that from which it came: it tells of a lost peer."""
    place = user_place(one)
    name = one.type.rpartition(".")[2]
    code = one.known.code if one.known is not None and one.known.code else "SL401"
    code = "SL409" if name in IMPORT_ERRORS and code == "SL401" else code
    end = exit_of(facts, one.rank)
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
    found: list[Suspect] = []
    unexplained: list[Ended] = []
    for end in facts.ended:
        told = end.ordered or (end.pid != 0 and end.pid in ordered)
        if (told or not end.code) and (end.ordered or not end.memory):
            continue
        rank = end.rank if end.rank is not None else (pids[end.pid].rank if end.pid in pids else None)
        if rank is None and end.task is not None and not _of_nodes(facts):
            rank = end.task
        end = replace(end, rank=rank)
        number = -end.code if end.code is not None and end.code < 0 else 0
        if (end.code is not None and end.code > 0) or number in OUTSIDE_SIGNALS:
            if rank not in named and rank not in victims:
                unexplained.append(end)
            continue
        if end.by == "slurm" and number == signal.SIGKILL and not end.memory and _after_another(facts, end):
            unexplained.append(end)  # srun ends the rest of a step in this way
            continue
        if number == signal.SIGABRT and (aborting or rank in victims or rank in named):
            continue
        if number == signal.SIGABRT and end.by != "faulthandler" and not end.frames:
            unexplained.append(end)  # who aborts says why on stderr; without that it may have followed
            continue
        found.append(_ended_suspect(end, number, _counted_oom(facts, end)))
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
        owner = next((s for s in found if s.at == one.at), None)
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


def _after_another(facts: LogFacts, end: Ended) -> bool:
    """Whether another task had failed before, or the step was already being cancelled."""
    others = [e.at for e in facts.ended if e.by == "slurm" and e.task != end.task and e.code and e.at != end.at]
    others += [s.at for s in facts.sightings if s.known.name in ("slurm-step-cancelled", "slurm-cancelled")]
    return any(before(at, end.at) for at in others)


def _counted_oom(facts: LogFacts, end: Ended) -> bool:
    """Whether the scheduler counted an OOM kill where this process died."""
    said = [s for s in facts.sightings if s.known.code == "SL404" and s.known.role == "outside"]
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
    place = next((frame for frame in end.frames if is_user_code(frame)), None)
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
    for one in suspects:
        same = next((s for s in found if _same_process(s, one)), None)
        if same is None:
            found.append(one)
            continue
        lead, other = (one, same) if _weight(one) > _weight(same) else (same, one)
        code = "SL404" if {lead.code, other.code} == {"SL403", "SL404"} else lead.code
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
        found[found.index(same)] = both
    return found


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
        if rank is None and s.field("pid").isdigit() and int(s.field("pid")) in pids:
            rank = pids[int(s.field("pid"))].rank
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
