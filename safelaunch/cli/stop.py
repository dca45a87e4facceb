"""`safelaunch stop RUN`: ask a run to stop at a step, where its script calls `safelaunch.should_stop()`."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping

from safelaunch import regular
from safelaunch.cli import output
from safelaunch.codes import EXIT_USAGE
from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError
from safelaunch.run.stops import ANSWER, FILE

WAIT_S = 10.0  # a supervisor looks once a second; a file system of several nodes takes a while to show a new file
MOST = 1 << 16
EXIT_UNANSWERED = 1


def run(argv: list[str]) -> int:
    """Ask, and wait for the answer; returns the exit code: 0 where all ranks will stop at a step that is known.

    Raises:
        SafelaunchError: where there is no such run, or it has ended.
    """
    parser = argparse.ArgumentParser(prog="safelaunch stop", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="a run directory, or the name of one below ./safelaunch_runs")
    parser.add_argument("--wait", type=float, default=WAIT_S, help=f"seconds to wait for its answer ({WAIT_S:g})")
    args = parser.parse_args(argv)
    asked = running(args.run, os.environ)
    for folder in asked:
        _ask(folder)
    until = time.monotonic() + args.wait
    while (answer := _answered(asked)) is None and time.monotonic() < until:
        time.sleep(0.1)
    if answer is None:
        output.show_text(
            f"{args.run} has been asked to stop, and has not answered yet: only ranks that call "
            "safelaunch.should_stop() can be told"
        )
        return EXIT_UNANSWERED
    output.show_text(f"{args.run} stops at call {answer} of should_stop(), on all ranks")
    return 0


def running(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of a run that has not ended: of several nodes each has its own.

    Raises:
        SafelaunchError: SL001.
    """
    found = folders(name, environ)
    left = [folder for folder in found if not os.path.exists(os.path.join(folder, "result.json"))]
    if not left:
        raise _misuse(f"{name} has ended", "result.json in its folder says how")
    return left


def folders(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of a run, whether it has ended or not.

    Raises:
        SafelaunchError: SL001, where there is none, or it may not be read.
    """
    base = run_dir.base_dir(environ.get("SAFELAUNCH_RUN_DIR"), environ)
    places = [name, os.path.join(base, name)] if os.sep not in name else [name]
    try:
        found = next(filter(None, map(below, places)), [])
    except OSError as error:
        raise unreadable(error.filename, error) from error
    if not found:
        raise _misuse(f"there is no run {name}", f"name one of the folders below {base}")
    return found


def below(place: str) -> list[str]:
    """The run directories at a place: itself, or those of a job's nodes.

    Raises:
        OSError: it may not be read.
    """
    inside = [entry.path for entry in os.scandir(place) if entry.is_dir()] if os.path.isdir(place) else []
    return [folder for folder in (place, *sorted(inside)) if os.path.isfile(os.path.join(folder, "run.json"))]


def unreadable(path: str, error: OSError) -> SafelaunchError:
    """The error for a run directory that may not be read."""
    remedy = "only who started a run, and root, may look at it" if isinstance(error, PermissionError) else "look at it"
    return _misuse(f"{path} cannot be read: {error.strerror}", remedy)


def _ask(folder: str) -> None:
    try:
        os.close(os.open(os.path.join(folder, FILE), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise _misuse(f"{folder} cannot be asked: {error.strerror}", "only who started a run may stop it") from error


def _answered(asked: list[str]) -> int | None:
    for folder in asked:
        try:
            call = json.loads(regular.read(os.path.join(folder, ANSWER), MOST))["call"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(call, int):
            return call
    return None


def _misuse(what: str, remedy: str) -> SafelaunchError:
    return SafelaunchError("SL001", what, remedy, exit_code=EXIT_USAGE)
