"""What is left of a run when its agent has ended: what becomes of it, and what is told of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from safelaunch import procfs, redaction
from safelaunch.launch.tree import Tree

NOTICE_S = 1.0  # a wait that takes longer is told of
TERM_S = 0.5  # what processes left behind by a failed run get between SIGTERM and SIGKILL
DETACHED_S = 0.2  # what ends by itself in this time after the ranks is not spoken of
MOST = 5  # processes that are shown
LONGEST = 80  # characters that are shown of a command line

Look = Callable[[], list[procfs.Process]]


class Remains:
    """Ends, or leaves alone, what is left.

    Args:
        tree: of the run.
        say: prints a line.
        step: runs the supervisor's loop once, for a moment.
    """

    def __init__(self, tree: Tree, say: Callable[[str], None], step: Callable[[], None]) -> None:
        self.killed = False
        self.abandoned: tuple[int, ...] = ()
        self._tree = tree
        self._say = say
        self._step = step
        self._told = False

    def settle(self, succeeded: bool, patience_s: float) -> None:
        """End what is left: after `patience_s` seconds where the ranks succeeded (they may have left an upload to
        finish), at once otherwise. What the ranks have detached lives on where they succeeded."""
        if not self._tree.members():
            return
        if not succeeded:
            self._tell_detached("ending")
            self._end(self._tree.members)
            return
        if not self._have_gone(self._tree.attached, patience_s):
            self._end(self._tree.attached)
        if not self._have_gone(self._tree.detached, DETACHED_S):
            self._tell_detached("leaving alone")

    def kill(self) -> None:
        """End all that is left, now."""
        self._tell_detached("ending")
        self._kill(self._tree.members)

    def _end(self, look: Look) -> None:
        procfs.end(look(), signal.SIGTERM)
        if not self._have_gone(look, TERM_S):
            self._kill(look)

    def _kill(self, look: Look) -> None:
        self.abandoned = tuple(process.pid for process in self._tree.kill(look))
        self.killed = True

    def _have_gone(self, look: Look, seconds: float) -> bool:
        """Wait for processes; returns whether they have gone."""
        deadline = time.monotonic() + seconds
        tell_at = time.monotonic() + NOTICE_S
        while (left := look()) and not self.killed and (now := time.monotonic()) < deadline:
            if now > tell_at:
                tell_at = deadline
                pids = ", ".join(str(process.pid) for process in left[:MOST])
                self._say(f"waiting up to {seconds:g} s for processes that the ranks left behind: {pids}")
            self._step()
            self._tree.reap()
        return not left

    def _tell_detached(self, what: str) -> None:
        found = [process for process in self._tree.detached() if procfs.command(process.pid)]  # others are ending
        if found and not self._told:
            self._told = True
            self._say(f"{what} what the ranks have detached: {shown(found)}")


def shown(processes: Sequence[procfs.Process]) -> str:
    """Pids and command lines, without secrets: `4711 (python upload.py), 4712 (sleep 60) and 3 more`."""
    texts = []
    for process in processes[:MOST]:
        # Far more than is shown, so that a secret is whole before it is looked for, and a program may have 2 MB.
        beginning = "\0".join(procfs.command(process.pid))[: 50 * LONGEST]
        command = " ".join(" ".join(redaction.arguments(beginning.split("\0"))).split())
        texts.append(f"{process.pid} ({command[:LONGEST]})")
    more = f" and {len(processes) - MOST} more" if len(processes) > MOST else ""
    return ", ".join(texts) + more
