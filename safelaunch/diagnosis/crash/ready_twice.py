"""DistributedDataParallel's exception about a parameter whose gradient came twice in one backward pass. Pure."""

from __future__ import annotations

import re

from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.model import PyError

# torch/csrc/distributed/c10d/reducer.cpp, Reducer::mark_variable_ready; it numbers two reasons and picks none.
TWICE = "Expected to mark a variable ready only once"
NAMED = re.compile(r"Parameter at index \d{1,9} with name (\S+) has been marked as ready twice")
# torch/utils/checkpoint.py, CheckpointFunction.backward: only a reentrant checkpoint has a backward pass of its own.
REENTRANT = re.compile(r'File "[^"\n]*/torch/utils/checkpoint\.py", line \d{1,9}, in backward\b')


def of_exception(error: PyError) -> ExceptionDetail | None:
    """Which of DDP's reasons the traceback supports, and what to do; None for other errors."""
    if TWICE not in error.message:
        return None
    named = NAMED.search(error.message)
    what = f"marked {named[1] if named else 'a parameter'} as ready twice in one backward pass of DDP"
    if REENTRANT.search(error.traceback):
        return ExceptionDetail(
            "",
            f"{what}, in reentrant checkpoints of one part of the model",
            ("torch/utils/checkpoint.py stands in the traceback: each use of a part has a backward pass of its own",),
            "checkpoint(..., use_reentrant=False), or DistributedDataParallel(..., static_graph=True)",
        )
    return ExceptionDetail(
        "",
        what,
        remedy="use parameters only inside `forward` of the model that DDP wraps, in one backward pass for each "
        "`forward`; static_graph=True allows more where no step differs",
    )
