"""The kernel's Xid messages: which GPUs, which errors, how often, in words."""

from __future__ import annotations

from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogLine
from safelaunch.model.xids import OF_MEMORY, Xid, parse

MOST = 4  # kinds of errors that are told
FOLLOWS = (43, 45)  # they follow from another error, of the program or of the GPU


def of_log(facts: LogFacts) -> list[tuple[Xid, LogLine]]:
    """The Xid messages of a log, those first that tell most."""
    found: dict[tuple[str, int], tuple[Xid, LogLine]] = {}
    lines = [*(s.at for s in facts.sightings if "NVRM" in s.at.text), *(n.at for n in facts.noted if n.kind == "xid")]
    for at in lines:
        start = at.text.find("NVRM: ")
        xid = parse(at.text[start:]) if start >= 0 else None
        if xid is not None:
            found.setdefault((at.file, at.line), (xid, at))
    return sorted(found.values(), key=lambda one: (_rank(one[0]), one[1].file, one[1].line))


def _rank(xid: Xid) -> int:
    if xid.fatal:
        return 0
    return 3 if xid.number in FOLLOWS else 1 if xid.number in OF_MEMORY else 2


def told(found: list[tuple[Xid, LogLine]]) -> str:
    """`Xid 79 (the GPU fell off the bus) on GPU 0000:3d:00`, of each kind and GPU, with how often."""
    counts: dict[tuple[str, str], int] = {}
    for xid, _ in found:
        key = (xid.named, xid.address)
        counts[key] = counts.get(key, 0) + 1
    kinds: dict[str, list[str]] = {}
    for (named, address), times in counts.items():
        kinds.setdefault(named, []).append(f"{address}{f' ({times} times)' if times > 1 else ''}")
    parts = []
    for named, gpus in list(kinds.items())[:MOST]:
        more = f" and {len(gpus) - MOST} more" if len(gpus) > MOST else ""
        parts.append(f"{named} on GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus[:MOST])}{more}")
    rest = len(kinds) - MOST
    return "; ".join(parts) + (f"; and {rest} more kinds" if rest > 0 else "")


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict on a kernel log; None where a job wrote the log, which may have gone on."""
    facts = timeline.facts
    found = of_log(facts)
    if not found or facts.finished or any(file.steps for file in facts.files):
        return None
    lead, follows = found[0][0], ""
    if lead.fatal or lead.number == 94:
        code, kind = "SL428", "infra"
        remedy = (
            "have an admin reset or test that GPU before the next job: NVIDIA's Xid catalogue says what each asks for"
        )
    elif lead.of_program and lead.number not in FOLLOWS:
        code, kind = "SL427", "crash"
        remedy = (
            "the program's own kernels are the usual cause: run that rank with CUDA_LAUNCH_BLOCKING=1 or "
            "compute-sanitizer; where only one GPU shows it, have that GPU tested (dcgmi diag -r 3)"
        )
    elif lead.number in FOLLOWS:
        code, kind = "SL499", "crash"
        follows = ", which follows from an earlier error"
        remedy = "find what the processes of these pids wrote then: such a message follows from an error of theirs"
    else:
        code, kind = "SL499", "crash"
        remedy = "look at what the driver and the job wrote after it: such a message alone ends no job"
    shown: dict[tuple[int, str], LogLine] = {}
    for xid, at in found:
        shown.setdefault((xid.number, xid.address), at)
    undecided = "cannot tell what became of the job: " if code == "SL499" else ""
    return verdict(
        code,
        f"{undecided}the driver logged {told(found)}{follows}",
        because=(*(quote(at) for at in list(shown.values())[:3]), *missing(facts)[:1]),
        remedy=remedy,
        kind="infra" if kind == "infra" else "crash",
        confidence="medium" if code != "SL499" else "low",
    )
