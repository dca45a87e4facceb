"""`safelaunch runs`: what this user has run, and what became of it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence

from safelaunch import history
from safelaunch.cli import output
from safelaunch.codec import to_json
from safelaunch.history import Entry
from safelaunch.printable import Line, line
from safelaunch.settings.commandline import misuse
from safelaunch.sizes import plural

SHOWN = 20


def run(argv: list[str]) -> int:
    """Show the latest runs; returns the exit code.

    Raises:
        SafelaunchError: SL001, where they cannot be read.
    """
    arguments = parser().parse_args(argv)
    where = history.path(os.environ)
    try:
        known = history.read(os.environ)
    except OSError as error:
        remedy = "remove it, or set XDG_STATE_HOME to a folder of yours"
        what = f"{where} cannot be read: {error.strerror or error}"
        raise misuse(what, remedy) from error
    if arguments.script:
        place = os.path.abspath(arguments.script)
        known = [one for one in known if one.script in (place, arguments.script) or one.script.startswith(f"{place}/")]
    latest = known[-arguments.n :] if arguments.n > 0 else []
    if arguments.json:
        output.show_json([to_json(one) for one in latest])
    elif not latest:
        output.show([line(f"no run is remembered in {where or 'a state folder: HOME is not set'}")])
    else:
        output.show(row for one in latest for row in _rows(one))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch runs", description=__doc__)
    made.add_argument("script", nargs="?", help="only runs of this script, or of those below this folder")
    made.add_argument("-n", type=int, default=SHOWN, metavar="N", help=f"how many of the latest (default: {SHOWN})")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def _rows(one: Entry) -> Iterator[Line]:
    """A run in a line or two:

    2026-11-26 05:15  train.py --lr 0.1  8 ranks on node-a, node-b  1842 steps in 2h10m  exit 1  20261126-051500-node-a
                      SL301: rank 1 sleeps in load (train.py:10), and 2 peers wait for it in all_reduce
    """
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(min(max(one.at, 0), 1 << 40)))
    steps = f"{plural(one.steps, 'step')} in " if one.steps else ""
    what = f"{os.path.basename(one.script)} {one.arguments}".strip()
    hosts = f"{plural(one.world_size, 'rank')} on {_hosts(one.hosts)}"
    yield line(f"{at}  {what[:60]}  {hosts}  {steps}{_time(one.elapsed_s)}  exit {one.exit_code}  {one.run_id}")
    if one.code:
        yield line(f"{' ' * len(at)}  {one.code}: {one.summary}")


def _time(seconds: float) -> str:
    """`45s`, `2m10s`, `3h05m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02}m"


def _hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 2 else f"{len(hosts)} nodes"
