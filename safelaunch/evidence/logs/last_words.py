"""What the last lines of a log say of how its job ended, in words that are nobody's own: of shells, C libraries,
launchers and loggers."""

from __future__ import annotations

import re

LINES = 10  # at the end of a log; the usage of a program stands ahead of what is wrong with its arguments

# The last words of jobs that end well: torch elastic's, and what programs say.
FINISHED = re.compile(
    r"worker group successfully finished|worker group finished \(SUCCEEDED\)|torchelastic\.worker\.status\.SUCCEEDED"
    r"|`?Trainer\.fit`? stopped: `?max_|['\"]train_runtime['\"]: ?\d|\b(?:finished|completed|done) (?:the )?training\b"
    r"|^\W*(?:the )?(?:training|train|fine-?tuning|job|run|fit)\b(?![^:=]{0,30}\b(?:epoch|step|iter\w*|batch)\b)"
    r"[^:=]{0,30}?\b"
    r"(?:finished|complete[d]?|done|succeeded)\b(?!.*\b(?:error|fail))",
    re.IGNORECASE,
)
# What a process writes that is about to end, or has ended: no sign that it went on.
LAST_WORDS = re.compile(
    r"^\s|^\[?[EWIF]\d{3,4} |wandb:|[Ww]arning|ERROR|Error|rror:|Exception|resource_tracker|leaked|srun|slurmstepd|"
    r"Aborted|core dumped|Killed|Terminat|SIGTERM|Sending process|exit|Exit|=====|-----|destroy|shut|Shut|kill|fail"
    r"|Fail|NCCL|terminate called|what\(\)|frame #|^\s*$|^#\d"
)
_SIGNALS = (
    "Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception|Killed|Terminated"
    "|Trace/breakpoint trap"
)
# Ends that nothing survives, or that somebody reports who waited for it.
_ENDED = re.compile(
    rf"\(core dumped\)|(?:^|: |\d {{1,8}})(?:{_SIGNALS})(?:$| {{2,}}\S|: \d)"  # bash, with pid and command
    r"|^(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|(?:stack smashing|buffer overflow) detected|terminate called |\bpanicked at |Process received signal"
    r"|MPI_ABORT was invoked|Assertion .{1,200} failed"
    r"|\bnon-?zero (?:exit|status|return|code)|\bexitcode\W{0,8}-?[1-9]"
    r"|\b[Ee]xit(?:ed)?\b[\w ,]{0,16}\b(?:code|status)\b[ :=]{0,3}\(?-?[1-9]|^\W{0,3}exit [1-9]\d{0,2}$"
    r"|\b(?:terminated|killed|ended|died|exited) (?:by|with|on|from) (?:a )?signal\b"
    r"|command not found|executable file not found|error while loading shared libraries|can't open file"
    r"|: No module named |: line \d{1,6}: |^\S{0,80}?sh: (?:\d{1,6}: )?\S"
    r"|\b[Ll]oss is:? (?:tensor\()?-?(?:[Nn]a[Nn]|inf)\b|Watchdog caught |Back-off restarting failed"
    r"|CrashLoopBackOff|OOMKilled",
)
_NO_NUMBER = r"(?!\W{0,4}(?:\d|nan|none|tensor))"  # `val error: 0.03`
# What loggers and programs say of a failure, after which a job may yet have gone on.
_COMPLAINED = re.compile(
    rf"(?<![\w.-])(?:ERROR|FATAL|CRITICAL)(?![\w=]){_NO_NUMBER}"
    rf"|(?:^|[:\]>] ?)(?:[Ee]rror|[Ff]atal(?: error)?)[:!] ?{_NO_NUMBER}|^Error executing |^Could not override "
    r"|^(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception)(?:$|: )"
    r"|(?<!\b0 )(?<!\bno )\b[Ff]ailed\b(?!\W{0,3}0\b)|\b(?:stopping training|giving up|aborting)\b"
    r"|: (?:No such file or directory|Permission denied)"
)
_NO_FAILURE = re.compile(r"[Ww]arn|WARN|INFO|DEBUG|[Rr]etry|[Tt]ry(?:ing)? |\bagain\b|^\[?[WI]\d{3,4} ")


def tells_of_failure(text: str) -> bool:
    """Whether a line among the last ones of a log says that something failed.

    Args:
        text: the line, without what stands before its message.
    """
    if _ENDED.search(text):
        return True
    return _COMPLAINED.search(text) is not None and not _NO_FAILURE.search(text)
