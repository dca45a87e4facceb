"""Runs in: the fork server, and in what is forked from it.

The fork server is a Python with the ranks' own command line (`python -u train.py ...`) and their environment, which
stays in `sitecustomize`: it imports torch, forks the agent, and then a rank whenever the agent asks for one. A rank
returns from here, so that Python itself goes on to run the script: `__main__`, `sys.argv`, the frames below the script
and the end of the interpreter are those of a cold start, because the same code makes them.

Messages are JSON behind their length (u32); those that ask for a rank name the standard streams that it is to have,
and bring them (SCM_RIGHTS).
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from safelaunch.worker import bootstrap, deferred, ending, heap, import_log, preload, process_image
from safelaunch.worker.cold_rank import Beginning
from safelaunch.worker.import_conditions import Forked
from safelaunch.worker.import_log import Import

PR_SET_PDEATHSIG = 1  # prctl(2)
TITLE = ["safelaunch: fork server"]
LENGTH = struct.Struct("<I")
HELD_MS = 100  # as long as torch elastic takes between two looks
STREAMS = ("stdin", "stdout", "stderr")
ADOPTION_S = 5.0  # in which the supervisor becomes the parent of a process whose own has ended: microseconds

# What torch elastic sets for each rank, and what only CUDA's driver reads. Another difference between the environment
# of a rank and that in which torch was imported may have been read by the import.
OF_A_RANK = {
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
PREFIXES = ("TORCHELASTIC_", "SAFELAUNCH_")
TO_RANKS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

Message = Dict[str, Any]


def serve(
    path: str, before: FrozenSet[str], imports: List[Import]
) -> Tuple[Optional[Callable[[], None]], Optional[Callable[[], None]]]:
    """Be the fork server. Returns in each rank, with its environment and its streams in place: what arms it, as the
    last thing before the script. And in the agent: what to call when Python has finished its start.

    Args:
        path: of the JSON file that `launch.tree` has written.
        before: the names of the modules that Python had loaded by itself.
        imports: the log of this process.
    """
    try:
        server = _Server(path, before, imports)
        request = server.run()
        if request is None:
            return server.agent(), None
        environ = _become_rank(request)
    except KeyboardInterrupt:  # its status is to say so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(70)
    except BaseException as error:  # nothing but a rank may go on to run the script
        os.write(2, b"safelaunch: the fork server failed: %s\n" % repr(error).encode())
        os._exit(70)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])
    return None, lambda: server.begin(environ, request["mask"])


class _Server:
    def __init__(self, path: str, before: FrozenSet[str], imports: List[Import]) -> None:
        with open(path) as file:
            self._plan = json.load(file)
        self._before = before
        self._imports = imports
        self._recorder = import_log.Recorder()
        self._channel = socket.socket(fileno=self._plan["channel"])
        self._environ = dict(os.environ, PYTHONPATH=self._plan["pythonpath"])
        self._arguments = process_image.arguments()
        self._received = b""
        self._descriptors: List[int] = []
        self._ranks: Dict[int, int] = {}  # pidfd -> pid
        self._held: Set[int] = set()  # pids of ranks that have ended, and that only their tracer may see so far
        self._poll = select.poll()

    def run(self) -> Optional[Message]:
        """Import, fork the agent, and serve it. Returns in each rank: the request for it; and in the agent: None."""
        _die_with(self._plan["supervisor"])
        process_image.show(TITLE)
        bootstrap.prepare()
        try:
            preload.possible()
            ours = frozenset(sys.modules)
            with self._recorder:
                names = preload.load(["torch", *self._plan["preload"]])
            preload.check(self._plan["beside"], names)
        except preload.Cold as reason:
            self._tell_supervisor("cold", reason=str(reason))
            os._exit(0)
        # Before the first fork: later each page that is touched would be copied.
        self._needs = import_log.needs(self._imports)
        del self._imports[:]
        self._recorder.take_back()
        ending.prepare(self._plan["preload"])
        self._fillers = heap.fill()  # what the ranks are to write into lies side by side
        self._deferred = deferred.Deferred(self._before, self._needs, ours)
        self._deferred.hide()
        self._fillers += heap.fill()  # and what they make themselves comes behind all that they share
        gc.freeze()
        if self._fork_agent():
            self._deferred.bring_back()
            return None
        # What sends these to every process of a job means the ranks. Blocked, and not ignored: no rank inherits that.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, TO_RANKS)
        self._poll.register(self._channel, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll(HELD_MS if self._held else None):
                if descriptor in self._ranks:
                    self._held.add(self._forget(descriptor))
                    continue
                for request in self._requests():
                    rank = self._serve(request)
                    if rank is not None:
                        return rank
            self._held.difference_update([pid for pid in self._held if self._tell_end(pid)])

    def begin(self, environ: Dict[str, str], mask: Set[Any]) -> None:
        """Arm a rank, and have it find what was imported here only where its script imports it."""
        bootstrap.arm()
        ending.begin(self._deferred.let_go)
        beginning = Beginning(environ, mask)
        self._deferred.begin(Forked(self._needs, self._recorder, bool(self._plan["preload"]), beginning))

    # ------------------------------------------------------------------------------------------- requests

    def _requests(self) -> Iterator[Message]:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, 1 << 16, 64)
        except OSError:
            data, descriptors = b"", []
        if not data:
            os._exit(0)  # the agent is gone, and its ranks go with us
        self._received += data
        self._descriptors += descriptors
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            message, self._received = self._received[LENGTH.size : end], self._received[end:]
            yield json.loads(message)

    def _serve(self, request: Message) -> Optional[Message]:
        if "reap" in request:
            _, _, usage = os.wait4(request["reap"], 0)
            self._answer(reaped=request["reap"], cpu_s=usage.ru_utime + usage.ru_stime, max_rss=usage.ru_maxrss << 10)
            return None
        count = len(request["streams"])
        streams, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        reason = self._differs(request)
        if reason:
            self._answer(cold=reason)
        else:
            try:
                pid, descriptor, mask = self._fork()
            except OSError as error:
                self._answer(cold="it cannot be forked: %s" % error)
            else:
                if pid == 0:
                    self._channel.close()
                    for other in self._ranks:
                        os.close(other)
                    return dict(
                        request, brought=streams, closed=self._closed(request), arguments=self._arguments, mask=mask
                    )
                self._ranks[descriptor] = pid
                self._poll.register(descriptor, select.POLLIN)
                self._answer(started=pid)
        for stream in streams:
            os.close(stream)
        return None

    def _fork(self) -> Tuple[int, int, Set[Any]]:
        """Fork a rank, which has a session of its own when this returns, as one has that `subprocess` started: its pid,
        0 in the rank; a descriptor for it; and the mask of signals to set when it is a rank indeed: until then they
        wait.

        Raises:
            OSError: there is no room for a process, or for a descriptor.
        """
        reader, writer = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = -1
        try:
            pid = os.fork()
            if pid == 0:
                os.setsid()
                return 0, -1, self._mask
            os.close(writer)
            os.read(reader, 1)  # the end: the rank has come out of this function, or has died
            return pid, os.pidfd_open(pid), mask
        except OSError:
            if pid > 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        finally:
            os.close(reader)
            if pid <= 0:
                os.close(writer)
            if pid != 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _differs(self, request: Message) -> str:
        """Why the rank would not be what a cold start makes; empty where it would."""
        if request["command"] != sys.orig_argv:
            return "its command line is %s" % " ".join(request["command"])
        wanted = request["environ"]
        for name in sorted({*wanted, *self._environ}):
            own = name in OF_A_RANK or name.startswith(PREFIXES)
            if not own and wanted.get(name) != self._environ.get(name):
                return "torch was imported with another value of %s" % name
        return ""

    def _closed(self, request: Message) -> List[int]:
        """The standard streams that the rank is not to have."""
        return [number for number in self._plan["closed"] if number not in request["streams"]]

    def _forget(self, descriptor: int) -> int:
        """Wait no longer for a rank that has ended; returns its pid."""
        self._poll.unregister(descriptor)
        os.close(descriptor)
        return self._ranks.pop(descriptor)

    def _tell_end(self, pid: int) -> bool:
        """Tell how a rank has ended, if that may be known: a debugger keeps it from us until it lets go (ptrace(2))."""
        # The zombie stays: until torch elastic has seen it, its pid and its process group are still valid.
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if status is None:
            return False
        code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        self._answer(exit=pid, code=code, t=time.monotonic())
        return True

    def _answer(self, **message: Any) -> None:
        data = json.dumps(message).encode()
        try:
            self._channel.sendall(LENGTH.pack(len(data)) + data)
        except OSError:
            os._exit(0)

    def _tell_supervisor(self, event: str, **fields: Any) -> None:
        os.write(self._plan["events"], json.dumps(dict(fields, event=event)).encode() + b"\n")

    # ---------------------------------------------------------------------------------------------- agent

    def _fork_agent(self) -> bool:
        """Fork the agent, as a child of the supervisor: it is the one who reaps it. Returns whether this is it."""
        pid = os.fork()
        if pid == 0:
            if os.fork() != 0:
                os._exit(0)  # an orphan goes to the supervisor, which is a subreaper
            os.setsid()
            return True
        os.waitpid(pid, 0)
        for name in ("events", "commands", "agent_channel"):
            os.close(self._plan[name])
        return False

    def agent(self) -> Callable[[], None]:
        """Become the agent; returns its program."""
        plan = self._plan
        deadline = time.monotonic() + ADOPTION_S
        while os.getppid() != plan["supervisor"] and time.monotonic() < deadline:
            time.sleep(0.0005)
        _die_with(plan["supervisor"])
        self._channel.close()
        _set_environ(plan["environ"])
        process_image.show(plan["command"], plan["environ"])
        sys.argv = ["safelaunch.agent"]
        sys.path.append(plan["root"])
        # Python has not finished importing these: a thread of the agent that imports them too would wait for ever.
        for name in ("site", "sitecustomize"):
            sys.modules[name].__spec__._initializing = False  # type: ignore[union-attr]
        self._tell_supervisor("agent", pid=os.getpid())

        # What it becomes is for the one to say who starts it: nothing of the agent is known here.
        run = importlib.import_module(plan["program"]).run
        return lambda: run(plan["plan_file"], plan["events"], plan["commands"], plan["agent_channel"])


def _become_rank(request: Message) -> Dict[str, str]:
    """Take the streams, the environment and the signals of a rank; returns its environment as it would have been
    executed with."""
    server = os.getppid()
    _die_with(server)
    for number, descriptor in enumerate(request["brought"]):
        os.dup2(descriptor, request["streams"][number])
    for descriptor in request["brought"]:
        if descriptor > 2:
            os.close(descriptor)
    for number in request["closed"]:
        os.close(number)
        name = STREAMS[number]
        setattr(sys, name, None)
        setattr(sys, "__%s__" % name, None)
    environ = dict(request["environ"], SAFELAUNCH_AGENT=str(server))
    _set_environ(environ)
    _take_signals_back()
    process_image.show(environ=environ, at=request["arguments"])
    main = threading.main_thread()
    if hasattr(main, "_set_native_id"):  # Python 3.11 and before keep the number of the process that it came from
        main._set_native_id()
    return environ


def _take_signals_back() -> None:
    """What the launcher was started to ignore (`nohup`), the agent catches, and a rank that it executes does not ignore
    (torch.distributed.elastic.multiprocessing.api, `start`)."""
    names = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT").split(",")
    for name in names:
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals) and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _set_environ(environ: Dict[str, str]) -> None:
    """Have this environment. What is the same stays where it lies in memory: `setproctitle` looks there for the command
    line."""
    for name in [name for name in os.environ if name not in environ]:
        del os.environ[name]
    for name, value in environ.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
