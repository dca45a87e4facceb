"""Crashes by an exception: whose it was, and what its message means."""

from __future__ import annotations

import dataclasses
import re

from safelaunch.codes import EXIT_INFRASTRUCTURE, Trait, has
from safelaunch.diagnosis.confidence import LOWER
from safelaunch.diagnosis.crash import known, rank_devices
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
from safelaunch.diagnosis.crash.process_end import shortly
from safelaunch.diagnosis.refine import ddp_parameters
from safelaunch.diagnosis.verdicts import crash_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names, one_line
from safelaunch.model import Case, Confidence, Location, PyError, Verdict

# torch/_utils.py, ExceptionWrapper: the exception of another process or thread, with its traceback below this line.
IN_WORKER = re.compile(r"Caught \w+ in (DataLoader worker process \d+|pin memory thread for device \w+)\.")


def exception(view: View) -> Verdict | None:
    """A rank raised a Python exception that nothing caught, and the other failures follow from it.

    How it was concluded: every worker records an uncaught exception, with its time, before its interpreter shuts
    down and before its peers can notice.

    - Exceptions that tell of a lost peer (gloo's `Connection closed by peer`, NCCL's remote error, a store that hung
      up) are consequences. So are those that repeat another rank's trouble, in its words or with its number.
    - Of the rest, one that stands alone is the root, else the one that was raised first.
    - Several ranks are named where they raised the same at the same line, or where each met a trouble of its own that
      the signatures know.

    Messages that the signatures know lead to a code of their own (SL404, SL420 to SL429), and come with what the rank
    or the node recorded at that moment. Errors about GPUs ("invalid device ordinal", "Duplicate GPU detected") come
    with the mapping of the ranks concerned: LOCAL_RANK, CUDA_VISIBLE_DEVICES, how many GPUs torch sees, and which one
    the rank took; the bundle has all ranks'. DistributedDataParallel's error about unused parameters names them.

    A rank whose exception nothing has caught has failed, whatever its process does. Threads that are no daemons, an
    `atexit` handler, a destructor or NCCL may keep it for ever, and torchrun would wait as long. It is told of 5 s
    after the exception, with what keeps it. Where it does no work, the run is ended 3 s later, as after any exception.

    - Work is what an upload or a checkpoint does: to read and write more than 350 kB/s, or to send and receive more
      than 32 kB/s. It is waited for, up to `--hang-abort-after` or 30 minutes. Pauses in it may be as long as it has
      gone on, and a minute at most.
    - Computing alone is waited for until the shutdown timeout, but not in a wait for peers or a GPU, which may spin.
    - With `--on-hang report` nothing is ended, and while a debugger has the rank no time counts.

    What to do: the traceback printed above the verdict is the root one; no `@record` is needed. For SL409 the
    program could not be imported or parsed on that rank: compare its environment and its copy of the code with
    the other ranks'.
    """
    found = roots(view.case)
    culprits = [root for root in found if root.nature == "exception"]
    if not culprits or len(culprits) != len(found) or _points_elsewhere(view.case, culprits):
        return None
    error = culprits[0].facts.error
    assert error is not None
    detail = _detail(view.case, culprits)
    code = detail.code or ("SL409" if error.type in IMPORT_ERRORS else "SL401")
    rivals = [failure for failure in primary(view.case) if failure not in culprits]
    because = tuple(f"rank {rival.rank} failed too: {shortly(rival)}" for rival in rivals[:2])
    certain = not rivals and (len(culprits) == 1 or _class_of_all(culprits))  # each of them says why it failed
    verdict = crash_verdict(
        view,
        code,
        _summary(names(failure.rank for failure in culprits), detail, error),
        culprits,
        location=_place(detail, error),
        because=(*detail.because[: 3 - min(1, len(because))], *because),
        remedy=detail.remedy or _remedy(code, everywhere=len(culprits) >= view.case.world_size),
        confidence=_confidence(certain, detail),
    )
    return _of_kind(verdict)


def exception_everywhere(view: View) -> Verdict | None:
    """Every rank raised the same exception at the same line, so no single rank is to blame.

    How it was concluded: type and line agree on all ranks of this node, or the signatures know what each of them met
    by itself. No rank alone has a cause of its own beneath it, and none of them tells of a lost peer. Where the
    messages or the lines differ, or a message speaks of a rank, confidence is lower: one rank may have spoilt what all
    of them met. Typical are a wrong argument, a missing file, a bug that all ranks reach. One traceback is printed; the
    others are like it. Messages that the signatures know keep their code (SL420: every rank ran out of GPU memory).
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
    verdict = crash_verdict(
        view,
        detail.code or "SL402",
        _summary("every rank", detail, error),
        [],
        location=_place(detail, error),
        because=(*detail.because[:3], same) if detail.code else (same, *detail.because),
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
    because, remedy = rank_devices.trouble(case, facts, error.message)
    return ExceptionDetail("", "", (*because, *detail.because), remedy or detail.remedy)


def _summary(who: str, detail: ExceptionDetail, error: PyError) -> str:
    return detail.summary or f"{who} {detail.what or _raised(error)}"


def _place(detail: ExceptionDetail, error: PyError) -> Location | None:
    return detail.location or worker_place(error) or error.location


def _remedy(code: str, *, everywhere: bool) -> str:
    if code == "SL409" and not everywhere:
        return "the environment or the code differs on this rank: compare it with a rank that started"
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
    return len(kinds) == 1 and all(known_class(failure.facts) for failure in failures)


def _raised(error: PyError) -> str:
    within = IN_WORKER.match(error.message)
    if within is not None:  # what was raised there is the last line of what it brings along
        return f"raised {one_line(error.message.strip().splitlines()[-1])} in its {within[1]}"
    return f"raised {error.type}: {one_line(error.message)}".rstrip(": ")


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
    own = known_class(culprits[0].facts)
    silent = bool(unaccounted(case)) and (not own or has(own, Trait.MAYBE_PEER))
    named = {int(number) for number in OTHER_RANK.findall(said)}
    others = {facts.rank for facts in case.ranks} - ranks
    return silent or bool(named & others) or bool(ANOTHER.search(said))
