"""Who may have been first: candidates from exceptions and from messages, and one candidate for each process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from safelaunch.diagnosis.crash.first_failure import IMPORT_ERRORS
from safelaunch.diagnosis.frames import first_of_user
from safelaunch.diagnosis.logs import inputs, nccl, said
from safelaunch.diagnosis.logs.exceptions import REPEATED
from safelaunch.diagnosis.logs.exits import EARLIEST, only_failed
from safelaunch.diagnosis.logs.reports import xids
from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Location
from safelaunch.model.logs import Ended, LogFacts, Raised, Sighting

MOST_GPUS = 8  # that are shown

_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): \S")


def user_place(raised: Raised) -> Location | None:
    """The innermost line of a traceback that belongs to the program."""
    return first_of_user(reversed(raised.frames))


# torch/distributed/checkpoint/api.py: every rank raises it, and it names those whose own part had failed.
_PARTS = re.compile(r"CheckpointException ranks:\s*dict_keys\(\[([\d, ]+)\]\)")


# A driver passes on what one of its workers raised, whose number it does not tell.
_PASSED_ON = re.compile(r"^(?:A )?[Ww]orkers? failed with error")


def of_parts(one: Raised) -> Candidate | None:
    """The candidate of an exception that names the ranks whose part of a distributed checkpoint failed."""
    match = _PARTS.search(f"{one.type}: {one.message}")
    ranks = sorted({int(number) for number in re.findall(r"\d{1,7}", match[1])}) if match else []
    if not ranks:
        return None
    why = next((line.strip() for line in reversed(one.message.splitlines()) if _ERROR.match(line.strip())), "")
    what = "failed in its part of a distributed checkpoint" if len(ranks) == 1 else "a distributed checkpoint failed"
    what += f" on {names(ranks)}" if len(ranks) > 1 else ""
    return Candidate(
        rank=ranks[0] if len(ranks) == 1 else None,
        host="",
        code="SL401",
        at=one.at,
        what=f"{what}: {why}" if why else what,
        sources=frozenset({"traceback" if one.whole and why else "message"}),
        alike=("checkpoint", tuple(ranks)),
        remedy="look at what follows this line: the traceback of each of these ranks tells why",
        traceback=one.traceback,
        message_only=not one.whole,
        blameless=len(ranks) > 1,
    )


def from_raised(end: Ended | None, one: Raised) -> Candidate:
    """The candidate of an exception.

    Args:
        end: how the launcher says that its rank ended.
        one: the exception.
    """
    found = of_parts(one) or inputs.of_all(one) or _of_itself(end, one)
    if _PASSED_ON.search(one.message):
        return replace(found, rank=None, local=None, process="", pid=None)
    return found


def _of_itself(end: Ended | None, one: Raised) -> Candidate:
    place = user_place(one)
    more = REPEATED.search(one.message) or REPEATED.search(one.at.text)
    one = replace(one, message=REPEATED.sub("", one.message).rstrip())
    told, reason = _said(one), nccl.of_exception(one)
    return Candidate(
        rank=one.rank,
        host=one.host,
        code=_code(one),
        at=one.at,
        what=nccl.headline(one.known, reason) or f"raised {told}",
        sources=frozenset({"traceback" if one.whole else "message", *({"launcher"} if end is not None else ())}),
        alike=(one.type, place or (one.frames[-1] if one.frames else one.message[:60])),
        location=place,
        remedy=one.known.remedy if one.known is not None else "",
        traceback=one.traceback,
        pid=_pid(end),
        times=one.times + (int(more[1]) if more else 0),
        message_only=not one.whole,
        local=one.local,
        process=one.process,
        vague=nccl.is_vague(one),
        blameless=one.known is not None and one.known.name in nccl.BLAMELESS,
        more=_came_from(one, told),
        error=one.known.name if one.known is not None else _name(one),
    )


def _came_from(one: Raised, told: str) -> tuple[str, ...]:
    """What an exception came from, where its words do not say so."""
    first = one.chain[0] if one.chain else ""
    return (f"it came from {one_line(first, 150)}",) if first and first[:60] not in told else ()


def from_handled(end: Ended | None, one: Raised) -> Candidate:
    """The candidate of an exception while whose handling another one was raised, which tells of a lost peer."""
    return Candidate(
        rank=one.rank,
        host=one.host,
        code="SL401",
        at=one.at,
        what=f"raised {one_line(one.chain[0], 150)}",
        sources=frozenset({"traceback"}),
        alike=(one.chain[0][:60],),
        traceback=one.traceback,
        pid=_pid(end),
        times=one.times,
        guessed=True,
        local=one.local,
        process=one.process,
        more=(f"while it handled that, it raised {_said(one)}",),
    )


def _code(one: Raised) -> str:
    if one.known is not None and one.known.code not in ("", "SL401"):
        return one.known.code
    return "SL409" if _name(one) in IMPORT_ERRORS else "SL401"


def _said(one: Raised) -> str:
    return said.of_exception(one, _name(one))


def _name(one: Raised) -> str:
    return one.type.rpartition(".")[2]


def _pid(end: Ended | None) -> int | None:
    return end.pid or None if end is not None else None


def attributed(facts: LogFacts, candidates: list[Candidate], victims: set[int | None]) -> list[Candidate]:
    """Give an exception without a rank to the only rank that failed and has none."""
    unknown = [one for one in candidates if one.rank is None]
    end = only_failed(facts, {one.rank for one in candidates} | victims)
    if len(unknown) != 1 or unknown[0].times != 1 or end is None or None in victims:
        return candidates
    if end.at.file == unknown[0].at.file and end.at.line < unknown[0].at.line:
        return candidates  # what is written behind the launcher's record is of whoever had started it
    found = replace(
        unknown[0],
        rank=end.rank,
        host=unknown[0].host or end.host,
        pid=end.pid or None,
        sources=unknown[0].sources | {"launcher"},
        guessed=True,
        more=(*unknown[0].more, f"{quote(end.at)}: the only rank that failed by itself"),
    )
    return [found if one is unknown[0] else one for one in candidates]


def from_messages(
    facts: LogFacts, candidates: list[Candidate], victims: set[int | None], by_pid: Mapping[int, Ended]
) -> list[Candidate]:
    """Causes that were said without a traceback: they lead only where nothing says more of that rank."""
    explained = ({one.rank for one in candidates} | victims) - {None}
    explained |= {None} if candidates else set()
    found: list[Candidate] = []
    for s in facts.sightings:
        rank, hardware = _rank_of(s, by_pid), s.known.name.startswith("xid")
        if s.known.role != "cause" or s.inside or (rank in explained and not hardware):
            continue
        if any(_explains(s, other) for other in candidates):
            continue
        found.append(
            Candidate(
                rank=rank,
                host=s.host,
                code=s.known.code or "SL401",
                at=s.at,
                what=nccl.headline(s.known, nccl.of_line(s)) or _means(facts, s),
                sources=frozenset({"kernel" if hardware else "message"}),
                alike=s.known.name,
                remedy=s.known.remedy,
                message_only=not hardware,
                local=s.local,
                process=s.process,
                blameless=s.known.name in nccl.BLAMELESS or (hardware and rank is None),
                error=s.known.name,
            )
        )
    return found


def _means(facts: LogFacts, s: Sighting) -> str:
    """What a message means: of the driver's, with its GPUs; of others, with their own words."""
    if not s.known.name.startswith(("xid", "gpu-lost", "pcie")):
        return said.of_message(s)
    alike = [other for other in facts.sightings if other.known.name == s.known.name]
    kernel = xids.of_log(facts) if s.known.name.startswith("xid") else []
    if kernel:
        return f"the driver logged {xids.told(kernel)}"
    gpus = list(dict.fromkeys(gpu for other in alike if (gpu := _gpu_of(facts, other))))
    xid = f"Xid {s.field('xid')}" if s.field("xid") else ""
    shown = f"GPU{'s' if gpus[1:] else ''} {', '.join(gpus[:MOST_GPUS])}" + (", ..." if gpus[MOST_GPUS:] else "")
    parts = [part for part in (shown if gpus else "", xid) if part]
    return s.known.means + (f" ({', '.join(parts)})" if parts else "")


