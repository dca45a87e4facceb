"""Runs in: workers. Hooks that show progress: optimizer steps, DataLoaders, checkpoints, compilation."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from safelaunch.worker.after_import import call_after_import

# Module -> functions that save or load, each a phase of its own while it runs.
SAVES = {
    "torch.serialization": ("save", "load"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": ("load",),
}


def install(pulse: Any) -> None:
    """Arrange for the hooks. `pulse` is a `pulse.Writer`."""
    owner = os.getpid()
    for name, hook in HOOKS.items():
        call_after_import(name, functools.partial(hook, pulse=pulse, owner=owner))
    for name, functions in SAVES.items():
        call_after_import(name, functools.partial(watch_saves, functions=functions, pulse=pulse, owner=owner))


def count_steps(module: Any, pulse: Any, owner: int) -> None:
    """Count the steps of every optimizer (torch >= 2.0: `register_optimizer_step_post_hook`)."""
    torch = sys.modules["torch"]

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # A compiled step must not meet what the compiler cannot trace; it takes this line for a constant.
        if not torch.compiler.is_compiling() and os.getpid() == owner:
            pulse.step()

    module.register_optimizer_step_post_hook(stepped)


def watch_loaders(module: Any, pulse: Any, owner: int) -> None:
    """Show when a rank waits for a batch, count batches, and note that a loader has come to its end."""
    iterator = module._BaseDataLoaderIter
    following = iterator.__next__

    @functools.wraps(following)
    def __next__(self: Any) -> Any:
        if os.getpid() != owner:
            return following(self)
        token = pulse.begin("loader")
        try:
            batch = following(self)
        except StopIteration:
            pulse.exhausted()
            raise
        finally:
            pulse.end(token)
        pulse.batch()
        return batch

    iterator.__next__ = __next__
    if getattr(iterator, "next", None) is following:
        iterator.next = __next__


def watch_saves(module: Any, functions: tuple[str, ...], pulse: Any, owner: int) -> None:
    """Show when a rank saves or loads."""
    for name in functions:
        function = getattr(module, name, None)
        if function is not None:
            what = "checkpoint %s" % name.replace("async_", "")
            setattr(module, name, _phase(function, what, pulse, owner))


def _phase(function: Callable, name: str, pulse: Any, owner: int) -> Callable:  # type: ignore[type-arg]
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != owner:
            return function(*args, **kwargs)
        token = pulse.begin(name)
        try:
            return function(*args, **kwargs)
        finally:
            pulse.end(token)

    return inside


def watch_compilation(module: Any, pulse: Any, owner: int) -> None:
    """Show when a rank compiles (torch >= 2.4: `torch._dynamo.callback`)."""
    tokens: list[int] = []

    def begun(*_: Any) -> None:
        if os.getpid() == owner:
            tokens.append(pulse.begin("compile"))

    def ended(*_: Any) -> None:
        if os.getpid() == owner and tokens:
            pulse.end(tokens.pop())

    module.callback_handler.register_start_callback(begun)
    module.callback_handler.register_end_callback(ended)


HOOKS = {
    "torch.optim.optimizer": count_steps,
    "torch.utils.data.dataloader": watch_loaders,
    "torch._dynamo.callback": watch_compilation,
}
