"""Pure rules over what log files say: `LogFacts -> Verdict`.

A name is given only where a line proves it. Where lines merely fit, the verdict says so and quotes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.logs import crashes, hangs, nccl2
from safelaunch.diagnosis.logs.story import Story, before, missing, quote
from safelaunch.diagnosis.logs.telling import tell
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts
from safelaunch.sizes import plural


def diagnose(facts: LogFacts) -> Verdict:
    """The verdict on a job from its log files.

    What happened before everything else leads: an exception or a death that no lost peer explains, somebody from
    outside, ranks that waited; after them what is left of messages and records.
    """
    story = tell(facts)
    rules: tuple[Callable[[Story], Verdict | None], ...] = (
        _outside_first,
        _failed_beside_a_hang,
        crashes.meeting_failed,
        crashes.from_outside,
        hangs.stuck_watchdog,
        crashes.peers_lost if story.victims and not story.unexplained else crashes.ended_unexplained,
        crashes.peers_lost,
    )
    for rule in rules:
        verdict = rule(story)
        if verdict is not None:
            return _with_earlier(story, verdict)
    return nothing_found(story)


def _with_earlier(story: Story, verdict: Verdict) -> Verdict:
    """The verdict, and a word on what failed in an attempt, or a job, before the last one."""
    if not story.earlier:
        return verdict
    line = f"an earlier attempt, or job, failed as well: {quote(story.earlier[0].at, 120)}"
    return replace(verdict, because=(*verdict.because, line))


def _outside_first(story: Story) -> Verdict | None:
    """What came from outside leads where it was there before anything failed, or waited in vain."""
    if not story.outside:
        return None
    failed = [s.at for s in story.suspects] + [t.at for t in story.facts.timed_out]
    first = min((s for s in story.outside), key=lambda s: (s.at.file, s.at.line))
    memory = any(s.known.code == "SL404" for s in story.outside)
    if failed and not memory and all(before(first.at, at) for at in failed):
        return crashes.from_outside(story)
    return None


def _failed_beside_a_hang(story: Story) -> Verdict | None:
    """Whoever failed by itself is why others waited; without that, the hang speaks."""
    facts = story.facts
    gave_up = [*facts.timed_out, *nccl2.waited(facts).values()]
    waited = {said.rank for said in gave_up}
    firm = [s for s in story.suspects if s.whole and s.rank not in waited]
    # A message without a traceback is firm where a rank wrote it before its peers gave up.
    firm += [
        s
        for s in story.suspects
        if not s.whole and s.rank is not None and s.rank not in waited and gave_up
        if all(before(s.at, said.at) for said in gave_up)
    ]
    if firm:
        verdict = crashes.crashed(story)
        if verdict is not None:
            return verdict
    return hangs.hung(story) or crashes.crashed(story)


def scheduler_ended() -> None:
    """The scheduler ended the job, or told torchrun to end: a time limit, preemption, a lost node, an eviction.

    How it was concluded: from Slurm's or Kubernetes' own line, where it stands before any failure in the logs, or where
    nothing else failed. A job that hung until its time limit shows the watchdog's lines before it, and these lead.

    What to do: the reason in the line decides: ask for more time, save checkpoints more often, start again elsewhere.
    """


def nothing_found(story: Story) -> Verdict:
    """Nothing that failed was found in the logs.

    How it was concluded: no traceback that ended a process, no known message, no record of a failed process, and each
    log could be read (where one could not, SL499 names it). It says nothing of what the logs do not hold, such as the
    output of other nodes.

    What to do: if the job did fail, give the logs of all ranks and of the launcher; output that is buffered may be lost
    when a process is killed (PYTHONUNBUFFERED=1).
    """
    facts = story.facts
    read = [file for file in facts.files if not file.unreadable]
    if not read:
        reasons = tuple(f"{file.path}: {file.unreadable}" for file in facts.files[:3]) or ("no file was given",)
        return _plain("SL499", "no log could be read", reasons, "check the paths", "low", 1)
    unread = [file for file in facts.files if file.unreadable]
    lines = sum(file.lines for file in facts.files)
    because = [f"{lines} lines in {len(read)} file{'s' if len(read) > 1 else ''}"]
    because += [f"a traceback that its process survived: {quote(one.at)}" for one in story.survived[:1]]
    because += [f"a warning: {quote(s.at)}" for s in facts.sightings if s.known.role == "note"][:1]
    if not lines and not unread:
        what = "the log is empty" if len(read) == 1 else "the logs are empty"
        remedy = "give the logs of all ranks and of the launcher"
        return _plain("SL498", what, tuple(because), remedy, "low", EXIT_OK)
    launcher = next((one for one in story.launcher if one.type), None)
    if launcher is not None:
        said = f"the launcher failed: {one_line(f'{launcher.type}: {launcher.message}', 150)}"
        return _plain("SL499", said, (quote(launcher.at), *because), "", "low", 1)
    if story.earlier and not facts.finished:
        because.append(f"an earlier attempt failed: {quote(story.earlier[0].at, 120)}")
        return _plain("SL499", "the logs do not say how the last attempt ended", tuple(because), "", "low", 1)
    because += [f"an earlier attempt failed, and was started again: {quote(one.at, 120)}" for one in story.earlier[:1]]
    if story.cut:
        because.append(f"a traceback is cut off: {quote(story.cut[0].at)}")
        return _plain("SL499", "a traceback is cut off, and the logs do not say more", tuple(because), "", "low", 1)
    if unread:
        what = f"cannot tell: {len(unread)} of {plural(len(facts.files), 'file')} could not be read"
        reasons = tuple(f"{file.path}: {file.unreadable}" for file in unread[:3])
        return _plain("SL499", what, (*reasons, *because), "see that these can be read, as a text", "low", 1)
    torn, left_out = (sum(getattr(file, name) for file in read) for name in ("torn", "left_out"))
    if 2 * torn >= lines or left_out:
        what = f"{plural(left_out, 'event')} more than can be kept" if left_out else f"{plural(torn, 'torn line')}"
        return _plain("SL499", f"the logs could not be read as a whole: {what}", tuple(because), "", "low", 1)
    wrapped = [file.path for file in read if file.wrapped]
    if wrapped and not facts.finished:
        what = f"cannot tell: most lines of {wrapped[0]} stand in JSON that is not understood"
        remedy = "give its lines as text, such as `journalctl -o cat` or `jq -r '.events[].message'` has them"
        return _plain("SL499", what, tuple(because), remedy, "low", 1)
    if facts.passed_over:
        known = ", ".join(facts.passed_over[:3]) + (", ..." if facts.passed_over[3:] else "")
        because.append(f"not read, since their names are of no logs: {known}")
    remedy = "if the job did fail, give the logs of all ranks and of the launcher"
    understood = facts.finished or facts.sightings or any(file.ranks for file in read)
    summary = "nothing wrong was found" + (" in the lines that could be read" if torn else "")
    confidence = "medium" if understood and not torn else "low"
    return _plain("SL498", summary, (*because, *missing(facts)[:1]), remedy, confidence, EXIT_OK)


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
