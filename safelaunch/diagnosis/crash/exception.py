"""Crashes by an exception: whose it was, and what its message means."""

from __future__ import annotations

import dataclasses
import re

from safelaunch.codes import EXIT_INFRASTRUCTURE, Trait, has
from safelaunch.diagnosis.confidence import LOWER
from safelaunch.diagnosis.crash import known, rank_devices, ready_twice, refused_arguments
from safelaunch.diagnosis.crash.first_failure import (
    ANOTHER,
    IMPORT_ERRORS,
    OTHER_RANK,
    Failure,
    known_class,
    primary,
    roots,
    unaccounted,
)
from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.diagnosis.crash.known.host import worker_place
from safelaunch.diagnosis.crash.own_words import quoted
from safelaunch.diagnosis.crash.process_end import shortly
from safelaunch.diagnosis.crash.refused_arguments import is_refused
from safelaunch.diagnosis.refine import ddp_parameters
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Confidence, Location, PyError, Verdict

# What one rank misses, another one may have to make first: torch.save says so in a RuntimeError.
NOT_THERE = re.compile(r"^Parent directory .* does not exist|No such file or directory")
MADE_ELSEWHERE = (
    "see who makes that path: if one rank alone, let the others wait for it (a barrier behind it), or make it on each "
    "(exist_ok=True); else compare what this host has there"
)


def exception(view: View) -> Verdict | None:
    """A rank raised a Python exception that nothing caught, and the other failures follow from it.

    Example:
        error[SL401]: rank 2 raised ValueError: loss is nan

    How it was concluded: every rank records an uncaught exception, with its time, before its interpreter shuts down.
    These are consequences, and are left out:
    - an exception that tells of a lost peer (gloo's `Connection closed by peer`, NCCL's remote error, a store that hung
      up);
    - a failure after a collective that never returned, where another rank had failed for a reason of its own;
    - what the program raised to pass on another rank's trouble.

    Of the rest, one that stands alone comes before several that are alike, if it came within 0.5 s of the first
    failure. Of several that are alike, the only one with a cause beneath it is named. Otherwise the first one is.
    Several ranks are named where they raised the same at the same line, each with its own words. Nobody is named where
    their words speak of another rank, or a living rank has not spoken.

    Where torch refused the arguments of a call, the ranks that made it are named: no message had been sent.

    Where nothing says why ranks failed, one living rank alone may still be handling an exception. Then that rank is
    named, with medium confidence.

    A rank whose exception nothing has caught has failed, whatever its process does. Threads that are no daemons, an
    `atexit` handler, a destructor or NCCL may keep it for ever. It is told of 5 s after the exception, with what keeps
    it. Where it does no work, the run is ended 3 s later.
    - Work is to read and write more than 350 kB/s, or to send and receive more than 32 kB/s (an upload, a checkpoint).
      It is waited for, up to `--hang-abort-after` or 30 minutes. Its pauses may be as long as it has gone on, and a
      minute at most.
    - Computing alone is waited for until the shutdown timeout, but not in a wait for peers or a GPU, which may spin.
    - With `--on-hang report` nothing is ended, and while a debugger has the rank no time counts.

    What to do: read the traceback above the verdict. It is the root one; no `@record` is needed.

    What it is not: an exception that every rank raised at one line (SL402), a failed import (SL409), or one whose words
    say what was used up or broken (SL404, SL420 to SL429).
    """
    found = roots(view.case)
    culprits = sorted((root for root in found if root.nature == "exception"), key=lambda root: root.rank)
    if not culprits or len(culprits) != len(found) or _points_elsewhere(view.case, culprits):
        return None
    error = culprits[0].facts.error
    assert error is not None
    detail = _detail(view.case, culprits)
    code = detail.code or ("SL409" if cannot_import(error) else "SL401")
    rivals = [failure for failure in primary(view.case) if failure not in culprits]
    because = tuple(f"rank {rival.rank} failed too: {shortly(rival)}" for rival in rivals[:2])
    summary, others = _summary(culprits, detail)
    certain = not rivals and (len(culprits) == 1 or _class_of_all(culprits))  # each of them says why it failed
    verdict = crash_verdict(
        view,
        code,
        summary,
        culprits,
        location=_place(detail, error),
        because=(*others, *detail.because[: 3 - min(1, len(because))], *because),
        remedy=detail.remedy or _remedy(code, error, everywhere=len(culprits) >= view.case.world_size),
        confidence=_confidence(certain, detail),
    )
    return _of_kind(verdict)


def cannot_import(error: PyError) -> bool:
    """A rank could not import a module, or could not parse the program.

    Example:
        error[SL409]: rank 0 raised ModuleNotFoundError: No module named 'apex'

    How it was concluded: the first failure is an uncaught ImportError, ModuleNotFoundError, SyntaxError,
    IndentationError or TabError. What only tells of a lost peer does not count. The import may stand anywhere, also in
    a function that is called late.

    What to do: compare the environment of this rank, and its copy of the code, with those of a rank that started.

    What it is not: a module that every rank of the node lacks. Then no rank stands out, and a run says SL402.
    """
    return error.type in IMPORT_ERRORS


