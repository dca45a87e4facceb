"""Runs in: fork server and workers. Which process is the rank itself: those below it inherit its hooks.

In the fork server hooks are made before there is a rank: what only a rank knows waits until it is born.
"""

from __future__ import annotations

import os
from typing import Callable, List, Optional

here = True  # this process is the rank, and not one below it, nor the fork server that it comes from
world_size = 0  # of a rank that says it itself, where its environment may not; 0: the environment says it
_waiting: Optional[List[Callable[[], None]]] = None


def is_expected() -> bool:
    """Whether this is the fork server."""
    return _waiting is not None


def expect() -> None:
    """This process is the fork server."""
    global here, _waiting
    here, _waiting = False, []


def when_born(call: Callable[[], None]) -> None:
    """Call when the rank is there, which may be now."""
    if _waiting is None:
        call()
    else:
        _waiting.append(call)


def born() -> None:
    """This process is a rank."""
    global here, _waiting
    here = True
    waiting, _waiting = _waiting or [], None
    for call in waiting:
        call()


def _left() -> None:
    global here
    here = False


os.register_at_fork(after_in_child=_left)  # asking for the pid each time takes a system call
