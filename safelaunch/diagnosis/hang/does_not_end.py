"""A rank whose program has ended, and whose process does not."""

from __future__ import annotations

import dataclasses
import re

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.refine.cuda import at_cuda_line, in_cuda
from safelaunch.diagnosis.stall.activity import doing, still_running
from safelaunch.diagnosis.verdicts import hang_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import is_inside_torch
from safelaunch.diagnosis.waitgraph.threads import left_running, thread_name, waits_for_another
from safelaunch.diagnosis.wording import at, names
from safelaunch.model import Case, Location, RankFacts, Stack, Verdict

AT_THE_END = re.compile(r"/threading\.py:_shutdown$")  # where Python waits for threads that are no daemons


def does_not_end(view: View) -> Verdict | None:
    """A rank has come to the end of its program, and its process goes on: something of its own keeps it.

    Example:
        error[SL315]: rank 1 has come to the end of the program and does not end: its thread uploader still runs

    How it was concluded: no rank waits for another, and the main thread of each rank that still runs has left the
    program. Python waits then for threads that are not daemons, for processes of `multiprocessing`, or in a function
    that `atexit` calls. The threads that still run are shown with their lines. A stack does not say which of them are
    daemons.

    What to do: give the thread its word to end (`queue.put(None)`, an Event), make it a daemon, or close what owns it:
    a pool, a writer, a logger, a client.

    What it is not: a failure of the launcher. It waits as long as the rank lives, as torchrun does.
    """
    ranks = view.living
    if not ranks or not all(facts.ended for facts in ranks):
        return None
    first, threads = ranks[0], left_running(ranks[0])
    return hang_verdict(
        view,
        "SL315",
        _headline(ranks, threads),
        # Ranks that nobody has looked at may still be at work, and this one right to wait.
        tuple(facts.rank for facts in ranks) if view.sees_all_ranks else (),
        location=_place(first, threads),
        because=tuple(line for facts in ranks for line in still_running(facts)),
        remedy=_remedy(first, threads),
        confidence="medium" if view.sees_all_ranks and (threads or first.children or first.lost_thread) else "low",
    )


def _headline(ranks: list[RankFacts], threads: list[Stack]) -> str:
    """That ranks do not end, and of a single one what keeps it."""
    who = names(facts.rank for facts in ranks)
    if len(ranks) > 1:
        return f"{who} have come to the end of the program and do not end"
    keeper = f"its {thread_name(threads[0])} still runs" if len(threads) == 1 else _keeper_in_words(ranks[0])
    return f"{who} has come to the end of the program and does not end" + (f": {keeper}" if keeper else "")


def _remedy(facts: RankFacts, threads: list[Stack]) -> str:
    if threads:
        return "let that thread end before the script does, or make it a daemon; close pools, writers and clients"
    if facts.lost_thread is not None:
        return "see why that thread has ended: what is waited for here may have been its work"
    return "end what it waits for before the script ends; close pools, writers and clients"


def _main(facts: RankFacts) -> Stack | None:
    return next((stack for stack in facts.stacks if stack.thread == facts.pid), None)


def _keeper_in_words(facts: RankFacts) -> str:
    main = _main(facts)
    return f"it {doing(facts, main)}" if user_frame(main) is not None or not left_running(facts) else ""


def _place(facts: RankFacts, threads: list[Stack]) -> Location | None:
    places = (user_frame(stack) for stack in (_main(facts), *threads))
    return next((place for place in places if place is not None), None)


def refine(verdict: Verdict, view: View) -> Verdict:
    """The verdict on ranks that have failed, with what keeps their processes, where these had to be ended."""
    if view.case.incident.kind != "exit":
        return verdict
    lines = [
        f"the process of rank {facts.rank} went on after its exception: {kept_by(view.case, facts)}"
        for facts in view.living
        if facts.rank in view.case.incident.ranks
    ]
    return dataclasses.replace(verdict, because=(*lines[:2], *verdict.because))


def kept_by(case: Case, facts: RankFacts) -> str:
    """What a rank still does whose program has ended, in words."""
    if facts.shut_down is not None:
        return "all that `atexit` calls has run; a destructor or a library does not return"
    keepers = _keepers(facts)
    if not keepers:
        return "nothing of it could be looked at"
    first = keepers[0]
    if waits_for_others(case, facts):
        return f"it waits for its peers or its GPU in {first.frames[0].function}{at(user_frame(first))}"
    who = "it" if first.thread in (0, facts.pid) else f"its {thread_name(first)}"
    more = f", and {len(keepers) - 1} more" if len(keepers) > 1 else ""
    return f"{who} {doing(facts, first)}{at(user_frame(first))}{more}"


def waits_for_others(case: Case, facts: RankFacts) -> bool:
    """Whether nothing of the program is at work in what keeps such a rank.

    All of it is a wait for its peers or its GPU, which may spin, or what comes after Python's own end.
    """
    if facts.shut_down is not None or in_cuda(facts) or at_cuda_line(case, facts):
        return True
    keepers = _keepers(facts)
    return bool(keepers) and all(any(map(is_inside_torch, stack.frames)) for stack in keepers)


def _keepers(facts: RankFacts) -> list[Stack]:
    """The threads that keep the process: the main one, where it is in what is called at the end; else those that it
    waits for."""
    main = _main(facts)
    if main is None:
        return left_running(facts)
    waits = waits_for_another(main) or any(AT_THE_END.search(f"{frame.file}:{frame.function}") for frame in main.frames)
    return (left_running(facts) if waits and user_frame(main) is None else []) or [main]
