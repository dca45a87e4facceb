"""Which run is meant by a name, or by none: its folders, of those that have not ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from safelaunch import files, regular
from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError
from safelaunch.settings.commandline import misuse

MOST = 16 << 20


def running(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of a run that has not ended: of several nodes each has its own. Without a name, of the run that was
    started last.

    Raises:
        SafelaunchError: SL001.
    """
    if not name:
        return _newest(_base(environ))
    left = _left(named(name, environ))
    if not left:
        raise misuse(f"{name} has ended", "result.json in its folder says how")
    return left


def named(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of a run, whether it has ended or not: by the path of its folder, or by its name.

    Raises:
        SafelaunchError: SL001, where there is none, or it may not be read.
    """
    try:
        found = next(filter(None, map(folders, places(name, environ))), [])
    except OSError as error:
        raise unreadable(error.filename, error) from error
    if not found:
        raise misuse(f"there is no run {name}", f"name one of the folders below {_base(environ)}")
    return found


def places(name: str, environ: Mapping[str, str]) -> list[str]:
    """Where a run may lie that is called so: at that path, or below the folder of all runs."""
    return [name, os.path.join(_base(environ), name)] if os.sep not in name else [name]


def _base(environ: Mapping[str, str]) -> str:
    return run_dir.base_dir(environ.get("SAFELAUNCH_RUN_DIR"), environ)


def folders(place: str) -> list[str]:
    """The run directories at a place: itself, or those of a job's nodes.

    Raises:
        OSError: it may not be read.
    """
    if not os.path.isdir(place):
        return []
    owner = os.stat(place).st_uid
    with os.scandir(place) as entries:
        # A link, or a folder of another user, leads to a run that nobody has named.
        own = [each for each in entries if each.is_dir(follow_symlinks=False)]
        below = sorted(each.path for each in own if each.stat(follow_symlinks=False).st_uid == owner)
    return [folder for folder in (place, *below) if os.path.isfile(os.path.join(folder, "run.json"))]


def unreadable(path: str, error: OSError) -> SafelaunchError:
    """The error for a run directory that may not be read."""
    remedy = "only who started a run, and root, may look at it" if isinstance(error, PermissionError) else "look at it"
    return misuse(f"{path} cannot be read: {error.strerror}", remedy)


def _left(found: list[str]) -> list[str]:
    return [folder for folder in found if not os.path.exists(os.path.join(folder, "result.json"))]


def _newest(base: str) -> list[str]:
    runs = sorted(_started(base), reverse=True)
    if not runs:
        raise misuse(
            f"no run goes on below {base}", "name it: a run directory, or the pid of a rank or of its launcher"
        )
    return runs[0][1]


def _started(base: str) -> Iterator[tuple[float, list[str]]]:
    """The runs below a folder that have not ended, with when their first file was written."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            with contextlib.suppress(OSError):
                left = _left(folders(entry.path)) if entry.is_dir() else []
                if left:
                    yield os.stat(os.path.join(left[0], "run.json")).st_mtime, left


def arguments(folder: str) -> list[str]:
    """The command line of a run, as it has written it down; empty where that cannot be read."""
    argv = regular.document(os.path.join(folder, "run.json"), MOST).get("argv")
    return [str(one) for one in argv] if isinstance(argv, list) else []


def hold(folder: str) -> None:
    """Reach what lies below a folder by its descriptor from now on, and behind no link: it may be another user's."""
    files.hold(folder, os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def name_of(found: list[str]) -> str:
    """The run id of these folders."""
    first = os.path.abspath(found[0])
    return os.path.basename(first if len(found) == 1 else os.path.dirname(first))
