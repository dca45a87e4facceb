"""Look at what is installed, and remember the names in it: reading them takes a second, remembering a millisecond."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import zlib
from collections.abc import Mapping, Sequence

from safelaunch import user_files
from safelaunch.deadline import within
from safelaunch.settings.lint import find
from safelaunch.settings.lint.installed import NOTHING_INSTALLED, Installed, Library

SCANNER = 1  # the version of what `scan` collects: a higher one makes every record void
AGAIN_S = 86400.0  # after so long a scan that took too long is tried again in the same time
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scan.py")


def look(environ: Mapping[str, str], path: Sequence[str] | None = None, scan_s: float | None = None) -> Installed:
    """The libraries that ranks would load. Nothing is imported, and nothing is raised.

    The names in them are read when first asked for: from a record in the user's cache folder where the libraries are
    still the same files, or else by a child process, which then leaves a record. Where it takes too long, the record
    says so for a day: on a slow file system not every launch waits, only one that gives it more time.

    Args:
        environ: of the ranks: LD_LIBRARY_PATH and LD_PRELOAD may bring another NCCL, XDG_CACHE_HOME or HOME say where
            the record lies.
        path: the `sys.path` of the ranks' Python; None for this one.
        scan_s: seconds that reading the libraries may take; None to take the record or nothing.
    """
    torch = find.torch(path)
    if torch is None:
        return NOTHING_INSTALLED
    nccl = find.nccl(torch, environ)
    return Installed(torch, nccl, lambda: _names(torch, nccl, environ, scan_s))


def _names(
    torch: Library, nccl: Library | None, environ: Mapping[str, str], scan_s: float | None
) -> frozenset[str] | None:
    libraries = find.libraries(torch)
    if not libraries:  # something that is called torch, or one that is only half there
        return None
    if nccl is not None and nccl.path not in libraries:
        libraries = (*libraries, nccl.path)
    try:
        identity = [SCANNER, *(_identity(path) for path in (os.path.join(torch.path, "version.py"), *libraries))]
    except OSError:
        return None
    record = _record(environ, torch, nccl)
    found = _load(record, identity)
    names = _as_names(found.get("names"))
    if names is None and scan_s is not None and not _in_vain(found, scan_s):
        try:
            names = _scan(libraries, torch.path, scan_s)
        except TimeoutError:
            _keep(record, {"of": identity, "too_slow": {"in_s": scan_s, "at": time.time()}})
        if names is not None:
            _keep(record, {"of": identity, "names": names})
    return None if names is None else frozenset(names)


def _in_vain(found: Mapping[str, object], seconds: float) -> bool:
    """Whether a scan has lately taken longer than this."""
    slow = found.get("too_slow")
    given, at = (slow.get("in_s"), slow.get("at")) if isinstance(slow, dict) else (None, None)
    if not isinstance(given, (int, float)) or not isinstance(at, (int, float)):
        return False
    return seconds <= given and abs(time.time() - at) < AGAIN_S  # abs: a clock that was set back


def _identity(path: str) -> list[object]:
    """What changes when a file is replaced. Torch's Python files are too many to look at: version.py stands for all."""
    found = os.stat(path)
    return [path, found.st_size, found.st_mtime_ns, found.st_ino]


def _scan(libraries: Sequence[str], torch: str, seconds: float) -> list[str] | None:
    """The names, or None where something is wrong with the files. Raises TimeoutError."""
    import subprocess  # which few lints have a use for

    try:
        process = subprocess.Popen(
            [sys.executable, "-I", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        output, _ = process.communicate(json.dumps({"libraries": libraries, "torch": torch}).encode(), seconds)
    except subprocess.TimeoutExpired:
        # Not waited for: a child in an uninterruptible read of a dead file system does not end when it is killed.
        process.kill()
        raise TimeoutError from None
    except BaseException:
        process.kill()
        raise
    try:
        return _as_names(json.loads(output)) if process.returncode == 0 else None
    except ValueError:
        return None


def _as_names(found: object) -> list[str] | None:
    sound = isinstance(found, list) and found and all(isinstance(name, str) for name in found)
    return found if sound else None  # type: ignore[return-value]


def _record(environ: Mapping[str, str], torch: Library, nccl: Library | None) -> str:
    """The file for these two libraries, or "" where the user has no cache folder."""
    cache = user_files.cache(environ)
    # Two that share a name by chance take turns: the identity inside decides whether a record is believed.
    name = zlib.crc32(f"{torch.path}\0{nccl.path if nccl else ''}".encode())
    return os.path.join(cache, "safelaunch", f"variables-{name:08x}.json") if cache else ""


def _load(record: str, identity: object) -> dict[str, object]:
    """What is remembered of exactly these files: nothing where there is no record, or one that is damaged."""
    try:
        found = within(user_files.ANSWER_S, lambda: user_files.load(record)) if record else None
    except (OSError, ValueError, RecursionError):  # TimeoutError is an OSError
        return {}
    return found if isinstance(found, dict) and found.get("of") == identity else {}


def _keep(record: str, content: Mapping[str, object]) -> None:
    """Replace the record whole. Where that is not possible the next run reads the libraries again."""
    if record:
        with contextlib.suppress(OSError):
            within(user_files.ANSWER_S, lambda: user_files.keep(record, content))
