"""A machine made of files in a folder and of values for all that is not a file."""

# ruff: noqa: ARG002 (the fakes have the signatures of what they stand for)
from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safelaunch.model import Finding, Job
from safelaunch.preflight.check import Check
from safelaunch.preflight.machine.host import Address, Host, Wanted
from safelaunch.preflight.machine.nvml import LIBRARY_NOT_FOUND, Failure, Gpu, Snapshot
from safelaunch.preflight.machine.root import Root

NO_DRIVER = Snapshot(failure=Failure("dlopen", LIBRARY_NOT_FOUND, "not there"))
GIB = 1 << 30


class FakeRoot(Root):
    def __init__(self, root: str, volumes: Mapping[str, Any]) -> None:
        super().__init__(root)
        self._volumes = volumes

    def statvfs(self, path: str) -> os.statvfs_result:
        if path not in self._volumes:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        found: os.statvfs_result = self._volumes[path]
        return found


class FakeHost(Host):
    """`names` maps host names to addresses, to an exception, or to seconds after which the loopback address comes;
    `taken` holds the addresses on which every port is in use."""

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
    ) -> None:
        super().__init__(job or Job(nproc=1), environ=environ or {}, wanted=wanted)
        self.root = FakeRoot(str(root), volumes or {})
        self.limit = file_limit
        self.names = {"node-a": ("127.0.0.1",), **(names or {})}
        self.taken = taken or {}
        self.snapshot = snapshot
        self.clock = 0.0

    def file_limit(self) -> tuple[int, int]:
        return self.limit

    def set_file_limit(self, soft: int) -> None:
        self.limit = (soft, self.limit[1])

    def monotonic(self) -> float:
        return self.clock

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
        f_frsize=1, f_blocks=total, f_bavail=free, f_files=inodes, f_favail=free_inodes, f_ffree=free_inodes
    )


def gpus(count: int, **changes: Gpu) -> Snapshot:
    """A healthy node; `g3=Gpu(...)` replaces GPU 3."""
    healthy = [Gpu(i, f"GPU-{i:08d}", "H100", 80 * GIB, GIB // 2) for i in range(count)]
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
