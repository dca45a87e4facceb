"""The supervisor's watch over a day of simulated beats: its memory, which is to stay flat, and its share of a core.

The ranks write real slots, the watch reads them each quarter of a second; only the clock is the benchmark's own. Once a
minute all ranks are silent for a moment, each time at another place of their program. What is polled here is what
`run.watching` polls.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figures, Row, parser
from pairs import pss_mib

ROUND_S = 0.25  # launch.supervisor.WATCH_S
PLACES = 40  # of the program at which ranks are silent for some seconds
SILENT_EVERY_S = 60.0
SILENT_S = 1.75


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def said_by() -> Any:
    """A console that keeps what is said in its `lines`."""
    from safelaunch.report.palette import PLAIN
    from safelaunch.run.console import Console

    class Kept(Console):
        def __init__(self) -> None:
            self.loud, self.palette = 0, PLAIN
            self.lines: list[str] = []

        def print(self, lines: Any) -> None:
            self.lines += lines

    return Kept()


class Day:
    """Ranks that step on for as long as they are asked to, and the watch over them."""

    def __init__(self, ranks: int, folder: Path) -> None:
        from safelaunch import black_box, black_box_reader, pulse
        from safelaunch.model import WorkerGroup, WorkerProcess
        from safelaunch.run import hang, slow
        from safelaunch.run import ranks as listening
        from safelaunch.run.findings import Findings
        from safelaunch.run.incidents import Incidents
        from safelaunch.run.job_nodes import JobNodes
        from safelaunch.run.judge import Judge
        from safelaunch.run.this_node import ThisNode
        from safelaunch.watch.hang import HangWatch
        from safelaunch.watch.rank_devices import RankDevices
        from safelaunch.watch.rank_timeouts import RankTimeouts
        from safelaunch.watch.slow import SlowWatch

        self.clock = Clock()
        for module in (black_box, hang, slow):
            module.time = self.clock  # type: ignore[attr-defined]
        pulse.monotonic = self.clock.monotonic
        path = str(folder / "black_box")
        black_box.create(path, ranks)
        self.boxes = [black_box.Writer(path, rank) for rank in range(ranks)]
        for box in self.boxes:
            box.pulse.uses_groups()
        self.begun = self.clock.now
        console = said_by()
        self.said = console.lines
        node, incidents = ThisNode(), Incidents(str(folder), console, Findings())
        reader = black_box_reader.Reader(path)
        judge = Judge(console)
        alone = JobNodes("", judge, console)
        self.hangs = hang.Hangs(reader, HangWatch(), console, incidents, judge, node, alone)
        self.slow = slow.Slow(reader, SlowWatch(), console, incidents, node)
        own = os.getpid()  # which is the pid in each slot
        workers = tuple(WorkerProcess(rank, rank, own, 0, str(folder), path) for rank in range(ranks))
        self.group = WorkerGroup(0, ranks, ranks, workers)
        watchers = {
            "timeouts": RankTimeouts(listening.remarks_of(path), lambda *_: ()),
            "GPUs": RankDevices(listening._stamp, listening._device, str, mps=False),
        }
        self.listener = listening.Listener(watchers, console)

    def round(self) -> float:
        """A quarter of a second; returns how long the watch took for it, in seconds of CPU."""
        self.clock.now += ROUND_S
        passed = self.clock.now - self.begun
        place, since = divmod(passed, SILENT_EVERY_S)
        silent = since < SILENT_S
        for box in self.boxes:
            box.pulse.beat()
            if silent:
                continue
            where = int(place) % PLACES
            text = box.text("all_reduce", ("train.py", where, "step"), "0", "float32")
            entry = box.enter(text, len(self.boxes), 7, 1000)
            box.leave(entry)
            box.pulse.step()
            box.pulse.fed(None, None, 0)
            box.pulse.mark(int(passed), -1)
        begun = time.thread_time()
        self.listener.poll(self.group)
        self.hangs.poll(self.group)
        self.slow.poll(self.group, stalled=self.hangs.told is not None)
        return time.thread_time() - begun


def main() -> None:
    options = parser(__doc__, ranks=8)
    options.add_argument("--hours", type=float, default=24.0, help="of simulated time")
    chosen = options.parse_args()
    figures = Figures(f"The watch over {chosen.ranks} ranks, {chosen.hours:g} h of simulated beats", chosen.json)
    per_hour = int(3600 / ROUND_S)
    with tempfile.TemporaryDirectory() as name:
        day = Day(chosen.ranks, Path(name))
        took: list[float] = []
        for _ in range(per_hour):  # the first hour: everything is seen once
            took.append(day.round())
        shares = [100 * statistics.fmean(took) / ROUND_S]
        gc.collect()
        before, blocks = pss_mib([os.getpid()]), sys.getallocatedblocks()
        for _ in range(int((chosen.hours - 1) * per_hour)):
            day.round()
        gc.collect()
        grown, more = pss_mib([os.getpid()]) - before, sys.getallocatedblocks() - blocks
        shares += [100 * statistics.fmean(day.round() for _ in range(per_hour // 10)) / ROUND_S for _ in range(3)]
        figures.add(Row("memory gained after the first hour", "MiB", {"safelaunch": [grown]}, target="<= 1"))
        figures.add(Row("Python's blocks gained", "", {"safelaunch": [more]}, target="<= 100"))
        figures.add(Row("CPU of the watch alone", "% of a core", {"safelaunch": shares}, target="<= 0.5"))
        for line in day.said[:5]:
            figures.note(f"it said: {line}")
    figures.write()


if __name__ == "__main__":
    main()
