"""The rules of each kind of incident, as rows. A new rule gets its row here; its place in a stage means nothing."""

from __future__ import annotations

from safelaunch.diagnosis.crash import (
    broken_by_a_misfit,
    early_exit,
    exception,
    mismatch,
    process_end,
    process_exit,
    timeout,
    undecided,
)
from safelaunch.diagnosis.hang import (
    all_idle,
    all_in_file_system,
    all_inside,
    cycle,
    departed,
    desync,
    device_late,
    does_not_end,
    exchanges,
    group_members,
    maybe_running,
    messages,
    other_end,
    polling,
    queue_order,
    rendezvous,
    sink,
    store_keys,
    tags,
    undumped,
    unknown,
)
from safelaunch.diagnosis.rule import (
    ALL_RANKS,
    ATTACHED,
    CYCLE,
    DUMPS,
    MORE_THAN_DUMPS,
    NO_CYCLE,
    NO_LEFT,
    NO_OTHER_CALLS,
    NO_SINKS,
    NO_WAITS,
    NOBODY_AWAY,
    OTHER_CALLS,
    SINKS,
    SOMEBODY_LEFT,
    WAITS,
    Rule,
    Stage,
)
from safelaunch.diagnosis.slow import rules
from safelaunch.diagnosis.sources import attach

# Of one rank that does not come: by what keeps it (`stall`).
STALLS = ("SL301", "SL304", "SL305", "SL306", "SL307", "SL308", "SL313")
# Of an exception: by what its words say (`crash/known`).
EXCEPTIONS = ("SL401", "SL404", "SL409", *(f"SL42{digit}" for digit in range(10)))

HANGS = (
    Rule(Stage.RUNNING, attach.at_work, ("SL502",), (ATTACHED,)),
    Rule(Stage.RUNNING, maybe_running.may_be_running, ("SL399",), (DUMPS, WAITS, NO_OTHER_CALLS, NO_LEFT)),
    Rule(Stage.LEFT, departed.departed, ("SL303",), (WAITS, SOMEBODY_LEFT)),
    Rule(Stage.LEFT, early_exit.early_exit, ("SL408",), (WAITS, SOMEBODY_LEFT)),
    Rule(Stage.MISFIT, group_members.groups_differ, ("SL302",), (MORE_THAN_DUMPS, WAITS)),
    Rule(Stage.MISFIT, desync.different_operation, ("SL302", "SL303"), (OTHER_CALLS,)),
    Rule(Stage.MISFIT, mismatch.size_mismatch, ("SL410",)),
    Rule(Stage.MISFIT, mismatch.in_two_threads, ("SL302",), (NO_OTHER_CALLS,)),
    Rule(Stage.MISFIT, rendezvous.cannot_meet, ("SL319",), (MORE_THAN_DUMPS,)),
    Rule(Stage.MISFIT, tags.tags_differ, ("SL302",), (MORE_THAN_DUMPS, WAITS)),
    Rule(Stage.PREMISE, exchanges.cannot_exchange, ("SL410", "SL399"), (NO_SINKS, NO_OTHER_CALLS, NOBODY_AWAY)),
    Rule(Stage.PREMISE, device_late.device_late, ("SL318",), (WAITS,)),
    Rule(Stage.PREMISE, cycle.left_between_groups, ("SL303",), (MORE_THAN_DUMPS, CYCLE, NOBODY_AWAY)),
    Rule(Stage.PREMISE, queue_order.enqueued_in_another_order, ("SL311",), (WAITS, NO_SINKS, NOBODY_AWAY)),
    Rule(Stage.PREMISE, attach.late_and_at_work, ("SL399",), (ATTACHED, SINKS)),
    Rule(Stage.PREMISE, store_keys.all_ask, ("SL311", "SL399"), (MORE_THAN_DUMPS, ALL_RANKS, NO_WAITS)),
    Rule(Stage.PREMISE, store_keys.key_missing, ("SL311",), (MORE_THAN_DUMPS, SINKS)),
    Rule(Stage.PREMISE, other_end.peer_has_other_end, ("SL311",), (MORE_THAN_DUMPS, SINKS)),
    Rule(Stage.PREMISE, polling.polled_for, ("SL311",), (MORE_THAN_DUMPS, SINKS)),
    Rule(Stage.PREMISE, undumped.did_not_dump, ("SL301", "SL399"), (DUMPS, WAITS, NO_SINKS, NO_CYCLE)),
    Rule(Stage.SHAPE, cycle.deadlock, ("SL311",), (CYCLE,)),
    Rule(Stage.SHAPE, messages.nobody_sends, ("SL311",), (MORE_THAN_DUMPS, WAITS, NO_SINKS, ALL_RANKS)),
    Rule(Stage.SHAPE, sink.never_entered, ("SL302", "SL303", "SL309", "SL399", *STALLS), (SINKS,)),
    Rule(Stage.SHAPE, all_inside.all_inside, ("SL310", "SL399"), (WAITS, NO_SINKS, NO_CYCLE, NO_OTHER_CALLS)),
    Rule(Stage.QUIET, exception.exception, EXCEPTIONS),
    Rule(Stage.QUIET, does_not_end.does_not_end, ("SL315",), (NO_WAITS,)),
    Rule(Stage.QUIET, all_in_file_system.all_in_file_system, ("SL316",), (NO_WAITS,)),
    Rule(Stage.QUIET, all_idle.all_idle, ("SL317",), (MORE_THAN_DUMPS, ALL_RANKS, NO_WAITS)),
    Rule(Stage.STACKS, attach.by_stacks, ("SL309", "SL310", "SL399", "SL408", *STALLS), (ATTACHED,)),
    Rule(Stage.UNKNOWN, unknown.cannot_tell, ("SL399",)),
)

