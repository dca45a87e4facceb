"""Whether a line speaks of a failure, in whatever words, and how strongly: the one list of such words for the ends of
logs, for alarms, and for what a verdict has left out."""

from __future__ import annotations

import re

from safelaunch.evidence.logs import harmless, last_words, wordings

INTERRUPTED = "^C"  # what a terminal shows of it
GRAVE, SAID, HINTED, NONE = 3, 2, 1, 0  # it ended something; it failed; it may belong to a failure; nothing of it

# Frames, rulers below them, edges of tables, C++ frames, progress bars, lines of code, settings, usage and URLs.
_NO_WORDS = re.compile(
    r"^\s*(?:File \"|frame \\?#\d|#\d{1,3} |at 0x|\^+|[|+][-=+]{3}|Traceback \(most recent)"
    r"|^[~^|+=*\s#_-]{3,}$|^[^A-Za-z\u0080-\U0010ffff]{0,400}$|^\s*\|.*\|\s*$"
    r"|\d%\s?\|[^|]{0,80}\|\s*[\d.?]+\w?/[\d.?]+\w?\s\[[^\]]{0,60}\]\s*$"
    r"|^\s{2,}(?:self\.|return |raise |await |for |if |with |try:|except\b|[\w.]{1,60} = )"
    r"|^\s*(?:def |class |import |from \w+ import |(?:if .{1,200}: ?)?raise \w|elif |else:|assert |@\w)"
    r"|^\s*(?:\w+ = )?(?!\S*(?:Error|Exception)\()[\w.]{3,80}\(.{0,200}[,()]\s*$"
    r"|^(?:ERROR|WARNING|INFO|CRITICAL)?[\d\s:.,\[\]()-]*$|^Exception raised from \w+ at "
    r"|^\[?[EWIF]\d{3,4} [\d:.]+ (?:\d+ )?\S+\]\s*$"
    r"|^(?:For debugging consider|Compile with `?TORCH|Search for `?cuda)"
)
# Lines that say nothing of their own: headings of launchers, settings, and what stands below every error.
_NO_NEWS = re.compile(
    r"^usage: |NCCL INFO(?!.*\b(?:[Aa]bort|[Ff]ail|[Ee]rror))|NCCL (?:version|env)"
    r"|^\s*(?:error_file|exitcode|traceback|time|host|rank|python_version|root cause)\s*:(?!.*(?:Error|Exception): )"
    r"|^\S{1,120}\.py\s*$|[Ss]ome NCCL operations have failed|To avoid data inconsistency|^Last error:\s*$"
    r"|Abort COMPLETE|^\(global lru\)|^Dumping (?:input data|scheduler (?:output|stats))\b"
    r"|-- Process \d+ terminated with the following|\*\*\* (?:Check failure stack|End of error)"
    r"|(?:to signal dumping|dump debug info|flight recorder dump signal|Received a dump signal)\b"
)
# The first line of what a launcher tells of a failure: the news stand below it.
_HEADING = re.compile(
    r"^\S*(?:ChildFailedError:?\s*$|WorkerGroupError: Training failed due)|^\[Rank \d{1,7} Error Snippet\]:\s*$"
    r"|^\S+ FAILED$|^Failures?:$|^Root Cause \(first|^Error executing job with"
)
# The header of a table, a heading of lists, or a row of bare numbers and states: they say nothing by themselves.
_TABLE = re.compile(
    r"^\s*(?:[A-Z][\w/()#%-]*\s+){4,}[A-Z][\w/()#%-]*\s*$|^\W*(?:Errors|Warnings|Failures|Exceptions|Status)\W*$"
    r"|^\s*(?:\d+\s+){4,}[A-Z ]+$"
)
_EXCEPTION = re.compile(
    r"(?<![\w.'\"(=/$])(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception|Interrupt)(?:: (?!\d+(?:\.\d+)?$)\S|$|\()"
)
_FATAL = re.compile(
    r"\b(?:[Ff]atal|FATAL|[Aa]bort(?:ed|ing)|ABORT|[Kk]illed|KILLED|CANCELLED|PREEMPTED|[Ss]egmentation fault"
    r"|[Cc]ore dumped"
    r"|[Oo]ut of memory|OOM|oom-kill|[Pp]anic|[Cc]rashed|evicted|Evicted|SIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE))\b"
    r"|CUDA error|cudaError|NVRM: Xid|\bXid\b.{0,40}\d|[Uu]ncorrectable|MMU [Ff]ault|fallen off the bus"
)
# A logger's line that ends nothing, or a relay's, or what torch says after any failure.
_ECHO = re.compile(
    r"Received (?:sigquit|SIGTERM)|[Cc]hild failed|Sending process \d+ closing signal|output_handler failed"
    r"|[Kk]illing subproc|sigkill_handler\]"
    r"|taking the entire process down|kernels might run on corrupted|Due to the asynchronous nature"
    r"|To avoid data inconsistency"
    r"|[Ff]ailed \(exitcode: -?\d+\) local_rank|ChildFailedError|SignalException"
    r"|[Ss]ee (?:the )?(?:stack )?(?:trace|above|root)"
    r"|[Rr]oot [Cc]ause|actor is dead because|actor died|Worker exit type|Timeout at NCCL work|Signal code: "
    r"|Failing at address|Process received signal|has exited with|Exited with exit code"
    r"|exit(?:ed)? with code -?\d+\. [Cc]heck|RPC call to \w+ timed out|EngineDeadError"
    r"|Engine core initialization failed|process group has NOT been destroyed|Exception raised from"
    r"|leaked \w+ objects"
    r"|FAILED$|^Failures?:|^<NO_OTHER_FAILURES>|To fix this|[Ss]ome NCCL operations have failed"
    r"|Abort(?:ing)? COMPLETE"
    r"|task \d+: Terminated|Force Terminated|Terminating (?:StepId|job step)|Job step aborted|error_handler:"
    r"|Set the environment variable"
    r"|Xid (?:\(PCI[^)]{0,30}\): )?4[35]\b"
    r"|^terminate called |EngineCore failed to start|ssh exited with exit code|EngineCore encountered a fatal"
    r"|Shutting down"
)
# What contradicts itself, or breaks a rule that the line tells.
_CONTRADICTS = re.compile(
    r"\b(?:larger|greater|smaller|less|more|longer|shorter|fewer|higher|lower|bigger) than (?:the )?(?:\w+ ){0,3}"
    r"\(?-?\d"
    r"|\bexceed(?:s|ed|ing)?\b|\bnot enough\b|\binsufficient\b"
    r"|\btoo (?:many|few|large|small|long|short|big|old|new)\b"
    r"|\bmust (?:be|have|match|not)\b|\bmismatch|\bexpected\b.{1,120}\b(?:but|got|found|received)\b"
    r"|\bdoes not (?:match|fit|exist)\b"
    r"|\bdo(?:es)?n['o]t (?:match|fit|exist)\b|\bnot (?:supported|available|allowed|permitted|divisible)\b"
    r"|\bunsupported\b"
    r"|\b(?:no|0) (?:GPUs?|devices?|space|memory|samples?|data)\b.{0,40}(?:left|found|available|visible)"
    r"|\bgpu count: 0\b"
    r"|\bavailable\w*(?:\(\))?\W{1,3}-\d|\b(?:value|size|memory|mem|tokens|blocks|length|count)\b(?: \w+)?\W{1,3}-\d"
    r"|\bone of the workers\b|\bweights_only\b|\bmight be asynchronously reported\b",
    re.IGNORECASE,
)
# The program's own limit, or somebody's wish, after which it stops.
_STOPPED = re.compile(
    r"\btime ?limit\b|\btimelimit\b|\b[Ss]topping (?:the )?(?:training|run|job|early)\b|\b[Ee]arly[ -]?stopp"
    r"|\bgraceful(?:ly)? (?:stop|shut)"
    r"|\bdeadline (?:reached|exceeded)|\bwall ?time\b|\b(?:requested|asked|ordered) to (?:stop|terminate|exit)"
    r"|\bWatchdog timeout|\bNo available shared memory broadcast block",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"(?<![\w.])(?:ERROR|CRITICAL|FATAL)(?![\w=])|^\[?[EF]\d{3,4} \d\d:|NCCL WARN")
