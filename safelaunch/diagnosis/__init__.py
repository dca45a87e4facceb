"""Pure rules over evidence: `Case -> Verdict`, the same live and from a bundle on another machine.

A rule is `def rule(case: Case) -> Verdict | None`; its docstring is what `safelaunch explain` prints. The first
rule that concludes wins, so the order goes from evidence that proves to evidence that is left over.
"""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.diagnosis import crash, disagree, early, hang, mismatch
from safelaunch.model import Case, Verdict

Rule = Callable[[Case], Verdict | None]

CRASH_RULES: tuple[Rule, ...] = (
    mismatch.size_mismatch,
    mismatch.operation_mismatch,
    early.early_exit,
    crash.exception_everywhere,
    crash.exception,
    crash.out_of_memory,
    crash.killed,
    crash.native_crash,
    crash.silent_exit,
    crash.connection_lost,
    crash.torn_down,
    crash.cannot_tell,
)

# What no patience can end comes first.
HANG_RULES: tuple[Rule, ...] = (
    disagree.departed,
    early.early_exit,
    disagree.different_operation,
    mismatch.size_mismatch,
    disagree.deadlock,
    hang.never_entered,
    hang.all_inside,
    crash.exception,
    hang.hang_untold,
)

RULES = tuple(dict.fromkeys(CRASH_RULES + HANG_RULES))


def diagnose(case: Case) -> Verdict:
    """The verdict of the first rule that concludes; the last one of its kind always does."""
    for rule in HANG_RULES if case.incident.kind == "hang" else CRASH_RULES:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    raise AssertionError("the last rule concludes always")
