"""Runs that are slow: who is late, or what makes all ranks slow. Such a verdict never ends a run."""

from __future__ import annotations

import statistics

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.slow import gpus
from safelaunch.diagnosis.slow import reasons as reasons
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Confidence, Location, Verdict
from safelaunch.model.slow import Pace, Slowness

WAITED = 0.5  # of what a rank costs the others must be seen in their waits
# Shares of a step in collectives, by which a rank is told for which all others have come to wait; estimates.
WAITS, WAITS_MORE, KEEPS_GOING = 0.5, 0.3, 0.2


def straggler(view: View) -> Verdict | None:
    """A rank is slower than the others, step after step, and they wait for it.

    In synchronous training all ranks have the same step time. The slow one is the rank that comes last to the
    collectives: the time that it needs for itself, from the moment when a meeting lets it go to the moment when it
    comes to the next one, is longer than that of the ranks it meets.

    How it was concluded: from the times at which the ranks of this node came to the same collectives, by their own
    record of the calls that Python makes, or by torch's Flight Recorder where C++ makes them (DDP, FSDP). A rank counts
    as late that needs 1.4 times the time of its peers (the median), costs 15 % of all time or more, and does so in most
    of 20 steps and over 5 seconds; who is late now and then (who saves, logs or evaluates every so often) does not.
    Where no collectives can be seen, it is a rank that waits for its DataLoader while its peers do not. Nothing is
    concluded of the first 10 steps, where ranks send messages to one another (pipeline stages), between two all-to-alls
    (experts), or where ranks come from different lines. Whom a root holds in a broadcast does nothing of its own
    meanwhile: a root that loads or computes while the others wait for its data is late, also where that is meant so.
    With NCCL a host is back from its call at once, and what it does next says little. So GPUs are compared: for some
    seconds CUDA events stand ahead of the calls of Python and of DDP's backward passes, and behind them, and a thread
    asks how far each GPU is. A GPU that needs longer than its peers from one call to the next is late by the same
    measure (a third of the 15 % with DDP, of which the forward pass alone is seen). If its host had enqueued that work,
    the GPU is slow at it, or has more of it: NVML says whether its clocks are held back, or another process uses it. If
    it had not, the host is slow: by a GPU that idles meanwhile (NVML), or by what the process does. Where neither says
    so, both are named as possible: a host may wait for its own GPU, as in `item()`. Calls that C++ or a compiled
    program makes are not seen, but for DDP's, and pipelines are left alone.
    The reason is what accounts for the lost time: time in the loader, threads of its own that run Python, time in which
    it could run and had no CPU, pages read back from disk, a file system, clocks that are held back, CPU time of its
    own, or the line at which a few stacks find it.
    High confidence needs the times and a reason that agree.

    What to do: look at the reason. The run goes on; a line tells when the rank keeps up again.
    """
    slow = view.case.slow
    if slow is None or slow.kind != "straggler" or not slow.ranks:
        return None
    rank = slow.ranks[0]
    if slow.source == "device":
        return _by_gpus(view.case, slow)
    pace = next((one for one in slow.paces if one.rank == rank), None)
    if pace is None:
        return None
    now = slow.now_s or 0.0
    peers = [one for one in slow.paces if one.rank not in slow.ranks]
    fed = statistics.median(one.loading or 0.0 for one in peers) if peers else 0.0
    by_calls = pace.own_s is not None and pace.peers_s is not None
    lost = ((pace.own_s or 0.0) - (pace.peers_s or 0.0)) / now if by_calls and now else (pace.loading or 0.0) - fed
    reason = reasons.of_rank(view.case, slow, rank, lost)
    if reason.everywhere:
        return None  # too many processes for the CPUs, and one of the ranks comes off worst
    if reason.loader and reasons.at_their_limit(slow) is not False:
        return None  # `loader_bound` tells
    who, alone = names(slow.ranks), len(slow.ranks) == 1
    verb = "is" if alone else "are"
    because: list[str] = []
    if by_calls:
        factor = (pace.own_s or 0.0) / max(pace.peers_s or 0.0, 1e-9)
        own, others = reasons.span(pace.own_s), reasons.span(pace.peers_s)
        times = f"{own} of its own for a {slow.unit}, its peers {others} ({factor:.1f} times)"
        summary = f"{who} {verb} slow{reasons.since(slow)}: {'it' if alone else f'rank {rank}'} needs {times}"
        seen = "their own records" if slow.source == "calls" else "torch's Flight Recorder"
        looks = f"last at the collectives in {pace.late} of {pace.of} looks ({seen})"
        because.append(f"{looks}; a {slow.unit} takes {reasons.span(now)}")
    else:
        data = f"{pace.loading or 0.0:.0%} of each {slow.unit} is waiting for data, {fed:.0%} on the others"
        summary = f"{who} {verb} slow{reasons.since(slow)}: {data}"
        because.append(f"who comes last to the collectives is not seen{f' ({slow.unknown})' if slow.unknown else ''}")
    if reason.what:
        summary = f"{summary}; {reason.what}"
    because = [*reason.because[:1], *because, *reason.because[1:]]
    waited = _waited(slow, lost) if by_calls else ""
    if waited:
        because.append(waited)
    elsewhere = view.case.world_size > len(view.case.ranks)
    if elsewhere:
        because.append("the ranks of other nodes are not known here: one of them may be slower")
    confidence = _confidence(
        (by_calls, bool(waited), reason.shown),
        sure=not elsewhere and (len(slow.ranks) * 2 < len(slow.paces) or len(slow.paces) == 2),
    )
    return _verdict(
        "SL503", view.case, summary, ranks=slow.ranks, because=because, confidence=confidence,
        remedy=reason.remedy, location=reason.location,
    )  # fmt: skip