_MILD = re.compile(r"(?<![\w.])(?:WARNING|WARN|INFO|DEBUG)(?![\w=])|[Ww]arning\b|^\[?[WI]\d{0,4} ")

# An error that a device has corrected is none; that a driver tells of it may be an alarm.
_CORRECTED = re.compile(r"(?:severity=|: )corrected\b", re.IGNORECASE)


def strength(text: str, whole: str = "", *, last: bool = False) -> int:
    """How strongly a line speaks of a failure: GRAVE, SAID, HINTED or NONE.

    Args:
        text: the line, without what stands before its message.
        whole: the line as it is, where its level may stand before the message.
        last: whether nothing is said after it: then what it tries again came to nothing.
    """
    weight = _strength(text, whole, last)
    if weight < SAID and len(text) > 2 and _STOPPED.search(text) and _has_news(text):
        return SAID
    return weight


def ends_with(text: str, whole: str, *, last: bool) -> bool:
    """Whether a line near the end of a log says that something failed; a job that came to its own limit has not.

    Args:
        text: the line, without what stands before its message.
        whole: the line as it is.
        last: whether nothing is said after it.
    """
    known = wordings.ends(text) or _HEADING.search(text)
    return _strength(text, whole, last) >= SAID or (bool(known) and not harmless.takes_back(text))


