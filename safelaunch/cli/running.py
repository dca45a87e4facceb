"""Which run is meant by a name, or by none: its folders, of those that have not ended."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from safelaunch import files
from safelaunch.launch import run_dir
from safelaunch.model import SafelaunchError
from safelaunch.open_folder import OpenFolder
from safelaunch.settings.commandline import misuse

MOST = 16 << 20
RUN = "run.json"  # is in each run directory
NAME_ONE = "name a run directory, or one below the folder of all runs"


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
        where = "" if os.sep in name else f", here or below {_base(environ)}"
        raise misuse(f"there is no run {name}{where}", NAME_ONE)
    return found


def places(name: str, environ: Mapping[str, str]) -> list[str]:
    """Where a run may lie that is called so: at that path, or below the folder of all runs."""
    return [name, os.path.join(_base(environ), name)] if os.sep not in name else [name]


def _base(environ: Mapping[str, str]) -> str:
    return run_dir.base_dir(environ.get("SAFELAUNCH_RUN_DIR"), environ)


def folders(place: str) -> list[str]:
    """The run directories at a place: itself, or those of a job's nodes.

    Raises:
        OSError: it may not be read, or another user's link leads there to what is not his.
    """
    if not place:
        return []
    try:
        found = OpenFolder(place)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a null byte
        return []
    try:
        # A link, or a folder of another user, leads to a run that nobody has named.
        names = ["", *found.folders()]
        paths = [os.path.join(place, name) if name else place for name in names]
        return [path for path in paths if found.has(os.path.join(path, RUN))]
    except OSError as error:
        error.filename = place
        raise
    finally:
        found.close()


def unreadable(path: str, error: OSError) -> SafelaunchError:
    """The error for a run directory that may not be read."""
    remedy = "only who started a run, and root, may look at it" if isinstance(error, PermissionError) else "look at it"
    if error.errno == errno.EPERM:
        remedy = "name the folder to which that link leads, if you trust what is there"
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
                left = _left(folders(entry.path))
                if left:
                    yield os.lstat(os.path.join(left[0], RUN)).st_mtime, left


def arguments(folder: OpenFolder) -> list[str]:
    """The command line of a run, as it has written it down; empty where that cannot be read."""
    argv = folder.document(os.path.join(folder.path, RUN), MOST).get("argv")
    return [str(one) for one in argv] if isinstance(argv, list) else []


def hold(folder: str) -> OpenFolder:
    """Reach what lies below a run directory by its descriptor from now on, and behind no link: it may be another
    user's, who can lead its path elsewhere at any moment.

    Raises:
        SafelaunchError: SL001, where another user's link leads there to what is not his, or it is no run directory.
    """
    try:
        found = OpenFolder(folder)
    except OSError as error:
        raise unreadable(folder, error) from error
    if not found.has(os.path.join(folder, RUN)):
        found.close()
        raise misuse(f"{folder} is no run directory: it has no {RUN}", NAME_ONE)
    files.hold(folder, found.descriptor)
    return found


def name_of(found: list[str]) -> str:
    """The run id of these folders."""
    return os.path.basename(place_of(found))


def place_of(found: list[str]) -> str:
    """The folder of the run itself: the one above the folders of its nodes, where there are several."""
    return os.path.commonpath([os.path.abspath(one) for one in found])
