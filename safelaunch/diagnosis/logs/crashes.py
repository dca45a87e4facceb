"""Verdicts from logs on processes that failed: which came first, and who only followed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.crash.first_failure import ANOTHER, OTHER_RANK, PEER_LOSS
from safelaunch.diagnosis.logs import inner
from safelaunch.diagnosis.logs.quoting import LINE, fit
from safelaunch.diagnosis.logs.reports import native
from safelaunch.diagnosis.logs.root import Root, verdict_of, who
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline, before, missing, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import Ended, Known, Sighting

NEAR = 60  # lines
ENDED_BY_SLURM = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
_NODE = re.compile(r"on the node \(IP: (?P<ip>[\w.:]+)")
_TASK = re.compile(
    r"\bname=(?P<name>[^,\n]{1,100}), pid=(?P<pid>\d{1,9})(?:, memory used=(?P<own>[\d.]{1,20}[KMGT]?i?B))?"
)
_USED = re.compile(r"\bwas (?P<used>[\d.]{1,20}[KMGT]?i?B) / (?P<all>[\d.]{1,20}[KMGT]?i?B)")
OF_LAUNCHERS = ("launcher-failed", "scheduler-alarm", "process-aborted", "trouble")


def crashed(timeline: Timeline) -> Verdict | None:
    """The verdict on the failures that nothing else explains; None where there are none."""
    candidates = [one for one in timeline.candidates if not one.message_only] or list(timeline.candidates)
    if not candidates:
        return None
    first, certain = _first(candidates)
    if not first and (chain := _chain(candidates)):
        return verdict_of(Root(timeline, chain[:1], chain[1:], True))
    if not first or (len(first) > 1 and _points_elsewhere(first)):
        return order_unknown(timeline, candidates)
    first = [*first, *_same_error(timeline, first)]
    leading = {id(one) for one in first}
    return verdict_of(Root(timeline, first, [one for one in candidates if id(one) not in leading], certain))


def _chain(candidates: Sequence[Candidate]) -> list[Candidate]:
    """What one process met, one after the other, where each may follow from the one before: the same kind of failure in
    lines that stand close together, of nobody else. The first of them is the cause."""
    lead = min(candidates, key=lambda one: (one.at.file, one.at.line))

    def writer(one: Candidate) -> tuple[object, ...]:
        return one.code, one.rank, one.local, one.process, one.host, one.at.file

    near = (writer(one) == writer(lead) and one.at.line - lead.at.line <= NEAR for one in candidates)
    alike = all(near) and all(one.times == 1 for one in candidates)
    return sorted(candidates, key=lambda one: one.at.line) if alike and lead.message_only else []


def _same_error(timeline: Timeline, first: list[Candidate]) -> list[Candidate]:
    """What is left of the same error of other ranks: a message without its traceback."""
    ranks = {one.rank for one in first}
    lead = first[0]
    if not lead.error or None in ranks:
        return []
    return [
        one
        for one in timeline.candidates
        if one.message_only and one.rank not in (None, *ranks) and (one.code, one.error) == (lead.code, lead.error)
    ]


def _points_elsewhere(first: list[Candidate]) -> bool:
    """Whether what several ranks share speaks of a rank that is not among them: it may be the one that began."""
    if has(first[0].code, Trait.MISFIT) or not first[0].what.startswith("raised"):
        return False
    said = first[0].what
    named = {int(number) for number in OTHER_RANK.findall(said)}
    return bool(ANOTHER.search(said)) or bool(named - {one.rank for one in first})


def _first(candidates: list[Candidate]) -> tuple[list[Candidate], bool]:
    """Those that failed first and alike, and whether the order is certain."""
    kinds: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        kinds.setdefault((candidate.code, candidate.alike), []).append(candidate)
    if len(kinds) == 1:
        return candidates, True
    single = [kind[0] for kind in kinds.values() if len(kind) == 1 and kind[0].times == 1]
    if len(single) == 1 and len(kinds) == 2:
        # A crowd that fails alike has a cause outside of each of its members.
        crowd = (other for other in candidates if other is not single[0])
        return (single, True) if all(before(single[0].at, other.at) for other in crowd) else ([], False)
    ahead = [one for one in candidates if all(before(one.at, other.at) for other in candidates if other is not one)]
    if _broke_with_a_peer(ahead, candidates):
        return [], False
    return ahead, bool(ahead) and all(one.at.t is not None for one in candidates)


def _broke_with_a_peer(ahead: Sequence[Candidate], candidates: Sequence[Candidate]) -> bool:
    """Whether the first only lost a connection, and others failed otherwise: it may have been to one of them, whose
    words were written later."""
    lost = [one for one in candidates if PEER_LOSS.search(one.what)]
    return bool(ahead) and ahead[0] in lost and len(lost) < len(candidates)


def order_unknown(timeline: Timeline, candidates: Sequence[Candidate]) -> Verdict:
    """Several things went wrong, and their order cannot be told."""
    said = tuple(f"{who(one)}: {one.error or one.code}: {quote(one.at)}" for one in candidates[:3])
    return verdict(
        "SL499",
        "processes failed in different ways, and the logs do not say which was first",
        because=(*said, *missing(timeline.facts)[:1]),
        remedy="compare these lines: the earliest is the cause; logs with times or with marks of ranks would tell",
    )


def ended_unexplained(timeline: Timeline) -> Verdict | None:
    """Processes ended with an error, and nothing in the logs says why."""
    if not timeline.unexplained:
        return None
    cancelled = _cancelled(timeline)
    if cancelled is not None:
        return cancelled
    only_task = None if timeline.facts.cut else _only_task(timeline.unexplained)
    if only_task is not None:
        return only_task_failed(timeline, *only_task)
    ranks = distinct(end.rank for end in timeline.unexplained)
    locals_ = distinct(end.local_rank for end in timeline.unexplained)
    unnamed = f"local {names(locals_)}" if locals_ else "a process"
    how = ", ".join(dict.fromkeys(how_it_ended(end) for end in timeline.unexplained[:4]))
    said = _said_before(timeline, _noticed_first(timeline))
    stack = native.told(timeline.facts)
    why = f"after a native stack in {stack}" if stack else "and the logs do not say why"
    why = f"after `{fit(said.at.text, LINE)}`" if said is not None else why
    return verdict(
        "SL499",
        f"{names(ranks) if ranks else unnamed} ended with an error ({how}), {why}",
        because=(*_of_unexplained(timeline), *missing(timeline.facts)[:1]),
        remedy="give the ranks' own output as well (torchrun --log-dir logs --redirects 3 --tee 3)",
        secondary=ranks,
        host=timeline.unexplained[0].host if len(timeline.unexplained) == 1 else "",
    )


def _cancelled(timeline: Timeline) -> Verdict | None:
    """The verdict where Slurm cancelled a step, and all that ended after that was ended by it."""
    said = next((s for s in timeline.facts.sightings if s.known.name == "slurm-step-cancelled"), None)
    ends = timeline.unexplained
    if said is None or not all(end.by == "slurm" and end.code in ENDED_BY_SLURM for end in ends):
        return None
    if timeline.candidates or timeline.victims or not all(before(said.at, end.at) for end in ends):
        return None
    step, host = said.field("step"), said.field("host")
    where = f" {step} on {host}" if step and host else ""
    when = f" at {said.field('when')}" if said.field("when") else ""
    return verdict(
        "SL603",
        f"Slurm cancelled the job step{where}{when}, and the logs do not say who asked for that",
        because=(
            quote(said.at),
            *(f"what followed: {quote(end.at)}" for end in ends[:2]),
            *missing(timeline.facts)[:1],
        ),
        remedy="sacct -j JOB says who cancelled it, or which limit it met; a task that fails ends the step as well",
        kind="infra",
        secondary=distinct(end.rank for end in ends),
        host=host,
    )


def how_it_ended(end: Ended) -> str:
    """`SIGABRT, exit code -6`, `exit code 1`, or the words of whoever saw it."""
    if end.code is None:
        return one_line(end.said, 60) or "no code is told"
    name = signal_name(str(-end.code)) if end.code < 0 else ""
    return f"{name}, exit code {end.code}" if name else f"exit code {end.code}"


def _of_unexplained(timeline: Timeline) -> list[str]:
    """The end that was noticed first, and what else the logs hold beside it."""
    first = _noticed_first(timeline)
    lines = [quote(first.at)]
    if first.first and first.by == "elastic":
        lines.append("torch elastic's `first observed failure` is the first that it noticed, not the one at fault")
    elif first.by == "elastic" and first.rank is not None and not any(end.first for end in timeline.facts.ended):
        lines.append(
            "this is not the failure that torch elastic saw first: its record of that one is not in these logs"
        )
    said = _said_before(timeline, first)
    lines += [f"what was said before it: {quote(said.at)}"] if said is not None else []
    lines += [quote(line) for _, line in timeline.victims[:1]] + [quote(one.at) for one in timeline.cut[:1]]
    stack = native.told(timeline.facts)
    lines += [f"a native stack before it, innermost first: {stack}"] if stack else []
    if not timeline.victims and not timeline.cut and said is None and not stack:
        lines.append("no traceback and no message of that process is in these logs")
    return lines


def _noticed_first(timeline: Timeline) -> Ended:
    return next((end for end in timeline.unexplained if end.first), timeline.unexplained[0])


def _said_before(timeline: Timeline, end: Ended) -> Sighting | None:
    """The last error that was logged before a process ended, of its own rank or of one that is not known."""
    near = (
        s
        for s in reversed(timeline.alarms)
        if s.at.file == end.at.file and 0 < end.at.line - s.at.line <= NEAR and s.rank in (None, end.rank)
        if s.known.name not in OF_LAUNCHERS and not s.inside
    )
    return next(near, None)


def _only_task(unexplained: Sequence[Ended]) -> tuple[Ended, int] | None:
    """The one task that ended by itself, with its rank, while Slurm terminated the others."""
    end = unexplained[0]
    if len(unexplained) > 1 or end.rank is None or end.by != "slurm" or (end.code or 0) <= 0:
        return None
    return end, end.rank


def only_task_failed(timeline: Timeline, end: Ended, rank: int) -> Verdict:
    """One task ended with an exit code, and all others were terminated because of that."""
    return verdict(
        "SL407",
        f"{names([rank])} exited with code {end.code}, and says no reason",
        because=(quote(end.at), "no other task ended by itself", *missing(timeline.facts)[:1]),
        remedy="give that task's own output as well: it may have ended because it lost a peer that says nothing",
        culprits=[rank],
        host=end.host,
    )


def from_outside(timeline: Timeline) -> Verdict | None:
    """Somebody outside the job ended it."""
    if not timeline.outside:
        return None
    lead = min(timeline.outside, key=_distance)
    code = lead.known.code or "SL603"
    out_of_memory = [end for end in timeline.facts.ended if end.memory]
    ranks = distinct(end.rank for end in out_of_memory) if code == "SL404" else []
    lines = [quote(lead.at), *(quote(s.at) for s in timeline.outside if s is not lead)][:2]
    if not ranks:
        lines += _of_srun(distinct(end.task for end in out_of_memory))
    where, amounts = _of_ray(timeline, lead)
    where = lead.host or lead.field("host") or lead.field("host2") or where
    return verdict(
        code,
        f"{_means(lead)}{f' on {where}' if where else ''}{amounts}",
        because=(*lines, *missing(timeline.facts)[:1]),
        remedy=_fitting(lead.known.remedy, why_of(lead)),
        kind="crash" if code == "SL404" else "infra",
        confidence="medium",
        culprits=ranks,
        host=where,
    )


def _of_ray(timeline: Timeline, lead: Sighting) -> tuple[str, str]:
    """The node whose memory ran out by Ray's word, and which process it ended at which amounts."""
    texts = [one.message for one in timeline.facts.raised if one.at.line == lead.at.line]
    text = "\n".join([lead.at.text, *texts]) if lead.known.name == "ray-out-of-memory" else ""
    node, task, used = _NODE.search(text), _TASK.search(text), _USED.search(text)
    ended = (
        f"{task['name']}, pid {task['pid']}" + (f", which held {task['own']}" if task["own"] else "") if task else ""
    )
    ended = ended or _chosen(timeline, lead)
    parts = [f"it ended {ended}" if ended else "", f"the node used {used['used']} of {used['all']}" if used else ""]
    said = ", and ".join(part for part in parts if part)
    return node["ip"] if node else "", f": {said}" if said else ""


