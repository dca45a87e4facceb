"""The wiring of known messages: whose files are read, and what they say of the exceptions of a case."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from safelaunch import user_files
from safelaunch.deadline import within
from safelaunch.evidence.logs import signatures
from safelaunch.evidence.logs.signatures import Signature
from safelaunch.model import Case, Finding, PyError, SafelaunchError, Value
from safelaunch.model.logs import Known

TELLING = ("cause", "outside")


def files(table: Mapping[str, Value]) -> tuple[str, ...]:
    """The files that profiles name in [diagnosis]."""
    return tuple(table["signatures"].value) if "signatures" in table else ()


def at_start(
    named: Sequence[str], environ: Mapping[str, str]
) -> tuple[tuple[Signature, ...] | None, tuple[Finding, ...]]:
    """The signatures of a launch, and what is wrong with the user's own files: the run goes on without those.

    They are read here and never again: at an incident, the home may be on a disk that does not answer any more. Nothing
    is read, and nothing returned, where the user has no files.

    Raises:
        TimeoutError: where the files cannot be read in time.
    """
    return within(user_files.ANSWER_S, lambda: _of_user(named, environ))


def _of_user(
    named: Sequence[str], environ: Mapping[str, str]
) -> tuple[tuple[Signature, ...] | None, tuple[Finding, ...]]:
    if not named and not os.path.exists(signatures.user_file(environ)):
        return None, ()
    broken: list[SafelaunchError] = []
    found = signatures.load(named, environ, broken.append)
    return found, tuple(
        dataclasses.replace(
            error.diagnostic, severity="warning", because=("this run knows its messages without that file",)
        )
        for error in broken
    )


def load(named: Sequence[str], environ: Mapping[str, str] = os.environ) -> tuple[Signature, ...]:
    """The signatures of these files, then the user's own and the shipped ones.

    Raises:
        SafelaunchError: SL290, where a file cannot be used.
    """
    return signatures.load(named, environ)


def classified(case: Case, found: Sequence[Signature], first: Sequence[Signature] = ()) -> Case:
    """The case with what signatures say of its exceptions. What a run has written down stays as it is.

    Args:
        case: of a run, or of a bundle.
        found: the signatures.
        first: those that come before what is written down, because somebody has just named them.
    """

    def judged(error: PyError) -> PyError:
        told = _told(first, error) or error.known or _told(found, error)
        return error if told == error.known else dataclasses.replace(error, known=told)

    ranks = tuple(
        facts if facts.error is None else dataclasses.replace(facts, error=judged(facts.error)) for facts in case.ranks
    )
    return dataclasses.replace(case, ranks=ranks)


def with_own_advice(case: Case, found: Sequence[Signature]) -> Case:
    """The case of a bundle, in which only the advice of these signatures stays: whoever wrote the bundle may have put
    any command there."""
    advice = {one.known.remedy for one in found}

    def checked(error: PyError) -> PyError:
        known = error.known
        if known is None or known.remedy in advice:
            return error
        return dataclasses.replace(error, known=dataclasses.replace(known, remedy=""))

    ranks = tuple(
        facts if facts.error is None else dataclasses.replace(facts, error=checked(facts.error)) for facts in case.ranks
    )
    return dataclasses.replace(case, ranks=ranks)


def _told(found: Sequence[Signature], error: PyError) -> Known | None:
    """The rules judge by evidence what is a consequence; a user who says so of a message knows more."""
    fitting = [one for one in found if one.known.role in TELLING or (one.own and one.known.role == "consequence")]
    return signatures.of_exception(fitting, (*reversed(error.chain), f"{error.type}: {error.message}"))
