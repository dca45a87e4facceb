"""`safelaunch trace [RUN]`: the same steps of all ranks, as torch's profiler sees them, in one file and in words."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from safelaunch import codes, durations, files
from safelaunch.cli import bounded, output
from safelaunch.cli.running import arguments as arguments_of
from safelaunch.cli.running import hold, name_of, place_of, running, unreadable
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION
from safelaunch.model.ranks import MOST_RANKS
from safelaunch.open_folder import OpenFolder
from safelaunch.printable import line
from safelaunch.report.palette import for_stream
from safelaunch.run import tracing
from safelaunch.settings.commandline import Parser, misuse

USAGE = """\
usage: safelaunch trace [--steps N] [--ranks LIST] [--wait DURATION] [--json] [RUN]

Record the same steps of all ranks of a run that goes on with torch.profiler, beginning behind a step of the optimizer
(or a call of safelaunch.heartbeat(), where no optimizer steps), and put them into one file: traces/N/trace.json.gz of
the run directory, which https://ui.perfetto.dev opens, and chrome://tracing. Says what the steps are spent with, and
which rank starts last. The ranks stand still for a moment behind the last of these steps, to write them down.

RUN is a run directory, or the name of one below ./safelaunch_runs; without it, the run that was started last. It may be
asked for on another machine, where the run directory is on a shared file system.

options:
  --steps N          how many steps (default: 3)
  --ranks LIST       of which ranks, such as 0,5 or 0-3 (default: all)
  --wait DURATION    for the ranks to come to these steps and through them (default: 5m); then the others are merged
  --json             print JSON
  -h, --help         show this text

exit codes: 0 all ranks are in the file; 1 some are missing, or all; 2 misuse, or the run cannot be traced
"""

# To put together what the ranks have left. On two busy cores 64 MiB of events take 13 s, and 400 MiB of memory
# (measured); one rank leaves 512 MiB at most, and is let go before the next one.
MERGE_S, RANK_S = 120.0, 120.0
ROOM = 6 << 30
AGAIN = "ask for fewer steps (--steps), or for some of the ranks (--ranks)"


def run(argv: list[str]) -> int:
    """Run the subcommand; returns the exit code.

    Raises:
        SafelaunchError: SL001, for misuse, where there is no such run, and where it cannot be traced.
    """
    arguments = parser().parse_args(argv)
    if arguments.help:
        output.show_text(USAGE)
        return codes.EXIT_OK
    steps = int(arguments.steps) if arguments.steps.isdecimal() and len(arguments.steps) < 5 else 0
    if not 1 <= steps <= tracing.MOST_STEPS:
        raise misuse(f"--steps {arguments.steps}: a number from 1 to {tracing.MOST_STEPS} is needed")
    wait, ranks = seconds("--wait", arguments.wait), ranks_of(arguments.ranks)
    found = running(arguments.run, os.environ)
    folders = [hold(folder) for folder in found]
    if arguments_of(folders[0])[:1] == ["exec"]:
        what = (
            "ranks below `safelaunch exec` cannot be traced: their steps are counted, and nothing can be asked of them"
        )
        raise misuse(what, "start them with `safelaunch`; `safelaunch dump PID` shows what they do")
    asked = tracing.ask(folders, _place(folders, found), steps, ranks, wait, _progress(arguments.json))
    seconds_ = MERGE_S + RANK_S * asked.ranks
    return bounded.run(lambda: _merge(asked, name_of(found), arguments.json), seconds_, ROOM, AGAIN)


def _place(folders: Sequence[OpenFolder], found: list[str]) -> OpenFolder:
    """The folder of the run itself, held as those of its nodes are."""
    if len(folders) == 1:
        return folders[0]
    path = place_of(found)
    try:
        place = OpenFolder(path)
    except OSError as error:
        raise unreadable(path, error) from error
    files.hold(path, place.descriptor)
    return place


def _merge(asked: tracing.Asked, name: str, as_json: bool) -> int:
    """Put together what the ranks have left, and tell; returns the exit code."""
    traced = asked.merged()
    _tell(traced, name, as_json)
    return codes.EXIT_OK if traced.path and not traced.missing else codes.EXIT_SCRIPT_FAILED


def parser() -> Parser:
    """The options, as they are read and as shells complete them."""
    made = Parser("safelaunch trace")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--steps", default="3")
    made.add_argument("--ranks", default="")
    made.add_argument("--wait", default="5m")
    made.add_argument("--json", action="store_true")
    made.add_argument("run", nargs="?", default="", metavar="RUN")
    return made


def _progress(as_json: bool):  # type: ignore[no-untyped-def]
    def tell(text: str) -> None:
        if not as_json:
            output.show([line(for_stream(sys.stderr).paint("dim", "note"), ": ", text)], sys.stderr)

    return tell


def seconds(option: str, text: str) -> float:
    """A duration of an option.

    Raises:
        SafelaunchError: SL001.
    """
    try:
        return durations.seconds(text)
    except ValueError:
        raise misuse(f"{option} {text}: a duration is needed, such as 90, 90s or 5m") from None


def ranks_of(text: str) -> tuple[int, ...] | None:
    """The ranks of a list such as `0,5` or `0-3,8`; None for all.

    Raises:
        SafelaunchError: SL001.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        numbers = [first, last] if dash else [first, first]
        if not all(each.isascii() and each.isdecimal() and len(each) < 8 for each in numbers):
            raise misuse(f"--ranks {text}: ranks such as 0,5 or 0-3 are needed")
        a, b = map(int, numbers)
        if not a <= b < MOST_RANKS:
            raise misuse(f"--ranks {text}: {part} is no range of ranks")
        found.update(range(a, b + 1))
    return tuple(sorted(found)) if text else None


def _tell(traced: tracing.Traced, name: str, as_json: bool) -> None:
    if as_json:
        output.show_json({"schema_version": SCHEMA_VERSION, "run_id": name, **to_json(traced)})
        return
    lines = [line(one, width=400) for one in traced.summary]
    lines += [line(f"missing: rank {rank}: ", why) for rank, why in sorted(traced.missing.items())]
    if traced.path:
        lines.append(line("trace: ", traced.path, width=4096))
        lines.append(line("open it at https://ui.perfetto.dev, which sends it nowhere"))
    output.show(lines)
