"""Verdicts from logs on processes that failed: which came first, and who only followed."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, EXIT_SCRIPT_FAILED, Trait, has
from safelaunch.diagnosis.crash.first_failure import ANOTHER, OTHER_RANK
from safelaunch.diagnosis.crash.known.gpu import tenants
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline, before, missing, quote
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Confidence, Verdict, VerdictKind
from safelaunch.model.logs import Ended, LogFacts

# The process that says so is the one that noticed, not the one at fault.


def resource_exhausted() -> None:
    """A rank failed because something was used up, or was not there: its message says what.

    SL420: the memory of a GPU. SL421: /dev/shm, in which loader workers hand over their batches. SL422: open files.
    SL423: a disk. SL424: the port was taken. SL425: a GPU that the rank cannot see. SL429: a DataLoader worker died.

    How it was concluded: from the exception that a rank recorded, or from the messages in the logs (the file of
    signatures names their sources). At the exception a rank also looks at what the message speaks of: its descriptors,
    the disk, /dev/shm, who holds the port; GPUs are read by the driver's word. Of the ranks whose
    failure neither tells of a lost peer nor repeats another rank's, all are named that say the same, each of which met
    it by itself; of those that say different things, the one that stands alone or was first. Where all ranks say the
    same, none is named.

    What to do: the remedy names the limit. `N other processes on this GPU` in the reasons of SL420 means that ranks do
    not use a GPU each: call torch.cuda.set_device(LOCAL_RANK) before anything else.
    """


def device_failed() -> None:
    """A GPU, a kernel on it, or NCCL failed, in the words of the library or the driver.

    SL426: a call of NCCL failed (system error, invalid usage, two ranks on one GPU, different versions); the NCCL WARN
    line beneath it is quoted where it is there. SL427: a kernel failed (device-side assert, illegal address).
    SL428: the driver logged a fault of a GPU (Xid).

    How it was concluded: from the exception that a rank recorded, and what the driver logged of its GPU, or from the
    messages in the logs. `remote error` and lost connections are consequences, and blame
    nobody. An Xid belongs to a rank only where its line names a process that the launcher's record gives a rank.
    Of a run that lives, or is attached to, NVML and the kernel log are read at the incident. A fault of the hardware
    (NVIDIA's Xid catalogue asks for a reset, a reboot or a look at the GPU; or NVML has lost it) that was logged when
    the ranks stopped, or later, explains a crash in CUDA or NCCL, and a hang where it is on the GPU of the rank that is
    waited for, or of one inside a collective that does not end. The exit code is 75 then: on another node the job would
    go on. An Xid of a program (13, 31, 43, 69) under ranks that are all inside one collective is SL427: that rank's
    part of it will never run.

    What to do: SL426: NCCL_DEBUG=WARN prints the reason on the rank that met it first. SL427: CUDA_LAUNCH_BLOCKING=1
    shows the line. SL428: have an admin look at the GPU.
    """


def crashed(timeline: Timeline) -> Verdict | None:
    """The verdict on the failures that nothing else explains; None where there are none."""
    candidates = list(timeline.candidates)
    if any(not s.message_only for s in candidates):
        candidates = [s for s in candidates if not s.message_only]
    if not candidates:
        return None
    first, certain = _first(candidates)
    if not first:
        return untold(timeline, candidates)
    if len(first) > 1 and _points_elsewhere(first):
        return untold(timeline, candidates)
    leading = {id(s) for s in first}
    others = [s for s in candidates if id(s) not in leading]
    return _verdict(timeline, first, others, certain)


def _points_elsewhere(first: list[Candidate]) -> bool:
    """Whether what several ranks share speaks of a rank that is not among them: it may be the one that began."""
    if has(first[0].code, Trait.MISFIT) or not first[0].what.startswith("raised"):
        return False
    said = first[0].what
    named = {int(number) for number in OTHER_RANK.findall(said)}
    return bool(ANOTHER.search(said)) or bool(named - {s.rank for s in first})


def _first(candidates: list[Candidate]) -> tuple[list[Candidate], bool]:
    """Those that failed first and alike, and whether the order is certain."""
    kinds: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        kinds.setdefault((candidate.code, candidate.alike), []).append(candidate)
    if len(kinds) == 1:
        return candidates, True
    alone = [kind[0] for kind in kinds.values() if len(kind) == 1 and kind[0].times == 1]
    crowds = [kind for kind in kinds.values() if len(kind) > 1 or kind[0].times > 1]
    if len(alone) == 1 and len(crowds) == 1:
        # A crowd that fails alike has a cause outside of each of its members.
        one, crowd = alone[0], crowds[0]
        if all(before(one.at, other.at) for other in crowd):
            return [one], True
        return ([], False) if any(before(one.at, other.at) is not True for other in crowd) else ([one], False)
    ahead = [s for s in candidates if all(before(s.at, other.at) for other in candidates if other is not s)]
    if not ahead:
        return [], False
    timed = all(s.at.t is not None for s in candidates)
    return ahead, timed


def _verdict(timeline: Timeline, first: list[Candidate], others: list[Candidate], certain: bool) -> Verdict:
    lead = first[0]
    ranks = tuple(sorted({s.rank for s in first if s.rank is not None}))
    unknown = [s for s in first if s.rank is None]
    everybody = _everybody(timeline, ranks, unknown)
    shared = lead.code == "SL426" and bool(_shared_gpus(timeline.facts))
    named = () if everybody or unknown or shared or has(lead.code, Trait.MISFIT) else ranks
    code = "SL402" if everybody and lead.code == "SL401" else lead.code
    sources = set().union(*(s.sources for s in first))
    if named and any(rank is not None and rank not in ranks for rank, _ in timeline.victims):
        sources.add("peers")
    confidence: Confidence = "high" if len(sources) >= 3 else "medium"
    if lead.message_only or lead.guessed or (others and not certain) or has(lead.code, Trait.MISFIT):
        confidence = "low" if lead.message_only or (others and not certain) else "medium"
    kind: VerdictKind = "infra" if has(code, Trait.INFRASTRUCTURE) else "crash"
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind=kind,
        summary=_summary(timeline, first, ranks, unknown, everybody),
        culprit_ranks=named,
        host=lead.host,
        pid=lead.pid if named else None,
        location=lead.location if len({s.location for s in first}) == 1 else None,
        because=_because(timeline, first, others, named),
        secondary=tuple(sorted({r for r, _ in timeline.victims if r is not None} - set(ranks))),
        confidence=confidence,
        remedy=lead.remedy or _remedy(code),
        traceback=lead.traceback,
        exit_code=EXIT_INFRASTRUCTURE if kind == "infra" else EXIT_SCRIPT_FAILED,
    )


def _everybody(timeline: Timeline, ranks: tuple[int, ...], unknown: Sequence[Candidate]) -> bool:
    """Whether all ranks failed alike."""
    facts = timeline.facts
    ends = {e.rank for e in facts.ended if e.rank is not None and e.code and not e.ordered and e.code not in (-15, -9)}
    if unknown:
        times = sum(s.times for s in unknown)
        return not ranks and times > 1 and (len(ends) < 2 or times >= len(ends)) and not _others_than(facts, ends)
    world = set(range(facts.world_size)) if facts.world_size else set(facts.ranks)
    return len(ranks) > 1 and set(ranks) >= world


def _others_than(facts: LogFacts, ends: set[int]) -> bool:
    return any(e.rank is not None and e.rank not in ends for e in facts.ended)


def _summary(
    timeline: Timeline, first: list[Candidate], ranks: tuple[int, ...], unknown: list[Candidate], everybody: bool
) -> str:
    lead = first[0]
    if lead.code == "SL426" and (pairs := _shared_gpus(timeline.facts)):
        shared = sorted({rank for one, other, _ in pairs for rank in (one, other)})
        devices = sorted({device for *_, device in pairs})
        return f"{names(shared)} use the same GPU ({', '.join(devices[:4])}), which NCCL does not allow"
    if has(lead.code, Trait.MISFIT) and lead.what.startswith("raised"):
        return f"{names(ranks) if ranks else 'a rank'} {lead.what}"
    if everybody:
        did = lead.what if lead.what.startswith(("raised", "was", "crashed", "aborted")) else f"failed: {lead.what}"
        return f"every rank {did}" if ranks else f"several ranks {did}, and the log does not say which"
    if unknown:
        return _of_nobody(lead, sum(s.times for s in unknown))
    return (
        f"{names(ranks)} {lead.what}"
        if lead.what.startswith(("raised", "was", "crashed", "aborted"))
        else f"{names(ranks)}: {lead.what}"
    )


def _shared_gpus(facts: LogFacts) -> set[tuple[int, int, str]]:
    """The pairs of ranks on one GPU, as NCCL names them, with the GPU."""
    return {
        (one, other, s.field("device"))
        for s in facts.sightings
        if s.field("device") and (one := s.number("one")) is not None and (other := s.number("other")) is not None
    }


def _of_nobody(lead: Candidate, times: int) -> str:
    where = f" on {lead.host}" if lead.host else ""
    if has(lead.code, Trait.INFRASTRUCTURE):
        return f"{lead.what.replace('raised', 'the job failed with')}{where}"
    if lead.what.startswith(("raised", "was", "crashed", "aborted")):
        who = "a process" if times == 1 else f"{times} processes"
        if lead.local is not None and times == 1:
            return f"local rank {lead.local}{where} {lead.what}; the log does not say which rank that is"
        what = lead.what.replace("was ", "were ") if times > 1 else lead.what
        return f"{who}{where} {what}; the log does not say which rank"
    return f"a rank{where} failed: {lead.what}; the log does not say which rank"


def _because(
    timeline: Timeline, first: list[Candidate], others: list[Candidate], named: tuple[int, ...]
) -> tuple[str, ...]:
    lead = first[0]
    facts = timeline.facts
    lines = [quote(lead.at)]
    warning = next(
        (s for s in facts.sightings if s.known.name in ("nccl-warn", "nccl-ib") and lead.code == "SL426"), None
    )
    if warning is not None and warning.at != lead.at:
        lines.append(quote(warning.at))
    lines += lead.more[:1]
    if lead.code == "SL420" and (there := tenants(lead.at.text + lead.traceback)):
        lines.append(f"{there} other process{'es' if there > 1 else ''} held memory of the same GPU")
    lines += [f"{_who(other)} {other.what}, later: {quote(other.at, 100)}" for other in others[:1]]
    later = sorted({rank for rank, _ in timeline.victims if rank is not None and rank not in named})
    if later and named:
        lines.append(f"{names(later)} failed only because a peer was lost, or waited for it")
    if (
        not named
        and not has(lead.code, Trait.INFRASTRUCTURE)
        and any(s.rank is None and s.local is None for s in first)
    ):
        lines.append("the lines have no marks of ranks: torchrun --tee 3, or srun --label, would show who wrote them")
    return (*lines, *missing(facts)[: max(1, 5 - len(lines))])


def _who(candidate: Candidate) -> str:
    return f"rank {candidate.rank}" if candidate.rank is not None else "a process"


def _remedy(code: str) -> str:
    return {
        "SL401": "the traceback is where it started",
        "SL402": "no rank stands out: look at the arguments, the files and the code that all ranks share",
        "SL409": "the environment or the code differs on this rank: compare it with a rank that started",
    }.get(code, f"safelaunch explain {code}")


def untold(timeline: Timeline, candidates: Sequence[Candidate]) -> Verdict:
    """Several things went wrong, and their order cannot be told."""
    said = tuple(f"{_who(s)} {s.what}: {quote(s.at, 110)}" for s in candidates[:3])
    return Verdict(
        code="SL499",
        slug=CATALOGUE["SL499"].slug,
        kind="crash",
        summary="processes failed in different ways, and the logs do not say which was first",
        because=(*said, *missing(timeline.facts)[:1]),
        confidence="low",
        remedy="compare these lines: the earliest is the cause; logs with times or with marks of ranks would tell",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def ended_unexplained(timeline: Timeline) -> Verdict | None:
    """Processes ended with an error, and nothing in the logs says why."""
    if not timeline.unexplained:
        return None
    facts = timeline.facts
    listed = [end for end in timeline.unexplained if end.rank is not None]
    if len(timeline.unexplained) == 1 and listed and listed[0].by == "slurm" and (listed[0].code or 0) > 0:
        return _left_alone(timeline, listed[0])
    first = next((end for end in timeline.unexplained if end.first), timeline.unexplained[0])
    who = names({end.rank for end in listed if end.rank is not None}) if listed else "a process"
    victims = [line for _, line in timeline.victims]
    lines = [quote(first.at)]
    if first.first:
        lines.append("torch elastic's `first observed failure` is the first that it noticed, not the one at fault")
    lines += [quote(line) for line in victims[:1]] + [quote(cut.at) for cut in timeline.cut[:1]]
    if not victims and not timeline.cut:
        lines.append("no traceback and no message of that process is in these logs")
    return Verdict(
        code="SL499",
        slug=CATALOGUE["SL499"].slug,
        kind="crash",
        summary=f"{who} ended with an error, and the logs do not say why",
        because=(*lines, *missing(facts)[:1]),
        secondary=tuple(sorted({end.rank for end in listed if end.rank is not None})),
        confidence="low",
        remedy="give the ranks' own output as well (torchrun --log-dir logs --redirects 3 --tee 3)",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def _left_alone(timeline: Timeline, end: Ended) -> Verdict:
    """The one task that ended by itself, while Slurm terminated the others."""
    return Verdict(
        code="SL407",
        slug=CATALOGUE["SL407"].slug,
        kind="crash",
        summary=f"{names([end.rank] if end.rank is not None else [])} exited with code {end.code}, and says no reason",
        culprit_ranks=(end.rank,) if end.rank is not None else (),
        host=end.host,
        because=(quote(end.at), "no other task ended by itself", *missing(timeline.facts)[:1]),
        confidence="low",
        remedy="give that task's own output as well: it may have ended because it lost a peer that says nothing",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def peers_lost(timeline: Timeline) -> Verdict | None:
    """Ranks lost a peer, and the logs do not show the one that was lost."""
    ranks = sorted({rank for rank, _ in timeline.victims if rank is not None})
    lines = [line for _, line in timeline.victims]
    if not lines:
        return None
    who = names(ranks) if ranks else "ranks"
    away = missing(timeline.facts)
    return Verdict(
        code="SL412",
        slug=CATALOGUE["SL412"].slug,
        kind="crash",
        summary=f"{who} lost a peer, or waited for one in vain, and the logs do not show which",
        because=(*(quote(line) for line in lines[:2]), *away[:2]),
        secondary=tuple(ranks),
        confidence="low",
        remedy="give the logs of all ranks and nodes: the one that was lost has no such line",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def from_outside(timeline: Timeline) -> Verdict | None:
    """Somebody outside the job ended it."""
    if not timeline.outside:
        return None
    # Who ended it tells more than what a rank wrote when it was ended.
    order = ("SL404", "slurm-", "kubernetes-", "")
    lead = min(
        timeline.outside,
        key=lambda s: next(i for i, o in enumerate(order) if o in (s.known.code, s.known.name[: len(o)])),
    )
    why = lead.field("why") or lead.field("why2") or _signal(lead.field("signal") or lead.field("death"))
    where = lead.host or lead.field("host") or lead.field("host2")
    what = lead.known.means + (f" ({why.strip()})" if why else "")
    code = lead.known.code or "SL603"
    kind: VerdictKind = "crash" if code == "SL404" else "infra"
    tasks = sorted({e.task for e in timeline.facts.ended if e.memory and e.task is not None})
    ranks = sorted({e.rank for e in timeline.facts.ended if e.memory and e.rank is not None}) if code == "SL404" else []
    lines = [quote(lead.at), *(quote(s.at) for s in timeline.outside if s is not lead)][:2]
    if tasks and not ranks:
        lines.append(f"srun says so of task{'s' if len(tasks) > 1 else ''} {', '.join(map(str, tasks[:8]))}")
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind=kind,
        summary=f"{what}{f' on {where}' if where else ''}",
        culprit_ranks=tuple(ranks),
        host=where,
        because=(*lines, *missing(timeline.facts)[:1]),
        confidence="medium",
        remedy=lead.known.remedy,
        exit_code=EXIT_SCRIPT_FAILED if kind == "crash" else EXIT_INFRASTRUCTURE,
    )


def _signal(number: str) -> str:
    try:
        return signal.Signals(int(number[:9])).name
    except ValueError:
        return ""


def meeting_failed(timeline: Timeline) -> Verdict | None:
    """The launcher itself failed: the nodes did not come together, or its port was taken."""
    known = [
        one
        for one in timeline.launcher
        if one.known is not None and one.known.code
        if one.known.role == "cause" or one.known.name == "store-clients"
    ]
    if not known:
        return None
    lead = known[0]
    assert lead.known is not None
    code = lead.known.code
    kind: VerdictKind = "infra" if has(code, Trait.INFRASTRUCTURE) else "crash"
    name = lead.type.rpartition(".")[2]
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind=kind,
        summary=f"the launcher failed: {lead.known.means} ({name}: {one_line(lead.message, 120)})",
        host=lead.host,
        because=(quote(lead.at), *missing(timeline.facts)[:1]),
        confidence="medium",
        remedy=lead.known.remedy,
        traceback=lead.traceback,
        exit_code=EXIT_INFRASTRUCTURE if kind == "infra" else EXIT_SCRIPT_FAILED,
    )
