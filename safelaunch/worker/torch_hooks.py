"""Runs in: workers. What is hooked when the script imports torch.distributed; torch is never imported by us."""

from __future__ import annotations

from typing import Any

from safelaunch.worker import beat, progress
from safelaunch.worker.after_import import attempt, call_after_import
from safelaunch.worker.collectives import record_collectives

TARGET = "torch.distributed.distributed_c10d"


def install(box: Any, timeout: str | None) -> None:
    """Arrange for the hooks.

    Args:
        box: a `black_box.Writer`, or None for no record of collectives and no heartbeats.
        timeout: default timeout of process groups in seconds, or None for torch's own.
    """

    def patch(module: Any) -> None:
        if timeout is not None:
            attempt(set_default_timeout, module, float(timeout))
        if box is not None:
            attempt(record_collectives, module, box)
            attempt(start_beat, module, box)

    if box is not None or timeout is not None:
        call_after_import(TARGET, patch)
    if box is not None:
        progress.install(box.pulse)


def start_beat(module: Any, box: Any) -> None:
    """Start the beat thread; torch is loaded by now, and has threads of its own."""
    import sys

    beat.start(box, sys.modules.get("torch._C._distributed_c10d", module))


def set_default_timeout(module: Any, seconds: float) -> None:
    """Make `seconds` what `init_process_group` and `new_group` take when the script passes no timeout.

    `_get_default_timeout` reads both names from its module at each call (torch 2.8 to 2.13).
    """
    import datetime

    timeout = datetime.timedelta(seconds=seconds)
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if isinstance(getattr(module, name, None), datetime.timedelta):
            setattr(module, name, timeout)
