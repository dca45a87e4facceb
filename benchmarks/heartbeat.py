"""What watching costs a rank: ns for a beat in the training thread, and µs for each hook of a step, in this process.

The hooks are timed around nothing, called again and again. Around torch's own calls they are timed as the difference
between the call with it and without it, in turns, in which what torch does to the caches is included.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figures, Row, parser

CHUNK = 100  # calls that are timed together
CHUNKS = 200  # in one sample, which is their median: what else the machine does comes in bursts


def each_ns(call: Callable[[], object], chunks: int = CHUNKS) -> float:
    """Nanoseconds for one call, its loop taken off."""
    return statistics.median(_chunk(call) - _chunk(_nothing) for _ in range(chunks)) / CHUNK


def _chunk(call: Callable[[], object]) -> int:
    begun = time.perf_counter_ns()
    for _ in range(CHUNK):
        call()
    return time.perf_counter_ns() - begun


def _nothing() -> None:
    pass


def differences(with_it: Callable[[], object], without: Callable[[], object], samples: int) -> list[float]:
    """Microseconds that a call takes longer with the hook than without it, sample by sample."""
    found = []
    for _ in range(samples):
        long, short = [], []
        for _ in range(1000):  # one of each in turn
            begun = time.perf_counter_ns()
            with_it()
            middle = time.perf_counter_ns()
            without()
            short.append(time.perf_counter_ns() - middle)
            long.append(middle - begun)
        found.append((statistics.median(long) - statistics.median(short)) / 1000)
    return found


def armed(folder: Path) -> Any:
    """This process as a rank: its slot, and what `worker.bootstrap` hooks. Returns the pulse's writer."""
    import safelaunch
    from safelaunch import black_box
    from safelaunch.worker import torch_hooks

    path = str(folder / "black_box")
    black_box.create(path, 1)
    box = black_box.Writer(path, 0)
    safelaunch._pulse = box.pulse
    torch_hooks.install(box, None)
    return box.pulse


def hooks_alone(pulse: Any, samples: int) -> list[float]:
    """Microseconds for the hooks of an optimizer's step and of a loader's batch, around nothing."""
    from torch.optim import optimizer as module

    from safelaunch.worker import progress

    class Iterator:
        _num_yielded, _num_workers = 1, 0
        _safelaunch_pass = pulse.begin_pass(1, -1, 0)

        def __next__(self) -> None:
            pass

    following, batches = Iterator.__next__, Iterator()
    progress.watch_loaders(types.SimpleNamespace(_BaseDataLoaderIter=Iterator), pulse)
    watched: Any = Iterator.__next__
    (stepped,) = module._global_optimizer_post_hooks.values()

    def both_us() -> float:
        loader = each_ns(lambda: watched(batches)) - each_ns(lambda: following(batches))
        return (loader + each_ns(lambda: stepped(None, (), {}))) / 1000

    return [both_us() for _ in range(samples)]


def optimizer_hook(samples: int) -> list[float]:
    """A step of SGD with one parameter; torch asks for hooks in any case."""
    import torch
    from torch.optim import optimizer as module

    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    hooks = dict(module._global_optimizer_post_hooks)
    module._global_optimizer_post_hooks.clear()

    (hook,) = hooks.values()
    return differences(lambda: (optimizer.step(), hook(optimizer, (), {})), optimizer.step, samples)


def loader_hook(samples: int) -> list[float]:
    """A batch of a loader without workers."""
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    watched: Any = _BaseDataLoaderIter.__next__
    plain = watched.__wrapped__
    batches = iter(DataLoader(range(10**9), batch_size=None))
    return differences(lambda: watched(batches), lambda: plain(batches), samples)


def record_of_a_collective(samples: int) -> list[float]:
    """Microseconds for the record of an all_reduce, around nothing: a real one takes some hundred, and varies by more
    than its record takes."""
    import torch
    import torch.distributed as dist

    plain = dist.all_reduce.__wrapped__  # type: ignore[attr-defined]
    watched: Any = dist.all_reduce
    (at,) = (place for place, cell in enumerate(watched.__closure__) if cell.cell_contents is plain)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(1)
    watched.__closure__[at].cell_contents = nothing = lambda _: None
    try:
        return [(each_ns(lambda: watched(tensor)) - each_ns(lambda: nothing(tensor))) / 1000 for _ in range(samples)]
    finally:
        watched.__closure__[at].cell_contents = plain
        dist.destroy_process_group()


def beat_thread_us(samples: int) -> list[float]:
    """One round of the beat thread, five of which are made in a second."""
    from torch._C import _distributed_c10d as bindings

    from safelaunch.worker import recorders

    return [each_ns(lambda: recorders.totals(bindings._dump_fr_trace_json), 5) / 1000 for _ in range(samples)]


def main() -> None:
    options = parser(__doc__, runs=15).parse_args()
    runs = options.runs
    figures = Figures("What watching costs a rank", options.json)
    with tempfile.TemporaryDirectory() as folder:
        pulse = armed(Path(folder))
        import torch
        import torch.distributed
        import torch.utils.data

        import safelaunch

        torch.set_num_threads(1)
        beats = {
            "a beat (optimizer step, batch)": (pulse.step, "<= 300"),
            "safelaunch.heartbeat(step, total)": (lambda: safelaunch.heartbeat(7, 100), ""),
        }
        for what, (call, target) in beats.items():
            figures.add(Row(what, "ns", {"safelaunch": [each_ns(call) for _ in range(runs)]}, target=target))
        figures.add(Row("hooks of a step: both", "µs", {"safelaunch": hooks_alone(pulse, runs)}, target="<= 1"))
        figures.add(Row("... around SGD's step of one parameter", "µs", {"safelaunch": optimizer_hook(runs)}))
        figures.add(Row("... around a loader's batch", "µs", {"safelaunch": loader_hook(runs)}))
        figures.add(Row("record of a collective", "µs", {"safelaunch": record_of_a_collective(runs)}))
        rounds = beat_thread_us(runs)
        figures.add(Row("a round of the beat thread (5 in a second)", "µs", {"safelaunch": rounds}))
        figures.note(f"the beat thread takes {statistics.median(rounds) * 5 / 1e4:.4f} % of a core")
    figures.write()


if __name__ == "__main__":
    main()
