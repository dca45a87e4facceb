"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from safelaunch.model import Finding, Severity
from safelaunch.preflight.machine.host import Host


@dataclass(frozen=True)
class Check:
    """One entry of `preflight.CHECKS`.

    `function` yields one `ok` Finding when all is well, else what is wrong, `unchecked` with the reason where it could
    not look, or `skipped` where there is nothing to look at. Its
    docstring is what `safelaunch explain CODE` prints. `full_only` checks cost seconds and run when asked for,
    after the others; among them, those of a later `stage` when the earlier ones are done, which they would disturb.
    A check that has not come back after `deadline_s` seconds becomes a Finding of severity `late`.
    """

    code: str
    name: str
    group: str
    function: Callable[[Host], Iterator[Finding]]
    full_only: bool = False
    stage: int = 0
    deadline_s: float = 15.0
    late: Severity = "unchecked"


def ok(code: str, summary: str) -> Finding:
    """What a check yields when all is well."""
    return Finding(code=code, severity="ok", summary=summary)


def skipped(code: str, why: str) -> Finding:
    """What a check yields where there is nothing to look at: no pass, and no doubt either."""
    return Finding(code=code, severity="skipped", summary=why)


def unchecked(code: str, summary: str, *reasons: str) -> Finding:
    """What a check yields when it could not look: never a pass, never a refusal."""
    return Finding(code=code, severity="unchecked", summary=summary, because=reasons)
