"""safelaunch: the launcher to run instead of torchrun.

Importing this package costs nothing: it loads the standard library only. What a training script may call, and need
not, is here; outside a run of safelaunch it does nothing.

    safelaunch.heartbeat(step, total=steps)
    with safelaunch.phase("evaluate", expect="10m"):
        evaluate(model)
    if safelaunch.should_stop():  # on all ranks at the same call
        save(model)
        break
    safelaunch.expect_same("config", config)  # told of where a rank has another one
    safelaunch.join()  # in an actor of Ray, which no launcher of ours has started
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__version__ = "0.1.0"
__all__ = ["expect_same", "heartbeat", "join", "phase", "should_stop"]

# The pulse of this rank's slot; set by worker.bootstrap, and taken away from the processes below the rank.
_pulse: Any = None
# Whether this rank is to stop, as `worker.stopping` has it; likewise.
_stop: Callable[[], bool] | None = None
# What tells the supervisor a value, as `worker.expected` has it; likewise.
_same: Callable[[str, Any], None] | None = None


def expect_same(name: str, value: Any) -> None:
    """Have a value compared over all ranks, without a collective: which rank differs, and in what, is told within two
    seconds (SL234). Nothing else happens: the ranks go on.

    The n-th call with a name is compared with the n-th call of the other ranks. About 0.1 ms for small values; the
    whole of a tensor is read. No-op outside safelaunch, and after 4,000 calls.

    Args:
        name: such as "config"; the same on all ranks.
        value: numbers, texts, tensors, and dicts, lists or objects of these, whose parts are told apart. Of anything
            else `repr` is compared.
    """
    same = _same
    if same is not None:
        with contextlib.suppress(Exception):  # a `repr` or a file system may fail: the program goes on
            same(str(name), value)


def should_stop() -> bool:
    """Whether to save and leave the loop now: the scheduler takes the node away, the job's time ends, or somebody has
    asked for it (`safelaunch stop RUN`). It becomes True on all ranks at the same call, and stays True.

    Call it once a step, on every rank, in the main thread. Only the number of the call counts: ranks may be at
    different steps when a stop is asked for. From the first call on, SIGTERM, SIGUSR1 and SIGUSR2 do not end a rank
    that has no handler of its own for them. About 0.1 µs; False outside safelaunch.
    """
    stop = _stop
    return stop is not None and stop()


def join() -> None:
    """Have this process watched, where it joins a process group. It is for ranks that no launcher of ours has started,
    and whose environment `safelaunch exec` has not armed, such as actors of Ray. Call it on every rank, before or
    after `init_process_group`.

    The first rank of a job on a node starts one process beside it, which ends after the last rank. It tells of hangs
    and failures on this process's stderr and in a run directory (SAFELAUNCH_RUN_DIR, else ./safelaunch_runs). It ends
    nothing. A rank that is watched already stays as it is, and a second call does nothing. Never raises.
    """
    try:
        from safelaunch.worker import joining

        joining.join()
    except Exception:
        pass  # the program is not to fail for it


def heartbeat(step: int | None = None, total: int | None = None) -> None:
    """Say that this rank makes progress. For loops that safelaunch does not see by itself: it sees optimizer steps,
    DataLoaders, collectives, checkpoints and compilation. About 0.3 µs; no-op outside safelaunch.

    Args:
        step: how far the rank is.
        total: how far it will go.
    """
    pulse = _pulse
    if pulse is None:
        return
    try:
        pulse.mark(-1 if step is None else step, -1 if total is None else total)
    except (TypeError, ValueError, OverflowError):  # no number of 64 bits
        pulse.mark(_count(step), _count(total))


def _count(number: Any) -> int:
    try:
        return min(max(int(number), -1), 1 << 62)
    except (TypeError, ValueError, OverflowError):
        return -1


@contextlib.contextmanager
def phase(name: str, expect: str | float | None = None) -> Iterator[None]:
    """Name what this rank does, for notices and verdicts. No-op outside safelaunch.

    Args:
        name: such as "evaluate"; at most 43 bytes are kept.
        expect: how long it may take before its silence is suspicious, as seconds or text such as "10m". Without it,
            safelaunch goes by how long this phase took before.

    Raises:
        ValueError: when `expect` is no duration.
    """
    limit = 0.0
    if expect is not None:
        from safelaunch import durations

        limit = durations.seconds(str(expect))
    pulse = _pulse
    token = pulse.begin(str(name), limit) if pulse is not None else -1
    try:
        yield
    finally:
        if pulse is not None and pulse is _pulse:
            pulse.end(token)
