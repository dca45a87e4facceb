"""How processes ended, in the words of the parent that waited for them: with a code, and a rank or a pid."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

from safelaunch.model.logs import Ended

_COMPOSER = re.compile(r"\b[Rr]ank (?P<rank>\d{1,7}) crashed with exit code (?P<code>-?\d{1,3})")
_LIGHTNING = re.compile(
    r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,3})\. Forcefully"
)
# Of any program: a process or a rank, that it ended, the code or the signal of that, and the pid before or behind it.
_PROCESS = re.compile(
    r"\b(?:[Pp]rocess|[Ss]ubprocess|(?<!DataLoader )[Ww]orker|[Cc]hild|[Rr]ank:? ?\[?(?P<rank>\d{1,7})\]?)"
    r"(?![\w.])(?:[^\n=:]{0,40}?\bpid[ =:]{1,2}(?P<pid>\d{1,9}))?[^\n=:]{0,60}?"
    r"\b(?:failed|exited|died|ended|terminated|crashed|killed)\b[^\n=:]{0,30}?"
    r"(?:\b(?:exit ?code|return ?code|status|code)[ =:]{1,3}(?P<code>-?\d{1,3})\b"
    r"|\b(?:by|with|from|of|on) (?:an? )?(?:signal[ =:]{0,3})?(?P<name>SIG[A-Z]{2,6})\b)"
    r"(?:[^\n\d]{1,30}?\bpid[ =:]{1,2}(?P<after>\d{1,9}))?"
)
# Of the process itself, or of the kernel: others, such as SIGTERM and SIGQUIT, ask it to end.
_FATAL = {4, 5, 6, 7, 8, 9, 11, 31}


def ended(text: str, common: dict[str, Any]) -> Iterator[Ended]:
    """The ends that a line tells of.

    Args:
        text: the line.
        common: what all events of the line share.
    """
    if match := _LIGHTNING.search(text):
        yield Ended(**common, by="launcher", code=int(match["code"]), pid=int(match["pid"]), first=True)
    elif match := _PROCESS.search(text):
        number, pid = _signal(match["code"] or "", match["name"] or ""), match["pid"] or match["after"]
        rank = int(match["rank"]) if match["rank"] else common.get("rank")
        if number in _FATAL and (pid or match["rank"]):
            yield Ended(**{**common, "rank": rank}, by="parent", code=-number, pid=int(pid or 0), first=True)
    if match := _COMPOSER.search(text):
        yield Ended(**{**common, "rank": int(match["rank"])}, by="launcher", code=int(match["code"]), first=True)


def _signal(code: str, name: str) -> int:
    """The signal of a name, or that a code stands for: below zero by Python, above 128 by a shell; 0 for none."""
    if name:
        return signal.Signals[name] if name in signal.Signals.__members__ else 0
    return -int(code) if code.startswith("-") else max(0, int(code) - 128)
