"""The directories that a job needs."""

from __future__ import annotations

import os
from collections.abc import Iterator

from safelaunch.preflight.machine.host import Host

# Where Python looks when no variable names a directory (tempfile, _candidate_tempdir_list).
TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")

# Variables that name a directory which ranks read or write.
VARIABLES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE",
             "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH")  # fmt: skip


def needed(host: Host) -> Iterator[tuple[str, str]]:
    """(what for, absolute path) of each."""
    if host.job.run_dir:
        yield "the run directory", absolute(host, host.job.run_dir)
    if host.working_directory():
        yield "the working directory", host.working_directory()
    for name in VARIABLES:
        if host.environ.get(name):
            yield name, absolute(host, host.environ[name])


def absolute(host: Host, path: str) -> str:
    """A path as the job would understand it."""
    return os.path.normpath(os.path.join(host.working_directory() or "/", path))
