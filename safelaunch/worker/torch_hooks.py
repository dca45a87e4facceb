"""Runs in: workers. What is hooked when the script imports torch.distributed; torch is never imported by us."""

from __future__ import annotations

import functools
import sys
from typing import Any, Optional

from safelaunch.worker import beat, collectives, progress, rank, reducers, stream_marks, timeouts, tracebacks
from safelaunch.worker.after_import import attempt, call_after_import
from safelaunch.worker.announcements import Remarks
from safelaunch.worker.collectives import record_collectives

TARGET = "torch.distributed.distributed_c10d"
LOADERS = "torch.utils.data.dataloader"
MODELS = "torch.nn.parallel.distributed"
REMOTE_CALLS = "torch.distributed.rpc"


def install(box: Any, timeout: Optional[str], loader_timeout: Optional[str] = None) -> None:
    """Arrange for the hooks.

    Args:
        box: a `black_box.Writer`, or None for no record of collectives, no heartbeats and no remarks.
        timeout: default timeout of process groups in seconds, or None for torch's own.
        loader_timeout: default timeout of DataLoaders with workers in seconds, or None for torch's own.
    """
    remarks = Remarks(box) if box is not None else None

    def patch(module: Any) -> None:
        if timeout is not None:
            attempt(timeouts.set_group_default, module, float(timeout))
        if box is not None:
            attempt(record_collectives, module, box)
            attempt(tracebacks.hide_in_reports, sys.modules.get("traceback"))
            attempt(timeouts.remark_on_groups, module, remarks)
            attempt(start_beat_with_first_group if rank.is_expected() else start_beat, module, box)

    if box is not None or timeout is not None:
        call_after_import(TARGET, patch)
    if box is not None or loader_timeout is not None:
        default = None if loader_timeout is None else float(loader_timeout)
        watch = functools.partial(timeouts.watch_loaders, default=default, remarks=remarks)
        call_after_import(LOADERS, watch)
    if box is not None:
        call_after_import(MODELS, reducers.watch_models)
        call_after_import(MODELS, stream_marks.watch_models)
        call_after_import("torch.cuda", stream_marks.MARKS.bind)
        call_after_import(REMOTE_CALLS, functools.partial(watch_rpc, box=box))
        progress.install(box.pulse)


def forked() -> None:
    """A process that a rank has forked becomes one itself: the thread that beats has stayed behind."""
    beat.again()
    collectives.another_group()


def another_group() -> None:
    """This rank joins another job, in a slot of its own."""
    collectives.another_group()


def start_beat_with_first_group(module: Any, box: Any) -> None:
    """Start the beat thread when the rank uses torch.distributed: torch is there from the beginning, and a script that
    has not imported it may fork, and count on being alone in its process."""
    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if rank.here:
            attempt(start_beat, module, box)
        return init(*args, **kwargs)

    module.init_process_group = init_process_group
    rank.when_born(box.pulse.has_torch)


def watch_rpc(module: Any, box: Any) -> None:
    """A rank that asks others by RPC uses torch.distributed, without any process group of its own."""
    init = module.init_rpc

    @functools.wraps(init)
    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        if rank.here:
            attempt(box.pulse.uses_groups)
            attempt(start_beat, module, box)
        return init(*args, **kwargs)

    module.init_rpc = init_rpc


def start_beat(module: Any, box: Any) -> None:
    """Start the beat thread; torch is loaded by now, and has threads of its own."""
    beat.start(box, sys.modules.get("torch._C._distributed_c10d", module))
