"""What a rank's machine looked like when an exception ended it: the limits and stores that its message speaks of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """A part of a whole: `count` bytes, or descriptors, of what `name` says."""

    name: str
    count: int


@dataclass(frozen=True)
class OpenFiles:
    """A process's descriptors: how many it has, how many it may have, and what most of them are."""

    limit: int
    count: int
    kinds: tuple[Share, ...] = ()


@dataclass(frozen=True)
class Space:
    """A file system, in bytes: `free` is what this user may still write. `file` is what was to be written, as far as it
    is known, and `file_size` how long it got; `file_limit` how long a file of the process may get and `files_free` the
    number of files that may still be made (None: no such limit), `holds` what takes most of the space, where that was
    looked at."""

    path: str
    total: int
    free: int
    file: str = ""
    file_size: int = 0
    file_limit: int | None = None
    files_free: int | None = None
    holds: tuple[Share, ...] = ()

    @property
    def full(self) -> bool:
        """Whether nothing, or next to nothing, can be written any more."""
        return self.free * 100 <= self.total or self.files_free == 0


@dataclass(frozen=True)
class Memory:
    """A process's host memory, in bytes: what it had `mapped` and what was `resident`, each at its highest; `limit` is
    what it may map (None: all it wants), `available` what the host had left for all."""

    mapped: int
    resident: int
    available: int
    limit: int | None = None


@dataclass(frozen=True)
class Port:
    """A TCP port and who holds it: `pid` is None where that process cannot be seen, `held` false where nobody did any
    more when it was looked at."""

    number: int
    held: bool = False
    pid: int | None = None
    command: str = ""


@dataclass(frozen=True)
class Surroundings:
    """None is what the exception does not speak of, or what could not be read."""

    open_files: OpenFiles | None = None
    disk: Space | None = None
    shm: Space | None = None
    port: Port | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class Reducer:
    """A model that DistributedDataParallel reduces on a rank: `without` are the names of its parameters that have no
    gradient, of `parameters` in all. `tolerant` says that it was told to expect that (`find_unused_parameters`,
    `static_graph`), `raised` that it is the one that ended the rank with an exception."""

    model: str
    parameters: int
    without: tuple[str, ...] = ()
    tolerant: bool = False
    raised: bool = False
