"""Runs in: a child process. Forks one small process per device, puts all devices to work, prints a ComputeReport.

All devices work at the same time, as in training: then they draw the most power and give off the most heat. Each
process computes one and the same product of whole numbers again and again, between spells of a large GEMM that is
timed while NVML is asked for the clocks.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from safelaunch.codec import to_json
from safelaunch.preflight.active.compute_report import ComputeReport, DeviceReport
from safelaunch.preflight.active.forked import Forked, Tell, answer_stream, device_of, fault_of, import_torch, steps
from safelaunch.preflight.active.gpu_sensors import Sensors
from safelaunch.preflight.active.progress import IMPORTING

# Kinds of FAULT: `compute-hang` and `compute-die` (before the GEMM), `slow` (sleeps in the GEMM), `flip` (one value of
# every product is wrong) and `flip-once` (of the last one alone).

SEED = 20240229


@dataclass(frozen=True)
class Work:
    """How much a device has to do. Sizes are rows of square matrices, `copied` is in bytes, times in seconds."""

    exact: int
    load: int
    copied: int
    spells: int
    spell_s: float
    batch: int


# float16 is what every GPU that torch supports is fast at. The whole numbers of the exact product go from -3 to 3; its
# values and their partial sums stay below 2048 (8 standard deviations), up to where float16 holds every whole number.
# float32, on the CPU, does so up to 2^24.
WORK = {
    "cuda": Work(exact=4096, load=8192, copied=512 << 20, spells=4, spell_s=0.5, batch=4),
    "cpu": Work(exact=256, load=256, copied=4 << 20, spells=2, spell_s=0.1, batch=1),
}
PRODUCTS = 2  # after each spell
COPIES = 10


def main(argv: list[str]) -> None:
    kind, deadline_s, names = argv[0], float(argv[1]), argv[2:]
    answer = answer_stream()
    print(IMPORTING, file=sys.stderr, flush=True)
    import_s, error = import_torch("torch")
    report = ComputeReport(import_s=import_s, error=error)
    if not error:
        import torch

        print("compute", file=sys.stderr, flush=True)
        factors = whole_numbers(torch, WORK[kind].exact)

        def work(rank: int, tell: Tell) -> None:
            _device(torch, kind, rank, names[rank], factors, tell)

        devices = Forked([DeviceReport(rank) for rank in range(len(names))], work, deadline_s, answer)
        devices.watch(deadline_s)
        devices.end()
        report = ComputeReport(tuple(devices.reports), import_s, os.path.dirname(torch.__file__))
    json.dump(to_json(report), answer)
    answer.close()


def whole_numbers(torch: Any, rows: int) -> tuple[Any, Any]:
    """The factors of the exact product, made once on the CPU, for all devices."""
    seeded = torch.Generator().manual_seed(SEED)
    left, right = (torch.randint(-3, 4, (rows, rows), generator=seeded, dtype=torch.int8) for _ in range(2))
    return left, right


def _device(torch: Any, kind: str, rank: int, name: str, factors: Sequence[Any], tell: Tell) -> None:
    """All that one device does."""
    fault = fault_of(rank)
    step = steps(tell)
    with step():
        device = device_of(torch, cuda=kind == "cuda", rank=rank)
        total = float((torch.ones(1024, device=device) * 2).sum())
        if total != 2048:
            raise RuntimeError(f"1024 times 2 came out as {total}")

    if fault == "compute-hang":
        signal.pause()
    if fault == "compute-die":
        os._exit(3)

    def wait() -> None:
        if kind == "cuda":
            torch.cuda.synchronize(device)

    with step():
        tell(_gemm(torch, device, WORK[kind], name, factors, wait, fault))
    with step():
        tell({"copied": _copy(torch, device, WORK[kind].copied, wait)})


def _gemm(
    torch: Any, device: Any, work: Work, name: str, factors: Sequence[Any], wait: Callable[[], None], fault: str
) -> dict[str, Any]:
    """Spells of load, which are timed, and products of whole numbers in between."""
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left, right = (factor.to(device, dtype) for factor in factors)
    one, other = (torch.randn(work.load, work.load, dtype=dtype, device=device) for _ in range(2))
    product = torch.empty(work.load, work.load, dtype=dtype, device=device)

    def batch() -> None:
        for _ in range(work.batch):
            torch.mm(one, other, out=product)
        wait()
        if fault == "slow":
            time.sleep(0.05)

    batch()  # the first one loads libraries
    hashes: list[str] = []
    times: list[float] = []
    begin = time.monotonic()
    with Sensors(name if name.startswith("GPU-") else "") as sensors:
        for spell in range(work.spells):
            times += _timed(batch, work.spell_s)
            for turn in range(PRODUCTS):
                exact = torch.mm(left, right)
                last = spell == work.spells - 1 and turn == PRODUCTS - 1
                if fault == "flip" or (fault == "flip-once" and last):
                    exact[0, 0] += 1
                hashes.append(_hash(exact.cpu()))
    load_s = time.monotonic() - begin
    flops = 2 * work.load**3 * work.batch / statistics.median(times)
    return {"hashes": hashes, "flops": flops, "load_s": load_s, **sensors.readings()}


def _copy(torch: Any, device: Any, size: int, wait: Callable[[], None]) -> float:
    """Bytes read and written per second."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copies() -> None:
        for _ in range(COPIES):
            target.copy_(source)
        wait()

    copies()
    times = [_timed(copies, 0.0)[0] for _ in range(5)]
    return 2 * size * COPIES / statistics.median(times)


def _timed(call: Callable[[], None], seconds: float) -> list[float]:
    """How long each call took; they are made until the time is over, and once at least."""
    times: list[float] = []
    begin = before = time.perf_counter()
    while not times or before - begin < seconds:
        call()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    return times


def _hash(tensor: Any) -> str:
    """A hash of the bytes of a tensor in the memory of the CPU; numpy need not be installed."""
    data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    return hashlib.blake2b(data, digest_size=8).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
