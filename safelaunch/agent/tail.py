"""Runs in: agent. Passes the ranks' log files on to the console (`--tee`), behind the interface of torch's `TailLog`.

torch's reads and writes line by line, in a thread for each rank: a console that shows each line at once gets 10 to 20
MB/s of 100-byte lines so, from all ranks together (torch 2.13). This one moves blocks, and sleeps until a rank writes.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Callable, Collection
from threading import Event

from torch.distributed.elastic.multiprocessing.tail_log import TailLog

from safelaunch.agent.console import BLOCK, Console, Lines
from safelaunch.agent.log_modes import MergedLines, lines_of
from safelaunch.agent.merged import Merger
from safelaunch.agent.screen import Screen
from safelaunch.model import Log

ROUND_S = 0.05  # from one round to the next: a rank that writes line by line must not wake us for each
LOST_S = 1.0  # a file system that does not tell of changes is looked at so often
NEXT_CHANGE = 0x80000002  # inotify(7): IN_MODIFY | IN_ONESHOT
NEEDED = ("_threadpool", "_futs", "_name", "_dst", "_log_files", "_finished_events", "_interval_sec")


class Tail(TailLog):  # type: ignore[misc]
    """Torch's `TailLog` with one thread for all files. Where torch has it otherwise, torch's own runs.

    With `log` the lines are shown as `--log` wants it. It is for the console: what torch filters into files of its own
    stays as it is.
    """

    _wake = -1
    log: Log | None = None

    def start(self) -> Tail:
        if not all(hasattr(self, name) for name in NEEDED):
            super().start()
            return self
        if self._threadpool and self._dst:
            try:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except OSError:  # no descriptor is left
                super().start()
                return self
            headers = getattr(self, "_log_line_prefixes", None) or {}
            keep = getattr(self, "_log_line_filter", None)
            if keep in (TailLog.__init__.__defaults__ or ()):
                keep = None
            finished = list(self._finished_events.values())
            if self.log is not None and keep is None and self._dst in (sys.stdout, sys.stderr):
                ranks = {local: _rank(headers.get(local, ""), local) for local in self._log_files}
                lines, merger = lines_of(self.log, ranks)
                files = [File(path, lines[local]) for local, path in self._log_files.items()]
                follower = Follower(files, Screen(self._dst), finished, self._wake, self._interval_sec, merger)
            else:
                files = [
                    File(path, Lines(headers.get(rank, f"[{self._name}{rank}]:"), keep))
                    for rank, path in self._log_files.items()
                ]
                follower = Follower(files, Console(self._dst), finished, self._wake, self._interval_sec)
            self._futs.append(self._threadpool.submit(follower.run))
        return self

    def stop(self) -> None:
        for finished in getattr(self, "_finished_events", {}).values():
            finished.set()
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.eventfd_write(wake, 1)
        super().stop()
        if wake >= 0:
            os.close(wake)


def _rank(header: str, local_rank: int) -> int:
    """The rank whose header this is (`[3] `); its local rank where torch has made none."""
    number = header.strip("[] ")
    return int(number) if number.isdecimal() else local_rank


class File:
    """One log file, which may not be there yet. What was opened once is followed, whatever becomes of its name."""

    def __init__(self, path: str, lines: Lines | MergedLines) -> None:
        self.path = path
        self.lines = lines
        self.descriptor = -1
        self.read_at = 0.0  # when something was there to be read

    def open(self) -> bool:
        """Whether it is there.

        Raises:
            OSError: where it is, and cannot be opened.
        """
        if self.descriptor < 0:
            try:
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        return True

    def read(self) -> bytes:
        """The next block; less than a whole one at the end."""
        data = os.read(self.descriptor, BLOCK)
        if data:
            self.read_at = time.monotonic()
        return data

    def close(self) -> None:
        """Read no more of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Changes:
    """Sleeps until a file changes (inotify(7)), or until somebody writes to the eventfd `wake`.

    A file that is watched costs each write to it 0.8 µs more (measured), so it is watched for its next change only, and
    only before a sleep.
    """

    def __init__(self, wake: int) -> None:
        self._libc = ctypes.CDLL(None)
        self._wake = select.poll()
        self._wake.register(wake, select.POLLIN)
        self._any = select.poll()
        self._any.register(wake, select.POLLIN)
        self._inotify: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify >= 0:
            self._any.register(self._inotify, select.POLLIN)

    def wait_for(self, descriptor: int) -> bool:
        """Have the next change of this file end the sleep. False where that is not possible: the number of inotify's
        users is limited."""
        if self._inotify < 0:
            return False
        path = b"/proc/self/fd/%d" % descriptor
        return bool(self._libc.inotify_add_watch(self._inotify, path, ctypes.c_uint32(NEXT_CHANGE)) >= 0)

    def pause(self, seconds: float) -> None:
        """Sleep, whatever changes."""
        self._wake.poll(max(0.0, seconds) * 1000)

    def sleep(self, seconds: float) -> bool:
        """Sleep until something changes; whether a file has."""
        self._any.poll(max(0.0, seconds) * 1000)
        changed = False
        try:
            while self._inotify >= 0 and os.read(self._inotify, 1 << 16):
                changed = True
        except BlockingIOError:
            pass
        return changed

    def close(self) -> None:
        """Forget all files."""
        if self._inotify >= 0:
            os.close(self._inotify)


