"""What the kernel says of a thread: the call that it is in, and what stands at the other end of that call."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

EndpointKind = Literal["connection", "store", "listener", "unix socket", "pipe", "FIFO", "file lock"]


@dataclass(frozen=True)
class Process:
    """A process, as the kernel calls it."""

    pid: int
    name: str = ""


@dataclass(frozen=True)
class Endpoint:
    """The other end of a call.

    Args:
        kind: what the call is on; `store` is a connection to the store of torch.distributed, `listener` a port of the
            process's own at which it waits for somebody to connect.
        address: of the other end of a connection (`10.0.0.5:443`), the port of a listener, the path of a unix socket.
        processes: who has the other end of a connection or a pipe, or holds the lock; the first few.
        more: how many further ones have it.
        accepted: False while a connection waits in the queue of its listener.
        receives: one of the processes waits for input from this end as well.
        itself: of a pipe or a FIFO without `processes`: the process that waits has the other end itself.
        sees_all: whether all processes of the machine could be asked who has it; None where there was no time to.
    """

    kind: EndpointKind
    address: str = ""
    processes: tuple[Process, ...] = ()
    more: int = 0
    accepted: bool = True
    receives: bool = False
    itself: bool = False
    sees_all: bool | None = None

    @property
    def pids(self) -> frozenset[int]:
        """Of the processes that are known to have it."""
        return frozenset(process.pid for process in self.processes)


@dataclass(frozen=True)
class Kernel:
    """What the kernel says of a process.

    `state` is /proc's letter, `wchan` where it sleeps in the kernel, `syscall` the name of the call it is in and
    `file` what stands behind that call's descriptor (a path, `socket:[n]`, `pipe:[n]`). `cpu_s` and `io_bytes`
    are what the process and those below it used since `since_s` seconds ago, None at a first look; `switches` counts
    how often its main thread has gone to sleep since then: one that stays in one wait does not wake. `filesystem` and
    `mount` are of `file`; `peer` is the other end of the call, where something is known of it; `beside` says which
    processes the kernel holds at the same place.
    """

    state: str
    wchan: str = ""
    syscall: str = ""
    file: str = ""
    tracer: int = 0
    cpu_s: float | None = None
    io_bytes: int | None = None
    since_s: float | None = None
    switches: int | None = None
    filesystem: str = ""
    mount: str = ""
    peer: Endpoint | None = None
    beside: tuple[str, ...] = ()

    @property
    def cores(self) -> float | None:
        """CPUs that were used since the look before, on average; None at a first look."""
        return self.cpu_s / self.since_s if self.cpu_s is not None and self.since_s else None

    def worked(self, cores: float, io_bytes: int) -> bool:
        """Whether more than so many CPUs were used, or more bytes moved, since the look before; not at a first look."""
        return (self.cores or 0.0) > cores or (self.io_bytes or 0) > io_bytes

    @staticmethod
    def from_older(document: Any) -> Any:
        """A document of an older version in today's shape: see `codec`."""
        other = document.get("other") if isinstance(document, dict) else None
        peer = from_sentence(other) if isinstance(other, str) else None
        if peer is None:
            return document
        written = asdict(peer)
        return {"peer": {**written, "processes": list(written["processes"])}, **document}


@dataclass(frozen=True)
class ThreadCall:
    """Where a thread of a rank, by its native id, is in the kernel."""

    thread: int
    kernel: Kernel


# Before 2026-11 bundles held the other end of a call as a sentence: each kind with the words that told of it.
# What is read here has been checked by nobody: no pattern takes more than a fixed number of steps for each character.
_LONGEST = 4096  # characters; a path of a socket has 108, and the first few processes are told
_PROCESS = re.compile(r"(?:^|, )([^\n]{1,64}?) \(pid (\d{1,9})\)(?=, |$)")
_SENTENCES: tuple[tuple[EndpointKind, re.Pattern[str]], ...] = (
    ("store", re.compile(r"the store of torch\.distributed(?:, (?P<address>.*))?")),
    ("listener", re.compile(r"a connection to its own port (?P<address>\d+)")),
    ("unix socket", re.compile(r"unix socket (?P<address>.*)")),
    ("FIFO", re.compile(r"a FIFO(?P<nobody> that nobody has opened at its other end)?")),
    ("file lock", re.compile(r"held by (?:another process|(?P<processes>.*))")),
    (
        "pipe",
        re.compile(
            r"(?P<fifo>a FIFO; )?(?:(?P<processes>.*?)(?: and (?P<more>\d{1,9}) more)? has its other end"
            r"|(?P<nobody>nobody)(?P<itself> but itself)?(?P<hidden> that can be seen)? (?:writes to|reads) it)"
        ),
    ),
    (
        "connection",
        re.compile(
            r"(?P<address>[^,]*)(?:, (?:whose other end (?P<processes>.*) has|which (?P<queued>.*) has not accepted)"
            r"(?P<receives> and waits for input from it, too)?)?"
        ),
    ),
)  # fmt: skip


def from_sentence(text: str) -> Endpoint | None:
    """The other end of a call as older bundles tell of it; None for an empty text, or one that no version wrote."""
    for kind, sentence in _SENTENCES:
        found = sentence.fullmatch(text) if 0 < len(text) <= _LONGEST else None
        if found is None:
            continue
        parts = found.groupdict()
        processes = _PROCESS.findall(parts.get("processes") or parts.get("queued") or "")
        return Endpoint(
            "FIFO" if parts.get("fifo") else kind,
            parts.get("address") or "",
            tuple(Process(int(pid), name) for name, pid in processes),
            int(parts.get("more") or 0),
            accepted=not parts.get("queued"),
            receives=bool(parts.get("receives")),
            itself=bool(parts.get("itself")),
            sees_all=not parts.get("hidden") if parts.get("nobody") else None,
        )
    return None
