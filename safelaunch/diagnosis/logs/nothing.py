"""What is said of logs in which no rule finds a failure: that nothing is wrong, or that this cannot be told.

A false all-clear is the worst that a reader of logs can say. So a job is said to be all right only where its lines show
its steps or its end, and no line speaks of a failure that nothing overcame.
"""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.logs import context, cut_off, nccl, reports, silent, speaker
from safelaunch.diagnosis.logs.coverage import GRAVE, SAID, whose
from safelaunch.diagnosis.logs.exceptions import ended_well_after, follows_the_end
from safelaunch.diagnosis.logs.quoting import fit
from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote, words
from safelaunch.diagnosis.wording import one_line
from safelaunch.model import Verdict
from safelaunch.model.logs import ALSO, Complaint, LogFacts, LogFile, LogLine, Odd, Sighting
from safelaunch.sizes import plural

VAGUE = ("trouble", "error-level", "scheduler-alarm", "connection-failed", "process-group-warning", "launcher-failed")
# What these mean says less than their own words.
WORDY = (
    *VAGUE, "process-aborted", "gpu-unavailable", "kernel-alarm", "engine-stuck", "container-failed", "not-scheduled",
    "field-of-gpu", "xid-memory", "xid-follows", "xid",
)  # fmt: skip

# What the last line of a log belongs to, where it is no failure.
PHASES = (
    (re.compile(r"NCCL INFO|NCCL version"), "what NCCL says while it starts"),
    (
        re.compile(
            r"(?i)\binit\w* (?:torch )?(?:distributed|(?:the )?process group)|distributed init|init_process_group"
            r"|rendezvous"
        ),
        "the start of torch.distributed",
    ),
    (re.compile(r"(?i)load(?:ing|ed)\b.*(?:checkpoint|shard|model|weight|safetensor)"), "the loading of the model"),
    (re.compile(r"(?i)captur\w+ .*(?:cuda )?graph|torch\.compile|compil(?:e|ing)"), "the compilation of the model"),
    (re.compile(r"(?i)sav(?:e|ing)\b.*checkpoint|checkpoint.*\bsav(?:e|ing)"), "the saving of a checkpoint"),
    (re.compile(r"(?i)\b(?:step|iter|iteration|epoch)\b\W{0,4}\d"), "the steps of the job"),
)

_SAYS = re.compile(r"^(?!\s*[|+]).*[^\W\d_]{3}")  # no edge of a table, and no ruler
LAST = 10  # lines, behind which one is not near the end
FEW = 50  # lines, of which nothing can be said


def nothing_found(timeline: Timeline) -> Verdict:
    """Nothing that failed was found in the logs.

    Example:
        note[SL498]: nothing wrong was found

    How it was concluded: the logs show the steps of a job, or its end, and none of these is in them:
    - a traceback that ended a process;
    - a record of a failed process;
    - a line that speaks of a failure (a warning of NCCL, a lost connection, a timeout, ERROR), and no word after it
      that the job ended well;
    - a number that speaks against it: a loss that is nan, a step that took many times the median, steps that were all
      skipped, or a warning that the job wrote while it ran. Then it is SL499, with that line.

    What to do: if the job did fail, give the logs of all ranks and of the launcher. Output that is buffered may be lost
    when a process is killed (PYTHONUNBUFFERED=1).

    What it is not: a proof that the job ended well. It says nothing of what the logs do not hold, such as the output of
    other nodes. Where a log could not be read, is cut off, or shows neither steps nor an end, it is SL499.
    """
    facts = timeline.facts
    read = [file for file in facts.files if not file.unreadable]
    if not read:
        reasons = tuple(f"{file.path}: {file.unreadable}" for file in facts.files[:3]) or ("no file was given",)
        return _plain("SL499", "no log could be read", reasons, "check the paths", "low", 1)
    because = _read(timeline, read)
    if not any(file.lines for file in facts.files) and len(read) == len(facts.files):
        what = "cannot tell: the log is empty" if len(read) == 1 else "cannot tell: the logs are empty"
        return _cannot_tell(what, *because, remedy="give the logs of all ranks and of the launcher")
    verdict = _inconclusive(timeline, because) or _alarmed(timeline, because)
    return verdict or _not_understood(timeline, read, because) or _of_a_job_that_ran(timeline, read, because)


