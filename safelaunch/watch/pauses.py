"""When silence is a person's: a debugger, or a program that reads a terminal. The clocks stop for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.model import RankFacts

TERMINAL = re.compile(r"^/dev/(?:tty|pts/|console)")
DEBUGGER = re.compile(
    r"/lib(?:64)?/python\d[^/]*/(?:pdb|bdb|cmd|code)\.py$|/(?:debugpy|pydevd|_pydevd_bundle|IPython|ipdb|pudb)/"
)
READS = {"read", "select", "pselect6", "poll", "ppoll"}  # readline waits in a select


def paused(ranks: Iterable[RankFacts]) -> str:
    """Why the clocks must stand still, or nothing.

    A tracer is attached (gdb, strace), a rank reads from a terminal, or its stack is inside a debugger (pdb, debugpy,
    IPython), whose own way of reading may be a poll.
    """
    for facts in ranks:
        kernel = facts.kernel
        if facts.exit is not None:
            continue
        if kernel is not None and kernel.tracer:
            return f"rank {facts.rank} is traced by pid {kernel.tracer}"
        for frame in facts.stack.frames if facts.stack is not None else ():
            if DEBUGGER.search(frame.file):
                return f"rank {facts.rank} is in a debugger"
        if kernel is not None and kernel.syscall in READS and TERMINAL.search(kernel.file):
            return f"rank {facts.rank} reads from {kernel.file}"
    return ""
