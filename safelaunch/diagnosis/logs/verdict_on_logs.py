"""The form that verdicts on logs share."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, EXIT_SCRIPT_FAILED
from safelaunch.model import Confidence, Verdict, VerdictKind


def verdict(
    code: str,
    summary: str,
    *,
    because: tuple[str, ...],
    remedy: str,
    kind: VerdictKind = "crash",
    confidence: Confidence = "low",
    culprits: Sequence[int] = (),
    secondary: Sequence[int] = (),
    host: str = "",
    traceback: str = "",
) -> Verdict:
    """A verdict of a crash, or of what came from outside."""
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind=kind,
        summary=summary,
        culprit_ranks=tuple(culprits),
        host=host,
        because=because,
        secondary=tuple(secondary),
        confidence=confidence,
        remedy=remedy,
        traceback=traceback,
        exit_code=EXIT_INFRASTRUCTURE if kind == "infra" else EXIT_SCRIPT_FAILED,
    )