def _gpu_of(facts: LogFacts, s: Sighting) -> str:
    """The GPU that the driver names, in its line or in one just before it."""
    near = (
        other.field("gpu")
        for other in reversed(facts.sightings)
        if other.known.name == "field-of-gpu" and other.at.file == s.at.file and 0 <= s.at.line - other.at.line <= 3
    )
    return s.field("gpu") or s.field("gpu2") or next(near, "")


def _rank_of(sighting: Sighting, by_pid: Mapping[int, Ended]) -> int | None:
    """The rank of a message, by its mark or by the process that it names."""
    if sighting.rank is not None:
        return sighting.rank
    end = by_pid.get(sighting.number("pid") or 0)
    return end.rank if end is not None else None


def _explains(sighting: Sighting, candidate: Candidate) -> bool:
    return candidate.code == sighting.known.code and candidate.rank in (None, sighting.rank)


def of_loaders(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates without those that are loader workers of another: the kernel's line says why the worker ended."""
    found = list(candidates)
    for one in facts.raised:
        pids = re.search(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)", one.message)
        owner = next((s for s in found if s.at == one.at), None) if pids else None
        for number in re.findall(r"\d+", pids[1]) if pids and owner is not None else ():
            worker = next(
                (one for one in found if "kernel" in one.sources and f"process {number} " in one.at.text), None
            )
            if worker is not None and owner is not None:
                found.remove(worker)
                explained = replace(owner, sources=owner.sources | {"kernel"}, more=(quote(worker.at), *owner.more))
                found[found.index(owner)] = owner = explained
    return found


def merged(candidates: list[Candidate]) -> list[Candidate]:
    """What several witnesses say of one process, as one candidate: the one that says most leads."""
    found: list[Candidate] = []
    places: dict[tuple[str, object], list[int]] = {}

    def keep(at: int, one: Candidate) -> None:
        for key in _keys(one):
            places.setdefault(key, []).append(at)

    for one in candidates:
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


def _keys(one: Candidate) -> list[tuple[str, object]]:
    """What two candidates share that may be of one process.

    Of each, the first few are compared: a log that holds tens of thousands of failures says nothing else by the rest.
    """
    keys: list[tuple[str, object]] = [("alike", one.alike)]
    keys += [("rank", one.rank)] if one.rank is not None else []
    return keys + ([("pid", one.pid)] if one.pid is not None else [])


def _same_process(one: Candidate, other: Candidate) -> bool:
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


def _weight(candidate: Candidate) -> int:
    order = ("message", "scheduler", "launcher", "kernel", "faulthandler", "traceback")
    return max(order.index(source) for source in candidate.sources)
