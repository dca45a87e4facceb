"""Pure rules over what log files say: `LogFacts -> Verdict`.

A name is given only where a line proves it. Where lines merely fit, the verdict says so and quotes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.logs import crashes, hangs, nccl2
from safelaunch.diagnosis.logs.classify import classify
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline, before, missing, quote
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, LogFile
from safelaunch.sizes import plural


def diagnose(facts: LogFacts) -> Verdict:
    """The verdict on a job from its log files.

    What happened before everything else leads:

    - an exception or a death that no lost peer explains,
    - somebody from outside,
    - ranks that waited.

    After them comes what is left of messages and records.
    """
    timeline = classify(facts)
    rules: tuple[Callable[[Timeline], Verdict | None], ...] = (
        _outside_first,
        _failed_beside_a_hang,
        crashes.meeting_failed,
        crashes.from_outside,
        hangs.stuck_watchdog,
        crashes.peers_lost if timeline.victims and not timeline.unexplained else crashes.ended_unexplained,
        crashes.peers_lost,
    )
    for rule in rules:
        verdict = rule(timeline)
        if verdict is not None:
            return _with_earlier(timeline, verdict)
    return nothing_found(timeline)


def _with_earlier(timeline: Timeline, verdict: Verdict) -> Verdict:
    """The verdict, and a word on what failed in an attempt, or a job, before the last one."""
    if not timeline.earlier:
        return verdict
    line = f"an earlier attempt, or job, failed as well: {quote(timeline.earlier[0].at, 120)}"
    return replace(verdict, because=(*verdict.because, line))


def _outside_first(timeline: Timeline) -> Verdict | None:
    """What came from outside leads where it was there before anything failed, or waited in vain."""
    if not timeline.outside:
        return None
    failed = [one.at for one in timeline.candidates] + [t.at for t in timeline.facts.timed_out]
    first = min(timeline.outside, key=lambda s: (s.at.file, s.at.line))
    memory = any(s.known.code == "SL404" for s in timeline.outside)
    if failed and not memory and all(before(first.at, at) for at in failed):
        return crashes.from_outside(timeline)
    return None


def _failed_beside_a_hang(timeline: Timeline) -> Verdict | None:
    """Whoever failed by itself is why others waited; without that, the hang speaks."""
    gave_up = [*timeline.facts.timed_out, *nccl2.waited(timeline.facts).values()]
    waited = {said.rank for said in gave_up}

    def is_firm(one: Candidate) -> bool:
        if not one.message_only:
            return one.rank not in waited
        # A message without a traceback is firm where a rank wrote it before its peers gave up.
        own = one.rank is not None and one.rank not in waited
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


def nothing_found(timeline: Timeline) -> Verdict:
    """Nothing that failed was found in the logs.

    Example:
        note[SL498]: nothing wrong was found

    How it was concluded: each log could be read, and none of these is in them:
    - a traceback that ended a process;
    - a known message of a failure, where a log ends soon after it;
    - a record of a failed process.

    What to do: if the job did fail, give the logs of all ranks and of the launcher. Output that is buffered may be lost
    when a process is killed (PYTHONUNBUFFERED=1).

    What it is not: a proof that the job ended well. It says nothing of what the logs do not hold, such as the output of
    other nodes. Where a log could not be read, or a traceback is cut off, it is SL499.
    """
    facts = timeline.facts
    read = [file for file in facts.files if not file.unreadable]
    if not read:
        reasons = tuple(f"{file.path}: {file.unreadable}" for file in facts.files[:3]) or ("no file was given",)
        return _plain("SL499", "no log could be read", reasons, "check the paths", "low", 1)
    because = _read(timeline, read)
    if not any(file.lines for file in facts.files) and len(read) == len(facts.files):
        what = "the log is empty" if len(read) == 1 else "the logs are empty"
        return _plain("SL498", what, because, "give the logs of all ranks and of the launcher", "low", EXIT_OK)
    return (
        _inconclusive(timeline, because)
        or _not_understood(timeline, read, because)
        or _healthy(timeline, read, because)
    )


def _read(timeline: Timeline, read: list[LogFile]) -> tuple[str, ...]:
    """How much was read, and what in it was worth a line without being a failure."""
    facts = timeline.facts
    lines = f"{sum(file.lines for file in facts.files)} lines in {plural(len(read), 'file')}"
    survived = (f"a traceback that its process survived: {quote(one.at)}" for one in timeline.survived[:1])
    warnings = [f"a warning: {quote(s.at)}" for s in facts.sightings if s.known.role == "note"]
    return (lines, *survived, *warnings[:1])


def _cannot_tell(summary: str, *because: str, remedy: str = "") -> Verdict:
    return _plain("SL499", summary, because, remedy, "low", 1)


def _inconclusive(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where something speaks against a job that ended well; None where nothing does."""
    launcher = next((one for one in timeline.launcher if one.type), None)
    if launcher is not None:
        said = one_line(f"{launcher.type}: {launcher.message}", 150)
        return _cannot_tell(f"the launcher failed: {said}", quote(launcher.at), *because)
    if timeline.earlier and not timeline.facts.finished:
        line = f"an earlier attempt failed: {quote(timeline.earlier[0].at, 120)}"
        return _cannot_tell("the logs do not say how the last attempt ended", *because, line)
    if timeline.cut:
        line = f"a traceback is cut off: {quote(timeline.cut[0].at)}"
        return _cannot_tell(
            "a traceback is cut off, and the logs do not say more", *because, *_restarted(timeline), line
        )
    return None