CRASHES = (
    Rule(Stage.LEFT, early_exit.early_exit, ("SL408",)),
    Rule(Stage.MISFIT, mismatch.size_mismatch, ("SL410",)),
    Rule(Stage.MISFIT, mismatch.in_two_threads, ("SL411",)),
    Rule(Stage.MISFIT, mismatch.operation_mismatch, ("SL411",)),
    Rule(Stage.MISFIT, mismatch.line_mismatch, ("SL411",)),
    Rule(Stage.MISFIT, broken_by_a_misfit.aborted_by_gloo, ("SL411",)),
    Rule(Stage.ALL_ALIKE, exception.exception_everywhere, ("SL402", *EXCEPTIONS)),
    Rule(Stage.ALL_ALIKE, process_exit.exit_everywhere, ("SL415",)),
    Rule(Stage.FIRST, exception.exception, EXCEPTIONS),
    Rule(Stage.FIRST, process_end.out_of_memory, ("SL404",)),
    Rule(Stage.FIRST, process_end.killed, ("SL403",)),
    Rule(Stage.FIRST, process_end.native_crash, ("SL405", "SL406", "SL421")),
    Rule(Stage.FIRST, process_exit.silent_exit, ("SL407",)),
    Rule(Stage.TIMED_OUT, timeout.collective_timeout, ("SL414",)),
    Rule(Stage.CONSEQUENCE, process_end.connection_lost, ("SL412",)),
    Rule(Stage.CONSEQUENCE, process_end.torn_down, ("SL413",)),
    Rule(Stage.UNKNOWN, undecided.cannot_tell, ("SL499",)),
)

# What the watch has seen says which of them it is.
SLOW = (
    Rule(Stage.PREMISE, rules.straggler, ("SL503",)),
    Rule(Stage.PREMISE, rules.slower, ("SL503", "SL504")),
    Rule(Stage.PREMISE, rules.loader_bound, ("SL506",)),
    Rule(Stage.PREMISE, rules.below_expectation, ("SL505",)),
    Rule(Stage.UNKNOWN, rules.as_usual, ("SL502",)),
)

BY_KIND = {"hang": HANGS, "exit": CRASHES, "slow": SLOW}
