"""Runs in: a child process. Forks one small process per rank, has them do real collectives, prints a ProbeReport.

torch is imported once, before the fork and before any use of CUDA, with one thread: eight ranks that import it each
for itself would take seconds and gigabytes. A rank tells what it does on a pipe; this process takes notes, and ends
all ranks when they are done, when one has failed, or at the deadline.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from safelaunch.codec import to_json
from safelaunch.preflight.active.probe_report import OPERATIONS, ProbeReport, RankReport

# For tests: KIND@RANK, where the kind is `hang` or `die` (before all_reduce) or `wrong` (sends wrong values).
FAULT = "SAFELAUNCH_PROBE_FAULT"

# After a first failure, how long to listen for the others: who failed as a consequence is worth a line.
GRACE_S = 0.5
# How long killed ranks may take to vanish before they are left to the kernel.
REAP_S = 2.0
# Elements of float32. NCCL moves small messages by another protocol than large ones, so it gets 16 MiB.
ELEMENTS = {"gloo": 1 << 16, "nccl": 1 << 22}

Tell = Callable[[dict[str, Any]], None]


def main(argv: list[str]) -> None:
    nproc, backend, deadline_s = int(argv[0]), argv[1], float(argv[2])
    # The answer has stdout for itself: what torch and NCCL print there (NCCL_DEBUG) goes to stderr.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    begin = time.monotonic()
    print("import torch", file=sys.stderr, flush=True)
    try:
        importlib.import_module("torch.distributed")
    except Exception as error:
        report = ProbeReport(error=f"{type(error).__name__}: {error}")
    else:
        imported = time.monotonic()
        print("collectives", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="safelaunch-probe-") as folder:
            ranks = _Ranks(nproc, backend, f"{folder}/store", deadline_s)
            ranks.watch(imported + deadline_s)
            ranks.end()
        report = ProbeReport(tuple(ranks.reports), imported - begin, time.monotonic() - imported)
    json.dump(to_json(report), answer)
    answer.close()


class _Ranks:
    """The processes of all ranks, and what is known of each."""

    def __init__(self, nproc: int, backend: str, store: str, deadline_s: float) -> None:
        self.reports = [RankReport(rank) for rank in range(nproc)]
        self._begin = time.monotonic()
        self._pids: dict[int, int] = {}
        self._pipes = selectors.DefaultSelector()
        self._unread = [b""] * nproc
        for rank in range(nproc):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                # Should this process die, nobody else would end a rank that hangs.
                signal.alarm(int(deadline_s) + 10)
                _run_rank(rank, nproc, backend, store, writer)
            os.close(writer)
            self._pids[rank] = pid
            self._pipes.register(reader, selectors.EVENT_READ, rank)

    def watch(self, until: float) -> None:
        """Listen until all ranks are done, or shortly beyond a first failure, or until the deadline."""
        while self._pipes.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in self._pipes.select(left):
                self._hear(key.data, key.fd)
            if any(report.failed_s is not None for report in self.reports):
                until = min(until, time.monotonic() + GRACE_S)
                if all(report.failed_s is not None or self._done(report) for report in self.reports):
                    return
            elif all(map(self._done, self.reports)):
                return

    def end(self) -> None:
        """Kill every rank; one that does not vanish is stuck in the kernel and left there."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + REAP_S
        while self._pids and time.monotonic() < until:
            for rank, pid in list(self._pids.items()):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._pids[rank]
            time.sleep(0.001)

    @staticmethod
    def _done(report: RankReport) -> bool:
        return report.left == len(OPERATIONS)

    def _hear(self, rank: int, pipe: int) -> None:
        data = os.read(pipe, 65536)
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        for line in lines:
            self._note(rank, **json.loads(line))
        if not data:
            self._pipes.unregister(pipe)
            os.close(pipe)
            # Only an exit closes the pipe, so this does not wait.
            _, status = os.waitpid(self._pids.pop(rank), 0)
            self._note(rank, exit_code=os.waitstatus_to_exitcode(status))
            if self.reports[rank].failed_s is None:
                self._note(rank, failed_s=time.monotonic() - self._begin)

    def _note(self, rank: int, **news: Any) -> None:
        if "error" in news:
            news["failed_s"] = time.monotonic() - self._begin
        self.reports[rank] = dataclasses.replace(self.reports[rank], **news)


def _run_rank(rank: int, world: int, backend: str, store: str, pipe: int) -> None:
    """The life of one rank; does not return. Ranks that are done wait to be killed: one that leaves early would
    close connections under its peers."""

    def tell(news: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(news).encode() + b"\n")

    try:
        _collectives(rank, world, backend, store, tell)
        while True:
            signal.pause()
    except BaseException as error:
        tell({"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"})
    finally:
        os._exit(1)


def _collectives(rank: int, world: int, backend: str, store: str, tell: Tell) -> None:
    import torch
    import torch.distributed as dist

    fault = os.environ.get(FAULT, "").removesuffix(f"@{rank}")  # one for another rank keeps its `@`, and is no kind
    step = _steps(tell)
    with step():
        device = torch.device("cpu")
        if backend == "nccl":
            device = torch.device("cuda", rank)
            torch.cuda.set_device(device)
        dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world)

    if fault == "hang":
        signal.pause()
    if fault == "die":
        os._exit(3)
    # Whole numbers below 2^24, so that sums are exact in float32 whatever their order.
    pattern = torch.arange(ELEMENTS[backend], dtype=torch.float32, device=device) % 251
    mine = pattern + (rank + 1)
    if fault == "wrong":
        mine[0] += 1
    total = mine.clone()
    gathered = [torch.empty_like(mine) for _ in range(world)]
    with step():
        dist.all_reduce(total)
        wrong_sum = not torch.equal(total, pattern * world + world * (world + 1) // 2)
    with step():
        dist.all_gather(gathered, mine)
        wrong_from = [peer for peer in range(world) if not torch.equal(gathered[peer], pattern + (peer + 1))]
        # Told before the step is left: a rank that has left the last step is done.
        tell({"wrong_sum": wrong_sum, "wrong_from": wrong_from})


def _steps(tell: Tell) -> Callable[[], Any]:
    """Steps of a rank, each told when it is entered and when it is left."""
    count = 0

    @contextmanager
    def step() -> Iterator[None]:
        nonlocal count
        count += 1
        tell({"entered": count})
        yield
        tell({"left": count})

    return step


if __name__ == "__main__":
    main(sys.argv[1:])