def _not_understood(timeline: Timeline, read: list[LogFile], because: tuple[str, ...]) -> Verdict | None:
    """The verdict where a part of the logs says nothing to us; None where all could be read."""
    facts, because = timeline.facts, (*because, *_restarted(timeline))
    unread = [f"{file.path}: {file.unreadable}" for file in facts.files if file.unreadable]
    if unread:
        what = f"cannot tell: {len(unread)} of {plural(len(facts.files), 'file')} could not be read"
        return _cannot_tell(what, *unread[:3], *because, remedy="see that these can be read, as a text")
    torn, left_out = (sum(getattr(file, name) for file in read) for name in ("torn", "left_out"))
    if 2 * torn >= sum(file.lines for file in facts.files) or left_out:
        what = f"{plural(left_out, 'event')} more than can be kept" if left_out else f"{plural(torn, 'torn line')}"
        return _cannot_tell(f"the logs could not be read as a whole: {what}", *because)
    wrapped = [file.path for file in read if file.wrapped]
    if wrapped and not facts.finished:
        what = f"cannot tell: most lines of {wrapped[0]} stand in JSON that is not understood"
        remedy = "give its lines as text, such as `journalctl -o cat` or `jq -r '.events[].message'` has them"
        return _cannot_tell(what, *because, remedy=remedy)
    return None


def _healthy(timeline: Timeline, read: list[LogFile], because: tuple[str, ...]) -> Verdict:
    facts = timeline.facts
    torn = any(file.torn for file in read)
    understood = facts.finished or facts.sightings or any(file.ranks for file in read)
    return _plain(
        "SL498",
        "nothing wrong was found" + (" in the lines that could be read" if torn else ""),
        (*because, *_restarted(timeline), *_passed_over(facts), *missing(facts)[:1]),
        "if the job did fail, give the logs of all ranks and of the launcher",
        "medium" if understood and not torn else "low",
        EXIT_OK,
    )


def _passed_over(facts: LogFacts) -> tuple[str, ...]:
    """The files beside the logs that were not read."""
    more = ", ..." if facts.passed_over[3:] else ""
    known = f"not read, since their names are of no logs: {', '.join(facts.passed_over[:3])}{more}"
    return (known,) if facts.passed_over else ()


def _restarted(timeline: Timeline) -> tuple[str, ...]:
    said = (f"an earlier attempt failed, and was started again: {quote(one.at, 120)}" for one in timeline.earlier[:1])
    return tuple(said)


def _plain(code: str, summary: str, because: tuple[str, ...], remedy: str, confidence: str, exit_code: int) -> Verdict:
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="crash" if exit_code else "none",
        summary=summary,
        because=because,
        remedy=remedy,
        confidence="low" if confidence == "low" else "medium",
        exit_code=exit_code,
    )
