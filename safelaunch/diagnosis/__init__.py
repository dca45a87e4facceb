"""Pure rules over evidence: `Case -> Verdict`, the same live and from a bundle on another machine.

A rule is `def rule(case: Case) -> Verdict | None`; its docstring is what `safelaunch explain` prints. The first
rule that concludes wins, so the order goes from evidence that proves to evidence that is left over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from safelaunch.diagnosis import (
    crash,
    device_late,
    disagree,
    early,
    exchanges,
    exits,
    from_stacks,
    gpus,
    handling,
    hang,
    held,
    hubs,
    idle,
    inside,
    lingering,
    memberships,
    mismatch,
    nccl_ras,
    order,
    other_end,
    polling,
    raised,
    running,
    slow,
    store_waits,
    tags,
    timeouts,
    undumped,
    unused,
)
from safelaunch.diagnosis.view import View
from safelaunch.model import Case, Verdict

Rule = Callable[[View], Verdict | None]

CRASH_RULES: tuple[Rule, ...] = (
    mismatch.size_mismatch,
    mismatch.operation_mismatch,
    mismatch.line_mismatch,
    early.early_exit,
    raised.exception_everywhere,
    raised.exception,
    crash.out_of_memory,
    crash.killed,
    crash.native_crash,
    exits.exit_everywhere,
    exits.silent_exit,
    timeouts.collective_timeout,
    crash.connection_lost,
    crash.torn_down,
    crash.cannot_tell,
)

# What no patience can end comes first.
HANG_RULES: tuple[Rule, ...] = (
    from_stacks.at_work,
    disagree.departed,
    early.early_exit,
    memberships.groups_differ,
    disagree.different_operation,
    mismatch.size_mismatch,
    tags.tags_differ,
    running.may_be_running,
    exchanges.cannot_exchange,
    device_late.device_late,
    disagree.left_between_groups,
    order.enqueued_in_another_order,
    disagree.deadlock,
    hubs.nobody_sends,
    from_stacks.late_and_at_work,
    store_waits.all_ask,
    store_waits.key_missing,
    other_end.held_by_peer,
    polling.polled_for,
    hang.never_entered,
    undumped.did_not_dump,
    inside.all_inside,
    raised.exception,
    lingering.does_not_end,
    held.all_held,
    idle.all_idle,
    from_stacks.apart,
    hang.hang_untold,
)

# What the watch has seen says which of them it is.
SLOW_RULES: tuple[Rule, ...] = (
    slow.straggler,
    slow.slower,
    slow.loader_bound,
    slow.below_expectation,
    slow.as_usual,
)

RULES = tuple(dict.fromkeys(CRASH_RULES + HANG_RULES + SLOW_RULES))


def diagnose(case: Case) -> Verdict:
    """The verdict of the first rule that concludes; the last one of its kind always does."""
    view = View(case)
    for rule in {"hang": HANG_RULES, "slow": SLOW_RULES}.get(case.incident.kind, CRASH_RULES):
        verdict = rule(view)
        if verdict is not None and case.incident.kind == "slow":
            return _as_sure_as_it_can_be(verdict, case)
        if verdict is not None:
            for refine in (handling.refine, unused.refine, gpus.refine, nccl_ras.refine, lingering.refine):
                verdict = refine(verdict, view)
            return _as_sure_as_it_can_be(verdict, case)
    raise AssertionError("the last rule concludes always")


def untold(case: Case) -> Verdict:
    """That nothing is known: what is left to say where a rule fails."""
    return (hang.hang_untold if case.incident.kind == "hang" else crash.cannot_tell)(View(case))


def _as_sure_as_it_can_be(verdict: Verdict, case: Case) -> Verdict:
    """Dumps alone are one kind of evidence: nothing that rests on them is of high confidence."""
    if case.origin == "run" or verdict.confidence != "high":
        return verdict
    return dataclasses.replace(verdict, confidence="medium")
