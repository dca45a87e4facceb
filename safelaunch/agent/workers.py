"""Runs in: agent. How torch elastic starts and polls workers when safelaunch watches them.

Torch elastic ends all peers within 0.1 s of a death, and with them all evidence. So `poll()` of a worker that
failed says "still running" until the supervisor opens the gate, for all workers of the group at once.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from safelaunch import black_box, injection, procfs
from safelaunch.agent.channel import Channel
from safelaunch.agent.forked import ForkedRank, ForkServer

GATE_LIMIT_S = 5.0  # a supervisor that is stopped or gone must not keep a failed group alive for longer


class Gate:
    """Closed until the supervisor has its evidence; one for each start of the worker group."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._limit: float | None = None

    def open(self) -> None:
        """Let failures through."""
        self._open.set()

    def hold(self) -> None:
        """Stay closed without a limit: the supervisor ends the workers itself."""
        self._limit = math.inf

    def holds(self) -> bool:
        """Whether a failure must still be hidden. Asking starts the clock of `GATE_LIMIT_S`."""
        if self._limit is None:
            self._limit = time.monotonic() + GATE_LIMIT_S
        return not self._open.is_set() and time.monotonic() < self._limit


class Worker(subprocess.Popen):  # type: ignore[type-arg]
    """A worker process whose failure shows only once the gate is open.

    The exit is noticed by a thread that leaves the zombie in place (WNOWAIT): until `poll` reaps it in elastic's
    own thread, its pid and its process group stay valid for elastic's killpg.
    """

    def __init__(self, *args: Any, gate: Gate, post: Callable[..., None], **kwargs: Any) -> None:
        self._gate = gate
        self._post = post
        self.exited = threading.Event()
        super().__init__(*args, **kwargs)

    def watch(self) -> None:
        """From here on the end is told."""
        threading.Thread(target=self._watch, name=f"safelaunch-wait-{self.pid}", daemon=True).start()

    def poll(self) -> int | None:
        # Not before the watcher has seen the exit: reaping it here would lose the event, and pass the gate.
        if self.returncode is None and (not self.exited.is_set() or (self.exit_code != 0 and self._gate.holds())):
            return None
        is_new = self.returncode is None
        code = super().poll()
        if is_new and code is not None:
            self._post("reaped", pid=self.pid, code=code)
        return code

    def _watch(self) -> None:
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            status = None  # elastic's wait() was first; it is about to store the code
        if status is None:
            while (code := self.returncode) is None:
                time.sleep(0.001)
            self.exit_code = code
        else:
            self.exit_code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        self.exited.set()
        self._post("exit", pid=self.pid, code=self.exit_code, t=time.monotonic())