def is_doubtful(text: str, whole: str) -> bool:
    """Whether a line says that something failed by a word alone, without a level: progress behind it refutes that.

    Args:
        text: the line, without what stands before its message.
        whole: the line as it is.
    """
    graver = any(pattern.search(text) for pattern in (_EXCEPTION, _FATAL, _HEADING, _STOPPED)) or contradicts(text)
    return not graver and not _LEVEL.search(whole) and not text.startswith(INTERRUPTED) and wordings.is_doubtful(text)


def _has_news(text: str) -> bool:
    return not any(pattern.search(text) for pattern in (_NO_WORDS, _NO_NEWS, _HEADING, _TABLE))


def _strength(text: str, whole: str, last: bool) -> int:
    if text.startswith(INTERRUPTED):
        return SAID
    if len(text) < 3 or not _has_news(text):
        return NONE
    mild = bool(_MILD.search(whole[: len(whole) - len(text)] if whole.endswith(text) else "") or _MILD.search(text))
    nothing = harmless.takes_back(text) or _CORRECTED.search(text) is not None or (harmless.retries(text) and not last)
    contradicts = _CONTRADICTS.search(text) is not None and not nothing
    text = harmless.without_counts(text)
    words = _EXCEPTION.search(text) or _FATAL.search(text)
    if not mild and not nothing and (words or wordings.ends(text)):
        return GRAVE
    if not nothing and (_LEVEL.search(whole) or _LEVEL.search(text)):
        return SAID
    if not nothing and wordings.from_outside(text):
        return SAID
    if not nothing and not mild and (wordings.complains(text) or last_words.takes_back(text) or contradicts):
        return SAID
    return HINTED if not nothing and (words or contradicts or wordings.speaks(text)) else NONE


def has_words(text: str) -> bool:
    """Whether a line says something: it is no frame, ruler, edge of a table or line of code."""
    return _NO_WORDS.search(text) is None


def may_tell(text: str) -> bool:
    """Whether a line that a pattern fits may tell of a failure: it has words, and does not take them back."""
    return has_words(text) and not harmless.takes_back(text)


def is_echo(text: str) -> bool:
    """Whether a line only passes on that something failed, or is said after any failure."""
    return _ECHO.search(text) is not None


def contradicts(text: str) -> bool:
    """Whether a line tells of a number, a size or a kind that cannot be as it is."""
    return _CONTRADICTS.search(text) is not None and not harmless.takes_back(text)