def _of_a_job_that_ran(timeline: Timeline, read: list[LogFile], because: tuple[str, ...]) -> Verdict:
    """The verdict where no line that is understood speaks of a failure."""
    return (
        reports.without_words(timeline)
        or _with_last_words(timeline, because)
        or _odd(timeline, because)
        or _fell_silent(timeline, because)
        or _cut_off(timeline, because)
        or _without_steps(timeline, read, because)
        or _healthy(timeline, read, because)
    )


def _read(timeline: Timeline, read: list[LogFile]) -> tuple[str, ...]:
    """How much was read, and what in it was worth a line without being a failure."""
    facts = timeline.facts
    lines = f"{sum(file.lines for file in facts.files)} lines in {plural(len(read), 'file')}"
    survived = (f"a traceback that its process survived: {quote(one.at)}" for one in timeline.survived[:1])
    shown = (
        one for one in facts.complaints if one.weight >= SAID and not one.echo
    )  # by what is common to all verdicts
    told = {(one.at.file, one.at.line) for one in shown}
    noted = (s for s in facts.sightings if s.known.role in ("note", "alarm") and not s.known.name.startswith("field-"))
    noted = (s for s in noted if (s.at.file, s.at.line) not in told)
    warnings = [f"{'a warning: ' if s.known.role == 'note' else ALSO}{quote(s.at)}" for s in noted]
    return (lines, *survived, *warnings[:1])


def _cannot_tell(summary: str, *because: str, remedy: str = "") -> Verdict:
    return _plain("SL499", summary, because, remedy, "low", 1)