class Follower:
    """Passes on what comes into files, until all is passed on that was there when the ranks had ended.

    Args:
        files: to read.
        console: to write to.
        finished: events that are set when the ranks have ended.
        wake: an eventfd that is written to when they have been set.
        interval_s: after so long the beginning of a line is passed on without its end.
        merger: where lines wait for those of other ranks.
    """

    def __init__(
        self,
        files: list[File],
        console: Console,
        finished: list[Event],
        wake: int,
        interval_s: float,
        merger: Merger | None = None,
    ) -> None:
        self._files = files
        self._console = console
        self._finished = finished
        self._changes = Changes(wake)
        self._interval_s = interval_s
        self._merger = merger
        self._failures: list[OSError] = []

    def run(self) -> None:
        """Follow them to their ends.

        Raises:
            OSError: the first failure; it ends the one file, not the others.
        """
        told = False  # whether each change will end a sleep
        try:
            while True:
                begun = time.monotonic()
                last = all(event.is_set() for event in self._finished)  # before the files: nothing may come in between
                moved = self._pass_on(to_the_end=last)
                self._pass_on_rests(0.0 if last else self._interval_s)
                if self._merger is not None:
                    self._pass_on_merged(self._merger, last=last)
                if last:
                    break
                if moved:
                    self._changes.pause(begun + ROUND_S - time.monotonic())
                elif not told:
                    told = self._wait_for_all()  # and look again: something may have come before
                    if not told:
                        self._changes.pause(self._interval_s)
                else:
                    told = not self._changes.sleep(self._due())
        finally:
            self._changes.close()
            for file in self._files:
                file.close()
        if self._failures:
            raise self._failures[0]

    def _pass_on(self, *, to_the_end: bool) -> bool:
        """Pass on what is in the files, a block of each in turn; whether there was anything."""
        more, moved = list(self._files), False
        while more:
            sizes = {file: self._attempt(file, self._block) for file in more}
            moved = moved or any(sizes.values())
            more = [file for file, size in sizes.items() if size >= (1 if to_the_end else BLOCK)]
            self._pass_on_rests(self._interval_s, reading=more)  # the others need not wait for these
        return moved

    def _pass_on_rests(self, age_s: float, reading: Collection[File] = ()) -> None:
        now = time.monotonic()
        # At the end a bar is a line, too.
        due = [file for file in self._files if (file.lines.unfinished and now - file.read_at >= age_s) or not age_s]
        for file in due:
            if file not in reading:
                self._attempt(file, self._rest)

    def _pass_on_merged(self, merger: Merger, *, last: bool) -> None:
        """What waits no longer, and the bar of the first rank that draws one."""
        now = time.monotonic()
        merged = [file.lines for file in self._files if isinstance(file.lines, MergedLines)]
        bars = [] if last else [bar for lines in merged if (bar := lines.bar())]
        screen = self._console if isinstance(self._console, Screen) and self._console.is_terminal else None
        for lines in merged if screen is None else ():
            lines.show_bar_as_line(now)
        try:
            if screen is not None:
                screen.draw(bars[0] if bars else "")
            self._write(merger.ready(now, last=last))
        except OSError as error:  # there is nobody any more to show it to
            self._failures.append(error)
            for file in self._files:
                file.close()
            self._files.clear()

    def _block(self, file: File) -> int:
        if not file.open():
            return 0
        data = file.read()
        self._write(file.lines.feed(data))
        return len(data)

    def _rest(self, file: File) -> int:
        self._write(file.lines.rest())
        return 0

    def _write(self, text: str) -> None:
        if text:
            self._console.write(text)

    def _attempt(self, file: File, action: Callable[[File], int]) -> int:
        try:
            return action(file)
        except OSError as error:
            self._failures.append(error)
            self._files.remove(file)
            file.close()
            return 0

    def _wait_for_all(self) -> bool:
        return all(file.descriptor >= 0 and self._changes.wait_for(file.descriptor) for file in self._files)

    def _due(self) -> float:
        """Seconds until something is to be done that no change of a file tells of."""
        now = time.monotonic()
        merged = LOST_S if self._merger is None else self._merger.due(now)
        rests = [file.read_at + self._interval_s - now for file in self._files if file.lines.unfinished]
        return min([LOST_S, merged, *rests])
