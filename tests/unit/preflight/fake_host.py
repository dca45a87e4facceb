"""A machine made of files in a folder and of values for all that is not a file."""

# ruff: noqa: ARG002 (the fakes have the signatures of what they stand for)
from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safelaunch.codec import from_json
from safelaunch.model import Finding, Job
from safelaunch.preflight.check import Check
from safelaunch.preflight.machine import kernel_log
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import Address, Dialed, Host, Wanted
from safelaunch.preflight.machine.nvml import LIBRARY_NOT_FOUND, Failure, Gpu, Snapshot
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.machine.storage import Storage, Volume
from safelaunch.preflight.machine.storage_probe import look

NO_DRIVER = Snapshot(failure=Failure("dlopen", LIBRARY_NOT_FOUND, "not there"))
GIB = 1 << 30


class FakeRoot(Root):
    """`volumes` maps mount points to what statvfs says of them, `unwritable` directories to the errno of a write."""

    def __init__(self, root: str, volumes: Mapping[str, Any], unwritable: Mapping[str, int]) -> None:
        super().__init__(root)
        self._volumes = volumes
        self._unwritable = unwritable

    def statvfs(self, path: str) -> os.statvfs_result:
        above = [path, *map(str, Path(path).parents)] if self.exists(path) else [path]
        for point in above:
            if point in self._volumes:
                found: os.statvfs_result = self._volumes[point]
                return found
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    def try_write(self, path: str) -> None:
        if path in self._unwritable:
            raise OSError(self._unwritable[path], os.strerror(self._unwritable[path]))


class HereAndNow(Storage):
    """Writes as a `FakeRoot` says, without a child."""

    def written(self, root: Root, run: Any, path: str, mount: Any, deadline_s: float) -> Volume:
        return from_json(Volume, look(root, path, write=True))


class FakeHost(Host):
    """`names` maps host names to addresses, to an exception, or to seconds after which the loopback address comes;
    `taken` holds the addresses on which every port is in use; `answers` maps addresses to the errno of dialling them,
    which otherwise succeeds. Between two looks at the processes `asleep` is called. `allowed` are the CPUs of the
    affinity mask, `programs` what the commands print that show the kernel's log."""

    def __init__(
        self,
        root: Path,
        job: Job | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        wanted: Wanted | None = None,
        volumes: Mapping[str, Any] | None = None,
        file_limit: tuple[int, int] = (1 << 20, 1 << 20),
        names: Mapping[str, Any] | None = None,
        taken: Mapping[str, int] | None = None,
        snapshot: Snapshot = NO_DRIVER,
        memlock: tuple[int, int] = (8 << 20, 8 << 20),
        processes: int = 1 << 62,
        cpus: int = 0,
        answers: Mapping[str, int] | None = None,
        unwritable: Mapping[str, int] | None = None,
        asleep: Callable[[], None] = lambda: None,
        allowed: frozenset[int] = frozenset(range(64)),
        programs: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(job or Job(nproc=1), environ=environ or {}, wanted=wanted)
        self._storage = HereAndNow()
        self.root = FakeRoot(str(root), volumes or {}, unwritable or {})
        self.limit = file_limit
        self.names = {"node-a": ("127.0.0.1",), **(names or {})}
        self.taken = taken or {}
        self.snapshot = snapshot
        self.clock = 0.0
        self.memlock = memlock
        self.processes = processes
        self.cpus = cpus
        self.answers = answers or {}
        self.dialled: list[str] = []
        self.asleep = asleep
        self.allowed = allowed
        self.programs = programs or {}

    def file_limit(self) -> tuple[int, int]:
        return self.limit

    def set_file_limit(self, soft: int) -> None:
        self.limit = (soft, self.limit[1])

    def memlock_limit(self) -> tuple[int, int]:
        return self.memlock

    def process_limit(self) -> int:
        return self.processes

    def cpu_count(self) -> int:
        return self.cpus or super().cpu_count()

    def affinity(self) -> frozenset[int]:
        return self.allowed

    def kernel_log(self) -> kernel_log.Log:
        return kernel_log.read(self.root, self._print)

    def _print(self, argv: tuple[str, ...], deadline_s: float) -> Ended:
        if argv[0] not in self.programs:
            raise FileNotFoundError(argv[0])
        return Ended(0, self.programs[argv[0]], "", 0.0)

    def working_directory(self) -> str:
        return "/"

    def monotonic(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds
        self.asleep()

    def dial(self, address: Address, port: int, deadline_s: float) -> Dialed:
        self.dialled.append(f"{address}:{port}")
        return Dialed("10.0.0.7", self.answers.get(address.ip, 0))

    def name(self) -> str:
        return "node-a"

    def canonical_name(self, deadline_s: float) -> str:
        return "node-a.example"

    def resolve(self, name: str, deadline_s: float) -> tuple[Address, ...]:
        answer = self.names.get(name, socket.gaierror(-2, "Name or service not known"))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            self.clock += answer
            answer = ("127.0.0.1",)
        return tuple(Address(socket.AF_INET, ip) for ip in answer)

    def bind(self, family: int, ip: str, port: int) -> None:
        if not (ip.startswith("127.") or ip in ("0.0.0.0", "::", "10.0.0.1")):
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        if port and ip in self.taken:
            raise OSError(self.taken[ip], os.strerror(self.taken[ip]))

    def nvml(self) -> Snapshot:
        return self.snapshot


def volume(free: int, *, total: int = 1 << 40, inodes: int = 1 << 20, free_inodes: int = 1 << 20) -> SimpleNamespace:
    """What statvfs says of a file system; sizes in bytes."""
    return SimpleNamespace(
        f_flag=0, f_frsize=1, f_blocks=total, f_bavail=free, f_files=inodes, f_favail=free_inodes, f_ffree=free_inodes
    )


def gpus(count: int, **changes: Gpu) -> Snapshot:
    """A healthy node; `g3=Gpu(...)` replaces GPU 3."""
    healthy = [
        Gpu(i, f"GPU-{i:08d}", "H100", 80 * GIB, GIB // 2, address=f"0000:{0x10 + i:02x}:00.0") for i in range(count)
    ]
    return Snapshot(tuple(changes.get(f"g{gpu.index}", gpu) for gpu in healthy), driver="570.1")


def only(findings: Iterator[Finding]) -> Finding:
    """The one finding of a check."""
    (finding,) = findings
    return finding


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def check_named(name: str, function: Any, **options: Any) -> Check:
    return Check("SL105", name, "test", function, **options)