def _by_gpus(case: Case, slow: Slowness) -> Verdict | None:
    told = gpus.straggler(case, slow)
    if told is None:
        return None
    because = list(told.because)
    elsewhere = case.world_size > len(case.ranks)
    if elsewhere:
        because.append("the ranks of other nodes are not known here: one of them may be slower")
    return _verdict(
        "SL503", case, told.summary, ranks=slow.ranks, because=because,
        confidence="medium" if told.confidence == "high" and elsewhere else told.confidence,
        remedy=told.remedy, location=told.location,
    )  # fmt: skip


def slower(view: View) -> Verdict | None:
    """All ranks are slower than they were: steps take more than twice as long as before.

    How it was concluded: from the median of the step times of at least 20 steps and 10 seconds, against the median of
    all steps before (after the first 10, and of 30 at least); most of the steps must be longer, and longer than nearly
    all before, so that steps of varying length, evaluations and checkpoints do not count. Steps are those of
    optimizers, or what the script says with `safelaunch.heartbeat()`; a script without either is judged by its
    collectives. No rank comes later than the others, or it cannot be seen (and then that is said). What has changed is
    measured over the same time: time without a CPU, the cgroup's limit, time in loaders and in collectives, pages read
    back from disk, clocks of GPUs; and where calls end on GPUs, whether these are longer in the calls though all come
    together (links, network), in their own work, or waiting for their hosts. Where each rank simply computes more for
    each step than before, that is said, with
    low confidence: inputs may have grown, as with longer sequences from some step on, or a list, a cache or a graph
    that nothing clears. So is what grows bit by bit over the whole run, for half a minute at least, by a twentieth or
    more in nearly all eighths of it.

    Where all ranks but one spend much more of each step in collectives than before, and that one does not, it is the
    straggler (SL503, medium confidence).

    What to do: look at what has changed. A GPU that is held back is named with its rank.
    """
    slow = view.case.slow
    if slow is None or slow.kind != "slower":
        return None
    awaited = None if slow.on_device else _awaited(slow)
    if awaited is not None:
        return _one_does_not_wait(view.case, slow, awaited)
    found = [*reasons.of_all(view.case, slow), *gpus.of_all(view.case, slow)]
    grew = not found and not _uses_gpus(view.case) and reasons.grew_itself(slow)
    if slow.grows and not found and not grew:
        return None
    if grew:
        found = [reasons.GREW]
    begun = "become slower, bit by bit" if slow.grows else f"are slower{reasons.since(slow)}"
    then = "at first" if slow.grows else "before"
    summary = f"all ranks {begun}: a {slow.unit} takes {reasons.span(slow.now_s)}, {reasons.span(slow.usual_s)} {then}"
    because = [line for reason in found[:2] for line in reason.because[:2]]
    location = next((reason.location for reason in found if reason.location is not None), None)
    stands = next((one for pace in slow.paces if (one := reasons.standing(slow, pace.rank)) is not None), None)
    if not found:
        because.append("nothing of what is watched on this node has changed (CPU, memory, loaders, clocks)")
        if stands is not None:
            because.append(f"rank {stands.rank} stands {reasons.at(stands)}")
            location = stands.location
    because.append(_nobody(slow))
    held = {rank for gpu in view.case.gpus if gpu.held_back for rank in gpu.ranks}
    some = held if held and len(held) < len(slow.paces) and "GPUs" in found[0].what else set()
    return _verdict(
        "SL504", view.case, f"{summary}; {found[0].what}" if found else summary, because=because,
        ranks=tuple(sorted(some)),
        confidence="low" if not found or grew else "high" if not slow.unknown and not some else "medium",
        remedy=found[0].remedy if found else "compare the node with what it was: other jobs, storage, network, clocks",
        location=location,
    )  # fmt: skip


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
    reason = reasons.of_rank(case, slow, pace.rank, now - (pace.waiting or 0.0))
    peers = "its peer waits" if len(others) == 1 else "its peers wait"
    summary = f"rank {pace.rank} is slow{reasons.since(slow)}: {peers} in collectives for {now:.0%} of each {slow.unit}"
    return _verdict(
        "SL503", case, f"{summary}; {reason.what}" if reason.what else summary,
        because=[*reason.because, f"they waited {before:.0%} before; rank {pace.rank} waits {pace.waiting or 0.0:.0%}"],
        ranks=(pace.rank,),
        confidence="medium",
        remedy=reason.remedy,
        location=reason.location,
    )  # fmt: skip