class WorkerGroups:
    """Makes the subprocess handlers that torch elastic asks for, and knows which group each belongs to.

    Args:
        channel: to the supervisor.
        marks: variables that mark every process of the run and tell a worker where to write.
        run_dir: the run directory of this node.
        scratch_dir: of the run, in memory where possible.
        streams: descriptors of the user's own `stdout` and `stderr`, None for one that is closed; the agent's point to
            its log.
        unset: variables that no worker is to have, not even those that torch elastic sets (OMP_NUM_THREADS).
        fork_server: which forks them, None for a cold start.
    """

    def __init__(
        self,
        channel: Channel,
        marks: Mapping[str, str],
        run_dir: str,
        scratch_dir: str,
        streams: Mapping[str, int | None],
        unset: Collection[str] = (),
        fork_server: ForkServer | None = None,
    ) -> None:
        self._channel = channel
        self._marks = dict(marks)
        self._run_dir = run_dir
        self._scratch_dir = scratch_dir
        self._unset = unset
        self._fork_server = fork_server
        self.streams = streams
        self._gate, self._stopping = Gate(), False
        self._pids: dict[int, int] = {}  # of the group, by slot
        # A pipe, as torch's signal handlers raise: in the wait for a lock that might leave it taken for ever.
        self._changed, self._change = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        channel.on_command("release", self._release)
        channel.on_command("hold", lambda: self._gate.hold())

    def sleep(self, seconds: float) -> None:
        """Stands in for `time.sleep` between two looks of torch elastic at its workers: ends when one has ended, or may
        be seen to have failed."""
        poll = select.poll()
        poll.register(self._changed, select.POLLIN)
        if poll.poll(max(0.0, seconds) * 1000):
            os.read(self._changed, 1 << 16)

    def handler(self, *args: Any, **kwargs: Any) -> SubprocessHandler:
        """Stands in for torch's `get_subprocess_handler`."""
        return _Handler(self, *args, **kwargs)

    def start(self, command: tuple[str, ...], env: dict[str, str], slot: int, **streams: Any) -> Worker | ForkedRank:
        """Start one worker. Local rank 0 is started first and opens a new group."""
        attempt = int(env.get("TORCHELASTIC_RESTART_COUNT", "0"))
        if slot == 0:
            self._gate, self._stopping = Gate(), False
            world_size, local_world_size = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
            self._channel.post("group", attempt=attempt, world_size=world_size, local_world_size=local_world_size)
        rank = int(env["RANK"])
        rank_dir = self._make_rank_dir(os.path.join(f"attempt_{attempt}", f"rank_{rank:03d}"))
        env = {name: value for name, value in env.items() if name not in self._unset}
        env |= {**self._marks, "SAFELAUNCH_RANK_DIR": rank_dir, "SAFELAUNCH_SLOT": str(slot)}
        env["SAFELAUNCH_AGENT"] = str(os.getpid())
        env["PYTHONPATH"] = injection.pythonpath(env.get("PYTHONPATH"))
        worker = self._fork(command, env, streams) or Worker(
            command, env=env, start_new_session=True, gate=self._gate, post=self._ended, **streams
        )
        process = procfs.read(worker.pid)
        self._channel.post(
            "worker",
            local_rank=slot,
            rank=rank,
            pid=worker.pid,
            start=process.start if process else 0,
            rank_dir=rank_dir,
            black_box=self._marks.get("SAFELAUNCH_BLACK_BOX", ""),
            logs=[s.name for s in (streams["stderr"], streams["stdout"]) if hasattr(s, "name")],
        )
        worker.watch()
        self._pids[slot] = worker.pid
        return worker

    def ending(self, slot: int, signum: int) -> int:
        """The signal that ends a rank as this one would, which a rank that calls `should_stop()` only notes."""
        path = self._marks.get("SAFELAUNCH_BLACK_BOX", "")
        return black_box.ending(path, slot, self._pids.get(slot, 0), signum)

    def note(self, signum: int) -> bool:
        """Whether ranks only note a signal: they stop at a step, and the supervisor sees to their end."""
        return any(self.ending(slot, signum) != signum for slot, pid in self._pids.items() if procfs.read(pid))

    def _make_rank_dir(self, name: str) -> str:
        """The folder of a rank, which lies with the slots where the run directory takes no more."""
        path = os.path.join(self._run_dir, name)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError:
            path = os.path.join(self._scratch_dir, name)
            os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def _fork(self, command: tuple[str, ...], env: dict[str, str], streams: Mapping[str, Any]) -> ForkedRank | None:
        """A rank of the fork server, or None where it has to be started cold: that is told once."""
        if self._fork_server is None:
            return None
        numbers = {1: streams["stdout"], 2: streams["stderr"]}
        descriptors = {n: s.fileno() if hasattr(s, "fileno") else s for n, s in numbers.items() if s is not None}
        found = self._fork_server.start(command, env, descriptors)
        if isinstance(found, int):
            return ForkedRank(found, command, self._fork_server, self._gate.holds, self._ended)
        self._fork_server = None
        self._channel.post("cold", reason=found)
        return None

    def _ended(self, event: str, **fields: Any) -> None:
        self._channel.post(event, **fields)
        self._wake()

    def tell_stopping(self) -> None:
        """Tell that torch elastic ends the workers of this group, before the first of them gets a signal: from then on
        their exits say nothing of them."""
        if not self._stopping:
            self._stopping = True
            self._channel.post("stopping")

    def _release(self) -> None:
        self._gate.open()
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._change, b"\n")
        except BlockingIOError:
            pass  # it is full: it will wake up


class _Handler(SubprocessHandler):  # type: ignore[misc]
    """Torch's handler with our process behind it. `_popen` is the one seam that all of torch 2.8 to 2.13 have."""

    def __init__(self, groups: WorkerGroups, *args: Any, **kwargs: Any) -> None:
        self._groups = groups
        self._slot = kwargs["local_rank_id"]
        super().__init__(*args, **kwargs)

    def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Worker | ForkedRank:
        # A script on a closed pipe must see the same as under torchrun: only descriptors 0 to 2 are passed on.
        return self._groups.start(
            args,
            env,
            self._slot,
            stdout=self._stdout or self._groups.streams["stdout"],
            stderr=self._stderr or self._groups.streams["stderr"],
        )

    def close(self, death_sig: Any = None) -> None:
        self._groups.tell_stopping()
        try:
            super().close(death_sig and signal.Signals(self._groups.ending(self._slot, death_sig)))
        except ProcessLookupError:
            os.write(2, b"process group of %d had ended\n" % self.proc.pid)  # agent.log
