"""Runs in: workers. Records some steps of this rank with torch.profiler, when the supervisor asks for it
(`safelaunch trace`): it begins and ends behind a step, in the thread that makes the steps.

What is left lies in `traces/NUMBER` of the run directory: torch's own trace, the slot as it was at the end, which has
the latest collectives with their lines, and when each step was complete, by two clocks.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from safelaunch import trace_words
from safelaunch.worker import self_report

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PHASE = "torch.profiler"
EXPECT_S = 120.0  # to start CUPTI, and to write what thousands of kernels leave: some seconds; an estimate with room
# torch's profiler says on the standard error that it begins, where the rank's environment does not forbid it.
LOUDNESS, SILENT = "KINETO_LOG_LEVEL", "9"


class Tracer:
    """All traces of a rank, one after the other.

    Args:
        box: a `black_box.Writer`.
        rank_dir: of the rank, in the run directory.
    """

    def __init__(self, box: Any, rank_dir: str) -> None:
        self._box = box
        self._run_dir = os.path.dirname(os.path.dirname(os.path.abspath(rank_dir)))
        self._rank = int(os.environ.get("RANK", "0"))
        self._done = 0  # the number of the latest trace with which nothing is left to do
        self._prepared: Optional[Recording] = None
        self._recording: Optional[Recording] = None

    def at(self, by: int, count: int) -> None:
        """So many steps, or marks, are complete. Never raises."""
        number = self._box.traced
        try:
            if number not in (0, self._done) and by == self._box.trace[trace_words.BY]:
                self._at(number, count)
        except Exception as error:
            self._fail(number, error)

    def _at(self, number: int, count: int) -> None:
        words = self._box.trace
        first, steps = words[trace_words.FIRST], words[trace_words.COUNT]
        recording = self._recording
        if recording is not None:
            recording.mark(count)
            if recording.may_end and (count >= first + steps - 1 or recording.interrupted):
                self._end(recording, count)
        elif not steps or count >= first:
            self._done, self._prepared = number, None
            self._say(number, trace_words.MISSED)
        elif count == first - 2:
            self._prepared = self._new(number, count)  # what is slow the first time shall not be in the trace
        elif count == first - 1:
            recording = self._prepared or self._new(number, count)
            self._prepared = None
            recording.start(count)
            self._recording = recording
            words[trace_words.BEGUN] = count
            self._say(number, trace_words.RECORDING)

    def _new(self, number: int, count: int) -> Recording:
        phase = self._box.pulse.begin(PHASE, EXPECT_S)
        try:
            return Recording(self._box, number, self._rank, count)
        finally:
            self._box.pulse.end(phase)

    def _end(self, recording: Recording, count: int) -> None:
        self._recording = None
        self._done = recording.number
        phase = self._box.pulse.begin(PHASE, EXPECT_S)
        try:
            recording.end()
            with Folder(self._run_dir, recording.number) as folder:
                recording.write(folder)
        finally:
            self._box.pulse.end(phase)
        self._box.trace[trace_words.ENDED] = count
        self._say(recording.number, trace_words.WRITTEN)

    def _say(self, number: int, state: int) -> None:
        self._box.trace[trace_words.STATE] = number << 8 | state

    def _fail(self, number: int, error: Exception) -> None:
        recordings = [one for one in (self._recording, self._prepared) if one is not None]
        self._done, self._recording, self._prepared = number, None, None
        try:
            for recording in recordings:
                recording.give_up()
            with Folder(self._run_dir, number) as folder:
                folder.write("rank_%03d.meta" % self._rank, self_report.document({"missing": str(error)[:500]}))
        except Exception:
            pass  # the trace of this rank is missing, and the reason with it
        self._say(number, trace_words.FAILED)


class Folder:
    """`traces/NUMBER` of the run directory, by its descriptor: nobody can lead it elsewhere.

    Raises:
        OSError: it is not there, is a link, or belongs to somebody else.
    """

    def __init__(self, run_dir: str, number: int) -> None:
        above = os.open(run_dir, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in ("traces", "%d" % number):
                below = os.open(name, FOLDER, dir_fd=above)
                os.close(above)
                above = below
            if os.fstat(above).st_uid not in (os.geteuid(), os.stat(run_dir).st_uid):
                raise PermissionError("the folder of the trace belongs to somebody else")
        except BaseException:
            os.close(above)
            raise
        self.descriptor = above

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self.descriptor)

    def path(self, name: str) -> str:
        """Where others than we find a file in it, in this process."""
        return "/proc/self/fd/%d/%s" % (self.descriptor, name)

    def write(self, name: str, data: bytes) -> None:
        """A new file."""
        with open(os.open(name, NEW, 0o600, dir_fd=self.descriptor), "wb") as file:
            file.write(data)


class Recording:
    """One recording, which is prepared as it is made.

    Raises:
        RuntimeError: this rank cannot be profiled now, and why.
    """

    def __init__(self, box: Any, number: int, rank: int, count: int) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            raise RuntimeError("it has not imported torch")
        if threading.current_thread() is not threading.main_thread() and box.trace[trace_words.BY] == trace_words.MARKS:
            raise RuntimeError("its heartbeats come from a thread that does nothing else, perhaps")
        if torch.autograd._profiler_enabled():
            raise RuntimeError("its script has a profiler of its own running")
        module = importlib.import_module("torch.profiler")
        if _is_prepared(module):
            raise RuntimeError("its script has a profiler of its own, which is about to begin")
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        activities = [module.ProfilerActivity.CPU]
        if cuda and box.trace[trace_words.KERNELS]:
            activities.append(module.ProfilerActivity.CUDA)
        self.number, self.interrupted = number, False
        self._box, self._rank, self._torch, self._cuda = box, rank, torch, cuda
        self._thread = threading.get_ident()
        self._marks: List[Tuple[Any, ...]] = []
        self._profiler: Any = module._KinetoProfile(activities=activities)
        self._begun_at = count
        with _Silence():
            self._profiler.prepare_trace()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that is recorded."""
        return threading.get_ident() == self._thread

    @property
    def may_end(self) -> bool:
        """Whether to end waits for the GPU in the right thread, and while no graph is being captured."""
        return self.is_own_thread and not (self._cuda and self._torch.cuda.is_current_stream_capturing())

    def start(self, count: int) -> None:
        """Begin; so many steps are complete."""
        if not self.is_own_thread:
            raise RuntimeError("its steps are made by several threads")
        if not self.may_end:
            raise RuntimeError("it captures a CUDA graph at this step")
        self._profiler.start_trace()
        self._give_way()
        self.mark(count)

    def mark(self, count: int) -> None:
        """So many steps are complete now."""
        self._marks.append((count, time.monotonic(), time.time_ns(), *self._box.spent))

    def end(self) -> None:
        """Stop recording."""
        self._take_way()
        if not self.interrupted:
            self._profiler.stop_trace()

    def give_up(self) -> None:
        """Stop, whatever the state."""
        self._take_way()
        if self.is_own_thread and not self.interrupted:
            self._profiler.stop_trace()

    def write(self, folder: Folder) -> None:
        """Leave all of it there."""
        name = "rank_%03d" % self._rank
        begun = time.monotonic()
        folder.write(name + ".calls", self._box.copy())
        self._profiler.export_chrome_trace(folder.path(name + ".json"))
        os.chmod(name + ".json", 0o600, dir_fd=folder.descriptor)
        said: Dict[str, Any] = {
            "pid": os.getpid(),
            "rank": self._rank,
            "thread": threading.get_native_id(),
            "torch": self._torch.__version__,
            "cuda": self._cuda,
            "steps": self._marks,
            "write_s": time.monotonic() - begun,
            "interrupted": self.interrupted,
        }
        folder.write(name + ".meta", self_report.document(said))

    def _give_way(self) -> None:
        """A profiler of the script's own would fail beside ours: ours ends before it begins."""
        kind: Any = self._torch.autograd.profiler.profile
        self._kind, self._before = kind, (vars(kind).get("_prepare_trace"), vars(kind).get("_start_trace"))

        def before(method: Any) -> Any:
            def first(profiler: Any, *args: Any, **kwargs: Any) -> Any:
                if self.is_own_thread and not self.interrupted:
                    self._take_way()
                    self.interrupted = True
                    self._profiler.stop_trace()
                return method(profiler, *args, **kwargs)

            return first

        kind._prepare_trace, kind._start_trace = map(before, self._before)

    def _take_way(self) -> None:
        kind = getattr(self, "_kind", None)
        if kind is not None:
            kind._prepare_trace, kind._start_trace = self._before
            self._kind = None


def _is_prepared(module: Any) -> bool:
    """Whether a profiler of the script's own has begun to warm up: what ours prepares would be lost to it."""
    found = [one for one in gc.get_objects() if module.profile in type(one).__mro__]
    return any(getattr(one, "current_action", None) == module.ProfilerAction.WARMUP for one in found)


class _Silence:
    """Has the profiler's library say nothing, if it is loaded within: it looks at its variable once."""

    def __enter__(self) -> None:
        self._set = LOUDNESS not in os.environ
        if self._set:
            os.environ[LOUDNESS] = SILENT

    def __exit__(self, *_: Any) -> None:
        if self._set:
            os.environ.pop(LOUDNESS, None)