def below_expectation(view: View) -> Verdict | None:
    """The run has been slow from its first steps: against the step time that the profile expects.

    How it was concluded: the median of the step times, without the first 10, is more than 1.5 times `expect_step` in
    [slow] of the profile, over at least 20 steps and 10 seconds, and no rank is slower than the others. What the ranks
    do meanwhile is said where it is known: whether GPUs are idle for most of the time (NVML), how long ranks wait for
    data and for one another, and where a rank mostly stands.

    What to do: look at what takes the time; correct `expect_step` if it is of other hardware or another model.
    """
    slow = view.case.slow
    if slow is None or slow.kind != "below" or not slow.expect_s or not slow.now_s:
        return None
    because = list(filter(None, [reasons.idle_gpus(view.case.gpus)]))
    loading = statistics.median(pace.loading or 0.0 for pace in slow.paces) if slow.paces else 0.0
    waiting = [pace.waiting for pace in slow.paces if pace.waiting is not None]
    location = None
    found = [*reasons.of_all(view.case, slow), *gpus.of_all(view.case, slow)]
    for reason in found[:1]:
        because += reason.because[:2]
        location = reason.location
    if loading >= reasons.NOTABLE and not any("DataLoader" in line for line in because):
        because.append(f"ranks wait {loading:.0%} of the time for their DataLoaders")
    if waiting and min(waiting) >= reasons.NOTABLE:
        because.append(f"even the rank that waits least spends {min(waiting):.0%} of its time in collectives")
    stands = next((one for pace in slow.paces if (one := reasons.standing(slow, pace.rank)) is not None), None)
    if stands is not None:
        because.append(f"rank {stands.rank} stands {reasons.at(stands)}")
        location = location or stands.location
    because.append(_nobody(slow))
    return _verdict(
        "SL505", view.case,
        f"slow from the first steps: a step takes {reasons.span(slow.now_s)}, and the profile expects "
        f"{reasons.span(slow.expect_s)} ({slow.now_s / slow.expect_s:.1f} times)",
        because=because, confidence="medium" if slow.unknown else "high", location=location,
        remedy=found[0].remedy if found else "look at what takes the time, or correct `expect_step` in [slow]",
    )  # fmt: skip


