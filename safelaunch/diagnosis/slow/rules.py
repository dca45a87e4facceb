"""Runs that are slow: who is late, or what makes all ranks slow. Such a verdict never ends a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.slow import all_ranks, gpus, hosts, reasons
from safelaunch.diagnosis.slow.one_rank import of_rank
from safelaunch.diagnosis.slow.reasons import Reason
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Confidence, Location, Verdict
from safelaunch.model.slow import Pace, Slowness

# Shares of a step in collectives, by which a rank is told for which all others have come to wait; estimates.
WAITS, WAITS_MORE, KEEPS_GOING = 0.5, 0.3, 0.2


def straggler(view: View) -> Verdict | None:
    """A rank is slower than the others, step after step, and they wait for it.

    Example:
        warning[SL503]: rank 2 is slow since step 41: it needs 90.0 ms of its own for a step, its peers 30.0 ms (3.0
            times)

    How it was concluded: from the times at which the ranks came to the same collectives. They are in the ranks' own
    records, and in torch's Flight Recorder where C++ makes the calls (DDP, FSDP). A rank's own time runs from the
    moment when one meeting lets it go to its coming to the next. A rank is late where that time

    - is 1.4 times that of its peers (the median),
    - costs 15 % of all time or more,
    - and is so long in most of 20 steps, and over 5 seconds.

    Where no collectives can be seen, it is a rank that waits for its DataLoader while its peers do not. Where all steps
    have become longer, it is the one rank that does not wait (medium confidence): less than 20 % of a step is in
    collectives there, and half or more on all others, 30 points more than before.

    Who is late now and then does not count as slow: who saves, logs or evaluates every so often. Short stalls of one
    rank are summed up, and told where they take a tenth of the time: recompilation, a page cache that thrashes. They
    count where it does not stall at the same line as a rule, and no other rank stalls a third as much. A main process
    that stalls every so many steps is meant to.

    A root that loads or computes while the others wait for its broadcast is late, also where that is meant so. Nothing
    is concluded

    - of the first 10 steps,
    - where ranks send messages to one another (pipeline stages),
    - between two all-to-alls (experts),
    - where ranks come from different lines.

    With NCCL a host is back from its call at once, so GPUs are compared. CUDA events stand around the calls of Python
    and the backward passes of DDP for some seconds. With DDP a third of the 15 % is enough: the forward pass alone is
    seen there. Where a GPU needs longer than its peers:

    - Its host had enqueued that work: the GPU is slow, or has more work (NVML: clocks, other processes).
    - Its host had not: the host is slow, where an idle GPU (NVML) or what the process does shows it.
    - Neither is known: both are named as possible. A host may wait for its own GPU, as in `item()`.

    In a job of several nodes one of them compares the ranks of all: 15 s after the first steps, then after twice the
    time, and whenever a node finds its own ranks slow. So a node whose ranks are all slow is named: `all ranks of
    node-b (2 and 3) are slow`. Half of all ranks may be late at most. Clocks that are not known well enough, or a node
    without safelaunch, leave it open; then each node compares its own ranks. With DDP and gloo nobody records when a
    call lets a rank go: without a reason that is shown, it may also be the link of its node (low confidence).

    The reason is what accounts for the lost time: the loader, the CPU, pages from disk, a file system, clocks, other
    threads, or the line at which a few stacks find the rank. High confidence needs the times and a reason that agree.

    What to do: look at the reason. The run goes on; a line tells when the rank keeps up again.

    What it is not: a rank that does not come at all (SL301), or all ranks being slow (SL504, SL505). Where all loaders
    have no time to spare, it is SL506.
    """
    slow = view.case.slow
    if slow is None or slow.kind != "straggler" or not slow.ranks:
        return None
    by = gpus if slow.source == "device" else hosts
    found = by.straggler(view.case, slow)
    if found is None:
        return None
    because, confidence = list(found.because), found.confidence
    if all_ranks.of_more_nodes(view.case):
        because.append(all_ranks.OTHERS_UNSEEN)
        confidence = "medium" if confidence == "high" else confidence
    return _verdict(
        "SL503", view.case, found.summary, ranks=slow.ranks, because=because, confidence=confidence,
        remedy=found.remedy, location=found.location,
    )  # fmt: skip


def slower(view: View) -> Verdict | None:
    """All ranks are slower than they were: steps take more than twice as long as before.

    Example:
        warning[SL504]: all ranks are slower since step 60: a step takes 95.0 ms, 34.0 ms before; the ranks do not get
            the CPU

    How it was concluded: the median step time of at least 25 steps and 10 seconds is more than twice that of the steps
    before. The first 10 steps are left out, and 20 others or more must have been seen before. Most of the steps must be
    longer, and longer than nearly all before. So evaluations and checkpoints do not count. Steps are those of
    optimizers, or of `safelaunch.heartbeat()`; else batches, else collectives. No rank comes later than the others, or
    it is said that this cannot be seen.

    What has changed is measured over the same time:

    - time without a CPU, and the cgroup's limit,
    - time in loaders and in collectives (with ranks on other nodes, one of those may be slow as well),
    - pages read back from disk,
    - clocks of GPUs,
    - where calls end on GPUs: whether the calls, the GPUs' own work, or the waits for hosts are longer.

    In a job of several nodes, where no rank of any node comes later, longer collectives are the network's. The link of
    a node is named only where groups without that node are there: their collectives must last shorter by the same rules
    (SL503), from the moment when all have come.

    Where each rank only computes more for each step, that is said, with low confidence: inputs may have grown. Steps
    may also have grown bit by bit: for half a minute at least, by a twentieth or more in nearly all eighths of the run.

    What to do: look at what has changed. A GPU that is held back is named with its rank.

    What it is not: one rank for which all others have come to wait (SL503), or a run that was slow from the start
    (SL505).
    """
    slow = view.case.slow
    if slow is None or slow.kind != "slower":
        return None
    awaited = None if slow.on_device else _awaited(slow)
    if awaited is not None:
        return _one_does_not_wait(view.case, slow, awaited)
    found = _changes(view.case, slow)
    if found:
        return _changed(view.case, slow, found)
    if not _uses_gpus(view.case) and all_ranks.grew_itself(slow):
        return _changed(view.case, slow, [all_ranks.GREW])
    return None if slow.grows else _unchanged(view.case, slow)


def _changes(case: Case, slow: Slowness) -> list[Reason]:
    return [*all_ranks.of_all(case, slow), *gpus.of_all(case, slow)]


def _changed(case: Case, slow: Slowness, found: list[Reason]) -> Verdict:
    """The verdict where something has changed for all ranks."""
    ranks = _held_back(case, slow, found[0])
    certain = not slow.unknown and not ranks and found[0].what != all_ranks.LONGER_WAITS
    return _verdict(
        "SL504", case, f"{_are_slower(slow)}; {found[0].what}", ranks=ranks,
        because=[*(line for reason in found[:2] for line in reason.because[:2]), _nobody(slow)],
        confidence="low" if found[0] is all_ranks.GREW else "high" if certain else "medium",
        remedy=found[0].remedy,
        location=next((reason.location for reason in found if reason.location is not None), None),
    )  # fmt: skip


def _unchanged(case: Case, slow: Slowness) -> Verdict:
    """The verdict where nothing that is watched has changed."""
    stands = reasons.any_standing(slow)
    because = ["nothing of what is watched on this node has changed (CPU, memory, loaders, clocks)"]
    because += [f"rank {stands.rank} stands {reasons.at(stands)}"] if stands is not None else []
    return _verdict(
        "SL504", case, _are_slower(slow), because=[*because, _nobody(slow)], confidence="low",
        remedy="compare the node with what it was: other jobs, storage, network, clocks",
        location=stands.location if stands is not None else None,
    )  # fmt: skip


def _are_slower(slow: Slowness) -> str:
    begun = "become slower, bit by bit" if slow.grows else f"are slower{reasons.since(slow)}"
    then = "at first" if slow.grows else "before"
    now, usual = reasons.span(slow.now_s), reasons.span(slow.usual_s)
    return f"all ranks {begun}: a {slow.unit} takes {now}, {usual} {then}"


def _held_back(case: Case, slow: Slowness, reason: Reason) -> tuple[int, ...]:
    """The ranks whose GPUs are held back, where that is the reason and not so of all ranks."""
    ranks = {rank for gpu in case.gpus if gpu.held_back for rank in gpu.ranks}
    return tuple(sorted(ranks)) if len(ranks) < len(slow.paces) and reason.what == all_ranks.GPUS_HELD_BACK else ()


def _awaited(slow: Slowness) -> Pace | None:
    """The one rank that does not wait in collectives, where all others have come to do so."""
    ready = [pace for pace in slow.paces if (pace.waiting or 0.0) < KEEPS_GOING]
    waits = [
        pace
        for pace in slow.paces
        if (pace.waiting or 0.0) >= WAITS and pace.waiting_before is not None
        if (pace.waiting or 0.0) - pace.waiting_before >= WAITS_MORE
    ]
    return ready[0] if len(ready) == 1 and waits and len(waits) + 1 == len(slow.paces) else None


def _one_does_not_wait(case: Case, slow: Slowness, pace: Pace) -> Verdict:
    others = [one for one in slow.paces if one is not pace]
    now, before = (
        statistics.median(getattr(one, name) or 0.0 for one in others) for name in ("waiting", "waiting_before")
    )
    reason = of_rank(case, slow, pace.rank, now - (pace.waiting or 0.0))
    peers = "its peer waits" if len(others) == 1 else "its peers wait"
    summary = f"rank {pace.rank} is slow{reasons.since(slow)}: {peers} in collectives for {now:.0%} of each {slow.unit}"
    return _verdict(
        "SL503", case, reasons.with_reason(summary, reason),
        because=[*reason.because, f"they waited {before:.0%} before; rank {pace.rank} waits {pace.waiting or 0.0:.0%}"],
        ranks=(pace.rank,),
        confidence="medium",
        remedy=reason.remedy,
        location=reason.location,
    )  # fmt: skip


def below_expectation(view: View) -> Verdict | None:
    """The run has been slow from its first steps: against the step time that the profile expects.

    Example:
        warning[SL505]: slow from the first steps: a step takes 95.0 ms, and the profile expects 30.0 ms (3.2 times)

    How it was concluded: the median of the step times is more than 1.5 times `expect_step` in [slow] of the profile,
    over at least 25 steps and 10 seconds. Where it is not known yet who is late, it takes 40 seconds. The first 10
    steps are left out.

    What the ranks do meanwhile is said where it is known:

    - whether GPUs are idle for most of the time (NVML),
    - how long ranks wait for data and for one another,
    - where a rank mostly stands.

    What to do: look at what takes the time. Correct `expect_step` if it is of other hardware or another model.

    What it is not: a run that has become slower (SL504), or one slow rank (SL503). Without `expect_step` nothing is
    concluded.
    """
    slow = view.case.slow
    if slow is None or slow.kind != "below" or not slow.expect_s or not slow.now_s:
        return None
    found = _changes(view.case, slow)[:1]
    idle = reasons.idle_gpus(view.case.gpus)
    lines = [*filter(None, [idle]), *(line for reason in found for line in reason.because[:2])]
    lines += _waits(slow, loaders=not any(reason.loader for reason in found))
    stands = reasons.any_standing(slow)
    lines += [f"rank {stands.rank} stands {reasons.at(stands)}"] if stands is not None else []
    places = [*(reason.location for reason in found), stands.location if stands is not None else None]
    return _verdict(
        "SL505", view.case,
        f"slow from the first steps: a step takes {reasons.span(slow.now_s)}, and the profile expects "
        f"{reasons.span(slow.expect_s)} ({slow.now_s / slow.expect_s:.1f} times)",
        because=[*lines, _nobody(slow)],
        confidence="medium" if slow.unknown else "high",
        location=next(filter(None, places), None),
        remedy=found[0].remedy if found else "look at what takes the time, or correct `expect_step` in [slow]",
    )  # fmt: skip


def _waits(slow: Slowness, *, loaders: bool) -> Iterator[str]:
    """How long ranks wait for data (where `loaders` asks for it) and for one another, where that is long."""
    loading = statistics.median(pace.loading or 0.0 for pace in slow.paces) if slow.paces else 0.0
    if loaders and loading >= reasons.NOTABLE:
        yield f"ranks wait {loading:.0%} of the time for their DataLoaders"
    waiting = [pace.waiting for pace in slow.paces if pace.waiting is not None]
    if waiting and min(waiting) >= reasons.NOTABLE:
        yield f"even the rank that waits least spends {min(waiting):.0%} of its time in collectives"


def loader_bound(view: View) -> Verdict | None:
    """Ranks spend most of each step waiting for their DataLoader.

    Example:
        warning[SL506]: all 4 ranks wait 80% of each step for the DataLoader from the first steps on (a step takes 95.0
            ms)

    How it was concluded: the rank's main thread spends half of all time or more, and 10 ms of a step or more, in
    `DataLoader.__next__`. That holds of most of at least 20 steps and 10 seconds, after the first 10 steps. A few
    stacks and the kernel's state of the loader's workers say what they do: compute, read, or wait.

    What to do: use more workers (`num_workers`) where they compute or wait for storage and CPUs are left, or any where
    there are none. Else use faster storage, or prepare the data more cheaply.

    What it is not: some ranks that wait for data while the others wait for them. That is SL503, unless the workers of
    the others have no time to spare either.
    """
    slow = view.case.slow
    if slow is None or slow.kind not in ("loader", "straggler"):
        return None
    bound = [pace for pace in slow.paces if pace.rank in slow.ranks or not slow.ranks]
    if not bound:
        return None
    share = statistics.median(pace.loading or 0.0 for pace in bound)
    reason = reasons.loading(slow, [pace.rank for pace in bound])
    because = [*reason.because, _shares(slow)]
    confidence: Confidence = "high" if reason.location is not None else "medium"
    ranks = slow.ranks
    if slow.kind == "straggler":  # one comes last, as one of them must
        busy = reasons.at_their_limit(slow)
        if busy is False or share < reasons.NOTABLE:
            return None
        what = "are as busy" if busy else "could not be looked at: they may be as slow"
        because.append(f"the loader's workers of its peers {what}, and only hold some batches ready")
        ranks, confidence = (), confidence if busy else "low"
    idle = reasons.idle_gpus(view.case.gpus)
    return _verdict(
        "SL506", view.case,
        f"{_bound(slow, share)}{reasons.since(slow)} (a {slow.unit} takes {reasons.span(slow.now_s)})",
        ranks=ranks, because=[*because, *filter(None, [idle])], remedy=reason.remedy, location=reason.location,
        confidence=confidence,
    )  # fmt: skip


def _shares(slow: Slowness) -> str:
    each = ", ".join(f"rank {pace.rank} {pace.loading or 0.0:.0%}" for pace in slow.paces[:8])
    return f"waiting for data: {each}{', ...' if len(slow.paces) > 8 else ''}"


def _bound(slow: Slowness, share: float) -> str:
    part = f"{share:.0%} of each {slow.unit}"
    if slow.kind == "straggler":
        return f"the DataLoaders of all ranks have no time to spare: {names(slow.ranks)}, the last one, waits {part}"
    who = names(slow.ranks) if slow.ranks else f"all {len(slow.paces)} ranks" if len(slow.paces) > 1 else "the rank"
    return f"{who} wait{'s' * (max(len(slow.ranks), len(slow.paces)) == 1)} {part} for the DataLoader"


def as_usual(view: View) -> Verdict:
    """The answer where no suspicion of slowness holds: it ends the suspicion, and nobody is told."""
    return Verdict(
        code="SL502",
        slug=CATALOGUE["SL502"].slug,
        kind="none",
        summary="the job makes progress, and nothing that is watched says that it is slow for a reason of its own",
        host=view.case.host,
        confidence="medium",
        exit_code=EXIT_OK,
    )


def _nobody(slow: Slowness) -> str:
    if slow.unknown:
        return f"who is late cannot be told: {slow.unknown}"
    if slow.nodes:
        return f"of the ranks of all {len(slow.nodes)} nodes none comes later than the others"
    return gpus.NOBODY if slow.on_device else "no rank comes later than the others"


def _uses_gpus(case: Case) -> bool:
    return bool(case.gpus) or any(rank.device is not None and bool(rank.device.count) for rank in case.ranks)


def _verdict(
    code: str,
    case: Case,
    summary: str,
    *,
    because: list[str],
    confidence: Confidence,
    remedy: str,
    ranks: tuple[int, ...] = (),
    location: Location | None = None,
) -> Verdict:
    first = next((facts for facts in case.ranks if facts.rank in ranks), None)
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="slow",
        summary=summary,
        culprit_ranks=ranks,
        host=case.host,
        pid=first.pid if first is not None else None,
        location=location,
        because=tuple(because),
        confidence=confidence,
        remedy=remedy,
        exit_code=EXIT_OK,
    )
