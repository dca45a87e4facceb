"""Runs in: workers. Hooks on torch.distributed, set when the script imports it; torch is never imported by us."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from typing import Any, Callable

from safelaunch.worker.errors import is_user_code

TARGET = "torch.distributed.distributed_c10d"

# Name -> (position of the input tensor, its keyword, position of the group). Not here: point-to-point calls, and
# the object collectives, which are made of these. Leaving a group is no collective, but it is the last word.
COLLECTIVES = {
    "all_reduce": (0, "tensor", 2),
    "broadcast": (0, "tensor", 2),
    "reduce": (0, "tensor", 3),
    "all_gather": (1, "tensor", 2),
    "all_gather_into_tensor": (1, "input_tensor", 2),
    "reduce_scatter_tensor": (1, "input", 3),
    "reduce_scatter": (0, "output", 3),
    "gather": (0, "tensor", 3),
    "scatter": (0, "tensor", 3),
    "all_to_all_single": (1, "input", 4),
    "all_to_all": (-1, "", 2),
    "barrier": (-1, "", 0),
    "destroy_process_group": (-1, "", 0),
}


def install(box: Any, timeout: str | None) -> None:
    """Arrange for the hooks.

    Args:
        box: a `black_box.Writer`, or None for no record of collectives.
        timeout: default timeout of process groups in seconds, or None for torch's own.
    """
    if box is None and timeout is None:
        return

    def patch(module: Any) -> None:
        if timeout is not None:
            _step(set_default_timeout, module, float(timeout))
        if box is not None:
            _step(record_collectives, module, box)

    sys.meta_path.insert(0, _AfterImport(TARGET, patch))


def _step(function: Callable, *args: Any) -> None:  # type: ignore[type-arg]
    try:
        function(*args)
    except Exception as error:
        sys.stderr.write("safelaunch: warning[SL902]: %s is off in this worker: %r\n" % (function.__name__, error))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `patch(module)` once, when the named module has been executed."""

    def __init__(self, name: str, patch: Callable) -> None:  # type: ignore[type-arg]
        self._name = name
        self._patch = patch

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            execute(module)
            self._patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def set_default_timeout(module: Any, seconds: float) -> None:
    """Make `seconds` what `init_process_group` and `new_group` take when the script passes no timeout.

    `_get_default_timeout` reads both names from its module at each call (torch 2.8 to 2.13).
    """
    import datetime

    timeout = datetime.timedelta(seconds=seconds)
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if isinstance(getattr(module, name, None), datetime.timedelta):
            setattr(module, name, timeout)


def record_collectives(module: Any, box: Any) -> None:
    """Wrap each collective of `torch.distributed` so that the black box knows the latest ones."""
    record = _Recorder(module, box)
    for name, (position, keyword, group) in COLLECTIVES.items():
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, record.wrap(name, function, position, keyword, group))


class _Recorder:
    def __init__(self, module: Any, box: Any) -> None:
        self._module = module
        self._box = box
        self._torch = os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) + os.sep
        self._pid = os.getpid()
        self._dtypes: dict[Any, str] = {}

    def wrap(self, name: str, function: Callable, position: int, keyword: str, group: int) -> Callable:  # type: ignore[type-arg]
        @functools.wraps(function)
        def collective(*args: Any, **kwargs: Any) -> Any:
            entry = None
            if self._box is not None:
                try:
                    tensor = args[position] if 0 <= position < len(args) else kwargs.get(keyword)
                    chosen = args[group] if group < len(args) else kwargs.get("group")
                    entry = self._enter(name, tensor, chosen)
                except Exception:
                    self._box = None  # off for good: a record with gaps would mislead
            result = function(*args, **kwargs)
            if entry is not None:
                self._box.leave(entry)
            return result

        return collective

    def _enter(self, name: str, tensor: Any, group: Any) -> int | None:
        if os.getpid() != self._pid:
            return None  # a forked child must not write into its parent's slot
        if group is None:
            group = self._module._world.default_pg
        if group is None or isinstance(group, int):
            return None  # not initialised, or not a member: the call itself will say so
        numel = getattr(tensor, "numel", None)
        dtype = getattr(tensor, "dtype", None)
        if dtype not in self._dtypes:
            self._dtypes[dtype] = str(dtype or "").replace("torch.", "")
        frame = sys._getframe(2)
        while frame.f_back is not None and self._is_library(frame.f_code.co_filename):
            frame = frame.f_back
        code = frame.f_code
        return self._box.enter(  # type: ignore[no-any-return]
            name,
            str(group.group_name),
            group.size(),
            group._get_sequence_number_for_group() + 1,  # this call's number, as in the Flight Recorder
            numel() if numel is not None else -1,
            self._dtypes[dtype],
            code.co_filename,
            frame.f_lineno,
            code.co_name,
        )

    def _is_library(self, file: str) -> bool:
        return file.startswith(self._torch) or not is_user_code(file)