def _inconclusive(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where something speaks against a job that ended well; None where nothing does."""
    launcher = next((one for one in timeline.launcher if one.type), None)
    if launcher is not None:
        said = one_line(f"{launcher.type}: {launcher.message}", 150)
        remedy = cut_off.where_to_look(launcher)
        return _cannot_tell(f"the launcher failed: {said}", quote(launcher.at), *because, remedy=remedy)
    if timeline.earlier and not (timeline.facts.finished or context.reached_its_last_step(timeline.facts)):
        line = f"an earlier attempt failed: {quote(timeline.earlier[0].at)}"
        return _cannot_tell("the logs do not say how the last attempt ended", *because, line)
    return _of_cut(timeline, because)


def _of_cut(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where tracebacks are cut off: what was said before them may be why they were written."""
    cut = (*timeline.cut, *(one for one in timeline.launcher if one.frames))
    lead = cut_off.innermost(cut)
    if lead is None:
        return None
    what, lines = cut_off.of_several(cut, lead)
    remedy = cut_off.where_to_look(lead)
    lines = (*lines, *context.shutting_down(timeline.facts, lead.at))
    before = cut_off.announced(timeline, lead)
    number = next((odd for odd in timeline.facts.odd if odd.kind == "value"), None)
    near = speaker.of_cut(timeline.facts, lead)
    what += f"; {near}" if near else ""
    if before is not None:
        lines = (quote(before.at), *lines)
        what = f"{_whose(before)}{_what(before, _behind(timeline.facts, before.at))}; {what}"
    elif number is not None:
        lines = (_around(number), *lines)
        what = f"{number.what}; then {what}"
    return _cannot_tell(what, *lines, *because, *_restarted(timeline), remedy=remedy)


def _alarmed(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where lines speak of a failure, and no rule makes more of them; None where none does."""
    if not timeline.alarms:
        return None
    lead = min(timeline.alarms, key=_vagueness)
    lines = {(s.at.file, s.at.line): s for s in timeline.alarms}
    others = [s for place, s in lines.items() if place != (lead.at.file, lead.at.line)][-2:]
    return _cannot_tell(
        f"cannot tell what became of the job: {_whose(lead)}{_what(lead, _behind(timeline.facts, lead.at))}",
        quote(lead.at),
        *(quote(s.at) for s in others),
        *because[:1],
        *missing(timeline.facts)[:1],
        remedy=lead.known.remedy or "give the whole logs of all ranks and of the launcher",
    )


def _whose(said: Sighting) -> str:
    """Who wrote a line, as far as its marks say."""
    if said.rank is not None:
        return f"rank {said.rank}: "
    local = f"local rank {said.local}" if said.local is not None else ""
    who = said.process or local
    return f"{who}: " if who else ""


def _behind(facts: LogFacts, at: LogLine) -> int:
    """How many lines stand behind a line."""
    return max((file.lines for file in facts.files if file.path == at.file), default=at.line) - at.line


def _what(said: Sighting, behind: int) -> str:
    """What a line says: of NCCL, its own words. It stands near the end of a log where few lines are behind it."""
    reason = nccl.of_line(said)
    if reason:
        return f"NCCL warned: {reason}"
    if said.known.name not in WORDY:
        return f"{said.known.means}, and the logs do not say more"
    means = f"{said.known.means}:"
    if said.known.name == "trouble":
        means = "the log says" if behind > LAST else "near its end, the log says"
    return f"{means} `{words(said.at)}`"


def _vagueness(said: Sighting) -> tuple[bool, bool]:
    """What names a cause tells more than what names NCCL or a launcher, and that more than any other alarm."""
    return said.known.role == "alarm", said.known.name in VAGUE


def _with_last_words(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where a log ends with words of a failure that nothing else tells of, or with a number that cannot be
    as it is; or where it shows no step, and such words stand anywhere."""
    facts = timeline.facts
    parting = next((at for at in facts.parting if not _is_known(facts, at)), None)
    if parting is not None:
        what = f"cannot tell what became of the job: the log ends with `{words(parting)}`"
        return _cannot_tell(what, quote(parting), *because, *_restarted(timeline))
    said = _unexplained(facts)
    if not said:
        return None
    lead = min(said, key=lambda one: (-one.weight, one.echo, one.at.line))
    what = f"cannot tell what became of the job: {whose(lead)}`{words(lead.at)}`"
    remedy = "see what that number comes from: sizes, settings and the memory that is left" if lead.wrong else ""
    remedy = remedy or "give the whole logs of all ranks and of the launcher"
    return _cannot_tell(what, quote(lead.at), *because, *_restarted(timeline), remedy=remedy)


def _unexplained(facts: LogFacts) -> list[Complaint]:
    """The lines that speak of a failure in a log without a step; beside steps, those at its end that contradict
    themselves. Of a file that may be no log at all, those that tell of an end."""
    steps = {file.path for file in facts.files if file.steps}
    strange = {file.path for file in facts.files if not (file.known or file.ranks) and file.lines >= FEW}

    def counts(one: Complaint) -> bool:
        if one.weight < (GRAVE if one.at.file in strange else SAID) or _is_known(facts, one.at):
            return False
        return one.at.file not in steps or (one.wrong and _is_among_the_last(facts, one.at))

    return [one for one in facts.complaints if counts(one)]


def _is_among_the_last(facts: LogFacts, at: LogLine) -> bool:
    return any((one.file, one.line) == (at.file, at.line) for one in facts.last)


def _odd(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where a job ran, and its own numbers or warnings say that not all is well; None where none do. A
    warning, and a pause, are overcome by a job that says that it ended well."""
    finished = {end.at.file for end in timeline.facts.finished}
    odd = [one for one in timeline.facts.odd if one.kind == "value" or one.at.file not in finished]
    odd = [one for one in odd if one.kind != "remark"]
    if not odd:
        return None
    remedy = {
        "value": "what the job learns from there on may be worth nothing: look at data, learning rate and loss scale "
        "before that line, and do not use the checkpoints after it",
        "pace": "see what the job, its storage and its network did then",
        "warning": "read that warning: it may explain what the job does",
    }[odd[0].kind]
    others = [f"{one.what}: {quote(one.at)}" for one in odd[1:3]]
    what = f"cannot tell: no failure is shown, but {odd[0].what}"
    return _cannot_tell(what, _around(odd[0]), *others, *because[:1], *_restarted(timeline), remedy=remedy)


def _fell_silent(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where a rank wrote nothing more while others went on; None where none did, or all ended well."""
    told = "" if timeline.facts.finished else silent.told(timeline.facts)
    if not told:
        return None
    last = {one.rank: one.last for one in timeline.facts.paced}[silent.ranks(timeline.facts)[0]]
    remedy = "see what that rank, its node and its log did then: give the log of its node, and of the launcher"
    return _cannot_tell(f"cannot tell: no failure is shown, but {told}", quote(last), *because, remedy=remedy)


def _around(odd: Odd) -> str:
    """The line of an odd number, from a little before it."""
    names = odd.what.split(" is ")[0].split(" fell ")[0]
    start = max(0, odd.at.text.lower().find(names) - 40)
    text = odd.at.text if start == 0 else f"... {odd.at.text[start:]}"
    return quote(replace(odd.at, text=text))


def _is_known(facts: LogFacts, at: LogLine) -> bool:
    """Whether what a last line says is known to be no failure: a message that is worth a note, or one that the job
    ended well after."""
    noted = any((s.at.file, s.at.line) == (at.file, at.line) for s in facts.sightings if s.known.role == "note")
    noted = noted or ended_well_after(facts, at) or follows_the_end(facts, at)
    return noted or any(end.at.line == at.line for end in facts.finished)


def _cut_off(timeline: Timeline, because: tuple[str, ...]) -> Verdict | None:
    """The verdict where a log is a part of a longer one; None where it is whole, or says that the job ended well."""
    facts = timeline.facts
    if not facts.cut or facts.finished:
        return None
    what = f"cannot tell: no failure is shown in these lines, and {_ends_in(facts)}"
    part = f"{facts.cut}: what is not there may be what failed"
    return _cannot_tell(
        what, *because, part, *_restarted(timeline), remedy="give the whole log, from its first line on"
    )


def _without_steps(timeline: Timeline, read: list[LogFile], because: tuple[str, ...]) -> Verdict | None:
    """The verdict where no line shows that a job ran; None where some do."""
    facts = timeline.facts
    if facts.finished or any(file.steps for file in read):
        return None
    remedy = "give the logs of all ranks and of the launcher"
    strange = not any(file.ranks or file.known for file in read) and sum(file.lines for file in read) >= FEW
    if strange and not facts.sightings:
        what = "cannot tell: this is no log that can be read, since no line of it is of a kind that is known"
        return _cannot_tell(what, *because, remedy=remedy)
    what = f"cannot tell: no failure is shown in these lines, and {context.ended_in_order(facts) or _ends_in(facts)}"
    nothing = "no line shows a step of the job, or its end"
    return _cannot_tell(what, nothing, *because, *_restarted(timeline), *missing(facts)[:1], remedy=remedy)


def _ends_in(facts: LogFacts) -> str:
    """What the job was about to do where its logs end. A last line may be cut."""
    lines = [line for line in reversed(facts.last) if line.file == facts.last[0].file]
    phase = next((what for line in lines for pattern, what in PHASES if pattern.search(line.text)), "")
    if phase:
        return f"they end in {phase}"
    lines = [line for line in lines if _SAYS.search(line.text)] or lines
    longest = max(lines[:2], default=None, key=lambda line: len(line.text) > len(lines[0].text) + 20)
    return f"they end with: {fit(longest.text, 100)}" if longest else "none shows a step of the job or its end"


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
    warned = (f"a warning that it wrote while it ran: {quote(one.at)}" for one in facts.odd[:1])
    understood = facts.finished or facts.sightings or any(file.ranks for file in read)
    return _plain(
        "SL498",
        "nothing wrong was found" + (" in the lines that could be read" if torn else ""),
        (*because, *warned, *_restarted(timeline), *_passed_over(facts), *missing(facts)[:1]),
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
    said = (f"an earlier attempt failed, and was started again: {quote(one.at)}" for one in timeline.earlier[:1])
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
