"""Runs in: the probe. Where the nodes meet: a store of torch, asked with a deadline for everything.

A store call may still block, when a cable is cut: what ends the probe then is its watchdog, or its parent.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar

from safelaunch.codec import ShapeError, checked

T = TypeVar("T")

# One attempt to connect; the kernel sends a second packet after 1 s.
CONNECT_S = 3.0
# How soon the store of a meeting has to answer once it is connected to.
STORE_S = 10.0
# How soon a meeting shows that it is one. What listens there else is another job, or no store at all.
OPEN_S = 5.0
POLL_S = 0.02
# Bytes of what is posted. The picture of 1,024 nodes takes 4 MB, all else some KB.
MOST = 16 << 20


class LostError(Exception):
    """The store cannot be reached any more, or is none."""


class MeetingStore:
    """Posts and reads JSON under names. Raises LostError when the store is gone.

    Whoever reaches the port may post: what is not of the `kind` that is asked for counts as not posted.
    """

    def __init__(self, host: str, port: int, *, master: bool, name: str) -> None:
        from torch.distributed import PrefixStore, TCPStore

        timeout = timedelta(seconds=STORE_S)
        try:
            store = TCPStore(host, port, None, master, timeout, wait_for_workers=False)
        except (RuntimeError, OSError, ValueError) as error:
            raise LostError(first_line(error)) from error
        self._store = PrefixStore(f"safelaunch/check/{name}", store)

    def post(self, key: str, value: Any) -> None:
        try:
            self._store.set(key, json.dumps(value))
        except RuntimeError as error:
            raise LostError(first_line(error)) from error

    def add(self, key: str, amount: int = 1) -> int:
        """Add to a counter and return what it is then."""
        try:
            return int(self._store.add(key, amount))
        except RuntimeError as error:
            raise LostError(first_line(error)) from error

    def wait(self, kind: type[T], key: str, until: float) -> T | None:
        """What was posted, as soon as it is; None at the deadline."""
        from torch.distributed import DistStoreError

        while (left := until - time.monotonic()) > 0:
            try:
                self._store.wait([key], timedelta(seconds=min(left, 5.0)))
                return _read(kind, self._store.get(key))
            except DistStoreError:
                continue  # not yet
            except RuntimeError as error:
                raise LostError(first_line(error)) from error
        return None

    def collect(self, kind: type[T], stem: str, numbers: Iterable[int], until: float = 0.0) -> dict[int, T]:
        """What was posted under `stem/number`, of what is there at the deadline; without one, of what is there now."""
        missing = set(numbers)
        found: dict[int, T] = {}
        while True:
            for number in sorted(missing):
                value = self.peek(kind, f"{stem}/{number}")
                if value is not None:
                    found[number] = value
            missing -= set(found)
            if not missing or time.monotonic() >= until:
                return found
            time.sleep(POLL_S)

    def peek(self, kind: type[T], key: str) -> T | None:
        """What was posted, or None."""
        try:
            return _read(kind, self._store.get(key)) if self._store.check([key]) else None
        except RuntimeError as error:
            raise LostError(first_line(error)) from error

    def count(self, key: str, wanted: int, until: float) -> None:
        """Wait until a counter has got to a number."""
        while self.add(key, 0) < wanted and time.monotonic() < until:
            time.sleep(POLL_S)


def _read(kind: type[T], posted: bytes) -> T | None:
    try:
        return checked(kind, json.loads(posted)) if len(posted) <= MOST else None
    except (ShapeError, ValueError, RecursionError):
        return None


def reach(host: str, port: int, until: float) -> tuple[str, str]:
    """Connect until it succeeds: the address found, and our own. Raises LostError with the last reason."""
    while True:
        try:
            with socket.create_connection((host, port), CONNECT_S) as connection:
                return connection.getpeername()[0], connection.getsockname()[0]
        except OSError as error:
            reason = _reason(error, host, port)
        if time.monotonic() >= until:
            raise LostError(reason)
        time.sleep(0.2)


def _reason(error: OSError, host: str, port: int) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {host}:{port}: the node that owns it is not started, or uses another port"
    if isinstance(error, TimeoutError):
        return f"{host}:{port} gives no answer: the machine is down, or a firewall drops the packets"
    return f"{host}:{port} cannot be reached: {error.strerror or error}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, without the stack of C++ that torch appends."""
    text = str(error).strip()
    return text.splitlines()[0].split("Exception raised from")[0].strip() if text else type(error).__name__
