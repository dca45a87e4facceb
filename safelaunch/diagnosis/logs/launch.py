"""Launchers that failed by themselves, before any rank ran: at their arguments, or at a port or a file."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import Raised

# The functions of torch.distributed.run and of its rendezvous that read one option each.
OPTIONS = {
    "determine_local_world_size": ("--nproc-per-node", "a number, or gpu, cpu, auto"),
    "parse_min_max_nnodes": ("--nnodes", "N, or MIN:MAX"),
    "_parse_rendezvous_config": ("--rdzv-conf", "KEY=VALUE,KEY=VALUE"),
    "parse_rendezvous_endpoint": ("--rdzv-endpoint", "HOST:PORT"),
    "get_rdzv_config": ("--rdzv-conf", "KEY=VALUE,KEY=VALUE"),
}
_CONVERTS = re.compile(r"\b(?:int|float)\((?:[a-z_]\w*\.){0,3}(?P<name>[a-z_]\w*)\)\s*$", re.MULTILINE)
_VALUE = re.compile(r"(?:could not convert .{0,40}: |base \d+: )(?P<quoted>'[^']{0,200}')|\bvalue: (?P<bare>.{1,200})")
_DENIED = re.compile(r"\b[Pp]ermission denied\b|\bEACCES\b|\[Errno 13\]|\b[Oo]peration not permitted\b")
_PORT = re.compile(r"\bport:? (?P<port>\d{1,5})\b")


def failed(timeline: Timeline) -> Verdict | None:
    """A launcher raised an exception, and no rank is known to have run; None where that is not so."""
    facts = timeline.facts
    lead = next((one for one in timeline.launcher if one.type and one.frames and not one.known), None)
    ran = facts.ranks or facts.ended or timeline.victims or timeline.candidates
    if lead is None or ran:
        return None
    said = one_line(f"{lead.type.rpartition('.')[2]}: {lead.message}", 150)
    what, remedy = _of_argument(lead) or _denied(lead) or ("", "")
    if not what:
        return None
    return verdict(
        "SL601",
        f"the launcher failed, before any rank ran: {what} ({said})",
        because=(quote(lead.at), *missing(facts)[:1]),
        remedy=remedy,
        confidence="medium",
        host=lead.host,
        traceback=lead.traceback,
    )


def _of_argument(lead: Raised) -> tuple[str, str] | None:
    """That an option has a value that the launcher does not understand."""
    functions = [frame.function for frame in lead.frames]
    option, form = next((OPTIONS[name] for name in reversed(functions) if name in OPTIONS), ("", ""))
    converted = _CONVERTS.search(lead.traceback) if lead.type == "ValueError" else None
    if not option and converted:
        option, form = "--" + converted["name"].replace("_", "-"), "a number"
    texts = (*lead.chain, lead.message)
    value = next((match for text in texts if (match := _VALUE.search(text))), None)
    if not option:
        return None
    given = value["quoted"] or f"'{value['bare'].strip()}'" if value else ""
    remedy = f"give {option} {form}"
    if given.startswith("'-"):
        remedy += f": {given} is another option, which a script that takes its arguments by their places handed over"
    return f"{option} does not take {given}" if given else f"{option} has a value that it does not take", remedy


def _denied(lead: Raised) -> tuple[str, str] | None:
    """That the launcher was not allowed to use a file or a port."""
    if not _DENIED.search(lead.message):
        return None
    port = _PORT.search(lead.message)
    what = f"it may not listen on port {port['port']}" if port else "it was not allowed to use a port or a file"
    return what, (
        "a port below 1024 is for root only, and one drawn by chance may be one: set --master-port (MASTER_PORT) to "
        "1024 or more; else see that this user may write to the folders of --log-dir and TMPDIR"
    )
