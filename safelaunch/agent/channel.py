"""Runs in: agent. The two pipes between agent and supervisor: JSON lines up, words down."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any


class Channel:
    """Posts events to the supervisor and calls back on its commands.

    Args:
        events: descriptor of the event pipe, open for writing.
        commands: descriptor of the command pipe, open for reading.
    """

    def __init__(self, events: int, commands: int) -> None:
        self._events = events
        self._commands = commands
        self._lock = threading.Lock()
        self._go = threading.Event()
        self.address: dict[str, Any] | None = None  # of our supervisor, for those of other nodes; known at `go`
        self.end: dict[str, Any] | None = None  # how the job ends, as our supervisor has judged it: `code` and `line`
        self._callbacks: dict[bytes, Callable[[], None]] = {b"go": self._go.set}
        for descriptor in (events, commands):
            os.set_inheritable(descriptor, False)
        threading.Thread(target=self._listen, name="safelaunch-commands", daemon=True).start()

    def post(self, event: str, **fields: Any) -> None:
        """Send one event. A supervisor that is gone is no error here: the death signal ends us."""
        line = json.dumps({"event": event, **fields}, default=str).encode() + b"\n"
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._events, line) :]
        except OSError:
            pass

    def wait_for_go(self) -> None:
        """Block until the supervisor has finished its preflight."""
        self._go.wait()

    def on_command(self, word: str, callback: Callable[[], None]) -> None:
        """Call back when the supervisor sends this word: `release` when it has its evidence of a failed worker
        group, `hold` when it ends the workers itself and the agent must not react to their exits."""
        self._callbacks[word.encode()] = callback

    def _listen(self) -> None:
        received = b""
        while chunk := os.read(self._commands, 4096):
            *words, received = (received + chunk).split(b"\n")
            for word in words:
                if word.startswith(b"{"):
                    self.address = json.loads(word)
                if word.startswith(b"end {"):
                    self.end = json.loads(word[4:])
                self._callbacks.get(word, lambda: None)()
