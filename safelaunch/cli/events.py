"""`safelaunch events [RUN]`: what has happened in a run, and what happens. Exits with 2 where not all could be read."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from safelaunch.cli import output, running
from safelaunch.printable import PLACE_WIDTH, Line, line, whole
from safelaunch.run.events import NAME
from safelaunch.top.tail import Event, Tail

EVERY_S = 0.5
EXIT_UNREAD = 2


def run(argv: list[str]) -> int:
    """Show the events, of all nodes in the order of their clocks; returns the exit code.

    Raises:
        SafelaunchError: SL001, where there is no such run.
    """
    arguments = parser().parse_args(argv)
    find = running.named if arguments.run else running.running
    nodes = [_Node(folder) for folder in find(arguments.run, os.environ)]
    told: set[str] = set()
    while True:
        over = all(node.over for node in nodes)  # before the look: nothing may come in between
        events = sorted((event for node in nodes for event in node.new()), key=lambda event: event.time)
        output.show(whole(json.dumps(event.fields)) if arguments.json else _row(event) for event in events)
        faults = [node.fault for node in nodes if node.fault]
        output.show((line("note: ", one, width=PLACE_WIDTH) for one in faults if one not in told), sys.stderr)
        told.update(faults)
        if over or not arguments.follow:
            return EXIT_UNREAD if faults else 0
        time.sleep(EVERY_S)


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch events", description=__doc__)
    made.add_argument("run", nargs="?", default="", metavar="RUN", help="a run directory, or its name (the newest)")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    made.add_argument("--json", action="store_true", help="print the lines as they are written (docs/formats.md)")
    return made


class _Node:
    """The events of one node."""

    def __init__(self, folder: str) -> None:
        self._folder, self._owner = folder, os.stat(folder).st_uid
        self._tail = Tail(os.path.join(folder, NAME))

    @property
    def fault(self) -> str:
        """Why not all of them are known; empty where they are."""
        if self._tail.fault:
            return f"{self._folder}: {self._tail.fault}"
        absent = self.over and not os.path.lexists(os.path.join(self._folder, NAME))
        return f"{self._folder}: there is no {NAME}" if absent else ""

    @property
    def over(self) -> bool:
        return os.path.exists(os.path.join(self._folder, "result.json"))

    def new(self) -> Iterator[Event]:
        """Those that have come since the last look."""
        return self._tail.new(self._owner)


def _row(event: Event) -> Line:
    at = time.strftime("%H:%M:%S", time.localtime(min(max(event.time, 0.0), 1 << 40)))
    return line(f"{at}  {event.fields.get('host')}  {event.name:<10}  ", line(_words(event), width=1000))


def _words(event: Event) -> str:
    said = event.fields
    if event.name in ("notice", "verdict"):
        return f"{said.get('code')}: {said.get('summary')}"
    if event.name == "progress":
        return f"step {said.get('step')}, {said.get('step_s')} s each"
    shown: Sequence[str] = ("attempt", "world_size", "after_s", "exit_code", "script", "run_id")
    return ", ".join(f"{name} {said[name]}" for name in shown if said.get(name) is not None)
