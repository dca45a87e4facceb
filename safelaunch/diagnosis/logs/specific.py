"""The most specific line of a failure: the reason that a library gives leads, and its own way out is the advice.

Wrappers, texts that a library prints of any failure, and generic codes say that something failed. What failed stands in
a line beside them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.diagnosis.logs.timeline import Candidate, quote, words
from safelaunch.model.logs import Complaint, LogFacts, Noted
from safelaunch.shortened import shortened

BEFORE, AFTER = 40, 12  # lines around a failure in which its reason stands
SOON = 10  # lines before one in which a library said what failed
WIDE, SHORT = 200, 90  # characters of a reason, and of the wrapper beside it

# What says no more than that something failed, or that the reason stands elsewhere.
_GENERIC = re.compile(
    r"HCCL error in:|\bERR\d{5}\b|call hccl api failed|aclnn|AclError|ACL (?:stream )?\w+ failed"
    r"|FATAL ERROR :: |NPU function error"
    r"|inner error|internal error|unknown error|system error|Check \S+ for details"
    r"|See (?:the )?(?:inner|above|below|log)"
    r"|because of the following error|[Ff]ailed to import|initialization failed|[Ff]ailed to initialize"
    r"|subprocess-exited"
    r"|CalledProcessError|non-zero exit|DLL load failed|Error building extension|could not be imported"
)
# An exception that says of a step that it failed, and not why.
_OF_A_STEP = re.compile(r"\b[Ff]ailed to \w+(?: [\w-]+){0,3}(?: ?# ?\d{1,9})?[.!]?$|\b[Ss]tep (?:has )?failed[.!]?$")
_LEVEL = re.compile(r"(?<![\w.])(?:\w{1,20}_)?(?:ERROR|FATAL|CRITICAL)(?![\w=])|^\[?[EF]\d{3,4} \d\d:")
# A line of a message that tells more than the one that announces it.
_SPECIFIC = re.compile(
    r"undefined symbol|cannot open shared object|No module named|version [`']\w+_[\d.]+['`]? not found"
    r"|^\s*(?:fatal )?error: \S|\bReason: |: error: \S|\bnot found\b|^[A-Za-z_][\w.]*(?:Error|Exception): \S"
)
_ANNOUNCES = re.compile(
    r"because of the following error|look up to see its traceback|following (?:error|exception|reason)"
    r"|[Ss]ee (?:below|above)|Error building extension|non-zero exit status"
)
_CODE = re.compile(r"^(?P<code>E[A-Z0-9]\d{4}): ?(?:\[PID: ?\d+\] ?)?[\d:. -]*\s?")


def of_lines(lines: Sequence[str]) -> str:
    """The line of a message that says what the first one only announces; empty where none does.

    Args:
        lines: of the message, without empty ones.
    """
    if len(lines) < 2 or not _ANNOUNCES.search(lines[0]):
        return ""
    said = next((line.strip() for line in lines[1:] if _SPECIFIC.search(line)), "")
    return f"{fit(said, WIDE)} ({shortened(lines[0].strip(), SHORT)})" if said else ""


def with_reasons(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and of those that only wrap another failure the reason and the way out that stand beside them."""
    return [one if one.blameless else _of_step(facts, _explained(facts, one)) for one in candidates]


def _explained(facts: LogFacts, one: Candidate) -> Candidate:
    if not (_GENERIC.search(one.what) or _GENERIC.search(one.at.text)):
        return one
    near = [noted for noted in facts.noted if noted.kind in ("reason", "solution") and _beside(noted, one)]
    reason = min((noted for noted in near if noted.kind == "reason"), default=None, key=_specificity)
    if reason is None:
        return one
    said = _CODE.sub(lambda match: f"{match['code']}: ", reason.at.text.strip())
    if said[:40] in one.what:
        return one
    way = next((noted.said for noted in near if noted.kind == "solution" and noted.at.line >= reason.at.line), "")
    return replace(
        one,
        what=f"{fit(said, WIDE)} ({shortened(one.what, SHORT)})",
        remedy=_way(way) if way else one.remedy,
        more=(quote(reason.at), *one.more),
    )


def _of_step(facts: LogFacts, one: Candidate) -> Candidate:
    """A candidate that tells of a step which failed, and the first line in which a library said just before what a call
    gave back."""
    if not _OF_A_STEP.search(one.what):
        return one
    near = (noted for noted in facts.noted if noted.kind == "returned" and _beside(noted, one))
    returned = ((noted.at, noted.said) for noted in near if 0 < one.at.line - noted.at.line <= SOON)
    logged = ((said.at, words(said.at, WIDE)) for said in facts.complaints if _is_just_before(said, one))
    at, reason = next(itertools.chain(returned, logged), (one.at, ""))
    what = f"{fit(reason, WIDE)} ({shortened(one.what, SHORT)})"
    return replace(one, what=what, more=(quote(at), *one.more)) if reason else one


def _is_just_before(said: Complaint, one: Candidate) -> bool:
    """Whether a line that has the level of an error stands just before a failure, and is of nobody else."""
    near = said.at.file == one.at.file and 0 < one.at.line - said.at.line <= SOON and not said.echo
    theirs = any(rank != one.rank for rank in said.ranks) or any(name != one.process for name in said.processes)
    return near and not theirs and _LEVEL.search(said.mark + said.at.text) is not None


def _way(said: str) -> str:
    """A library's own way out, as advice."""
    return f"the log's own advice: {fit(said, WIDE).rstrip('.')}"


def _beside(noted: Noted, one: Candidate) -> bool:
    away = noted.at.line - one.at.line
    own = (noted.rank in (None, one.rank) or one.rank is None) and noted.process in ("", one.process)
    return noted.at.file == one.at.file and -BEFORE <= away <= AFTER and own


def _specificity(noted: Noted) -> tuple[bool, int]:
    """A line with a reason in words leads before one that has a code alone; then the first."""
    return "eason" not in noted.at.text and "undefined symbol" not in noted.at.text, noted.at.line
