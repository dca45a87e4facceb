"""Every rank stands still in a file system, and none waits for another: no collective shows that anything is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.diagnosis.sources.stack_samples import ON_FILES, TERMINAL, is_busy
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.verdicts import hang_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import AWAY_PHASES
from safelaunch.diagnosis.wording import names
from safelaunch.model import Kernel, RankFacts, Verdict


def all_in_file_system(view: View) -> Verdict | None:
    """Every rank that runs is inside a call on a file, and stays there. None waits for another, and none is to blame.

    Example:
        error[SL316]: ranks 0-2 stand still in calls on /data/shard-17; no rank waits for another

    How it was concluded: the kernel shows each rank, or the loader worker that it waits for, in a call on a file or in
    uninterruptible sleep. Between two looks no rank used CPU time, moved data or came to another line, and none is in a
    collective. What they share is held up: a dead mount, a server, a FIFO without a writer.

    What to do: look at the file and the mount that are named, from a shell on this host.

    What it is not: one rank in a dead file system, for which its peers wait. That is SL306.
    """
    ranks = view.living
    calls = [(facts, call) for facts in ranks if (call := next(_calls(facts), None)) is not None]
    if not ranks or len(calls) < len(ranks) or any(map(is_busy, ranks)):
        return None
    now = view.now
    reasons = {facts.rank: stall_of(facts, facts.pid, now, view.case.source) for facts in ranks}
    said: dict[str, list[int]] = {}
    for rank, reason in reasons.items():
        said.setdefault(f"{reason.what}{''.join(f' ({each})' for each in reason.because[:1])}", []).append(rank)
    files, mounts = ({getattr(call, name) for _, call in calls} for name in ("file", "mount"))
    where = next((place for places in (files, mounts) if len(places) == 1 and (place := min(places))), "file systems")
    first = reasons[ranks[0].rank]
    stand = "stand" if len(ranks) > 1 else "stands"
    return hang_verdict(
        view,
        "SL316",
        f"{names(reasons)} {stand} still in calls on {where}; no rank waits for another",
        (),
        location=first.location,
        because=tuple(f"{names(who)}: {'it' if len(who) == 1 else 'each'} {what}" for what, who in said.items()),
        remedy="look at that file system on this host; no rank is to blame",
        confidence="high"
        if all(facts.stack is not None and facts.earlier is not None for facts in ranks)
        else "medium",
    )


def _calls(facts: RankFacts) -> Iterator[Kernel]:
    """The calls on files that hold a rank: its own, or that of a process which it waits for in its loader."""
    waits = any(phase.name.startswith(AWAY_PHASES) for phase in facts.phases)
    for kernel in (facts.kernel, *(child.kernel for child in facts.children if waits)):
        if kernel is None:
            continue
        on_file = kernel.syscall in ON_FILES and kernel.file.startswith("/") and not TERMINAL.search(kernel.file)
        if kernel.state == "D" or on_file:
            yield kernel
