"""Pure rules over what log files say: `LogFacts -> Verdict`.

A name is given only where a line proves it. Where lines merely fit, the verdict says so and quotes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from safelaunch.codes import CATALOGUE, Trait
from safelaunch.diagnosis.logs import crashes, hangs, launch, lost, messengers, nccl2, reports
from safelaunch.diagnosis.logs.classify import before_the_last, classify
from safelaunch.diagnosis.logs.context import with_context
from safelaunch.diagnosis.logs.coverage import with_all_told
from safelaunch.diagnosis.logs.nothing import nothing_found
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline, before, quote
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts


def diagnose(facts: LogFacts) -> Verdict:
    """The verdict on a job from its log files.

    What happened before everything else leads:

    - an exception or a death that no lost peer explains,
    - somebody from outside,
    - ranks that waited.

    After them comes what is left of messages and records.
    """
    return with_all_told(facts, with_context(facts, _of_attempts(facts)))


def _of_attempts(facts: LogFacts) -> Verdict:
    """The verdict on the last attempt, or on the one before where the last one shows no failure of its own."""
    last = classify(facts)
    verdict = _judge(last)
    told = last.candidates or last.unexplained or last.victims or last.outside
    earlier = facts if told or says_why(verdict) or verdict.kind != "crash" else before_the_last(facts)
    if earlier is facts:
        return verdict
    # The last attempt shows no failure of its own: why there was one is what the one before says.
    former = _judge(classify(earlier))
    if not says_why(former) and "ended with an error" not in former.summary:
        return verdict
    said = f"then the workers were started again: {verdict.summary}"
    summary = f"an earlier attempt failed: {former.summary}"
    return replace(former, summary=summary, because=(*former.because, said), culprit_ranks=(), confidence="low")


def _judge(timeline: Timeline) -> Verdict:
    """The verdict on one attempt."""
    rules: tuple[Callable[[Timeline], Verdict | None], ...] = (
        _outside_first,
        _failed_beside_a_hang,
        crashes.meeting_failed,
        launch.failed,
        crashes.from_outside,
        reports.concluded,
        hangs.stuck_watchdog,
        messengers.passed_on,
        lost.peers_lost if timeline.victims and not timeline.unexplained else crashes.ended_unexplained,
        lost.peers_lost,
    )
    for rule in rules:
        verdict = rule(timeline)
        if verdict is not None:
            return _with_earlier(timeline, _with_deaths(timeline, verdict))
    return nothing_found(timeline)


def says_why(verdict: Verdict) -> bool:
    """Whether a verdict on logs says what failed."""
    return verdict.kind != "none" and Trait.UNKNOWN not in CATALOGUE[verdict.code].traits


def _with_deaths(timeline: Timeline, verdict: Verdict) -> Verdict:
    """The verdict on a hang, and a word on the process of which another one says that it died after it."""
    died = next((s for s in timeline.facts.sightings if s.known.name == "worker-died"), None)
    if verdict.kind != "hang" or died is None or any(f":{died.at.line}:" in line for line in verdict.because):
        return verdict
    return replace(verdict, because=(*verdict.because, f"what it led to: {quote(died.at)}"))


def _with_earlier(timeline: Timeline, verdict: Verdict) -> Verdict:
    """The verdict, and a word on what failed in an attempt, or a job, before the last one."""
    if not timeline.earlier:
        return verdict
    line = f"an earlier attempt, or job, failed as well: {quote(timeline.earlier[0].at)}"
    return replace(verdict, because=(*verdict.because, line))


def _outside_first(timeline: Timeline) -> Verdict | None:
    """What came from outside leads where it was there before anything failed, or waited in vain. So does Slurm's own
    word where nothing else ended, and messages before it are nobody's: of the shell that began the job, perhaps."""
    if not timeline.outside:
        return None
    failed = [one.at for one in timeline.candidates] + [t.at for t in timeline.facts.timed_out]
    first = min(timeline.outside, key=lambda s: (s.at.file, s.at.line))
    memory = any(s.known.code == "SL404" for s in timeline.outside)
    if failed and not memory and all(before(first.at, at) for at in failed):
        return crashes.from_outside(timeline)
    ended = any(s.known.name == "slurm-cancelled" for s in timeline.outside)
    nobodys = all(one.message_only and one.rank is None and one.pid is None for one in timeline.candidates)
    heard = timeline.facts.timed_out or timeline.facts.ended
    return crashes.from_outside(timeline) if ended and nobodys and not heard else None


def _failed_beside_a_hang(timeline: Timeline) -> Verdict | None:
    """Whoever failed by itself is why others waited; without that, the hang speaks."""
    gave_up = [*timeline.facts.timed_out, *nccl2.waited(timeline.facts).values()]
    waited, processes = {said.rank for said in gave_up}, {"", *(said.process for said in gave_up)}

    def is_firm(one: Candidate) -> bool:
        if not one.message_only:
            return one.rank not in waited
        # A message without a traceback is firm where a process wrote it before its peers gave up.
        own = one.rank not in waited if one.rank is not None else one.process not in processes
        return own and bool(gave_up) and all(before(one.at, said.at) for said in gave_up)

    failed = crashes.crashed(timeline) if any(is_firm(one) for one in timeline.candidates) else None
    return failed or hangs.hung(timeline) or crashes.crashed(timeline)


def scheduler_ended() -> None:
    """The scheduler ended the job, or somebody told torchrun to end: a time limit, preemption, a lost node, an
    eviction, Ctrl-C.

    Example:
        error[SL603]: Slurm ended the job (TIME LIMIT) on node1

    How it was concluded: from Slurm's or Kubernetes' own line, or from a word of torchrun or Python that a signal came.
    The line stands before any failure in the logs, or nothing else failed. A job that hung until its time limit shows
    the watchdog's lines before it, and these lead. Under `safelaunch` a node that gets SIGTERM or Ctrl-C tells the
    others, whose ranks fail for it. They exit with 75, or with 130 after Ctrl-C.

    What to do: read the reason in the line. Ask for more time, save checkpoints more often, or start again elsewhere.

    What it is not: a step that ran out of memory (SL404), or one rank that a signal ended (SL403).
    """
