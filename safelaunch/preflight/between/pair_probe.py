"""Runs in: a child of the node's probe. Exchanges data with one other node at a time, and measures computing.

torch is imported once; each task then forks one process for each local rank, before any use of CUDA. Tasks come as
lines of JSON on stdin, results go as lines to stdout. Whatever hangs is killed at the task's deadline and has failed.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from datetime import timedelta
from typing import Any

# Elements of float32 of the first exchange; four times as many each time, until one takes so long.
FIRST = 1 << 14
MOST = {"gloo": 1 << 23, "nccl": 1 << 27}
LONG_ENOUGH_S = 0.15
# The last size is repeated, and the best time counts: what else runs on the nodes comes and goes.
REPEATS, REPEAT_S = 10, 0.8
# How long a rank that is done waits for its peers before it closes its connections.
GOODBYE_S = 2.0
COMPUTE_S = 0.3


def main() -> None:
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        importlib.import_module("torch.distributed")
        print(json.dumps({"ready": True}), file=answer)
    except Exception as error:
        print(json.dumps({"error": f"torch cannot be imported: {error}"}), file=answer)
        return
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(_run(task)), file=answer)


def _run(task: dict[str, Any]) -> dict[str, Any]:
    """Fork the ranks of a task, and gather what they say: the slowest one counts, and the first error."""
    until = time.monotonic() + task["deadline_s"]
    pipes = selectors.DefaultSelector()
    pids, heard = [], {}
    for rank in range(task["nlocal"]):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            # Should this process die, nobody else would end a rank that hangs.
            signal.alarm(int(task["deadline_s"]) + 10)
            _rank(task, rank, writer)
        os.close(writer)
        pids.append(pid)
        pipes.register(reader, selectors.EVENT_READ, rank)
    said: dict[int, bytes] = {}
    while pipes.get_map() and (left := until - time.monotonic()) > 0:
        for key, _ in pipes.select(left):
            data = os.read(key.fd, 65536)
            said[key.data] = said.get(key.data, b"") + data
            if not data:
                pipes.unregister(key.fd)
                os.close(key.fd)
    for key in list(pipes.get_map().values()):
        os.close(key.fd)
    _end(pids)
    for rank in range(task["nlocal"]):
        lines = [json.loads(line) for line in said.get(rank, b"").split(b"\n")[:-1]]
        heard[rank] = {name: value for line in lines for name, value in line.items()}
    return _summed(heard, task["deadline_s"], late=time.monotonic() >= until)


def _summed(heard: dict[int, dict[str, Any]], deadline_s: float, *, late: bool) -> dict[str, Any]:
    for rank, news in heard.items():
        if "error" in news:
            return {"error": f"local rank {rank}: {news['error']}"}
    for rank, news in heard.items():
        if "value" not in news:
            stage = news.get("stage", "starting")
            what = f"did not come back from {stage} within {deadline_s:g} s" if late else f"died while {stage}"
            return {"error": f"local rank {rank} {what}"}
    return {"value": min(news["value"] for news in heard.values())}


def _end(pids: list[int]) -> None:
    """Kill every rank; one that does not vanish is stuck in the kernel and left there."""
    left = set(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 1.0
    while left and time.monotonic() < until:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.001)


def _rank(task: dict[str, Any], rank: int, pipe: int) -> None:
    """The life of one rank; does not return."""

    def tell(**news: Any) -> None:
        os.write(pipe, json.dumps(news).encode() + b"\n")

    try:
        if task.get("hang"):
            signal.pause()
        tell(value=_compute(task, rank) if task["kind"] == "compute" else _exchange(task, rank, tell))
    except BaseException as error:
        text = str(error).strip()
        tell(error=f"{type(error).__name__}: {text.splitlines()[0][:300] if text else ''}")
    finally:
        os._exit(0)


def _compute(task: dict[str, Any], rank: int) -> float:
    """Operations per second of multiplying matrices. On a CPU the best of many short runs in the thread's own time,
    so that neighbours do not count; on a GPU all of it, so that throttling does."""
    import torch

    if task["backend"] == "nccl":
        torch.cuda.set_device(rank)
        size = 4096
        left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        for _ in range(3):
            left @ left
        torch.cuda.synchronize()
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < COMPUTE_S:
            for _ in range(8):
                left @ left
            torch.cuda.synchronize()
            count += 8
        return count * 2.0 * size**3 / (time.perf_counter() - begin)
    torch.set_num_threads(1)
    size = 384
    left = torch.randn(size, size)
    left @ left
    best, until = float("inf"), time.monotonic() + COMPUTE_S
    while time.monotonic() < until:
        begin = time.thread_time()
        left @ left
        best = min(best, time.thread_time() - begin)
    return 2.0 * size**3 / max(best, 1e-9)


def _exchange(task: dict[str, Any], local: int, tell: Any) -> float:
    """all_reduce with the other node: right to the last bit, then its bus bandwidth in bytes per second."""
    import torch
    import torch.distributed as dist

    backend, nlocal = task["backend"], task["nlocal"]
    world, rank = 2 * nlocal, task["role"] * nlocal + local
    device = torch.device("cpu")
    tell(stage="meeting the other node")
    if backend == "nccl":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    elif not os.environ.get("GLOO_SOCKET_IFNAME") and (interface := _interface(task["peer_ip"])):
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    timeout = timedelta(seconds=task["deadline_s"])
    host, port = task["store"]
    store = dist.PrefixStore(task["key"], dist.TCPStore(host, port, None, False, timeout, wait_for_workers=False))
    tell(stage="init_process_group")
    dist.init_process_group(
        backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world, timeout=timeout
    )

    tell(stage="all_reduce")
    # Whole numbers below 2^24, so that sums are exact in float32 whatever their order.
    pattern = torch.arange(FIRST, dtype=torch.float32, device=device) % 251
    total = pattern + (rank + 1)
    dist.all_reduce(total)
    if not torch.equal(total, pattern * world + world * (world + 1) // 2):
        raise ValueError("all_reduce gave wrong values")

    elements = FIRST
    tell(stage="timed all_reduce")
    while True:
        data = torch.ones(elements, dtype=torch.float32, device=device)
        times = [_timed(dist, torch, data, device)]
        if times[0] >= LONG_ENOUGH_S or elements >= MOST[backend]:
            break
        elements *= 4
    while len(times) < REPEATS and sum(times) < REPEAT_S:
        times.append(_timed(dist, torch, data, device))
    bandwidth: float = 2 * (world - 1) / world * 4 * elements / min(times)

    store.add("goodbye", 1)
    until = time.monotonic() + GOODBYE_S
    while store.add("goodbye", 0) < world and time.monotonic() < until:
        time.sleep(0.005)
    return bandwidth


def _timed(dist: Any, torch: Any, data: Any, device: Any) -> float:
    """Seconds of one all_reduce, as the slowest rank saw it: so all ranks go on with the same size."""
    begin = time.perf_counter()
    dist.all_reduce(data)
    if device.type == "cuda":
        torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64, device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took.item())


def _interface(peer_ip: str) -> str:
    """The network interface by which this node reaches another."""
    import psutil

    family = socket.AF_INET6 if ":" in peer_ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer_ip, 9))
        mine = probe.getsockname()[0].partition("%")[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == mine for address in addresses):
            return str(name)
    return ""


if __name__ == "__main__":
    main()
