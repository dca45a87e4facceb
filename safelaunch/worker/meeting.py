"""Runs in: workers. What the ranks of one job have in common: where they meet in `init_process_group`."""

from __future__ import annotations

import os
from typing import Any, Callable, List, Mapping, Optional

OF_ELASTIC = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]"}
HERE = {"", *LOOPBACK, "0.0.0.0", "::", "[::]"}


class Place:
    """The place of a rank in its job; `rank` is -1 and `world_size` 0 where they are not known yet.

    Args:
        rank: of this process.
        world_size: of the job.
        words: name the meeting, the same in all of its ranks.
        address: at which they meet, where they do so by TCP: to a loopback address nobody comes from elsewhere.
    """

    def __init__(self, rank: int, world_size: int, words: List[str], address: str = "") -> None:
        self.rank, self.world_size, self.words = rank, world_size, words
        self.loopback = address.lower() in LOOPBACK

    @property
    def known(self) -> bool:
        return 0 <= self.rank < self.world_size

    def text(self) -> str:
        return " ".join([str(self.rank), str(self.world_size), *self.words])


def of_environment(environ: Mapping[str, str]) -> Optional[Place]:
    """The place that RANK and WORLD_SIZE give, with MASTER_ADDR and MASTER_PORT; None where these are not all there."""
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    rank, world_size = number(environ.get("RANK"), -1), number(environ.get("WORLD_SIZE"), 0)
    if address is None or port is None:
        return None
    place = Place(rank, world_size, _at(address, port) + _of_elastic(environ), address)
    return place if place.known else None


def asked_for(init: Callable, args: Any, kwargs: Any) -> Place:  # type: ignore[type-arg]
    """The place that a call of `init_process_group` asks for."""
    import inspect  # torch has loaded it by now

    given = inspect.signature(init).bind_partial(*args, **kwargs).arguments
    rank, world_size = number(given.get("rank"), -1), number(given.get("world_size"), 0)
    store, method = given.get("store"), given.get("init_method")
    if str(given.get("backend") or "").lower() == "mpi":
        return Place(-1, 0, ["mpi"])  # which numbers its ranks itself
    if store is not None:
        return Place(rank, world_size, of_store(store))
    scheme, _, rest = str(method or "env://").partition("://")
    where, _, query = rest.partition("?")
    asked = dict(item.partition("=")[::2] for item in query.split("&"))
    rank = number(asked.get("rank"), rank)
    world_size = number(asked.get("world_size"), world_size)
    if scheme == "tcp":
        address, _, port = where.rpartition(":")
        return Place(rank, world_size, _at(address, port.strip("/")), address)
    if scheme != "env":
        return Place(rank, world_size, [scheme, os.path.abspath(where)])
    environ = os.environ
    rank = rank if rank >= 0 else number(environ.get("RANK"), -1)
    world_size = world_size or number(environ.get("WORLD_SIZE"), 0)
    address = environ.get("MASTER_ADDR", "")
    return Place(rank, world_size, _at(address, environ.get("MASTER_PORT", "")) + _of_elastic(environ), address)


def made(module: Any) -> Place:
    """The place in the group that `torch.distributed.distributed_c10d` has made."""
    rank, world_size = module.get_rank(), module.get_world_size()
    words = of_store(module._get_default_store())
    by_environment = of_environment(os.environ)
    if by_environment is not None and (by_environment.rank, by_environment.world_size) == (rank, world_size):
        words += _of_elastic(os.environ)
    return Place(rank, world_size, words)


def of_store(store: Any) -> List[str]:
    """Names the store that ranks share, without prefixes: torch has put some around it."""
    for _ in range(10):
        below = getattr(store, "underlying_store", None)
        if below is None:
            break
        store = below
    if hasattr(store, "host") and hasattr(store, "port"):
        return _at(str(store.host), str(store.port))
    if hasattr(store, "path"):
        return ["file", str(store.path)]
    return [type(store).__name__, str(os.getpid())]


def number(value: Any, otherwise: int) -> int:
    """A number as arguments and variables hold it."""
    try:
        return otherwise if value is None or int(value) < 0 else int(value)
    except (TypeError, ValueError):
        return otherwise


def _at(address: str, port: str) -> List[str]:
    """An address, one of this host by one name, in the network namespace in which alone it means the same."""
    if address.lower() in HERE or address == os.uname().nodename:
        return ["tcp", _network(), port]
    return ["tcp", address, port]


def _network() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return "localhost"


def _of_elastic(environ: Mapping[str, str]) -> List[str]:
    return [environ[name] for name in OF_ELASTIC if name in environ]
