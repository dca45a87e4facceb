"""Runs in: agent. Ranks that the fork server forks, behind the interface of `subprocess.Popen`."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct("<I")


class ForkServer:
    """The agent's end of the channel to the fork server; `worker/fork_server.py` has the other one.

    Args:
        channel: the descriptor of the socket.
        post: sends an event to the supervisor.
    """

    def __init__(self, channel: int, post: Callable[..., None]) -> None:
        os.set_inheritable(channel, False)
        self._socket = socket.socket(fileno=channel)
        self._post = post
        self._lock = threading.Lock()
        self._answers = threading.Condition()
        self._answer: dict[str, Any] | None = None
        self._ranks: dict[int, ForkedRank] = {}
        self._early: dict[int, tuple[int, float]] = {}
        self._gone = False
        threading.Thread(target=self._listen, name="safelaunch-fork-server", daemon=True).start()

    def start(self, command: tuple[str, ...], environ: dict[str, str], streams: dict[int, int]) -> int | str:
        """Fork a rank: its pid, or why it has to be started cold.

        Args:
            command: its command line.
            environ: all of its environment.
            streams: what is to be its stdout (1) and its stderr (2); one that is closed is not among them.
        """
        data = json.dumps({"command": command, "environ": environ, "streams": list(streams)}).encode()
        with self._answers:
            if self._gone:
                return "the fork server is gone"
            self._answer = None
            try:
                socket.send_fds(self._socket, [LENGTH.pack(len(data))], list(streams.values()))
                self._socket.sendall(data)
            except OSError:
                return "the fork server is gone"
            self._answers.wait_for(lambda: self._answer is not None or self._gone)
            answer = self._answer or {"cold": "the fork server is gone"}
        return int(answer["started"]) if "started" in answer else str(answer["cold"])

    def tell(self, rank: ForkedRank) -> None:
        """Tell a rank of its end, from here on."""
        with self._lock:
            early = self._early.pop(rank.pid, None)
            if early is None and self._gone:
                early = (-signal.SIGKILL, time.monotonic())  # it has died with the fork server
            if early is None:
                self._ranks[rank.pid] = rank
        if early is not None:
            rank.ended(*early)

    def reap(self, pid: int) -> None:
        """Let the pid of a rank that has ended be used again."""
        data = json.dumps({"reap": pid}).encode()
        try:
            self._socket.sendall(LENGTH.pack(len(data)) + data)
        except OSError:
            pass  # it has died, and its children have been adopted

    def _listen(self) -> None:
        received = b""
        while chunk := self._receive():
            received += chunk
            while len(received) >= LENGTH.size:
                end = LENGTH.size + LENGTH.unpack_from(received)[0]
                if len(received) < end:
                    break
                message, received = json.loads(received[LENGTH.size : end]), received[end:]
                self._on(message)
        now = time.monotonic()
        with self._lock, self._answers:
            self._gone = True
            self._answers.notify_all()
            left = list(self._ranks.values())
        for rank in left:  # they have died with it
            rank.ended(-signal.SIGKILL, now)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

    def _on(self, message: dict[str, Any]) -> None:
        if "exit" in message:
            pid, end = message["exit"], (message["code"], message["t"])
            with self._lock:
                rank = self._ranks.pop(pid, None)
                if rank is None:
                    self._early[pid] = end
            if rank is not None:
                rank.ended(*end)
        elif "reaped" in message:
            self._post("resources", pid=message["reaped"], cpu_s=message["cpu_s"], max_rss=message["max_rss"])
        else:
            with self._answers:
                self._answer = message
                self._answers.notify_all()


class ForkedRank:
    """A rank of the fork server, as torch elastic deals with processes.

    Args:
        pid: of the rank.
        server: which forked it.
        holds: whether a failure must still be hidden.
        post: sends an event to the supervisor.
    """

    stdin = stdout = stderr = None

    def __init__(
        self,
        pid: int,
        command: tuple[str, ...],
        server: ForkServer,
        holds: Callable[[], bool],
        post: Callable[..., None],
    ) -> None:
        self.pid = pid
        self.args = command
        self.returncode: int | None = None
        self.exited = threading.Event()
        self._server = server
        self._holds = holds
        self._post = post
        self._code = 0

    def watch(self) -> None:
        """From here on the end is told."""
        self._server.tell(self)

    def ended(self, code: int, t: float) -> None:
        """The rank has ended at `t` (CLOCK_MONOTONIC)."""
        self._code = code
        self.exited.set()
        self._post("exit", pid=self.pid, code=code, t=t)

    def poll(self) -> int | None:
        """The exit code, once it may be known."""
        if self.returncode is None and self.exited.is_set() and not (self._code != 0 and self._holds()):
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: after `timeout` seconds.
        """
        if not self.exited.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        if self.returncode is None:
            self._reap()
        return self._code

    def send_signal(self, number: int) -> None:
        """Signal the rank, unless it has been reaped."""
        if self.returncode is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        self.returncode = self._code
        self._server.reap(self.pid)
        self._post("reaped", pid=self.pid, code=self._code)
