"""`safelaunch stop RUN`: ask a run to stop at a step, where its script calls `safelaunch.should_stop()`."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import time

from safelaunch import open_folder, regular
from safelaunch.cli import output
from safelaunch.cli.running import running
from safelaunch.printable import line
from safelaunch.pulse import LARGEST
from safelaunch.run.stops import ANSWER, FILE
from safelaunch.settings.commandline import misuse

WAIT_S = 10.0  # a supervisor looks once a second; a file system of several nodes takes a while to show a new file
MOST = 1 << 16
EXIT_UNANSWERED = 1
ONLY_OWNER = "only who started a run may stop it"


def run(argv: list[str]) -> int:
    """Ask, and wait for the answer; returns the exit code: 0 where all ranks will stop at a step that is known.

    Raises:
        SafelaunchError: where there is no such run, or it has ended.
    """
    args = parser().parse_args(argv)
    asked = running(args.run, os.environ)
    for folder in asked:
        _ask(folder)
    until = time.monotonic() + args.wait
    while (answer := _answered(asked)) is None and time.monotonic() < until:
        time.sleep(0.1)
    if answer is None:
        told = "only ranks that call safelaunch.should_stop() can be told"
        output.show([line(f"{args.run} has been asked to stop, and has not answered yet: {told}")])
        return EXIT_UNANSWERED
    output.show([line(f"{args.run} stops at call {answer} of should_stop(), on all ranks")])
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch stop", description=__doc__)
    made.add_argument("run", metavar="RUN", help="a run directory, or the name of one below ./safelaunch_runs")
    made.add_argument("--wait", type=float, default=WAIT_S, help=f"seconds to wait for its answer ({WAIT_S:g})")
    return made


def _ask(folder: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        reached = open_folder.reached(folder)
        try:
            opened = os.open(FILE, flags, 0o600, dir_fd=reached)
        finally:
            os.close(reached)
        is_file = stat.S_ISREG(os.fstat(opened).st_mode)
        os.close(opened)
        if not is_file:
            raise OSError(errno.EINVAL, f"{FILE} in it is no file")
    except OSError as error:
        raise misuse(f"{folder} cannot be asked: {error.strerror}", ONLY_OWNER) from error


def _answered(asked: list[str]) -> int | None:
    for folder in asked:
        call = regular.document(os.path.join(folder, ANSWER), MOST).get("call")
        if type(call) is int and 0 <= call <= LARGEST:
            return call
    return None
