"""`safelaunch clean`: what earlier runs of safelaunch have left on this node, and its end."""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator, Sequence

from safelaunch import procfs, regular
from safelaunch.cli import output, running
from safelaunch.launch import scratch
from safelaunch.model import Job
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.holdings import Holdings, holdings
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.processes import Process
from safelaunch.preflight.node.leftovers import Leftover, leftovers, orphaned_ranks
from safelaunch.printable import Line, line, named
from safelaunch.settings.commandline import misuse
from safelaunch.sizes import plural, size

PATIENCE_S = 5.0  # between SIGTERM and SIGKILL, as a run's own guard has it
KILLED_S = 2.0  # after SIGKILL only a process in the kernel's uninterruptible sleep is still there
SHOWN_BYTES = 1 << 20  # of a file in /dev/shm
EXIT_LEFT = 1
UNSEEN = 8  # that are named

USAGE = """\
usage: safelaunch clean [--yes] [--detached] [RUN...]

Show the processes and the shared memory that earlier runs of safelaunch left on this node, and what they hold; end
them after a yes. Only what carries the mark of a run of yours whose launcher is gone is ended. Ranks that other
launchers left, and files in /dev/shm that no process has open, are shown and never touched.

RUN is a run directory, or the name of one below ./safelaunch_runs: nothing of other runs is shown, or ended.

options:
  --yes        do not ask
  --detached   end also what the ranks of successful runs detached, and what was left alone on purpose
  -h, --help   show this text

exit codes: 0 nothing is left; 1 something is; 2 misuse
"""


def run(argv: list[str]) -> int:
    """Show, ask, end; returns the exit code.

    Raises:
        SafelaunchError: SL001, where a RUN is none.
    """
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return 0
    host = Host(Job(nproc=1))
    found = list(leftovers(host))
    if arguments.runs:
        found = _of_runs(arguments.runs, found)
    left = [one for one in found if arguments.detached or not one.on_purpose]
    folders = [] if arguments.runs else list(scratch.abandoned())
    orphans = [] if arguments.runs else list(orphaned_ranks(host))
    held = holdings(host, [one.process.pid for one in found] + [process.pid for process in orphans])
    output.show(_shown(left, folders, held))
    output.show(_left_alone([one for one in found if one not in left], orphans, held))
    if not arguments.runs:
        output.show(_files_shown())
    if not left and not folders:
        output.show(_nothing(arguments.runs, list(_unseen(host))))
        return 0
    if not arguments.yes and not _agreed(left, folders):
        return EXIT_LEFT
    survivors = _end([one.process for one in left])
    scratch.sweep()  # with those of the runs whose last process has just ended
    if survivors:
        pids = ", ".join(str(process.pid) for process in survivors)
        output.show(
            [line(f"the kernel holds {pids}, usually in a driver or a network file system: only a reboot helps")]
        )
        return EXIT_LEFT
    output.show([line(f"ended {_count(left, folders)}")])
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch clean", add_help=False, usage=USAGE.partition("\n")[0][7:])
    made.add_argument("runs", nargs="*")
    made.add_argument("--yes", "-y", action="store_true")
    made.add_argument("--detached", action="store_true")
    made.add_argument("--help", "-h", action="store_true")
    return made


def _shown(left: Sequence[Leftover], folders: Sequence[str], held: dict[int, Holdings]) -> Iterator[Line]:
    for folder in dict.fromkeys(one.run_dir for one in left):
        yield line(f"of {folder}, whose launcher is gone:" if folder else "of a run whose launcher is gone:")
        for one in left:
            if one.run_dir == folder:
                yield _row(one.process, held)
    for folder in folders:
        yield line(f"{folder}: {size(_bytes_below(folder))} of a run that is over")


def _left_alone(detached: Sequence[Leftover], orphans: Sequence[Process], held: dict[int, Holdings]) -> Iterator[Line]:
    if detached:
        yield line("left alone, as ranks of successful runs detached it (--detached ends it):")
        yield from (_row(one.process, held) for one in detached)
    if orphans:
        yield line("left alone, as safelaunch did not start it: ranks whose launcher is gone:")
        yield from (_row(process, held) for process in orphans)


def _files_shown() -> Iterator[Line]:
    files = list(_files_of_nobody())
    if files:
        yield line(f"left alone, as nothing says what made them: your files in {scratch.MEMORY} that nobody has open:")
        yield from (line(f"  {name} ({size(count)}, {processes.duration(age_s)} old)") for name, count, age_s in files)


