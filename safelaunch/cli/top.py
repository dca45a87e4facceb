"""`safelaunch top`: what the ranks of a run do, as they do it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from safelaunch import codes
from safelaunch.cli import bounded, output, running
from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError
from safelaunch.printable import Line, line, quoted, whole
from safelaunch.report.palette import Palette, for_stream
from safelaunch.settings.commandline import Parser, misuse
from safelaunch.sizes import plural
from safelaunch.top import table
from safelaunch.top.folder import Folder
from safelaunch.top.job import Job
from safelaunch.top.picture import SORTS, Picture
from safelaunch.top.replay import Replay

USAGE = """\
usage: safelaunch top [--plain] [--every SECONDS] [--sort BY] [--color WHEN] [RUN]

Show the ranks of a run as they train: what each does, its step and how long it takes, what of that it spends in loaders
and in collectives, how late it comes, CPU, memory and GPU; and what safelaunch tells of the run. The rank that the
others wait for comes first. It only reads: the run does not notice. A run that has ended is replayed, event by event.

RUN is a run directory, or the name of one below ./safelaunch_runs (default: the newest that runs). The full screen
needs `pip install 'safelaunch[top]'` and a terminal of 80 columns; without a terminal a table is printed once.

options:
  --plain          print a table once
  --every SECONDS  between two pictures (default: 1); with --plain, for how long it looks (default: 2)
  --sort BY        late (the default), rank, step, time, cpu or mem
  --color WHEN     of --plain: auto (the default), always or never
  -h, --help       show this text

keys: arrows, enter stacks of a rank, d evidence of all ranks (`safelaunch dump`), s sort, n notices, left
and right through a replay, q quit

columns: ! a rank that is to blame, ~ one that is late; time of a step (>: the present one takes longer), and of those
before it; load and wait are shares of it in loaders and collectives; late is +TIME more for a step than the others
need, or how long they have been waiting for this rank

exit codes: 0 shown; 2 misuse, or there is no such run
"""

LEAST_S, MOST_S = 0.2, 3600.0
LOOK_S, PART_S = 2.0, 0.5
LIMIT_S, ROOM = 60.0, 2 << 30  # of a table: what a run may keep in its folder takes seconds to read, and a GiB at most
RUN = re.compile(r"\w[\w.-]*")  # what a name of a run is made of
TEXTUAL = (8, 2)  # with the themes that use the terminal's own colours, as pyproject.toml has it


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code. Raises SafelaunchError for misuse, and where there is no such run."""
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    every_s = _seconds(arguments.every)
    screen = not arguments.plain and _is_terminal(os.environ)
    if screen and (lacking := _lacking()):
        raise misuse(f"the full screen needs {lacking}", "pip install 'safelaunch[top]', or say --plain")
    if screen:
        _show(_job(arguments), every_s, arguments.sort)
        return codes.EXIT_OK
    seconds = every_s or LOOK_S
    return bounded.run(lambda: _print(_picture(_job(arguments), seconds), arguments), seconds + LIMIT_S, ROOM)


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch top")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--plain", action="store_true")
    made.add_argument("--every", default="", metavar="SECONDS")
    made.add_argument("--sort", default="late", choices=tuple(SORTS))
    made.add_argument("--color", default="auto", choices=("auto", "always", "never"))
    made.add_argument("run", nargs="?", metavar="RUN")
    return made


def chosen(name: str | None, environ: Mapping[str, str]) -> list[str]:
    """The folders of the run that is meant.

    Args:
        name: a run directory, or the name of one; None for the newest that runs.
        environ: says where run directories go.

    Raises:
        SafelaunchError: SL001, where there is none, or it may not be read.
    """
    if name is not None:
        return running.named(name, environ)
    base = run_dir.base_dir(environ.get("SAFELAUNCH_RUN_DIR"), environ)
    try:
        names = [entry.path for entry in os.scandir(base) if entry.is_dir()]
    except OSError:
        names = []
    newest = sorted(names, key=_changed, reverse=True)
    over: list[str] = []
    for place in newest:
        found = _below(place)
        if any(_runs(folder) for folder in found):
            return found
        over += [place] * bool(found)
    closed = sum(not os.access(place, os.R_OK | os.X_OK) for place in names)
    others = f", as far as it may be read: {plural(closed, 'folder')} may not" if closed else ""
    raise _none_goes_on(f"no run goes on below {base}{others}", over)


