"""`safelaunch events [RUN]`: what has happened in a run, and what happens."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from safelaunch import regular
from safelaunch.cli import output, running
from safelaunch.printable import Line, line, whole
from safelaunch.run.events import NAME

EVERY_S = 0.5
MOST = 64 << 20  # bytes of a file at once


def run(argv: list[str]) -> int:
    """Show the events, of all nodes in the order of their clocks; returns the exit code.

    Raises:
        SafelaunchError: SL001, where there is no such run.
    """
    arguments = parser().parse_args(argv)
    find = running.named if arguments.run else running.running
    files = [_File(folder) for folder in find(arguments.run, os.environ)]
    while True:
        over = all(file.over for file in files)  # before the look: nothing may come in between
        events = sorted((event for file in files for event in file.new()), key=_time)
        output.show(whole(event["text"]) if arguments.json else _row(event) for event in events)
        if over or not arguments.follow:
            return 0
        time.sleep(EVERY_S)


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch events", description=__doc__)
    made.add_argument("run", nargs="?", default="", metavar="RUN", help="a run directory, or its name (the newest)")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    made.add_argument("--json", action="store_true", help="print the lines as they are written (docs/formats.md)")
    return made


class _File:
    """The events of one node."""

    def __init__(self, folder: str) -> None:
        self._folder, self._offset = folder, 0

    @property
    def over(self) -> bool:
        return os.path.exists(os.path.join(self._folder, "result.json"))

    def new(self) -> Iterator[dict[str, Any]]:
        """Those that have come since the last look."""
        try:
            text = regular.read(os.path.join(self._folder, NAME), MOST, offset=self._offset)
        except OSError:
            return
        end = text.rfind(b"\n") + 1
        self._offset += end
        for row in text[:end].decode("utf-8", "replace").split("\n"):
            try:
                event = json.loads(row)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                yield {**event, "text": row}


def _time(event: dict[str, Any]) -> float:
    at = event.get("time")
    return float(at) if isinstance(at, (int, float)) and 0 <= at < 1 << 40 else 0.0


def _row(event: dict[str, Any]) -> Line:
    at = time.strftime("%H:%M:%S", time.localtime(_time(event)))
    return line(f"{at}  {event.get('host')}  {event['event']:<10}  ", line(_words(event), width=1000))


def _words(event: dict[str, Any]) -> str:
    kind = event["event"]
    if kind in ("notice", "verdict"):
        return f"{event.get('code')}: {event.get('summary')}"
    if kind == "progress":
        return f"step {event.get('step')}, {event.get('step_s')} s each"
    shown: Sequence[str] = ("attempt", "world_size", "after_s", "exit_code", "script", "run_id")
    return ", ".join(f"{name} {event[name]}" for name in shown if event.get(name) is not None)
