"""Runs in: the probe. Listening on a high port, and dialling the other nodes' ones."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from safelaunch.preflight.between.facts import Dial

DIAL_S = 3.0
PINGS = 3


class Listener:
    """Answers each question on a port of the kernel's choice with this node's rank and time."""

    def __init__(self, shift_s: float = 0.0) -> None:
        self.rank = -1
        self.shift_s = shift_s
        self._socket = _listening()
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="dial-back", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(connection,), name="dial-back", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(DIAL_S)
            try:
                while connection.recv(1):
                    answer = {"rank": self.rank, "time": time.time() + self.shift_s}
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


def dial_all(src: int, places: Mapping[int, tuple[str, int]], shift_s: float = 0.0) -> tuple[Dial, ...]:
    """Dial nodes, given by rank, at their addresses, all at once."""
    if not places:
        return ()
    with ThreadPoolExecutor(len(places)) as pool:
        return tuple(pool.map(lambda rank: _dial(src, rank, *places[rank], shift_s), places))


def _dial(src: int, dst: int, ip: str, port: int, shift_s: float) -> Dial:
    best = Dial(src, dst, ip, port, rtt_s=DIAL_S)
    try:
        with socket.create_connection((ip, port), DIAL_S) as connection:
            connection.settimeout(DIAL_S)
            lines = connection.makefile("rb")
            for _ in range(PINGS):
                begin, sent = time.perf_counter(), time.time() + shift_s
                connection.sendall(b"?")
                answer = json.loads(lines.readline() or b"{}")
                rtt_s = time.perf_counter() - begin
                if answer.get("rank") != dst:
                    return Dial(src, dst, ip, port, "something else answers there")
                if rtt_s < best.rtt_s:
                    best = Dial(src, dst, ip, port, rtt_s=rtt_s, offset_s=answer["time"] - (sent + rtt_s / 2))
    except TimeoutError:
        return Dial(src, dst, ip, port, f"no answer within {DIAL_S:g} s", errno.ETIMEDOUT)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else 0
        return Dial(src, dst, ip, port, os.strerror(number).lower() if number else str(error), number)
    return best
