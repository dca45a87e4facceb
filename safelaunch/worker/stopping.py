"""Runs in: workers. `should_stop()` of a rank, and what keeps a scheduler's early signal from ending it.

Python leaves SIGUSR1, SIGUSR2 and SIGTERM to the kernel, which ends the process. A rank that calls `should_stop()`
wants to stop by itself: from its first call on, those that the script has left to the kernel only note that they came.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import safelaunch
from safelaunch import stop_words

EARLY = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def begin(rank: stop_words.Rank) -> bool:
    """The first call of `should_stop()`."""
    safelaunch._stop = rank
    try:
        _catch(rank)
    except Exception:
        pass  # a signal may end the rank then, as it does under torchrun
    return rank()


def _catch(rank: stop_words.Rank) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets no other thread set a handler
    words = rank.words

    def note(signum: int, _: Any) -> None:
        if safelaunch._stop is rank:  # else this is a process that the rank has forked
            words[stop_words.ASKED] = signum

    for signum in EARLY:
        if signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, note)
            signal.siginterrupt(signum, False)  # no library of the rank is to see a call that was interrupted
            words[stop_words.CAUGHT] |= 1 << signum

    def give_up() -> None:
        """A process that the rank has forked is no rank, and SIGTERM ends it: a pool ends its workers so."""
        safelaunch._stop = None
        if signal.getsignal(signal.SIGTERM) is note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    os.register_at_fork(after_in_child=give_up)
