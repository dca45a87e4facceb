"""The processes of a run: agent and guard below the supervisor, and everything below them."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

from safelaunch import files, procfs
from safelaunch.codec import to_json
from safelaunch.launch.guard import Guard
from safelaunch.model import Exit, LaunchPlan

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
KILL_WAIT_S = 2.0  # after SIGKILL only a process in the kernel's uninterruptible sleep is still there


class Tree:
    """Starts, signals and ends the processes of one run. Lives in the supervisor's main thread.

    The supervisor is a subreaper: orphans of the run become its children, so that none can hide.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan
        self._sessions: set[int] = set()
        self._before = {process.pid for process in procfs.descendants(os.getpid(), procfs.scan())}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
        self.guard = Guard(plan.token, plan.scratch_dir)
        self.agent: procfs.Process | None = None
        self.agent_exit: Exit | None = None
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
        return marks

    def start_agent(self, black_box: str | None) -> None:
        """Start the agent at once: it imports torch while the node is checked, and waits for `go`."""
        plan_file = os.path.join(self._plan.scratch_dir, "plan.json")
        marks = self.marks(black_box)
        agent_log = os.path.join(self._plan.run_dir, "agent.log")
        files.write_json(plan_file, {"plan": to_json(self._plan), "marks": marks, "agent_log": agent_log})
        self.events, events = os.pipe()
        commands, self._commands = os.pipe()
        command = [sys.executable, "-m", "safelaunch.agent", plan_file, str(events), str(commands), str(os.getpid())]
        inherited = {name: value for name, value in os.environ.items() if name not in self._plan.unset}
        process = subprocess.Popen(
            command,
            env={**inherited, **self._plan.env, "SAFELAUNCH_RUN_TOKEN": self._plan.token},
            pass_fds=(events, commands),
            start_new_session=True,
        )
        os.close(events)
        os.close(commands)
        self.agent = procfs.read(process.pid)
        process.returncode = 0  # `reap` waits for it, not this object
        self.watch_session(process.pid)

    def watch_session(self, session: int) -> None:
        """Count a session's processes as members of the run."""
        self._sessions.add(session)
        self.guard.watch(session)

    def let_go(self) -> None:
        """Let the agent start the workers, with the limit of open files that the preflight has raised for us: it was
        started before."""
        if self.agent is not None:
            try:
                resource.prlimit(self.agent.pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
            except (OSError, ValueError):
                pass  # the agent is gone, or the limit stays what it was
        self.tell("go")

    def tell(self, word: str) -> None:
        """Send the agent one word: `go`, `release` or `hold`."""
        try:
            os.write(self._commands, word.encode() + b"\n")
        except OSError:
            pass  # it is gone; its exit is reported by `reap`

    def signal_agent(self, signum: int) -> None:
        if self.agent is not None and self.agent_exit is None:
            procfs.send(self.agent, signum)

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
            elif pid == self.guard.pid:
                self.guard.start()

    def members(self) -> list[procfs.Process]:
        """What is alive of the run, agent included.

        That is every process below us which we did not inherit from a shell that exec'ed us. As PID 1 of a
        container, orphans of strangers come to us too, so there membership must be shown.
        """
        processes = list(procfs.scan())
        below = procfs.descendants(os.getpid(), processes)
        strangers = self._before | {self.guard.pid}
        found = [p for p in below if p.pid not in strangers and p.state not in "ZX"]
        if os.getpid() != 1:
            return found
        entry = b"SAFELAUNCH_RUN_TOKEN=" + self._plan.token.encode()
        return [p for p in found if p.sid in self._sessions or procfs.in_environ(p.pid, entry)]

    def kill_members(self) -> list[procfs.Process]:
        """SIGKILL until nobody is left; returns those that the kernel holds (they are abandoned)."""
        deadline = time.monotonic() + KILL_WAIT_S
        while left := self.members():
            if time.monotonic() > deadline:
                return left
            procfs.end(left, signal.SIGKILL)
            time.sleep(0.005)
            self.reap()
        return []