def _chosen(timeline: Timeline, lead: Sighting) -> str:
    """The first task that Ray chose to end, where it lists them before it counts them."""
    said = [s for s in timeline.facts.sightings if s.known.name == "ray-oom-task" and s.at.file == lead.at.file]
    if not said or lead.known.name != "ray-out-of-memory":
        return ""
    held = f", which held {said[0].field('own')}" if said[0].field("own") else ""
    others = sum(s.times for s in said) - 1
    more = f", and {others} more later" if others else ""
    return f"{said[0].field('task')}, pid {said[0].field('pid')}{held}{more}"


def distinct(numbers: Iterable[int | None]) -> list[int]:
    return sorted({number for number in numbers if number is not None})


def _of_srun(tasks: Sequence[int]) -> tuple[str, ...]:
    """The tasks of which srun says that they ran out of memory."""
    of = f"task{'s' if len(tasks) > 1 else ''} {', '.join(map(str, tasks[:8]))}"
    return (f"srun says so of {of}",) if tasks else ()


def _distance(said: Sighting) -> int:
    """How far from the cause a message is: who ended the job tells more than what a rank wrote when it was ended."""
    marks = ("SL404", "slurm-", "kubernetes-", "")
    return next(at for at, mark in enumerate(marks) if mark in (said.known.code, said.known.name[: len(mark)]))


