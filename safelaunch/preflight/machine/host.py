"""The only door from a check to the machine.

A check asks a Host and nothing else, so that a test can hand in another machine: a root directory with files of its
own, and a subclass for what is not a file.
"""

from __future__ import annotations

import copy
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from safelaunch.model import Job
from safelaunch.preflight.machine import nvml, processes, sockets
from safelaunch.preflight.machine.child import Children, Ended
from safelaunch.preflight.machine.processes import Process
from safelaunch.preflight.machine.root import Root
from safelaunch.thresholds import THRESHOLDS

# Healthy drivers answer within 0.1 s, and within seconds where persistence mode is off; one that takes longer than
# this blocks the job as well. NVIDIA/DCGM#313 saw calls of over 45 s.
NVML_DEADLINE_S = 10.0

# The first pid namespace has a fixed number: PROC_PID_INIT_INO of include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = "pid:[4026531836]"

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """What a profile asks of a node beyond our own estimates: a number of open files, sizes in bytes, and values that
    replace those of `thresholds.THRESHOLDS`."""

    nofile: int | None = None
    free_disk: int | None = None
    shm: int | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Address:
    """One address that a name resolves to."""

    family: int
    ip: str

    def __str__(self) -> str:
        return self.ip

    @property
    def is_loopback(self) -> bool:
        return self.ip.startswith("127.") or self.ip == "::1"


class Host:
    """This machine, and the job that is to run on it. All its methods may be called from several threads."""

    def __init__(
        self, job: Job, *, environ: Mapping[str, str] | None = None, wanted: Wanted | None = None, root: str = "/"
    ) -> None:
        self.job = job
        self.environ = dict(os.environ if environ is None else environ)
        self.wanted = wanted or Wanted()
        self.root = Root(root)
        self.uid = os.getuid()
        self._children = Children()
        self._nvml_lock = threading.Lock()
        self._nvml: dict[str, nvml.Snapshot] = {}

    def for_job(self, job: Job) -> Host:
        """The same machine, and what is known of it already, for another job."""
        other = copy.copy(self)
        other.job = job
        return other

    def threshold(self, name: str) -> float:
        """A number of `thresholds.THRESHOLDS`, or what the profile says instead."""
        return self.wanted.thresholds.get(name, THRESHOLDS[name].value)

    # ----------------------------------------------------------------------------------------- resources

    def file_limit(self) -> tuple[int, int]:
        """Soft and hard limit of open files of this process; RLIM_INFINITY is given as the largest integer."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _finite(soft), _finite(hard)

    def set_file_limit(self, soft: int) -> None:
        """Set the soft limit; children started from now on inherit it. Raises OSError or ValueError."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def cpu_count(self) -> int:
        """The CPUs this process may run on, as `--nproc-per-node cpu` counts them."""
        return len(os.sched_getaffinity(0))

    def monotonic(self) -> float:
        return time.monotonic()

    # ------------------------------------------------------------------------------------------- network

    def name(self) -> str:
        return socket.gethostname()

    def resolve(self, name: str, deadline_s: float) -> tuple[Address, ...]:
        """The addresses of a name, as every rank would find them.

        Raises TimeoutError at the deadline, and socket.gaierror when the resolver says no.
        """
        found = _within(deadline_s, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        return tuple(Address(int(family), str(address[0])) for family, _, _, _, address in found)

    def canonical_name(self, deadline_s: float) -> str:
        """`socket.getfqdn()`, which looks the own address up in reverse. Raises TimeoutError at the deadline."""
        return _within(deadline_s, socket.getfqdn)

    def bind(self, family: int, ip: str, port: int) -> None:
        """Bind a TCP socket as torch's store does and close it again. Raises OSError when that fails."""
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((ip, port))

    def has_address(self, address: Address) -> bool:
        """Whether an address is one of this machine: only those can be bound."""
        try:
            self.bind(address.family, address.ip, 0)
        except OSError:
            return False
        return True

    def port_holders(self, port: int) -> tuple[sockets.Holder, ...]:
        return sockets.holders(self.root, port)

    # ----------------------------------------------------------------------------------------- processes

    def pids(self) -> list[int]:
        return processes.pids(self.root)

    def process(self, pid: int) -> Process | None:
        """The process, or None when it is gone or in another pid namespace."""
        return processes.read(self.root, pid)

    def pid_namespace(self, pid: int | str = "self") -> str:
        """The namespace in which a process has its pid; empty where that may not be read."""
        try:
            return self.root.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            return ""

    def gpu_process(self, pid: int) -> Process | None:
        """The process that NVML knows by this pid. NVML numbers processes as the host does: in a container the same
        number means another process, or none, and the answer is None."""
        return self.process(pid) if self.pid_namespace() == FIRST_PID_NAMESPACE else None

    def process_environ(self, pid: int) -> dict[str, str]:
        """The environment a process was started with; empty where it may not be read."""
        return processes.environ(self.root, pid)

    def run(self, argv: Sequence[str], deadline_s: float, environ: Mapping[str, str] | None = None) -> Ended:
        """Run a command with a deadline; see `Children.run`. `environ` is added to the host's own."""
        return self._children.run(argv, deadline_s, {**self.environ, **(environ or {})})

    def run_probe(self, name: str, *arguments: str, deadline_s: float, **environ: str) -> Ended:
        """Run one of our probes by its file (`machine/nvml_probe`): as a module it would import the whole package.

        From Python 3.11 on, what is beside the file and in the working directory stays off its path: a user's
        `json.py` must not become its own.
        """
        program = Path(__file__).parents[1] / f"{name}.py"
        return self.run([sys.executable, str(program), *arguments], deadline_s, {"PYTHONSAFEPATH": "1", **environ})

    def end_children(self) -> None:
        """Kill what still runs. After it, nothing can be run through this host."""
        self._children.end()

    # ----------------------------------------------------------------------------------------------- GPU

    def nvml(self) -> nvml.Snapshot:
        """What NVML says; asked once, in a child, whoever asks first."""
        with self._nvml_lock:
            if "snapshot" not in self._nvml:
                try:
                    ended = self.run_probe("machine/nvml_probe", deadline_s=NVML_DEADLINE_S)
                    self._nvml["snapshot"] = nvml.from_probe(ended)
                except OSError as error:
                    self._nvml["snapshot"] = nvml.Snapshot(unknown=f"the NVML probe did not start: {error}")
            return self._nvml["snapshot"]


def _finite(limit: int) -> int:
    return limit if limit != resource.RLIM_INFINITY else 2**63 - 1


def _within(deadline_s: float, call: Callable[[], T]) -> T:
    """The result of a call that cannot be interrupted, or TimeoutError; the call then goes on in its thread."""
    outcome: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="preflight-resolve", daemon=True)
    thread.start()
    thread.join(deadline_s)
    if errors:
        raise errors[0]
    if not outcome:
        raise TimeoutError(f"no answer within {deadline_s:g} s")
    return outcome[0]
