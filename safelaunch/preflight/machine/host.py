"""The only door from a check to the machine.

A check asks a Host and nothing else, so that a test can hand in another machine: a root directory with files of its
own, and a subclass for what is not a file.
"""

from __future__ import annotations

import copy
import errno
import math
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safelaunch import procfs
from safelaunch.deadline import within
from safelaunch.model import Job, Topology
from safelaunch.preflight.machine import driver_files, kernel_log, nvml, processes, sockets, topology
from safelaunch.preflight.machine.child import REAP_S, Children, Ended
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.machine.processes import Process
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.machine.storage import Storage, Volume
from safelaunch.thresholds import THRESHOLDS

# How long the health check of NVIDIA/nvidia-resiliency-ext (shared_utils/health_check.py) waits for a directory.
STORAGE_DEADLINE_S = 15.0

# The kernel module writes these files itself: one that is stuck does not come back. Healthy ones take microseconds.
DRIVER_FILES_DEADLINE_S = 1.0

# The first pid namespace has a fixed number: PROC_PID_INIT_INO of include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = "pid:[4026531836]"

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """What a profile asks of a node beyond our own estimates: a number of open files, sizes in bytes, and values that
    replace those of `thresholds.THRESHOLDS`. `bad_nodes` is the path of a list of nodes that are not to be used."""

    nofile: int | None = None
    free_disk: int | None = None
    shm: int | None = None
    bad_nodes: str = ""
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


@dataclass(frozen=True)
class Dialed:
    """What came of a TCP connection: the address that it came from, where it is known, and an errno, 0 for success."""

    source: str
    errno: int = 0


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
        self.until = math.inf  # on the monotonic clock, when the preflight is to be over
        self._children = Children()
        self._storage = Storage()
        self._of_machine, self._shared = Shared(), Shared()

    def for_job(self, job: Job) -> Host:
        """The same machine, and what is known of it already, for another job."""
        other = copy.copy(self)
        other.job = job
        other._shared = Shared()
        return other

    def reopened(self, reap_s: float = REAP_S) -> Host:
        """The same machine and job, and what is known of them, that can run children again after `end_children`.
        `reap_s` is how long a child that was killed is waited for."""
        other = copy.copy(self)
        other._children = Children(reap_s)
        return other

    def once(self, key: str, function: Callable[[], T]) -> T:
        """The answer of a call that several checks judge: made by the one that asks first, the others wait for it."""
        return self._shared.get(key, function)

    def known(self, key: str) -> object:
        """What `once` has found out already; None where nothing is known."""
        return self._shared.known(key)

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

    def memlock_limit(self) -> tuple[int, int]:
        """Soft and hard limit of memory that this process may lock, in bytes; as `file_limit` otherwise."""
        soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        return _finite(soft), _finite(hard)

    def process_limit(self) -> int:
        """How many processes and threads this user may have (RLIMIT_NPROC, the soft limit)."""
        return _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])

    def capable(self, capability: int) -> bool:
        """Whether this process has a capability (a number of capabilities(7)), with which the limits end."""
        try:
            status = self.root.read("/proc/self/status")
        except OSError:
            return False
        effective = next((line.split()[1] for line in procfs.lines(status) if line.startswith("CapEff:")), "0")
        return bool(int(effective, 16) >> capability & 1)

    def cpu_count(self) -> int:
        """The CPUs this process may run on, as `--nproc-per-node cpu` counts them."""
        return len(os.sched_getaffinity(0))

    def affinity(self) -> frozenset[int]:
        """The numbers of the CPUs that this process, and so its ranks, may run on."""
        return frozenset(os.sched_getaffinity(0))

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # ------------------------------------------------------------------------------------------- storage

    def working_directory(self) -> str:
        """Where the job starts; empty where that directory is gone."""
        try:
            return os.getcwd()
        except OSError:
            return ""

    def volume(self, path: str, *, write: bool = False) -> Volume:
        """The file system below an absolute path; one of the network is asked in a child, with a deadline."""
        # A child that cannot be killed takes a moment more, and who asks wants to say so before all time is up.
        left = self.until - time.monotonic() - 2 * REAP_S
        deadline_s = max(1.0, min(STORAGE_DEADLINE_S, left))
        return self._storage.look(self.root, self.run, path, write=write, deadline_s=deadline_s)

    # ------------------------------------------------------------------------------------------- network

    def name(self) -> str:
        return socket.gethostname()

    def resolve(self, name: str, deadline_s: float) -> tuple[Address, ...]:
        """The addresses of a name, as every rank would find them.

        Raises TimeoutError at the deadline, and socket.gaierror when the resolver says no.
        """
        found = within(deadline_s, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        return tuple(Address(int(family), str(address[0])) for family, _, _, _, address in found)

    def canonical_name(self, deadline_s: float) -> str:
        """`socket.getfqdn()`, which looks the own address up in reverse. Raises TimeoutError at the deadline."""
        return within(deadline_s, socket.getfqdn)

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

    def dial(self, address: Address, port: int, deadline_s: float) -> Dialed:
        """Connect to a TCP port, and say what came of it."""
        with socket.socket(address.family, socket.SOCK_STREAM) as line:
            line.settimeout(deadline_s)
            try:
                line.connect((address.ip, port))
                return Dialed(str(line.getsockname()[0]))
            except TimeoutError:
                return Dialed(_source(address, port), errno.ETIMEDOUT)
            except OSError as error:
                return Dialed(_source(address, port), error.errno or errno.EIO)

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

    def _ask_nvml(self) -> nvml.Snapshot:
        left = self.until - time.monotonic() - REAP_S
        deadline_s = round(max(1.0, min(self.threshold("nvml_deadline"), left)), 1)
        try:
            return nvml.from_probe(self.run_probe("machine/nvml_probe", deadline_s=deadline_s), deadline_s)
        except OSError as error:
            return nvml.Snapshot(unknown=f"the NVML probe did not start: {error}")

    def nvml(self) -> nvml.Snapshot:
        """What NVML says; asked once, in a child, whoever asks first."""
        return self._of_machine.get("nvml", self._ask_nvml)

    def nvml_known(self) -> Snapshot | None:
        """What NVML has said already; None where nobody has asked it."""
        found = self._of_machine.known("nvml")
        return found if isinstance(found, Snapshot) else None

    def driver_gpus(self) -> dict[str, str]:
        """PCI address and UUID of the GPUs that the kernel module knows, also of those it has lost; empty when it does
        not say in time."""
        try:
            return within(DRIVER_FILES_DEADLINE_S, lambda: driver_files.gpus(self.root))
        except (OSError, TimeoutError):
            return {}

    def topology(self) -> Topology | None:
        """How GPUs and network cards are connected; None without GPUs."""
        return topology.topology(self.root, self.nvml())

    def kernel_log(self) -> kernel_log.Log:
        """What the kernel has logged since boot, as far as it may be read."""
        return kernel_log.read(self.root, self.run)


def _source(address: Address, port: int) -> str:
    """The own address from which another one would be reached; empty where there is no way to it."""
    try:
        with socket.socket(address.family, socket.SOCK_DGRAM) as line:
            line.connect((address.ip, port))  # sends nothing
            return str(line.getsockname()[0])
    except OSError:
        return ""


class Shared:
    """Answers by their keys, each found out once, whatever the number of threads that ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._answers: dict[str, Any] = {}

    def get(self, key: str, function: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._answers:
                self._answers[key] = function()
            answer: T = self._answers[key]
            return answer

    def known(self, key: str) -> object:
        return self._answers.get(key)


def _finite(limit: int) -> int:
    return limit if limit != resource.RLIM_INFINITY else 2**63 - 1