def loader_bound(view: View) -> Verdict | None:
    """Ranks spend most of each step waiting for their DataLoader.

    How it was concluded: the time that the rank's main thread spends in `DataLoader.__next__` is half of all time or
    more, and 10 ms of a step or more, in most of at least 20 steps and 10 seconds, after the first 10. A few stacks and
    the kernel's state of the loader's workers say what they do: compute, read, or wait. If it is only some of the
    ranks while others wait for them, that is SL503, unless the workers of the others have no time to spare either.

    What to do: more workers (`num_workers`) where they compute or wait for storage and CPUs are left, `num_workers` at
    all where there are none, faster storage, cheaper preparation of the data.
    """
    slow = view.case.slow
    if slow is None or slow.kind not in ("loader", "straggler"):
        return None
    last = slow.kind == "straggler"  # one comes last, as one of them must
    bound = [pace for pace in slow.paces if pace.rank in slow.ranks or not slow.ranks]
    if not bound:
        return None
    share = statistics.median(pace.loading or 0.0 for pace in bound)
    if last and (reasons.at_their_limit(slow) is False or share < reasons.NOTABLE):
        return None
    reason = reasons.loading(slow, [pace.rank for pace in bound])
    each = ", ".join(f"rank {pace.rank} {pace.loading or 0.0:.0%}" for pace in slow.paces[:8])
    because = [*reason.because, f"waiting for data: {each}{', ...' if len(slow.paces) > 8 else ''}"]
    certain = not last or bool(reasons.at_their_limit(slow))
    if last:
        what = "are as busy" if certain else "could not be looked at: they may be as slow"
        because.append(f"the loader's workers of its peers {what}, and only hold some batches ready")
    idle = reasons.idle_gpus(view.case.gpus)
    return _verdict(
        "SL506", view.case,
        f"{_bound(slow, share)}{reasons.since(slow)} (a {slow.unit} takes {reasons.span(slow.now_s)})",
        ranks=() if last else slow.ranks, because=[*because, *filter(None, [idle])],
        remedy=reason.remedy, location=reason.location,
        confidence="low" if not certain else "high" if reason.location is not None else "medium",
    )  # fmt: skip


def _bound(slow: Slowness, share: float) -> str:
    part = f"{share:.0%} of each {slow.unit}"
    if slow.kind == "straggler":
        return f"the DataLoaders of all ranks have no time to spare: {names(slow.ranks)}, the last one, waits {part}"
    who = names(slow.ranks) if slow.ranks else f"all {len(slow.paces)} ranks" if len(slow.paces) > 1 else "the rank"
    return f"{who} wait{'s' * (max(len(slow.ranks), len(slow.paces)) == 1)} {part} for the DataLoader"


def as_usual(view: View) -> Verdict | None:
    """Nothing that would have to be told."""
    if view.case.incident.kind != "slow":
        return None
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
    return gpus.NOBODY if slow.on_device else "no rank comes later than the others"


def _waited(slow: Slowness, lost: float) -> str:
    """What the peers' own time in collectives says of it; nothing where they make none from Python."""
    own = [pace.waiting for pace in slow.paces if pace.rank in slow.ranks and pace.waiting is not None]
    peers = [pace.waiting for pace in slow.paces if pace.rank not in slow.ranks and pace.waiting is not None]
    if not own or not peers or statistics.median(peers) - min(own) < WAITED * lost:
        return ""
    return f"its peers spend {statistics.median(peers):.0%} of their time waiting in collectives, it {min(own):.0%}"


def _confidence(agree: tuple[bool, bool, bool], *, sure: bool) -> Confidence:
    """By the collectives, by the waits of the peers, and by a reason: high where the first and the last agree."""
    by_calls, waited, reason = agree
    if by_calls and reason and sure:
        return "high"
    return "medium" if by_calls or (reason and waited) else "low"


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
