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
    args = parser().parse_args(argv)
    folders = running(args.run, os.environ)
    for folder in folders:
        _ask(folder)
    until = time.monotonic() + args.wait
    while (answer := _answered(folders)) is None and time.monotonic() < until:
        time.sleep(0.1)
    if answer is None:
        output.show_text(
            f"{args.run} has been asked to stop, and has not answered yet: only ranks that call "
            "safelaunch.should_stop() can be told"
        )
        return EXIT_UNANSWERED
    output.show_text(f"{args.run} stops at call {answer} of should_stop(), on all ranks")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options, as they are read and as shells complete them."""
    made = argparse.ArgumentParser(prog="safelaunch stop", description=__doc__)
    made.add_argument("run", metavar="RUN", help="a run directory, or the name of one below ./safelaunch_runs")
    made.add_argument("--wait", type=float, default=WAIT_S, help=f"seconds to wait for its answer ({WAIT_S:g})")
    return made


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
    below = [entry.path for entry in os.scandir(place) if entry.is_dir()] if os.path.isdir(place) else []
    return [folder for folder in (place, *sorted(below)) if os.path.isfile(os.path.join(folder, "run.json"))]


def _ask(folder: str) -> None:
    try:
        os.close(os.open(os.path.join(folder, FILE), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise _misuse(f"{folder} cannot be asked: {error.strerror}", "only who started a run may stop it") from error


def _answered(folders: list[str]) -> int | None:
    for folder in folders:
        try:
            call = json.loads(regular.read(os.path.join(folder, ANSWER), MOST))["call"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(call, int):
            return call
    return None


def _misuse(what: str, remedy: str) -> SafelaunchError:
    return SafelaunchError("SL001", what, remedy, exit_code=EXIT_USAGE)
