"""Hosts on one machine whose cables are bad: network namespaces, each on a TUN device, and a process between them that
holds every packet up for a random time and loses some. It needs root, iproute2 and /dev/net/tun; netem is not used.

usage: jitter_hosts.py COUNT [--bad HOST,...] [--delay-ms 200] [--loss 5]

Hosts are called and numbered as in netns_hosts.sh, with SLH_PREFIX and SLH_NET, and its `exec` runs commands on them.
`ready` is printed when they are there; they go when the standard input ends. What goes to or from a bad host (all, if
none is named) is late by 0 to `delay` ms, evenly, and lost in `loss` of 100 cases, whichever way it goes. So packets
overtake one another, as on a link with that jitter. At the end it prints what it has done.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX, NET = os.environ.get("SLH_PREFIX", "slj"), os.environ.get("SLH_NET", "10.78.0")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
CLONE_NEWNET = 0x40000000
IPV4 = 4
AT_ONCE = 64  # packets that are read of one host before the others have their turn


def name(host: int) -> str:
    return f"{PREFIX}{host}"


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


@contextlib.contextmanager
def inside(host: int) -> Iterator[None]:
    """With the network of a host."""
    namespaces = [
        os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (f"/run/netns/{name(host)}", "/proc/self/ns/net")
    ]
    try:
        for namespace in namespaces:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            if namespace == namespaces[0]:
                yield
    finally:
        for namespace in namespaces:
            os.close(namespace)


def up(count: int) -> dict[int, int]:
    """Make the hosts; the other ends of their cables, by host."""
    cables = {}
    for host in range(1, count + 1):
        ip("netns", "add", name(host))
        ip("-n", name(host), "link", "set", "lo", "up")
        with inside(host):
            cables[host] = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(cables[host], TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
        ip("-n", name(host), "addr", "add", f"{NET}.{host}/24", "dev", "eth0")
        ip("-n", name(host), "link", "set", "eth0", "up")
        names = [f"{NET}.{other} {name(other)}" for other in range(1, count + 1)]
        etc = Path("/etc/netns") / name(host)
        etc.mkdir(parents=True, exist_ok=True)
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
    return cables


def down(count: int) -> None:
    for host in range(1, count + 1):
        subprocess.run(["ip", "netns", "del", name(host)], capture_output=True, check=False)
        shutil.rmtree(f"/etc/netns/{name(host)}", ignore_errors=True)


def forward(cables: dict[int, int], bad: set[int], delay_s: float, loss: float) -> tuple[int, int, int]:
    """Carry packets until the standard input ends; how many were carried, lost and overtaken."""
    late: list[tuple[float, int, int, bytes]] = []  # when, which, to whom
    number, carried, lost, overtaken, latest = itertools.count(), 0, 0, 0, 0
    hosts = {cable: host for host, cable in cables.items()}
    while True:
        while late and late[0][0] <= time.monotonic():
            _, which, to, packet = heapq.heappop(late)
            overtaken, latest = overtaken + (which < latest), max(which, latest)
            with contextlib.suppress(BlockingIOError):  # the host's own queue is full
                os.write(cables[to], packet)
        wait = max(0.0, late[0][0] - time.monotonic()) if late else None
        ready, _, _ = select.select([sys.stdin, *hosts], [], [], wait)
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
            return carried, lost, overtaken
        for cable in [one for one in ready if one is not sys.stdin]:
            for packet in read(cable):
                to = packet[19] if packet[0] >> 4 == IPV4 else 0  # the last byte of the address
                if to not in cables:
                    continue
                is_bad = bool({to, hosts[cable]} & bad)
                if is_bad and random.random() < loss:
                    lost += 1
                    continue
                carried += 1
                at = time.monotonic() + (random.uniform(0.0, delay_s) if is_bad else 0.0)
                heapq.heappush(late, (at, next(number), to, packet))


def read(cable: int) -> list[bytes]:
    """The packets that wait at a cable, or the first of them."""
    packets: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(packets) < AT_ONCE:
            packets.append(os.read(cable, 65536))
    return packets


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--bad", default="")
    parser.add_argument("--delay-ms", type=float, default=200.0)
    parser.add_argument("--loss", type=float, default=5.0)
    chosen = parser.parse_args()
    bad = {int(host) for host in chosen.bad.split(",") if host} or set(range(1, chosen.count + 1))
    down(chosen.count)
    try:
        cables = up(chosen.count)
        print("ready", flush=True)
        carried, lost, overtaken = forward(cables, bad, chosen.delay_ms / 1000, chosen.loss / 100)
        print(f"{carried} packets carried, {lost} lost, {overtaken} overtaken", flush=True)
    finally:
        down(chosen.count)


if __name__ == "__main__":
    main()
