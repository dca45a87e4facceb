"""The processes of a run: agent and guard below the supervisor, and everything below them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safelaunch import black_box, files, injection, procfs, streams
from safelaunch.codec import to_json
from safelaunch.launch.guard import Guard
from safelaunch.launch.signals import Signals
from safelaunch.model import FORK_SERVER, Exit, LaunchPlan, WarmStart, WorkerGroup, WorkerProcess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# As a program of its own, and not by -m: what lies in the working directory is for the script, and is not to come
# before the modules that torch imports here.
PROGRAM = "safelaunch.agent.program"
AGENT = f"import sys; sys.path[:1] = []; sys.path.append({ROOT!r}); import {PROGRAM} as it; it.start()"

ONE_LINE = 1000  # characters: what is written at once must fit a pipe (PIPE_BUF is 4096)
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
WITH_FORK_SERVER_S = 1.0  # in which its ranks end when it does: microseconds, on a busy machine more
KILL_WAIT_S = 2.0  # after SIGKILL only a process in the kernel's uninterruptible sleep is still there


class Tree:
    """Starts, signals and ends the processes of one run. Lives in the supervisor's main thread.

    The supervisor is a subreaper: orphans of the run become its children, so that none can hide.

    Args:
        plan: of the run.
        signals: as they were when safelaunch was started; the processes get them back.
        environ: what agent and ranks are started with.
    """

    def __init__(self, plan: LaunchPlan, signals: Signals, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._signals = signals
        self._environ = {**environ, "SAFELAUNCH_RUN_TOKEN": plan.token}
        self._sessions: set[int] = set()
        self._left_alone: set[int] = set()
        self._before = {process.pid for process in procfs.descendants(os.getpid(), procfs.scan())}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
        self.guard = Guard(plan.token, plan.scratch_dir)
        self.agent: procfs.Process | None = None
        self.agent_exit: Exit | None = None
        self.fork_server: procfs.Process | None = None
        self.fork_server_exit: Exit | None = None
        self.events = -1
        self._commands = -1

    def marks(self, black_box: str | None) -> dict[str, str]:
        """Variables that every worker gets beside its profile's."""
        own = procfs.read(os.getpid())
        marks = {
            "SAFELAUNCH_RUN_TOKEN": self._plan.token,
            "SAFELAUNCH_SUPERVISOR": f"{os.getpid()}:{own.start if own else 0}",
        }
        if black_box:
            marks["SAFELAUNCH_BLACK_BOX"] = black_box
        if self._plan.process_group_timeout is not None:
            marks["SAFELAUNCH_PG_TIMEOUT"] = str(self._plan.process_group_timeout)
        if self._plan.loader_timeout is not None:
            marks["SAFELAUNCH_LOADER_TIMEOUT"] = str(self._plan.loader_timeout)
        if self._plan.bind_device:
            marks["SAFELAUNCH_BIND_DEVICE"] = "1"
        if self._signals.ignored_children:
            marks["SAFELAUNCH_IGNORE_SIGCHLD"] = "1"
        return marks

    def start(self, black_box: str | None) -> None:
        """Start the agent at once, or the fork server that it comes from: torch is imported while the node is checked.
        The agent waits for `go`."""
        self._plan_file = os.path.join(self._plan.scratch_dir, "plan.json")
        self._marks = self.marks(black_box)
        agent_log = os.path.join(self._plan.run_dir, "agent.log")
        document = {"plan": to_json(self._plan), "marks": self._marks, "agent_log": agent_log}
        files.write_json(self._plan_file, {**document, "closed": streams.closed()})
        self.events, self._to_us = os.pipe()
        os.set_blocking(self.events, False)
        self._from_us, self._commands = os.pipe()
        if self._plan.warm is not None:
            self._start_fork_server(self._plan.warm)
        else:
            self.start_agent()

    def start_agent(self) -> None:
        """Start the agent by itself."""
        self.agent_is(self._popen(self._agent_command(), self._environ, self._for_agent()))

    def _popen(self, command: Sequence[str], environ: dict[str, str], descriptors: tuple[int, ...]) -> int:
        with self._signals.as_inherited():
            process = subprocess.Popen(command, env=environ, pass_fds=descriptors, start_new_session=True)
        process.returncode = 0  # `reap` waits for it, not this object
        return process.pid

    def agent_is(self, pid: int) -> None:
        """The agent runs, and alone has the other ends of its pipes. One that comes when the run is over, or has
        another already, is ended."""
        if self.agent is not None or self.agent_exit is not None:
            procfs.end(filter(None, [procfs.read(pid)]), signal.SIGKILL)
            return
        self._close_ends_of_agent()
        self.agent = procfs.read(pid)
        if self.agent is None:
            self.agent_exit = Exit(-signal.SIGKILL, time.monotonic())
        self.watch_session(pid)

    def _start_fork_server(self, warm: WarmStart) -> None:
        """Start the ranks' own command line, which our sitecustomize makes a fork server."""
        theirs, ours = socket.socketpair()
        path = os.path.join(self._plan.scratch_dir, "fork_server.json")
        pythonpath = injection.pythonpath(self._environ.get("PYTHONPATH"))
        document = {
            "supervisor": os.getpid(),
            "pythonpath": pythonpath,
            "preload": warm.preload,
            "beside": warm.beside,
            "root": ROOT,
            "program": PROGRAM,
            "command": self._agent_command(),
            "environ": self._environ,
            "plan_file": self._plan_file,
            "closed": streams.closed(),
            "events": self._to_us,
            "commands": self._from_us,
            "agent_channel": theirs.fileno(),
            "channel": ours.fileno(),
        }
        files.write_json(path, document)
        environ = {**self._environ, **self._marks, **warm.environ, "SAFELAUNCH_FORK_SERVER": path}
        environ["PYTHONPATH"] = pythonpath
        pid = self._popen(warm.command, environ, (*self._for_agent(), theirs.fileno(), ours.fileno()))
        theirs.close()
        ours.close()
        self.fork_server = procfs.read(pid)
        self.watch_session(pid)

    def _for_agent(self) -> tuple[int, int]:
        return self._to_us, self._from_us

    def _close_ends_of_agent(self) -> None:
        for descriptor in self._for_agent():
            if descriptor >= 0:
                os.close(descriptor)
        self._to_us = self._from_us = -1

    def _agent_command(self) -> list[str]:
        numbers = [str(number) for number in (*self._for_agent(), os.getpid())]
        return [sys.executable, "-c", AGENT, self._plan_file, *numbers]

    def leave_alone(self, session: int) -> None:
        """Count a session's processes as strangers: they are not ended with the run."""
        self._left_alone.add(session)

    def watch_session(self, session: int) -> None:
        """Count a session's processes as members of the run."""
        self._sessions.add(session)
        self.guard.watch(session)

    def let_go(self, address: Mapping[str, Any] | None = None) -> None:
        """Let the agent start the workers, with the limit of open files that the preflight has raised for us: it was
        started before. The `address` of this supervisor is for those of other nodes."""
        for process in (self.agent, self.fork_server):
            try:
                if process is not None:
                    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
            except (OSError, ValueError):
                pass  # it is gone, or the limit stays what it was
        if address is not None:
            self.tell(json.dumps(address))
        self.tell("go")

    def tell(self, word: str) -> None:
        """Send the agent one line: `go`, `release` or `hold`, or an address as JSON."""
        try:
            os.write(self._commands, word.encode() + b"\n")
        except OSError:
            pass  # it is gone; its exit is reported by `reap`

    def tell_end(self, exit_code: int, line: str) -> None:
        """Tell the agent how the job ends, for spare nodes: in a line that is far shorter than what a pipe takes."""
        self.tell("end " + json.dumps({"code": exit_code, "line": line[:ONE_LINE]}))

    def signal_agent(self, signum: int) -> None:
        if self.agent is not None and self.agent_exit is None:
            procfs.end([self.agent], signum)
        elif self.agent is None and self.fork_server is not None:
            self.agent_exit = Exit(-signum, time.monotonic())  # there will be none
            self._close_ends_of_agent()
            procfs.send(self.fork_server, signal.SIGKILL)

    def signal_workers(self, workers: tuple[WorkerProcess, ...], signum: int) -> None:
        """Signal the process group of each worker, as torch elastic does, and wake those that are stopped."""
        for worker in workers:
            process = procfs.read(worker.pid)
            if process is None or process.start != worker.start:
                continue
            own = black_box.ending(worker.black_box, worker.local_rank, worker.pid, signum)
            for number in (own, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.pid, number)

    def forward(self, workers: tuple[WorkerProcess, ...], signum: int) -> None:
        """Pass on what belongs to the script (SIGUSR1, SIGUSR2): to ranks that catch it, since it would kill others."""
        for worker in workers:
            process = procfs.read(worker.pid)
            if process is not None and process.start == worker.start and procfs.catches(worker.pid, signum):
                procfs.send(process, signum)

    def around_ranks(self) -> dict[str, procfs.Process | None]:
        """The processes of ours below this one, by name."""
        return {"agent": self.agent, FORK_SERVER: self.fork_server, "guard": procfs.read(self.guard.pid)}

    def wake(self) -> None:
        """Let agent and fork server go on where somebody has stopped them: what is to be done now needs them."""
        for process in (self.agent, self.fork_server):
            if process is not None:
                procfs.send(process, signal.SIGCONT)

    def reap(self) -> None:
        """Collect every child that has ended: the agent, a guard that was killed, adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.agent is not None and pid == self.agent.pid:
                self.agent_exit = Exit(os.waitstatus_to_exitcode(status), time.monotonic())
            elif self.fork_server is not None and pid == self.fork_server.pid:
                self.fork_server = None
                self.fork_server_exit = Exit(os.waitstatus_to_exitcode(status), time.monotonic())
            elif pid == self.guard.pid:
                self.guard.start()

    def died_with_fork_server(self, group: WorkerGroup) -> Exit | None:
        """The end of the fork server, where ranks of this group have ended with it, and none in another way."""
        ended = self.fork_server_exit
        exits = [worker.exit for worker in group.workers if worker.exit is not None and worker.exit.code != 0]
        if ended is None or ended.code == 0 or not exits:
            return None
        with_it = (end.code == -signal.SIGKILL and abs(end.t - ended.t) < WITH_FORK_SERVER_S for end in exits)
        return ended if all(with_it) else None

    def members(self) -> list[procfs.Process]:
        """What is alive of the run, agent included.

        That is every process below us which we did not inherit from a shell that exec'ed us. As PID 1 of a
        container, orphans of strangers come to us too, so there membership must be shown. A process whose parent ends
        while we look is below nobody for that moment: only two looks that find nobody are an end.
        """
        return self._members() or self._members()

    def _members(self) -> list[procfs.Process]:
        processes = list(procfs.scan())
        below = procfs.descendants(os.getpid(), processes)
        strangers = self._before | {self.guard.pid}
        found = [p for p in below if p.pid not in strangers and p.state not in "ZX" and p.sid not in self._left_alone]
        if os.getpid() != 1:
            return found
        entry = b"SAFELAUNCH_RUN_TOKEN=" + self._plan.token.encode()
        return [p for p in found if p.sid in self._sessions or procfs.in_environ(p.pid, entry)]

    def attached(self) -> list[procfs.Process]:
        """The members that the ranks have not detached: those in a session that we know, which are the ranks' own.

        As PID 1 of a container that is all of them: they could not outlive us.
        """
        return [process for process in self.members() if self._is_attached(process)]

    def detached(self) -> list[procfs.Process]:
        """The members that the ranks have detached, into sessions of their own."""
        return [process for process in self.members() if not self._is_attached(process)]

    def _is_attached(self, process: procfs.Process) -> bool:
        ours = process.sid == os.getsid(0) or process.sid in procfs.OWN_SESSIONS
        return ours or process.sid in self._sessions or os.getpid() == 1

    def kill(self, look: Callable[[], list[procfs.Process]]) -> list[procfs.Process]:
        """SIGKILL until `look` finds nobody; returns those that the kernel holds (they are abandoned)."""
        deadline = time.monotonic() + KILL_WAIT_S
        while left := look():
            if time.monotonic() > deadline:
                return left
            procfs.end(left, signal.SIGKILL)
            time.sleep(0.005)
            self.reap()
        return []