def exception_everywhere(view: View) -> Verdict | None:
    """Every rank raised the same exception at the same line, so no single rank is to blame.

    Example:
        error[SL402]: every rank raised FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-17'

    How it was concluded: there are two ranks or more on this node, type and line agree on all of them, and none tells
    of a lost peer. Confidence is medium where the messages differ, or speak of a rank: one rank may have spoilt what
    all of them met. Where the exception of one rank alone has a cause beneath it, that rank is named (SL401).

    What to do: look at what all ranks share: arguments, files, code. One traceback is printed; the others are like it.

    What it is not: an exception whose words say what was used up. That keeps its code: SL420 may say that every rank
    ran out of GPU memory. Without an exception it is SL415.
    """
    found = roots(view.case)
    if len(found) < 2 or len(found) != len(view.case.ranks) or found[0].nature != "exception":
        return None
    error = found[0].facts.error
    assert error is not None
    detail = _detail(view.case, found)
    same = f"type and line are the same on {names(failure.rank for failure in found)}"
    if detail.code:
        same = f"rank {found[0].rank} was first; {names(failure.rank for failure in found[1:])} failed alike"
    of_node = view.case.host and view.case.world_size > len(view.case.ranks)  # those of others are not known
    summary, others = _summary(found, detail, f"every rank of {view.case.host}" if of_node else "every rank")
    verdict = crash_verdict(
        view,
        detail.code or "SL402",
        summary,
        [],
        location=_place(detail, error),
        because=(*detail.because[:3], same) if detail.code else (same, *others, *detail.because),
        remedy=detail.remedy
        or "no rank stands out: look at the arguments, the files and the code that all ranks share",
        confidence=_confidence(_say_the_same(found, error) or _class_of_all(found), detail),
    )
    return _of_kind(dataclasses.replace(verdict, traceback=error.traceback, secondary=()))


def _detail(case: Case, culprits: list[Failure]) -> ExceptionDetail:
    facts = [failure.facts for failure in culprits]
    error = facts[0].error
    detail = known.detail_of(case, facts) or ExceptionDetail("", "")
    if detail.code or error is None:
        return detail
    what, lines = ddp_parameters.of_exception(facts[0])
    if lines:
        return dataclasses.replace(detail, what=what, because=lines)
    of_torch = ready_twice.of_exception(error) or refused_arguments.of_exception(case, facts)
    if of_torch is not None:
        return of_torch
    because, remedy = rank_devices.trouble(case, facts, error.message)
    return ExceptionDetail("", "", (*because, *detail.because), remedy or detail.remedy)


def _summary(culprits: list[Failure], detail: ExceptionDetail, everybody: str = "") -> tuple[str, tuple[str, ...]]:
    """The headline, and the words of those whom it does not quote."""
    if detail.summary or detail.what:
        return detail.summary or f"{everybody or names(failure.rank for failure in culprits)} {detail.what}", ()
    return quoted(culprits, everybody)


def _place(detail: ExceptionDetail, error: PyError) -> Location | None:
    return detail.location or worker_place(error) or error.location


def _remedy(code: str, error: PyError, *, everywhere: bool) -> str:
    if code == "SL409" and not everywhere:
        return "the environment or the code differs on this rank: compare it with a rank that started"
    if not everywhere and (error.type == "FileNotFoundError" or NOT_THERE.search(error.message)):
        return MADE_ELSEWHERE
    return "the traceback above is where it started"


def _confidence(certain: bool, detail: ExceptionDetail) -> Confidence:
    confidence: Confidence = "high" if certain else "medium"
    return LOWER[confidence] if detail.doubt else confidence


def _say_the_same(found: list[Failure], error: PyError) -> bool:
    """Whether all have the words of one exception, and these speak of no other rank."""
    messages = {failure.facts.error.message for failure in found if failure.facts.error is not None}
    return len(messages) == 1 and not ANOTHER.search(error.message) and not OTHER_RANK.search(error.message)


def _class_of_all(failures: list[Failure]) -> bool:
    """Whether all of them raised the same at the same line, and it says itself why."""
    errors = [failure.facts.error for failure in failures if failure.facts.error is not None]
    kinds = {(error.type, error.location) for error in errors}
    return len(kinds) == 1 and (
        all(known_class(failure.facts) for failure in failures) or all(is_refused(error) for error in errors)
    )


def _of_kind(verdict: Verdict) -> Verdict:
    if not has(verdict.code, Trait.INFRASTRUCTURE):
        return verdict
    return dataclasses.replace(verdict, kind="infra", exit_code=EXIT_INFRASTRUCTURE)


def _points_elsewhere(case: Case, culprits: list[Failure]) -> bool:
    """Whether what several ranks share may have its cause in a rank that is not among them.

    That is a living rank which has not spoken yet, or one that their own message speaks of (`another rank failed`;
    DDP: `appears not to match sizes of the same param in process 0`).
    """
    if len(culprits) < 2:
        return False
    ranks = {failure.rank for failure in culprits}
    said = "\n".join(failure.facts.error.message for failure in culprits if failure.facts.error is not None)
    if all(failure.facts.error is not None and is_refused(failure.facts.error) for failure in culprits):
        return False
    own = known_class(culprits[0].facts)
    silent = bool(unaccounted(case)) and (not own or has(own, Trait.MAYBE_PEER))
    named = {int(number) for number in OTHER_RANK.findall(said)}
    others = {facts.rank for facts in case.ranks} - ranks
    return silent or bool(named & others) or bool(ANOTHER.search(said))
