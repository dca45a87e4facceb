"""The run directory: created by the supervisor alone, before anything else starts."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pwd
import re
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from safelaunch import files, user_files
from safelaunch.codes import EXIT_REFUSED, EXIT_USAGE
from safelaunch.launch import scratch
from safelaunch.model import SafelaunchError
from safelaunch.sizes import size

DEFAULT = "safelaunch_runs"  # below the working directory; `runs` is TensorBoard's, and ours is closed to others
NEEDED_BYTES = 1 << 20  # run.json, agent.jsonl and one incident of eight ranks take about 300 KB
SCRATCH_BYTES = 16 << 20  # the slots of 256 ranks take 13 MB
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT)


def default_run_id(environ: Mapping[str, str], host: str) -> str:
    """A run id where none was chosen: the scheduler's job id and restart count, else time and host."""
    if job := environ.get("SLURM_JOB_ID"):
        return f"{job}-{environ.get('SLURM_RESTART_COUNT', '0')}"
    if job := environ.get("BEAKER_JOB_ID"):
        return job
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{host}"


def base_dir(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Where run directories go: the chosen one, else the scheduler's result folder, else ./safelaunch_runs."""
    if chosen:
        return os.path.abspath(chosen)
    if environ.get("BEAKER_JOB_ID") and os.path.isdir("/results"):
        return "/results"
    return os.path.abspath(DEFAULT)


def check_run_id(run_id: str) -> str:
    """The run id names a folder below the run directory, so it must be a plain name.

    It is taken from `--rdzv-id`, or made from the scheduler's job id, or from time and host. A slash, a leading
    dot, control characters or more than 200 bytes cannot be a folder name everywhere. Choose an id of letters,
    digits, `.`, `_` and `-`.
    """
    if re.fullmatch(r"[^\x00-\x1f\x7f-\x9f/.][^\x00-\x1f\x7f-\x9f/]*", run_id) and len(os.fsencode(run_id)) <= 200:
        return run_id
    raise SafelaunchError(
        "SL004",
        f"the run id {run_id!r} cannot name a folder",
        "give --rdzv-id a plain name: letters, digits, '.', '_' and '-'",
        exit_code=EXIT_USAGE,
    )


@dataclass(frozen=True)
class RunDir:
    """A run directory that has been made; `warning` is a line to be said of where it lies, or empty."""

    path: str
    warning: str = ""


class _ForeignError(OSError):
    """A folder or link that another user has made, and can lead elsewhere."""


def create(
    base: str, run_id: str, host: str, *, several_nodes: bool, chosen: bool, environ: Mapping[str, str] = os.environ
) -> RunDir:
    """The folder of this run, made new; where the base cannot be used, somewhere else if that may be.

    Args:
        base: where run directories go.
        run_id: a plain name.
        host: the name of this node.
        several_nodes: whether other nodes share the run id.
        chosen: whether the user has named the base.
        environ: names the other places.

    Raises:
        SafelaunchError: SL003.
    """
    try:
        return _made(base, run_id, host, several_nodes, foreign_is_well=chosen)
    except OSError as error:
        if chosen and error.errno not in FULL:
            raise refusal(base, error) from error
        first = error
    for room in (NEEDED_BYTES, 0):
        for place in _elsewhere(environ):
            try:
                path = _made(place, run_id, host, several_nodes, room=room).path
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(place)
                continue
            short = "" if room else ", where hardly anything fits"
            words = f"{_reason(base, first)}: this run is kept in {path}{short} (--run-dir DIR chooses another place)"
            return RunDir(path, f"warning[SL003]: {words}")
    raise refusal(base, first)


def _elsewhere(environ: Mapping[str, str]) -> Iterator[str]:
    """The other places for run directories. Those in folders of all users get a name that nobody can foresee."""
    with contextlib.suppress(OSError):
        yield tempfile.mkdtemp(prefix=f"{DEFAULT}-")
    if state := user_files.state(environ):
        yield os.path.join(state, "safelaunch")
    with contextlib.suppress(OSError):
        yield tempfile.mkdtemp(prefix=f"{DEFAULT}-", dir=scratch.MEMORY)


def _made(
    base: str, run_id: str, host: str, several_nodes: bool, *, foreign_is_well: bool = False, room: int = NEEDED_BYTES
) -> RunDir:
    """Make the run directory, each folder by the descriptor of the one above it."""
    folder, foreign = _opened(base, foreign_is_well)
    try:
        if several_nodes:
            with contextlib.suppress(FileExistsError):
                os.mkdir(run_id, 0o700, dir_fd=folder)
            above, folder = folder, _entered(folder, run_id)
            os.close(above)
        parent, name = (os.path.join(base, run_id), host) if several_nodes else (base, run_id)
        name = _new(folder, name)
        own = _entered(folder, name)
        try:
            _probe_room(own, room)
        except OSError:
            os.close(own)
            os.rmdir(name, dir_fd=folder)
            raise
    finally:
        os.close(folder)
    path = os.path.join(parent, name)
    files.hold(path, own)
    return RunDir(path, f"warning[SL003]: {base} {foreign}" if foreign else "")


def _opened(base: str, foreign_is_well: bool) -> tuple[int, str]:
    """A descriptor of the folder of all runs, which is made where there is none, and what is to be said of its owner.

    The owner of the folder above it could have taken its place at any time: it is no worse for belonging to that user.
    """
    above = os.path.dirname(base)
    os.makedirs(above, 0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(base, 0o700)
    try:
        folder = os.open(base, FOLDER | os.O_NOFOLLOW)
        owner, what = os.fstat(folder).st_uid, "belongs to"
    except OSError:
        if not os.path.islink(base):
            raise
        folder = os.open(base, FOLDER)
        owner, what = os.lstat(base).st_uid, "is a link of"
    if owner in (os.geteuid(), 0):
        return folder, ""
    foreign = f"{what} {_user(owner)}"
    if not foreign_is_well and owner != os.stat(above).st_uid:
        os.close(folder)
        raise _ForeignError(errno.EPERM, foreign, base)
    return folder, f"{foreign}, who can take away what is written there"


def _entered(folder: int, name: str) -> int:
    """A descriptor of a folder below another: never behind a link, and not put there by somebody else."""
    below = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    owner = os.fstat(below).st_uid
    # Some file systems show one owner for all that lies on them (CIFS, NFS with root_squash).
    if owner not in (os.geteuid(), os.fstat(folder).st_uid):
        os.close(below)
        raise _ForeignError(errno.EPERM, f"belongs to {_user(owner)}", name)
    return below


def _new(folder: int, name: str) -> str:
    """Make a folder with that name, or the first free one like it."""
    for suffix in itertools.count(1):
        free = name if suffix == 1 else f"{name}.{suffix}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(free, 0o700, dir_fd=folder)
            break
    return free


def _probe_room(folder: int, room: int) -> None:
    """Write as much as a run needs, once: statvfs knows nothing of quotas. A limit of the size of files is no want of
    room."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = room if limit == resource.RLIM_INFINITY else min(room, limit)
    if not room:
        return
    name = f".{os.urandom(8).hex()}"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.unlink(name, dir_fd=folder)
        os.posix_fallocate(descriptor, 0, room)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    finally:
        os.close(descriptor)


def _reason(base: str, error: OSError) -> str:
    culprit = error.filename if os.path.isabs(error.filename or "") else base
    if isinstance(error, _ForeignError):
        return f"{culprit} {error.strerror}"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{culprit} is a file, not a folder"
    return f"{culprit}: {os.strerror(error.errno or 0)}"


def refusal(base: str, error: OSError) -> SafelaunchError:
    """The run directory holds everything that safelaunch writes.

    It is `BASE/RUN_ID` (`BASE/RUN_ID/HOST` with several nodes), created exclusively with mode 0700, so that no run ever
    writes into another's folder: where the name is taken, `.2`, `.3`, ... is appended. No link that another user has
    made is followed.

    The run goes on elsewhere where the default base cannot be written, has no room for 1 MiB, or is another user's.
    That is a folder in TMPDIR, in the user's state folder (XDG_STATE_HOME, ~/.local/state/safelaunch) or in memory
    (/dev/shm), and a line says so. A base that was chosen (`--run-dir`, SAFELAUNCH_RUN_DIR) and is merely full is
    treated alike. One that cannot be made or written is refused, as torchrun refuses such a --log-dir: something will
    look for the files there. The launch is also refused where nothing at all can be written; torchrun needs a temporary
    folder as well.
    """
    full = error.errno in FULL
    return SafelaunchError(
        "SL003",
        f"the run directory cannot be created: {_reason(base, error)}",
        f"{'free some space there, or ' if full else ''}choose another place with --run-dir DIR",
        exit_code=EXIT_REFUSED if full else EXIT_USAGE,
    )


def too_large(error: OSError) -> SafelaunchError:
    """The refusal of a run whose first files are larger than files may be (RLIMIT_FSIZE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return SafelaunchError(
        "SL003",
        f"files may not grow beyond {size(limit)} (ulimit -f): not even {error.filename} can be written",
        "raise that limit: ulimit -f unlimited",
        exit_code=EXIT_REFUSED,
    )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def file_limit() -> str:
    """What a low limit of the size of files costs, as a line; "" where there is none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY or limit >= NEEDED_BYTES:
        return ""
    return f"warning[SL003]: files may not grow beyond {size(limit)} (ulimit -f): logs and evidence end there"


def create_scratch(token: str, run_dir: str) -> str:
    """A private folder for slots and sockets, in memory where possible; the guard removes it if we cannot.

    Raises:
        SafelaunchError: SL003, where nothing can be written, not even to the run directory.
    """
    for room in (SCRATCH_BYTES, 0):
        for parent in (*scratch.parents(), run_dir):
            path = os.path.join(parent, f"{scratch.PREFIX}{token}")
            try:
                if not room or _free(parent) >= room:
                    os.mkdir(path, mode=0o700)
                    scratch.sign(path, token)
                    return path
            except OSError as error:
                last = error
    raise refusal(run_dir, last)


def _free(folder: str) -> float:
    """Bytes; a file system in memory without a limit says 0 of 0."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else float("inf")