def _none_goes_on(summary: str, over: Sequence[str]) -> SafelaunchError:
    """The error where all runs have ended, the latest first. Advice is pasted: a run whose name is no plain one, which
    anybody may have given it, is not named there."""
    if not over:
        return misuse(summary, "name a run directory")
    name = os.path.basename(over[0])
    if RUN.fullmatch(name):
        return misuse(summary, f"`safelaunch top {name}` replays the last one")
    because = (f"the last one is in {quoted(over[0])}",)
    return SafelaunchError("SL001", summary, "name its directory", because=because, exit_code=codes.EXIT_USAGE)


def _changed(place: str) -> float:
    try:
        return os.path.getmtime(place)
    except OSError:
        return 0.0


def _below(place: str) -> list[str]:
    try:
        return running.folders(place)
    except OSError:  # another user's
        return []


def _job(arguments: argparse.Namespace) -> Job:
    job = Job([_folder(one) for one in chosen(arguments.run, os.environ)])
    job.poll()
    return job


def _runs(folder: str) -> bool:
    """Whether a run goes on: one that was killed does not, though it has left no result."""
    if os.path.exists(os.path.join(folder, "result.json")):
        return False
    try:
        found = Folder(folder)
    except OSError:
        return False
    found.poll()
    return not found.is_gone()


def _folder(path: str) -> Folder:
    try:
        return Folder(path)
    except OSError as error:
        raise running.unreadable(path, error) from error


def _is_terminal(environ: Mapping[str, str]) -> bool:
    """Whether there is a terminal to draw on: textual draws on the standard error."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return environ.get("TERM", "") not in ("", "dumb") and all(one is not None and one.isatty() for one in streams)


def _lacking() -> str:
    """What is missing to draw; empty where nothing is."""
    if importlib.util.find_spec("textual") is None:
        return "the package textual"
    found = importlib.metadata.version("textual")
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    return "" if numbers >= TEXTUAL else f"textual {'.'.join(map(str, TEXTUAL))} or later, and this is {found}"


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not LEAST_S <= seconds <= MOST_S:
        raise misuse(f"--every {text}: a number of seconds from {LEAST_S} to {MOST_S:.0f} is needed")
    return seconds


def _picture(job: Job, seconds: float) -> Picture:
    """One picture, for which the ranks are looked at for a while."""
    if job.over:
        return Replay(job.folders).picture()
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, PART_S))
        job.poll()
    return job.picture()


def _print(picture: Picture, arguments: argparse.Namespace) -> int:
    palette = for_stream(sys.stdout, arguments.color)
    room = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 200
    shown = table.plain(picture, max(room, 40), arguments.sort, bars(sys.stdout.encoding))
    output.show(_coloured(parts, palette) for parts in shown)
    return codes.EXIT_OK


def _coloured(parts: Iterable[tuple[Line, str]], palette: Palette) -> Line:
    shown = list(parts)
    if shown:  # what is filled up with spaces for a screen needs none here
        shown[-1] = whole(shown[-1][0].rstrip(" ")), shown[-1][1]
    return line(*[palette.paint(style, text) if hasattr(palette, style) else text for text, style in shown])


def bars(encoding: str | None) -> str:
    """The characters of sparklines that can be written in an encoding."""
    try:
        table.BARS.encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return table.PLAIN_BARS
    return table.BARS


def _show(job: Job, every_s: float | None, sort: str) -> None:
    from safelaunch.top.screen import Top

    encoding = sys.__stdout__.encoding if sys.__stdout__ is not None else None
    screen = Top(job, lambda: Replay(job.folders), every_s, sort, bars(encoding))
    screen.run(mouse=False)
    if screen.fault is not None:
        raise screen.fault
