"""Runs in: a probe. Processes forked from one that has imported torch, which tell on pipes how far they have come.

torch is imported once, before the fork and before any use of CUDA, with one thread: eight processes that import it
each for itself would take seconds and gigabytes.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TextIO, TypeVar

from safelaunch.preflight.active.progress import Progress

# For tests: KIND@RANK. Each program says which kinds it knows.
FAULT = "SAFELAUNCH_PROBE_FAULT"

# How long killed processes may take to vanish before they are left to the kernel.
REAP_S = 2.0
LAST_WORDS = 300  # characters of stderr that are kept of a process

Tell = Callable[[dict[str, Any]], None]
P = TypeVar("P", bound=Progress)


def answer_stream() -> TextIO:
    """Stdout, for the answer alone: what torch and NCCL print there from now on (NCCL_DEBUG) goes to stderr."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answer


def import_torch(module: str) -> tuple[float, str]:
    """Import a module of torch: the seconds that took, and the error, empty for none."""
    begin = time.monotonic()
    try:
        importlib.import_module(module)
    except Exception as error:
        return time.monotonic() - begin, f"{type(error).__name__}: {error}"
    return time.monotonic() - begin, ""


def fault_of(rank: int) -> str:
    """The kind of fault that a test wants of this rank; one for another rank keeps its `@`, and is no kind."""
    return os.environ.get(FAULT, "").removesuffix(f"@{rank}")


def device_of(torch: Any, *, cuda: bool, rank: int) -> Any:
    """The device of a process: the CPU, or the GPU of its number, which becomes the current one."""
    if not cuda:
        return torch.device("cpu")
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    return device


class Forked(Generic[P]):
    """The processes of a probe, and what is known of each."""

    def __init__(
        self, reports: Sequence[P], work: Callable[[int, Tell], None], deadline_s: float, answer: TextIO
    ) -> None:
        """Start one process for each report; `work(rank, tell)` is its life. `answer` is kept from them."""
        self.reports = list(reports)
        self._begin = time.monotonic()
        self._pids: dict[int, int] = {}
        self._pipes = selectors.DefaultSelector()
        self._unread = [b""] * len(reports)
        for rank in range(len(reports)):
            news, words = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                # Should the parent die, nobody else would end a process that hangs.
                signal.alarm(int(deadline_s) + 10)
                # One that cannot be killed must not hold the streams that the launcher reads to their end.
                os.close(answer.fileno())
                os.dup2(words[1], 1)
                os.dup2(words[1], 2)
                _live(rank, work, news[1])
            os.close(news[1])
            os.close(words[1])
            self._pids[rank] = pid
            self._pipes.register(news[0], selectors.EVENT_READ, (rank, self._hear))
            self._pipes.register(words[0], selectors.EVENT_READ, (rank, self._overhear))

    def watch(self, deadline_s: float, *, grace_s: float | None = None) -> None:
        """Listen until all are done or have failed, or until the deadline; or, given a grace, for so long beyond a
        first failure: where the others wait for the one that failed, they would wait in vain."""
        until = self._begin + deadline_s
        while self._pipes.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in self._pipes.select(left):
                rank, hear = key.data
                hear(rank, key.fd)
            failed = [report.failed_s is not None for report in self.reports]
            if all(bad or report.done for bad, report in zip(failed, self.reports, strict=True)):
                return
            if any(failed) and grace_s is not None:
                until = min(until, time.monotonic() + grace_s)

    def end(self) -> None:
        """Kill every process; one that does not vanish is stuck in the kernel and left there."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + REAP_S
        while self._pids and time.monotonic() < until:
            for rank, pid in list(self._pids.items()):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._pids[rank]
            time.sleep(0.001)
        for key in list(self._pipes.get_map().values()):
            self._close(key.fd)

    def _hear(self, rank: int, pipe: int) -> None:
        data = os.read(pipe, 65536)
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        for line in lines:
            self._note(rank, **json.loads(line))
        if not data:
            self._close(pipe)
            # Only an exit closes the pipe, so this does not wait.
            _, status = os.waitpid(self._pids.pop(rank), 0)
            self._note(rank, exit_code=os.waitstatus_to_exitcode(status))
            if self.reports[rank].failed_s is None:
                self._note(rank, failed_s=time.monotonic() - self._begin)

    def _overhear(self, rank: int, pipe: int) -> None:
        data = os.read(pipe, 65536)
        if not data:
            self._close(pipe)
            return
        os.write(2, data)
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        if said := [line for line in lines if line]:
            self._note(rank, last_words=said[-1][:LAST_WORDS])

    def _close(self, pipe: int) -> None:
        self._pipes.unregister(pipe)
        os.close(pipe)

    def _note(self, rank: int, **news: Any) -> None:
        if "error" in news:
            news["failed_s"] = time.monotonic() - self._begin
        self.reports[rank] = dataclasses.replace(self.reports[rank], **news)


def _live(rank: int, work: Callable[[int, Tell], None], pipe: int) -> None:
    """The life of one process; does not return. Those that are done wait to be killed: one that leaves early would
    close connections under its peers."""

    def tell(news: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(news).encode() + b"\n")

    try:
        work(rank, tell)
        while True:
            signal.pause()
    except BaseException as error:
        tell({"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"})
    finally:
        os._exit(1)


def steps(tell: Tell) -> Callable[[], Any]:
    """Steps of a process, each told when it is entered and when it is left."""
    count = 0

    @contextmanager
    def step() -> Iterator[None]:
        nonlocal count
        count += 1
        tell({"entered": count})
        yield
        tell({"left": count})

    return step
