"""Processes around the ranks that somebody has stopped (SIGSTOP): what is told of them."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch import procfs
from safelaunch.model import FORK_SERVER

# What nobody does meanwhile.
MISSED = {
    "agent": "nobody notices that a rank ends",
    FORK_SERVER: "nobody notices that a rank ends",
    "guard": "nobody ends what is left if safelaunch is killed",
}

STOPPED_S = 1.0  # who is stopped for less is not spoken of


class Stopped:
    """Knows which of these processes are stopped, and which of them has been spoken of.

    Args:
        processes: gives them by name (`MISSED`), None for one that is not there.
        say: prints a line.
    """

    def __init__(self, processes: Callable[[], dict[str, procfs.Process | None]], say: Callable[[str], None]) -> None:
        self._processes = processes
        self._say = say
        self._now: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def look(self) -> bool:
        """Look at them, and tell who goes on. Returns whether one is stopped of which nobody has been told."""
        known = {name: procfs.read(process.pid) for name, process in self._processes().items() if process is not None}
        running = {name: process for name, process in known.items() if process is not None}
        self._now = {name: process.pid for name, process in running.items() if process.state == "T"}
        for name, pid in list(self._told.items()):
            if name not in self._now:
                del self._told[name]
                if name in running and running[name].pid == pid and running[name].state not in "ZX":
                    self._say(f"the {name} (pid {pid}) goes on")
        return bool(self._now.keys() - self._told.keys())

    def look_on(self, after: Callable[[float, Callable[[], None]], None]) -> None:
        """The same, and have it told a little later (`after`: seconds, action)."""
        if self.look():
            after(STOPPED_S, self.tell)

    def tell(self) -> None:
        """Tell who is stopped, once."""
        for name, pid in self._now.items():
            if name not in self._told:
                self._told[name] = pid
                self._say(f"the {name} (pid {pid}) is stopped: until `kill -CONT {pid}` {MISSED[name]}")

    @property
    def hides_ends(self) -> bool:
        """Whether ranks may have ended without our knowledge."""
        return bool(self._now.keys() - {"guard"})
