"""Runs in: the probe. Listening on a high port, and dialling the other nodes' ones."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from safelaunch.codec import ShapeError, checked
from safelaunch.preflight.between.facts import Dial, Place

DIAL_S = 3.0
PINGS = 3
# What stands in an answer, and more than that: whatever else listens there may never end its line.
ANSWER = 256
# A limit on processes counts threads too, and may be low.
MOST_AT_ONCE = 32
# None is dialled any more after that: whom 64 connections that time out do not tell, the others do not either.
LAST_S = 2 * DIAL_S
ELSE = "something else answers there"


class Listener:
    """Answers each question on a port of the kernel's choice with this node's seat and time."""

    def __init__(self) -> None:
        """Raises RuntimeError where no thread can be started."""
        self.seat = -1
        self.shift_s = 0.0
        self._socket = _listening()
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="dial-back", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            try:
                threading.Thread(target=self._answer, args=(connection,), name="dial-back", daemon=True).start()
            except RuntimeError:  # no further thread: one after the other, then
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(DIAL_S)
            try:
                while connection.recv(1):
                    answer = {"seat": self.seat, "time": time.time() + self.shift_s}
                    connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                pass  # the one who dialled is gone, and knows


def _listening() -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        except OSError:
            pass  # a kernel with IPv6 switched off
    return socket.create_server(("", 0), backlog=64)


def dial_all(src: int, places: Mapping[int, Place], shift_s: float = 0.0) -> tuple[Dial, ...]:
    """Dial nodes, given by rank, many at once; this thread dials too, and alone where no other can be started."""
    waiting = deque(places.values())
    found: dict[int, Dial] = {}
    until = time.monotonic() + LAST_S

    def work() -> None:
        while time.monotonic() < until:
            try:
                place = waiting.popleft()
            except IndexError:
                return
            found[place.rank] = dial(src, place, shift_s)

    others = []
    for _ in range(min(len(places), MOST_AT_ONCE) - 1):
        thread = threading.Thread(target=work, name="dial", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            break
        others.append(thread)
    work()
    for thread in others:
        thread.join()
    return tuple(found[rank] for rank in places if rank in found)


@dataclass(frozen=True)
class _Answer:
    seat: int
    time: float


def dial(src: int, place: Place, shift_s: float = 0.0) -> Dial:
    """Connect to a node, and ask it for its seat and its time."""
    dst, ip, port = place.rank, place.ip, place.port
    best = Dial(src, dst, ip, port, rtt_s=DIAL_S)
    try:
        with socket.create_connection((ip, port), DIAL_S) as connection:
            connection.settimeout(DIAL_S)
            lines = connection.makefile("rb")
            for _ in range(PINGS):
                begin, sent = time.perf_counter(), time.time() + shift_s
                connection.sendall(b"?")
                line = lines.readline(ANSWER)
                rtt_s = time.perf_counter() - begin
                answer = checked(_Answer, json.loads(line))
                if answer.seat != place.seat:
                    return Dial(src, dst, ip, port, ELSE)
                if rtt_s < best.rtt_s:
                    best = Dial(src, dst, ip, port, rtt_s=rtt_s, offset_s=answer.time - (sent + rtt_s / 2))
    except TimeoutError:
        return Dial(src, dst, ip, port, f"no answer within {DIAL_S:g} s", errno.ETIMEDOUT)
    except (ShapeError, ValueError, RecursionError):
        return Dial(src, dst, ip, port, ELSE)
    except OSError as error:
        number = error.errno or 0
        return Dial(src, dst, ip, port, os.strerror(number).lower() if number else str(error), number)
    return best
