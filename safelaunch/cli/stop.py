"""`safelaunch stop RUN`: ask a run to stop at a step, where its script calls `safelaunch.should_stop()`."""

from __future__ import annotations

import argparse
import errno
import json
import os
import stat
import time
from collections.abc import Mapping

from safelaunch import open_folder, regular
from safelaunch.cli import output
from safelaunch.codes import EXIT_USAGE
from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError
from safelaunch.printable import line
from safelaunch.pulse import LARGEST
from safelaunch.run.stops import ANSWER, FILE

WAIT_S = 10.0  # a supervisor looks once a second; a file system of several nodes takes a while to show a new file
MOST = 1 << 16
EXIT_UNANSWERED = 1
ONLY_OWNER = "only who started a run may stop it"


def run(argv: list[str]) -> int:
    """Ask, and wait for the answer; returns the exit code: 0 where all ranks will stop at a step that is known.

    Raises:
        SafelaunchError: where there is no such run, or it has ended.
    """
    parser = argparse.ArgumentParser(prog="safelaunch stop", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="a run directory, or the name of one below ./safelaunch_runs")
    parser.add_argument("--wait", type=float, default=WAIT_S, help=f"seconds to wait for its answer ({WAIT_S:g})")
    args = parser.parse_args(argv)
    folders = running(args.run, os.environ)
    for folder in folders:
        _ask(folder)
    until = time.monotonic() + args.wait
    while (answer := _answered(folders)) is None and time.monotonic() < until:
        time.sleep(0.1)
    if answer is None:
        told = "only ranks that call safelaunch.should_stop() can be told"
        output.show([line(f"{args.run} has been asked to stop, and has not answered yet: {told}")])
        return EXIT_UNANSWERED
    output.show([line(f"{args.run} stops at call {answer} of should_stop(), on all ranks")])
    return 0


def running(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of a run that has not ended: of several nodes each has its own.

    Raises:
        SafelaunchError: SL001.
    """
    base = run_dir.base_dir(environ.get("SAFELAUNCH_RUN_DIR"), environ)
    places = [name, os.path.join(base, name)] if os.sep not in name else [name]
    folders = next(filter(None, map(_folders, places)), [])
    if not folders:
        raise _misuse(f"there is no run {name}", f"name one of the folders below {base}")
    left = [folder for folder in folders if not os.path.exists(os.path.join(folder, "result.json"))]
    if not left:
        raise _misuse(f"{name} has ended", "result.json in its folder says how")
    return left


def _folders(place: str) -> list[str]:
    """The run directories at a place: itself, or those of a job's nodes."""
    if not os.path.isdir(place):
        return []
    try:
        owner = os.stat(place).st_uid
        with os.scandir(place) as entries:
            # A link, or a folder of another user, leads to a run that nobody has named.
            folders = [each for each in entries if each.is_dir(follow_symlinks=False)]
            below = sorted(each.path for each in folders if each.stat(follow_symlinks=False).st_uid == owner)
    except OSError as error:
        raise _misuse(f"{place} cannot be looked into: {error.strerror}", ONLY_OWNER) from None
    return [folder for folder in (place, *below) if os.path.isfile(os.path.join(folder, "run.json"))]


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
        raise _misuse(f"{folder} cannot be asked: {error.strerror}", ONLY_OWNER) from error


def _answered(folders: list[str]) -> int | None:
    for folder in folders:
        try:
            call = json.loads(regular.read(os.path.join(folder, ANSWER), MOST))["call"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if type(call) is int and 0 <= call <= LARGEST:
            return call
    return None


def _misuse(what: str, remedy: str) -> SafelaunchError:
    return SafelaunchError("SL001", what, remedy, exit_code=EXIT_USAGE)
