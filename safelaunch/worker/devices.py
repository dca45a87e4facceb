"""Runs in: workers. Which GPUs this rank sees and takes, in a small file that the supervisor reads.

CUDA itself is never started from here: what is not known yet is left open.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from typing import Any, Dict, Optional

from safelaunch import black_box
from safelaunch.worker import rank
from safelaunch.worker.after_import import attempt, call_after_import, off
from safelaunch.worker.user_code import is_user_code

VARIABLE = "CUDA_VISIBLE_DEVICES"
MOST_CHOICES = 16  # a script that goes from GPU to GPU all the time must not pay for it


class Devices:
    """What is known of this rank's devices; `bound` is the GPU that torch was given by us.

    Args:
        box: a `black_box.Writer`, beside which the file lies; None for none.
    """

    def __init__(self, box: Any) -> None:
        self._box = box
        self._choices = 0
        self.chosen: Optional[int] = None
        self.bound: Optional[int] = None
        self.local_rank, self.local_size = 0, 1
        self._started_with: Optional[str] = None
        self._facts: Dict[str, Any] = {}
        rank.when_born(self._begin)

    def _begin(self) -> None:
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._started_with = os.environ.get(VARIABLE)
        self._facts = {
            "pid": os.getpid(),
            "local_rank": self.local_rank,
            "local_size": self.local_size,
            "started_with": self._started_with,
        }
        self.note()

    def note(self, **facts: Any) -> None:
        """Write down what has become known, together with all that was before."""
        if self._box is None or not rank.here:
            return  # a forked child must not write over its parent's
        path = black_box.beside(self._box.path, self._box.index, "device")
        self._facts.update({"visible": os.environ.get(VARIABLE), "t": time.monotonic()}, **facts)
        partial = path + ".part"
        try:
            with open(partial, "w") as file:
                file.write(json.dumps(self._facts))
            os.replace(partial, path)
        except OSError as error:
            self._box = None
            off("the record of devices", error)

    # ------------------------------------------------------------------------------------- the environment

    def watch_environ(self, environ: Any) -> None:
        """Learn of CUDA_VISIBLE_DEVICES being set, at no cost for anything else: `os.environ` passes each new value
        through `encodevalue`, in the frame that knows its name (Python 3.8 to 3.14)."""
        encode = environ.encodevalue

        def encodevalue(value: Any) -> Any:
            encoded = encode(value)
            try:
                if sys._getframe(1).f_locals.get("key") in (VARIABLE, VARIABLE.encode()):
                    self._visible_set(value)
            except Exception as error:
                off("the watch over " + VARIABLE, error)
            return encoded

        environ.encodevalue = encodevalue

    def _visible_set(self, value: str) -> None:
        cuda = sys.modules.get("torch.cuda")
        late = bool(cuda is not None and getattr(cuda, "is_initialized", bool)())
        changed = {"value": value, "late": late, "location": _caller()}
        self.note(visible=value, changed=None if value == self._started_with else changed)

    # ---------------------------------------------------------------------------------------- set_device

    def watch_choices(self, name: str, module: Any) -> None:
        """Learn which device the script chooses by calling `module.NAME(device)`."""
        function = getattr(module, name, None)
        if function is None:
            return

        @functools.wraps(function)
        def set_device(*args: Any, **kwargs: Any) -> Any:
            try:
                result = function(*args, **kwargs)
            except BaseException:
                attempt(self._choose, args, kwargs, True)
                raise
            attempt(self._choose, args, kwargs, False)
            return result

        setattr(module, name, set_device)

    def _choose(self, args: Any, kwargs: Any, refused: bool) -> None:
        index = device_index(args[0] if args else next(iter(kwargs.values()), None))
        if index is None or index < 0 or (index == self.chosen and not refused):
            return
        if not refused:
            self.chosen = index
        self._choices += 1
        if self._choices == MOST_CHOICES + 1:  # from here on the last choice is not known, and none must stand for it
            self.note(chosen=None, refused=False, chosen_at=None)
        if self._choices <= MOST_CHOICES:
            facts = {"chosen": index, "refused": refused, "chosen_at": _caller()}
            cuda = sys.modules.get("torch.cuda")
            if cuda is not None:
                facts["count"] = cuda.device_count()
            self.note(**facts)


def install(box: Any) -> Devices:
    """Arrange for the record; see `model.RankDevice` for what is in it.

    Args:
        box: a `black_box.Writer`, or None for no record.
    """
    devices = Devices(box)
    if box is not None:
        devices.watch_environ(os.environ)
    call_after_import("torch.cuda", functools.partial(devices.watch_choices, "set_device"))
    call_after_import("torch.accelerator", functools.partial(devices.watch_choices, "set_device_index"))
    return devices


def device_index(device: Any) -> Optional[int]:
    """The number of a device as `set_device` takes it: `1`, `"cuda:1"`, `torch.device("cuda", 1)`."""
    if isinstance(device, str):
        _, _, number = device.rpartition(":")
        return int(number) if number.isdecimal() else None
    if isinstance(device, int):
        return device
    index = getattr(device, "index", None)
    return index if isinstance(index, int) else None


def _caller() -> Optional[Dict[str, Any]]:
    """The innermost line of the user's own program that led here."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return {"file": frame.f_code.co_filename, "line": frame.f_lineno, "function": frame.f_code.co_name}
