"""Runs in: workers. Hooks that show progress: optimizer steps, DataLoaders, checkpoints, compilation."""

from __future__ import annotations

import collections
import functools
import itertools
import sys
import threading
import time
import zlib
from typing import Any, Callable, Deque, Dict, List, Tuple

from safelaunch.pulse import RETRY_S
from safelaunch.worker import rank
from safelaunch.worker.after_import import call_after_import, call_at_imports
from safelaunch.worker.stream_marks import MARKS, STEP

DEPTH = 32  # frames that tell where a loader is used
LONGEST_KEY = 200
MOST_KEYS = 64
LOOK_S = 1.0  # an answer of the store that took longer was waited for
_MODULES = [0]  # the most that there have been
_KEYS: Deque[str] = collections.deque(maxlen=MOST_KEYS)
_WANTED: Dict[int, List[str]] = {}  # by thread
_POLLED: Deque[Tuple[List[str], float]] = collections.deque(
    maxlen=16 * MOST_KEYS
)  # a scan has many keys; by the main thread, with the time

# Module -> functions that save or load, each a phase of its own while it runs.
SAVES = {
    "torch.serialization": ("save", "load"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": ("load",),
}


def install(pulse: Any) -> None:
    """Arrange for the hooks. `pulse` is a `pulse.Writer`."""
    call_at_imports(lambda: look_for_imports(pulse))
    for name, hook in HOOKS.items():
        call_after_import(name, functools.partial(hook, pulse=pulse))
    for name, functions in SAVES.items():
        call_after_import(name, functools.partial(watch_saves, functions=functions, pulse=pulse))


def count_modules() -> None:
    """Begin to count now: what is loaded is not the script's doing."""
    _MODULES[0] = len(sys.modules)


def look_for_imports(pulse: Any) -> None:
    """Note that there are more modules than ever, and the program imports: to try an import again that fails is no
    progress, and torch's watchdog imports what it needs for a stack."""
    count = len(sys.modules)
    if count > _MODULES[0] and rank.here:
        _MODULES[0] = count
        if _program_imports():
            pulse.imported()


def _program_imports() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def count_steps(module: Any, pulse: Any) -> None:
    """Count the steps of every optimizer (torch >= 2.0: `register_optimizer_step_post_hook`)."""
    torch, step = sys.modules["torch"], pulse.step

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # A compiled step must not meet what the compiler cannot trace; it takes this line for a constant.
        if not torch.compiler.is_compiling() and rank.here:
            step()
            if MARKS.followed is not None:
                MARKS.past("a step of an optimizer", kind=STEP)

    module.register_optimizer_step_post_hook(stepped)


def watch_loaders(module: Any, pulse: Any) -> None:
    """Show when a rank waits for a batch, count batches, and note that a loader has come to its end."""
    iterator = module._BaseDataLoaderIter
    following = iterator.__next__
    main = threading.main_thread().ident
    begin, end, fed, loading, get_ident = pulse.begin, pulse.end, pulse.fed, pulse.loading, threading.get_ident

    @functools.wraps(following)
    def __next__(self: Any) -> Any:
        if not rank.here:
            return following(self)
        # Who loads ahead in a thread of its own keeps nobody waiting.
        waits = get_ident() == main
        begun = loading() if waits else begin("loader")
        try:
            turn = self._safelaunch_pass if self._num_yielded else _pass_of(self, pulse)
        except AttributeError:
            turn = _pass_of(self, pulse)
        try:
            batch = following(self)
        except BaseException as error:
            pulse.unfed(begun) if waits else end(begun)
            if isinstance(error, StopIteration):
                pulse.exhausted()
                if turn is not None:
                    pulse.end_pass(turn)
            raise
        if not waits:
            end(begun)
        fed(begun if waits else None, turn, self._num_yielded if turn is not None else 0)
        return batch

    iterator.__next__ = __next__
    if getattr(iterator, "next", None) is following:
        iterator.next = __next__


def _pass_of(iterator: Any, pulse: Any) -> Any:
    """A new pass of a loader in the pulse; None where this torch counts otherwise."""
    try:
        iterator._num_yielded  # noqa: B018
        workers = getattr(iterator, "_num_workers", 0)
        iterator._safelaunch_pass = pulse.begin_pass(_place(), _length(iterator), workers)
    except Exception:
        iterator._safelaunch_pass = None
    return iterator._safelaunch_pass


def _place() -> int:
    """A number for the lines that led here: ranks that come to a loader in the same way have the same."""
    frame, number = sys._getframe(3), 0
    for _ in range(DEPTH):
        number = zlib.crc32(("%s:%d" % (frame.f_code.co_filename, frame.f_lineno)).encode("utf-8", "replace"), number)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return number


def _length(iterator: Any) -> int:
    """How many batches a pass will give, where that can be known without running code of the user's; else -1."""
    batches = iterator._index_sampler
    indices = getattr(batches, "sampler", batches)
    if iterator._dataset_kind != 0 or any(not _is_of_torch(each) for each in (batches, indices)):
        return -1  # an IterableDataset has no samplers, and asking for its length makes torch warn later
    own = vars(indices)
    samples = own.get("num_samples")  # a number of its own; as a property, it asks the data set
    source = own.get("data_source", own.get("indices"))
    if samples is None and (type(source) in (list, tuple, range) or (_is_of_torch(source) and _is_tensors(source))):
        samples = len(indices)
    if samples is None:
        return -1
    if batches is indices:
        return int(samples)
    size = int(batches.batch_size)
    return int(samples) // size if batches.drop_last else -(-int(samples) // size)


def _is_tensors(source: Any) -> bool:
    return type(source).__name__ == "TensorDataset"


def _is_of_torch(thing: Any) -> bool:
    return type(thing).__module__.startswith("torch.utils.data.")


def watch_saves(module: Any, functions: tuple[str, ...], pulse: Any) -> None:
    """Show when a rank saves or loads."""
    for name in functions:
        function = getattr(module, name, None)
        if function is not None:
            what = "checkpoint %s" % name.replace("async_", "")
            setattr(module, name, _phase(function, what, pulse))


def _phase(function: Callable, name: str, pulse: Any) -> Callable:  # type: ignore[type-arg]
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        if not rank.here:
            return function(*args, **kwargs)
        return _in_phase(pulse, name, function, args, kwargs)

    return inside


def _in_phase(
    pulse: Any,
    name: str,
    function: Callable,  # type: ignore[type-arg]
    args: Any,
    kwargs: Any,
    look_s: float = 0.0,
) -> Any:
    """Call a function in a phase of its own, which was an attempt where it raises, and a look where it returns before
    `look_s`."""
    token = pulse.begin(name)
    begun = time.monotonic()
    try:
        result = function(*args, **kwargs)
    except BaseException:
        pulse.attempted(token)
        raise
    if time.monotonic() - begun < look_s:
        pulse.looked(token)
    else:
        pulse.end(token)
    return result


def watch_store(module: Any, pulse: Any) -> None:
    """Show when a rank waits in the store for a key that another one is to set, and for which; and keep the keys that
    it has set itself, and those that it looks at again and again."""
    for name in ("get", "wait"):
        if hasattr(module.Store, name):
            setattr(module.Store, name, _asked(getattr(module.Store, name), name, pulse))
    for name in ("add", "check"):
        if hasattr(module.Store, name):
            setattr(module.Store, name, _looked_at(getattr(module.Store, name)))
    module.Store.set = _noted(module.Store.set)
    module.Store.add = _noted(module.Store.add)  # what is counted is there from then on


def keys_set() -> List[str]:
    """The keys that this rank has set in a store, latest last."""
    return list(_KEYS)


def keys_wanted() -> List[str]:
    """The keys that threads of this rank wait for in a store."""
    return [key for keys in list(_WANTED.values()) for key in keys]


def keys_polled() -> List[str]:
    """The keys at which the main thread of this rank has looked in a store more than once of late."""
    since = time.monotonic() - RETRY_S
    seen = collections.Counter(key for keys, t in list(_POLLED) if t > since for key in keys)
    return [key for key, times in seen.items() if times > 1][:MOST_KEYS]


def _noted(method: Callable) -> Callable:  # type: ignore[type-arg]
    @functools.wraps(method)
    def noted(self: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        own = str(key)[:LONGEST_KEY]
        if rank.here and (not _KEYS or _KEYS[-1] != own):
            _KEYS.append(own)
        return method(self, key, *args, **kwargs)

    return noted


def _asked(method: Callable, name: str, pulse: Any) -> Callable:  # type: ignore[type-arg]
    @functools.wraps(method)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not rank.here:
            return method(self, *args, **kwargs)
        keys = _keys(args, kwargs)
        _WANTED[threading.get_ident()] = keys
        try:
            return _in_phase(pulse, "store.%s(%s)" % (name, ", ".join(keys)), method, (self, *args), kwargs, LOOK_S)
        finally:
            _WANTED.pop(threading.get_ident(), None)
            _note(keys)

    return asked


def _looked_at(method: Callable) -> Callable:  # type: ignore[type-arg]
    @functools.wraps(method)
    def looked_at(self: Any, *args: Any, **kwargs: Any) -> Any:
        if rank.here:
            _note(_keys(args, kwargs))
        return method(self, *args, **kwargs)

    return looked_at


def _note(keys: List[str]) -> None:
    if threading.current_thread() is threading.main_thread():
        _POLLED.append((keys, time.monotonic()))


def _keys(args: Any, kwargs: Any) -> List[str]:
    """The keys of a call; an iterator is not touched, which the call itself is to go through."""
    wanted = args[0] if args else next(iter(kwargs.values()), "")
    keys = list(itertools.islice(wanted, MOST_KEYS)) if isinstance(wanted, (list, tuple)) else [wanted]
    return [key[:LONGEST_KEY] if isinstance(key, str) else type(key).__name__ for key in keys]


def watch_compilation(module: Any, pulse: Any) -> None:
    """Show when a rank compiles (torch >= 2.4: `torch._dynamo.callback`)."""
    tokens: list[int] = []

    def begun(*_: Any) -> None:
        if rank.here:
            tokens.append(pulse.begin("compile"))

    def ended(*_: Any) -> None:
        if rank.here and tokens:
            pulse.end(tokens.pop())

    module.callback_handler.register_start_callback(begun)
    module.callback_handler.register_end_callback(ended)


HOOKS = {
    "torch.optim.optimizer": count_steps,
    "torch.utils.data.dataloader": watch_loaders,
    "torch._dynamo.callback": watch_compilation,
    "torch.distributed.distributed_c10d": watch_store,
}
