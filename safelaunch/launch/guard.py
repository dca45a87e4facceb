"""The guard: a process that outlives a supervisor killed by SIGKILL and ends what is left of the run.

Workers die with the agent and the agent with the supervisor (PR_SET_PDEATHSIG), but that setting is not
inherited by fork: DataLoader workers and other grandchildren survive. The guard waits on a pipe whose write end
only the supervisor holds. Its end means that the supervisor is dead: one that lives to its end ends the guard first.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable

from safelaunch import procfs

DEADLINE_S = 5.0
SCAN_INTERVAL_S = 0.05


class Guard:
    """The supervisor's handle on its guard process. Starts it again if something kills it."""

    def __init__(self, token: str, scratch_dir: str) -> None:
        self._token = token
        self._scratch_dir = scratch_dir
        self._sessions: list[int] = []
        self.pid = -1
        self._pipe = -1
        self.start()

    def start(self) -> None:
        """Fork the guard. Must be called while this process has one thread."""
        if self._pipe >= 0:
            os.close(self._pipe)
        reader, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.close(self._pipe)
                _main(reader, self._token, self._scratch_dir)
                status = 0
            finally:
                os._exit(status)
        os.close(reader)
        for session in self._sessions:
            self._tell(b"session %d\n" % session)

    def watch(self, session: int) -> None:
        """Have the guard end this session too, whatever environment its processes have."""
        self._sessions.append(session)
        self._tell(b"session %d\n" % session)

    def dismiss(self) -> None:
        """End the guard, whatever it does: the supervisor has cleaned up itself. It leaves no zombie, either."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it was dead already
        os.close(self._pipe)
        self._pipe = -1

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._pipe, line)
        except OSError:
            pass  # it is dead; the supervisor's loop learns of that by SIGCHLD and starts another


def members(token: str, sessions: Iterable[int], processes: Iterable[procfs.Process]) -> list[procfs.Process]:
    """The living processes of a run: by session, or by the token in their environment."""
    entry = b"SAFELAUNCH_RUN_TOKEN=" + token.encode()
    known = set(sessions)
    return [
        process
        for process in processes
        if process.state not in "ZX" and (process.sid in known or procfs.in_environ(process.pid, entry))
    ]


def _main(reader: int, token: str, scratch_dir: str) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Nobody may wait for the end of a pipe that only the guard holds open.
    null = os.open(os.devnull, os.O_RDWR)
    keep = os.dup2(reader, 3) if reader != 3 else 3
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(4, 4096)
    received = b""
    while chunk := os.read(keep, 4096):
        received += chunk
    sessions = [int(line.split()[1]) for line in received.splitlines() if line.startswith(b"session ")]
    _end_all(token, sessions)
    shutil.rmtree(scratch_dir, ignore_errors=True)


def _end_all(token: str, sessions: list[int]) -> None:
    # A process may fork between the scan and the kill: only two empty scans in a row are an end.
    deadline = time.monotonic() + DEADLINE_S
    empty = 0
    while empty < 2 and time.monotonic() < deadline:
        left = [process for process in members(token, sessions, procfs.scan()) if process.pid != os.getpid()]
        procfs.end(left, signal.SIGKILL)
        empty = 0 if left else empty + 1
        time.sleep(SCAN_INTERVAL_S)
