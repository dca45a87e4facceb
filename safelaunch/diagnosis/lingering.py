"""A rank whose program has ended, and whose process does not."""

from __future__ import annotations

from safelaunch.diagnosis.failures import user_frame
from safelaunch.diagnosis.graph import graph
from safelaunch.diagnosis.hang import hang_verdict
from safelaunch.diagnosis.standing import living
from safelaunch.diagnosis.stuck import doing, still_running
from safelaunch.diagnosis.threads import left_running, thread_name
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Location, RankFacts, Stack, Verdict


def does_not_end(case: Case) -> Verdict | None:
    """A rank has come to the end of its program, and its process goes on: something of its own keeps it.

    How it was concluded: no rank waits for another, and the main thread of each rank that still runs has left the
    program (Python says so before it ends the rest). Python waits then for threads that are not daemons, for processes
    of `multiprocessing`, or in a function that `atexit` calls. The threads that still run are shown with their lines;
    which of them are daemons a stack does not say. The launcher waits as long as the rank lives, as torchrun does.

    What to do: give the thread its word to end (`queue.put(None)`, an Event), make it a daemon, or close what owns it:
    a pool, a writer, a logger, a client.
    """
    ranks = living(case)
    if not ranks or not all(facts.ended for facts in ranks) or graph(case).waits:
        return None
    first = ranks[0]
    threads = left_running(first)
    alone = threads[0] if len(threads) == 1 else None
    what = f"its {thread_name(alone)} still runs" if alone is not None else _held_by(first)
    many = len(ranks) > 1
    return hang_verdict(
        case,
        "SL315",
        f"{names(f.rank for f in ranks)} {'have' if many else 'has'} come to the end of the program and "
        f"{'do' if many else 'does'} not end" + (f": {what}" if what and not many else ""),
        # Ranks that nobody has looked at may still be at work, and this one right to wait.
        tuple(facts.rank for facts in ranks) if len(case.ranks) == case.world_size else (),
        location=_place(first, threads),
        because=tuple(line for facts in ranks for line in still_running(facts)),
        remedy=_remedy(first, threads),
        confidence="medium"
        if len(case.ranks) == case.world_size and (threads or first.children or first.lost_thread)
        else "low",
    )


def _remedy(facts: RankFacts, threads: list[Stack]) -> str:
    if threads:
        return "let that thread end before the script does, or make it a daemon; close pools, writers and clients"
    if facts.lost_thread is not None:
        return "see why that thread has ended: what is waited for here may have been its work"
    return "end what it waits for before the script ends; close pools, writers and clients"


def _main(facts: RankFacts) -> Stack | None:
    return next((stack for stack in facts.stacks if stack.thread == facts.pid), None)


def _held_by(facts: RankFacts) -> str:
    main = _main(facts)
    return f"it {doing(facts, main)}" if user_frame(main) is not None or not left_running(facts) else ""


def _place(facts: RankFacts, threads: list[Stack]) -> Location | None:
    places = (user_frame(stack) for stack in (_main(facts), *threads))
    return next((place for place in places if place is not None), None)