def why_of(said: Sighting) -> str:
    """The reason, or the signal, that a message from outside names."""
    why = said.field("why") or said.field("why2") or said.field("named")
    return why or signal_name(said.field("signal") or said.field("death"))


def _fitting(remedy: str, why: str) -> str:
    """Of advice for several reasons (`TIME LIMIT: ...; PREEMPTION, NODE FAILURE: ...`), that for the one that is told;
    all of it where none fits."""
    parts = [part.partition(": ") for part in remedy.split("; ")]
    if not all(key.isupper() or key == "else" for key, _, _ in parts):
        return remedy
    found = next((advice for key, _, advice in parts if why and why.strip().upper() in key.split(", ")), "")
    return found or next((advice for key, _, advice in parts if key == "else"), remedy)


def _means(said: Sighting) -> str:
    why = why_of(said)
    return said.known.means + (f" ({why.strip()})" if why else "")


def signal_name(number: str) -> str:
    """`SIGKILL` for `9`, or nothing."""
    try:
        return signal.Signals(int(number[:9])).name
    except ValueError:
        return ""


def meeting_failed(timeline: Timeline) -> Verdict | None:
    """The launcher itself failed: the nodes did not come together, or its port was taken."""
    found = next(((one, one.known) for one in timeline.launcher if one.known and _explains_launcher(one.known)), None)
    if found is None:
        return None
    lead, known = found
    said, at = inner.words(timeline.facts, lead.at, lead.chain) if inner.POINTS.search(lead.message) else ("", None)
    own = f"{lead.type.rpartition('.')[2]}: {one_line(said or lead.message, 150 if said else 120)}"
    return verdict(
        known.code,
        f"the launcher failed: {known.means} ({own.rstrip(': ')})",
        because=(quote(lead.at), *((quote(at),) if at is not None else ()), *missing(timeline.facts)[:1]),
        remedy=known.remedy,
        kind="infra" if has(known.code, Trait.INFRASTRUCTURE) else "crash",
        confidence="medium",
        host=lead.host,
        traceback=lead.traceback,
    )


def _explains_launcher(known: Known) -> bool:
    return bool(known.code) and (known.role == "cause" or known.name == "store-clients")
