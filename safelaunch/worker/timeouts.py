"""Runs in: workers. Default timeouts of process groups and of DataLoaders, and remarks on those that are in force."""

from __future__ import annotations

import functools
from typing import Any, Optional

from safelaunch.worker.after_import import attempt
from safelaunch.worker.announcements import Remarks, user_line


def set_group_default(module: Any, seconds: float) -> None:
    """Make `seconds` what `init_process_group` and `new_group` take when the script passes no timeout.

    `_get_default_timeout` reads both names from its module at each call (torch 2.8 to 2.13).
    """
    import datetime  # loaded by torch, at the latest

    timeout = datetime.timedelta(seconds=seconds)
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if isinstance(getattr(module, name, None), datetime.timedelta):
            setattr(module, name, timeout)


def remark_on_groups(module: Any, remarks: Remarks) -> None:
    """Tell the timeout of the default group: from `init_process_group`, and when a script changes it later."""
    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        attempt(group_timeout, module, remarks, args, kwargs)
        return init(*args, **kwargs)

    module.init_process_group = init_process_group
    # Public since torch 2.15, which warns whoever calls the former one; torchtitan does after the first step.
    name = "set_timeout" if hasattr(module, "set_timeout") else "_set_pg_timeout"
    change = getattr(module, name, None)
    if change is None:
        return

    @functools.wraps(change)
    def set_timeout(timeout: Any, group: Any = None) -> Any:
        result = change(timeout, group)
        if group is None or group is module._world.default_pg:
            attempt(changed_timeout, remarks, timeout)
        return result

    setattr(module, name, set_timeout)


def group_timeout(module: Any, remarks: Remarks, args: Any, kwargs: Any) -> None:
    backend = args[0] if args else kwargs.get("backend")
    timeout = args[2] if len(args) > 2 else kwargs.get("timeout")
    explicit = timeout is not None
    if timeout is None:
        timeout = module._get_default_timeout(module.Backend(backend or "undefined"))
    if hasattr(timeout, "total_seconds"):  # else torch says so itself
        _remark(remarks, "group", timeout.total_seconds(), backend=str(backend or ""), explicit=explicit)


def changed_timeout(remarks: Remarks, timeout: Any) -> None:
    _remark(remarks, "group", timeout.total_seconds(), backend="", explicit=True)


def watch_loaders(module: Any, default: Optional[float], remarks: Optional[Remarks]) -> None:
    """Give loaders with workers a timeout where the script passes none, and tell each that is in force.

    The iterator is changed and not the DataLoader: `loader.timeout` stays what the script has set, also for those who
    build one loader from the attributes of another. Without workers torch insists on none.

    Args:
        module: `torch.utils.data.dataloader`.
        default: seconds, or None for torch's own, which is none.
        remarks: None where nobody reads them.
    """
    iterator = module._BaseDataLoaderIter
    init = iterator.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        attempt(loader_timeout, self, default, remarks)

    iterator.__init__ = __init__


def loader_timeout(loader: Any, default: Optional[float], remarks: Optional[Remarks]) -> None:
    if loader._num_workers <= 0:
        return
    explicit = loader._timeout > 0
    if default is not None and not explicit:
        # torch shows the number as it is: "timed out after 3 seconds".
        loader._timeout = int(default) if default == int(default) else default
    if remarks is not None and loader._timeout > 0:
        _remark(remarks, "loader", float(loader._timeout), explicit=explicit)


def _remark(remarks: Remarks, what: str, seconds: float, **facts: Any) -> None:
    file, line = user_line()
    remarks.add(what, seconds=seconds, file=file, line=line, **facts)