def _of_runs(names: Sequence[str], found: Sequence[Leftover]) -> list[Leftover]:
    """What was left of the runs that are named: by their paths, or below those of this directory. Of one whose folder
    is gone, processes may be left all the same.

    Raises:
        SafelaunchError: SL001, where a name is none of a run.
    """
    chosen: list[Leftover] = []
    for name in names:
        places = [os.path.realpath(place) for place in running.places(name, os.environ)]
        left = [one for one in found if os.path.realpath(one.run_dir) in places or _job(one.run_dir) in places]
        if not left and not any(map(_is_run, places)):
            remedy = "name a run directory; without one, what any run has left is shown"
            raise misuse(f"there is no run {name}, and no process of one", remedy)
        chosen += [one for one in left if one not in chosen]
    return chosen


def _is_run(place: str) -> bool:
    """Whether a folder is that of a run, on one node or several, and not the one in which all runs are."""
    try:
        return any(place in (folder, _job(folder)) for folder in running.folders(place))
    except OSError as error:
        raise running.unreadable(place, error) from error


def _job(run_dir: str) -> str:
    """The folder of a job of several nodes, of which this is the folder of one; "" where it is none. Above that of a
    job on one node are those of other runs."""
    above = os.path.dirname(os.path.realpath(run_dir))
    started = regular.document(os.path.join(run_dir, "run.json"))
    return above if started.get("run_id") == os.path.basename(above) else ""


def _unseen(host: Host) -> Iterator[Process]:
    """Processes of this user that do not say whether they are of a run: the kernel shows the environment of one that
    must not be dumped to root alone."""
    for pid in host.pids():
        process = host.process(pid)
        if process is None or process.uid != host.uid or pid == os.getpid():
            continue
        try:
            host.root.read(f"/proc/{pid}/environ", 1)
        except PermissionError:
            yield process
        except OSError:
            continue


def _nothing(runs: Sequence[str], unseen: Sequence[Process]) -> Iterator[Line]:
    of = ", ".join(map(named, runs)) or "earlier runs"
    if not unseen:
        yield line(f"nothing is left of {of}")
        return
    yield line(f"nothing is left of {of}, as far as can be seen: these do not show what started them (root may look):")
    yield from (line(f"  {process}", width=400) for process in unseen[:UNSEEN])
    if len(unseen) > UNSEEN:
        yield line(f"  and {len(unseen) - UNSEEN} more")


def _row(process: Process, held: dict[int, Holdings]) -> Line:
    return line(f"  {process}; {held[process.pid]}", width=400)


def _count(left: Sequence[Leftover], folders: Sequence[str]) -> str:
    counts = [f"{len(left)} process{'es' * (len(left) > 1)}"] * bool(left)
    return " and ".join([*counts, *[plural(len(folders), "folder")] * bool(folders)])


def _agreed(left: Sequence[Leftover], folders: Sequence[str]) -> bool:
    if not sys.stdin.isatty():
        output.show([line(f"nothing was ended: --yes ends {_count(left, folders)}")])
        return False
    try:
        answer = input(f"end {_count(left, folders)}? [y/N] ")
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes")


def _end(found: Sequence[Process]) -> list[procfs.Process]:
    """End the processes; returns those that even SIGKILL has not ended."""
    now = (procfs.read(process.pid) for process in found)
    left = [one for one, process in zip(now, found, strict=True) if one is not None and one.start == process.start]
    for signum, patience_s in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, KILLED_S)):
        procfs.end(left, signum)
        left = procfs.left_after(left, patience_s)
    return left


def _bytes_below(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _files_of_nobody() -> Iterator[tuple[str, int, float]]:
    """(path, bytes, age in seconds) of large files of this user in /dev/shm that no process has open or mapped, as far
    as that can be seen: where another user's processes cannot be looked into, they could have it."""
    try:
        entries = [(entry.path, entry.stat(follow_symlinks=False)) for entry in os.scandir(scratch.MEMORY)]
    except OSError:
        return
    mine = [(path, one) for path, one in entries if one.st_uid == os.geteuid() and stat.S_ISREG(one.st_mode)]
    large = [(path, one.st_blocks * 512, one.st_mtime) for path, one in mine if one.st_blocks * 512 >= SHOWN_BYTES]
    in_use = {path for process in procfs.scan() for path in _files_of(process.pid)} if large else set()
    yield from ((path, count, time.time() - at) for path, count, at in sorted(large) if path not in in_use)


def _files_of(pid: int) -> Iterator[str]:
    """The files that a process has open or mapped."""
    for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
        try:
            for name in os.listdir(folder):
                yield os.readlink(f"{folder}/{name}")
        except OSError:
            continue
