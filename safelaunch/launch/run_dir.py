"""The run directory: created by the supervisor alone, before anything else starts."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Mapping

from safelaunch.codes import EXIT_REFUSED, EXIT_USAGE
from safelaunch.launch import scratch
from safelaunch.model import SafelaunchError

NEEDED_BYTES = 1 << 20  # run.json, agent.jsonl and one incident of eight ranks take about 300 KB


def default_run_id(environ: Mapping[str, str], host: str) -> str:
    """A run id where none was chosen: the scheduler's job id and restart count, else time and host."""
    if job := environ.get("SLURM_JOB_ID"):
        return f"{job}-{environ.get('SLURM_RESTART_COUNT', '0')}"
    if job := environ.get("BEAKER_JOB_ID"):
        return job
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{host}"


def base_dir(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Where run directories go: the chosen one, else the scheduler's result folder, else ./runs."""
    if chosen:
        return os.path.abspath(chosen)
    if environ.get("BEAKER_JOB_ID") and os.path.isdir("/results"):
        return "/results"
    return os.path.abspath("runs")


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


def create(base: str, run_id: str, host: str, *, several_nodes: bool) -> str:
    """The run directory holds everything that safelaunch writes; without it no evidence could be kept.

    It is `BASE/RUN_ID` (`BASE/RUN_ID/HOST` with several nodes), created exclusively with mode 0700, so that no
    run ever writes into another's folder: where the name is taken, `.2`, `.3`, ... is appended. The launch is
    refused when it cannot be created or when its file system has no room for 1 MiB. Choose another place with
    `--run-dir` or SAFELAUNCH_RUN_DIR.
    """
    parent, name = (os.path.join(base, run_id), host) if several_nodes else (base, run_id)
    path = os.path.join(parent, name)
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        suffix = 1
        while True:
            try:
                os.mkdir(path, mode=0o700)
                break
            except FileExistsError:
                suffix += 1
                path = os.path.join(parent, f"{name}.{suffix}")
        _probe_room(path)
    except OSError as error:
        raise _refusal(path, error) from error
    return path


def _probe_room(path: str) -> None:
    """Write as much as a run needs, once: statvfs knows nothing of quotas."""
    with tempfile.TemporaryFile(dir=path) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, NEEDED_BYTES)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                os.rmdir(path)
                raise


def _refusal(path: str, error: OSError) -> SafelaunchError:
    culprit = error.filename or path
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        reason = f"{culprit} is a file, not a folder"
    else:
        reason = f"{culprit}: {os.strerror(error.errno or 0)}"
    return SafelaunchError(
        "SL003",
        f"the run directory cannot be created: {reason}",
        "free some space there, or choose another place with --run-dir DIR"
        if full
        else "choose another place with --run-dir DIR",
        exit_code=EXIT_REFUSED if full else EXIT_USAGE,
    )


def create_scratch(token: str) -> str:
    """A private folder for slots and sockets, in memory where possible; the guard removes it if we cannot."""
    for parent in scratch.parents():
        path = os.path.join(parent, f"{scratch.PREFIX}{token}")
        try:
            os.mkdir(path, mode=0o700)
        except OSError:
            continue
        scratch.sign(path, token)
        return path
    return tempfile.mkdtemp(prefix=scratch.PREFIX)
