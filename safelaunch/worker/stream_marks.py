"""Runs in: workers. How far this rank's GPU has come in what its host has enqueued.

NCCL's recorders say that a call was enqueued, and not whether the GPU has come to it (torch 2.15 never does). So a CUDA
event is recorded on the current stream before each call that Python makes, and before the backward passes of DDP, whose
calls are made in C++. If one is outstanding ahead of the first call that is, a kernel ahead of both does not end.
Nothing is waited for, and events are only looked at when the supervisor asks. While it has a GPU followed
(`device_times`), events stand behind the calls as well.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from time import monotonic
from typing import Any, Dict, List, Optional, Tuple

from safelaunch.worker import rank
from safelaunch.worker.after_import import off

# A stream takes about a thousand launches before the host has to wait: what is outstanding is never overwritten.
MOST = 1024
LOOK_S = 1.0  # a call of CUDA may wait for a lock of the driver, and then for ever
RELAXED = 2  # cudaStreamCaptureModeRelaxed
NOWHERE = ("", 0, "")
# What a mark is: ahead of a call, or behind one, or where the stream has waited for one that was issued before; ahead
# of a backward pass of DDP, in which calls are made; behind an optimizer's step, where they are over.
AHEAD, BEHIND, WAITED, FORWARD, STEP = "ahead", "behind", "waited", "forward", "step"
Stream = Tuple[int, int, int]  # id, device, kind of device: as torch says which is the current one
_Place = Tuple[str, int, str]  # file, line, function
_Mark = Tuple[Any, int, float, str, _Place]  # event, its device, when, call


class StreamMarks:
    """The latest marks of a rank.

    Args:
        cuda: `torch.cuda`, None where the program has not imported it yet.
    """

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda
        self._runtime: Any = None  # torch's own functions of CUDA, once the program uses it
        self._count = itertools.count()
        self._marks: List[Optional[_Mark]] = [None] * MOST
        self._streams: Dict[Stream, Any] = {}
        self._stuck = False
        self.followed: Any = None  # a `device_times.Followed` while somebody follows the GPU

    def bind(self, cuda: Any) -> None:
        """The program has imported `torch.cuda`."""
        self._cuda = cuda

    def mark(self, call: str, place: _Place = NOWHERE, kind: str = AHEAD) -> Optional[_Mark]:
        """Note what the host enqueues now: about 1 µs. Nothing happens before the program uses CUDA, nor while it
        captures a graph: then it returns None. An empty `kind` is not followed."""
        runtime = self._runtime or self._started()
        if runtime is None:
            return None
        try:
            if runtime._cuda_isCurrentStreamCapturing():
                return None
            slot = next(self._count) % MOST
            before = self._marks[slot]
            key = runtime._cuda_getCurrentStream(-1)
            stream = self._streams.get(key)
            if stream is None:  # torch takes 3 µs to make the object
                stream = self._streams[key] = self._cuda.current_stream()
            # The class that torch's own derives from: without its layer of Python.
            device = key[1]
            event = before[0] if before is not None and before[1] == device else runtime._CudaEventBase()
            event.record(stream)
            mark = self._marks[slot] = (event, device, monotonic(), call, place)
            if self.followed is not None and kind:
                self.followed.add(event, key, kind, call, place)
            return mark
        except Exception as error:
            self._cuda = self._runtime = None
            if "CUDA error" not in str(error):  # the program meets that one itself
                off("the record of how far the GPU is", error)
        return None

    def past(self, call: str, place: _Place = NOWHERE, kind: str = BEHIND) -> None:
        """Note, while the GPU is followed, what the host has enqueued."""
        followed, runtime = self.followed, self._runtime
        if followed is None or runtime is None:
            return
        try:
            if runtime._cuda_isCurrentStreamCapturing():
                return
            key = runtime._cuda_getCurrentStream(-1)
            stream = self._streams.get(key)
            if stream is not None:
                event = runtime._CudaEventBase()
                event.record(stream)
                followed.add(event, key, kind, call, place)
        except Exception:
            self.followed = None  # the program meets it itself, where it is a failure of the GPU

    def take_device(self, device: int) -> None:
        """Make this the calling thread's device: CUDA would make a context on the first GPU for a thread without one,
        when it asks for an event (some 500 MB there, of each rank; torch's own watchdog does the same)."""
        self._runtime._cuda_setDevice(device)

    def device(self) -> Optional[int]:
        """The device of the rank's streams; None where it has none."""
        return next(iter(self._streams))[1] if self._streams and self._runtime is not None else None

    def number(self, stream: Stream) -> int:
        """The place of a stream among those that the rank has used, by their first use: of ranks
        that run the same program they have the same numbers."""
        return list(self._streams).index(stream)

    def _started(self) -> Any:
        cuda = self._cuda
        if cuda is not None and cuda.is_initialized():
            self._runtime = sys.modules["torch"]._C
        return self._runtime

    def look(self) -> Optional[Dict[str, Any]]:
        """The latest mark that the GPU has reached, and the first that it has not; None where that cannot be told."""
        if self._cuda is None or self._stuck or not any(self._marks):
            return None
        found: List[Dict[str, Any]] = []
        thread = threading.Thread(target=self._ask, args=(found,), name="safelaunch-marks", daemon=True)
        thread.start()
        thread.join(LOOK_S)
        self._stuck = thread.is_alive()
        return found[0] if found else None

    def _ask(self, found: List[Dict[str, Any]]) -> None:
        try:
            device = self.device()
            if device is None:
                return
            self.take_device(device)
            if not may_ask_while_others_capture():
                return
            marks = sorted((mark for mark in list(self._marks) if mark is not None), key=lambda mark: mark[2])
            said = {"reached": None, "outstanding": None}  # type: Dict[str, Any]
            for mark in marks:
                if mark[1] != device:
                    device = mark[1]
                    self.take_device(device)
                if not mark[0].query():
                    said["outstanding"] = _described(mark)
                    break
                said["reached"] = _described(mark)
            found.append(said)
        except Exception:
            pass  # the GPU has failed, which is told by others


def _described(mark: _Mark) -> Dict[str, Any]:
    _, _, t, call, (file, line, function) = mark
    location = {"file": file, "line": line, "function": function} if line else None
    return {"call": call, "t": t, "location": location}


def may_ask_while_others_capture() -> bool:
    """Allow this thread to ask for an event: else CUDA lets a capture of a graph in another thread fail, by its default
    mode (CUDA Runtime API, cudaThreadExchangeStreamCaptureMode). False where the runtime's library is not found."""
    import ctypes  # torch has loaded it by now, and a rank without torch has no use for it

    exchange = getattr(ctypes.CDLL(None), "cudaThreadExchangeStreamCaptureMode", None)
    if exchange is None:  # torch has not loaded it for all to see
        with open("/proc/self/maps") as file:
            paths = [line.split(None, 5)[5].rstrip("\n") for line in file if "/libcudart" in line]
        exchange = getattr(ctypes.CDLL(paths[0]), "cudaThreadExchangeStreamCaptureMode", None) if paths else None
    return exchange is not None and not exchange(ctypes.byref(ctypes.c_int(RELAXED)))


MARKS = StreamMarks()


def watch_models(module: Any) -> None:
    """Mark the end of each forward pass of `DistributedDataParallel`: its backward pass reduces what comes behind."""
    kind = module.DistributedDataParallel
    forward: Any = getattr(kind, "_post_forward", None)
    if forward is None:
        return

    @functools.wraps(forward)
    def _post_forward(self: Any, output: Any) -> Any:
        if not sys.modules["torch"].compiler.is_compiling() and rank.here:
            reduces = sys.modules["torch"].is_grad_enabled() and getattr(self, "require_backward_grad_sync", True)
            MARKS.mark("a forward pass of DistributedDataParallel", kind=FORWARD if reduces else "")
        return forward(self, output)

    kind._post_forward = _post_forward
