"""What a process waits for outside: the address, the process at the other end of a pipe, the holder of a lock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import living
import pytest
from living import HANG, python, soon, until

from safelaunch.diagnosis.stall.endpoints import described
from safelaunch.evidence import case, kernel, peer_endpoints, proc_tasks

READY = "import os, socket, subprocess, sys, threading, time\nprint('ready', flush=True)\n"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_tasks, "FRESH_S", 0.0)
    monkeypatch.setattr(peer_endpoints, "FRESH_S", 0.0)
    monkeypatch.setattr(peer_endpoints, "LOOK_S", 10.0)


def other(source: str, pattern: str, *arguments: str) -> str:
    """What is at the other end of the call that the program is in, once that looks like `pattern`."""
    with python(READY + source, *arguments) as process:

        def seen() -> str:
            data = kernel.collect(HANG, living.rank(process.pid), soon()).data
            assert data is not None
            if not data["syscall"] and os.geteuid() != 0:
                pytest.skip("/proc/PID/syscall cannot be read")
            shown = described(case.kernel_facts(data))
            return shown if re.search(pattern, shown) else ""

        return until(seen)


CONNECT = """
server = socket.create_server((HOST, 0), family=FAMILY)
connection = socket.create_connection(server.getsockname()[:2])
"""
V4, V6 = "HOST, FAMILY = '127.0.0.1', socket.AF_INET", "HOST, FAMILY = '::1', socket.AF_INET6"
READS = "connection.recv(1)"
POLLS = "connection.settimeout(3600); connection.recv(1)"
SELECTS = "import select; select.select([connection], [], [])"
WATCHES = "import selectors; s = selectors.DefaultSelector(); s.register(connection, 1); s.select()"


@pytest.mark.parametrize("how", [READS, POLLS, SELECTS, WATCHES])
def test_the_address_of_a_connection(how: str) -> None:
    found = other(f"{V4}\n{CONNECT}\n{how}", r":\d")
    assert re.fullmatch(r"127\.0\.0\.1:\d+, which \S+ \(pid \d+\) has not accepted", found)


def test_who_has_the_other_end_of_a_connection() -> None:
    child = (
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "if os.fork() == 0:\n    accepted, _ = server.accept(); time.sleep(3600)\n"
        "server_port = server.getsockname()[1]; server.close()\n"
        "connection = socket.create_connection(('127.0.0.1', server_port)); connection.recv(1)"
    )
    assert re.search(r"whose other end \S+ \(pid \d+\) has$", other(child, "other end"))


def test_that_the_other_end_of_a_connection_waits_for_input_too() -> None:
    child = (
        "import threading\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "connection = socket.create_connection(server.getsockname())\n"
        "accepted, _ = server.accept()\n"
        "threading.Thread(target=accepted.recv, args=[1], daemon=True).start()\n"
        "connection.recv(1)"
    )
    assert re.search(r"whose other end \S+ \(pid \d+\) has and waits for input from it, too$", other(child, "too$"))


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_an_address_of_ipv6() -> None:
    assert re.match(r"\[::1\]:\d+, which ", other(f"{V6}\n{CONNECT}\n{READS}", r":\d"))


def test_a_server_that_waits_for_somebody_to_come() -> None:
    found = other("server = socket.create_server(('127.0.0.1', 0)); server.accept()", "port")
    assert re.fullmatch(r"a connection to its own port \d+", found)


def test_who_has_the_other_end_of_a_pipe() -> None:
    child = "child = subprocess.Popen(['sleep', '3600'], stdout=subprocess.PIPE); child.stdout.read()"
    assert re.fullmatch(r"sleep \(pid \d+\) has its other end", other(child, "sleep"))


def test_a_pipe_that_nobody_else_writes_to() -> None:
    found = other("ends = os.pipe(); os.read(ends[0], 1)", "nobody")
    assert re.fullmatch(r"nobody but itself( that can be seen)? writes to it", found)


def test_a_fifo_without_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "samples")
    assert other("open(sys.argv[1])", "FIFO", str(tmp_path / "samples")).startswith("a FIFO that nobody has opened")


@pytest.mark.parametrize("lock", ["flock", "lockf"])
def test_who_holds_a_file_lock(lock: str, tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.touch()
    takes = f"import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.{lock}(f, fcntl.LOCK_EX); "
    holder = subprocess.Popen(
        [sys.executable, "-c", takes + "print(flush=True); time.sleep(3600)", str(path)], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert f"(pid {holder.pid})" in other(takes, "held by", str(path))
    finally:
        holder.kill()
        holder.communicate()


def test_a_thread_that_reads_while_the_main_thread_waits_for_it() -> None:
    program = (
        f"{V4}\n{CONNECT}\nthread = threading.Thread(target=connection.recv, args=(1,)); thread.start(); thread.join()"
    )
    with python(READY + program) as process:

        def reads() -> list[str]:
            data = kernel.collect(HANG, living.rank(process.pid), soon()).data or {}
            if not data["syscall"] and os.geteuid() != 0:
                pytest.skip("/proc/PID/syscall cannot be read")
            return [described(case.kernel_facts(one)) for one in data["threads"] if one["syscall"] == "recvfrom"]

        (found,) = until(reads)
    assert found.startswith("127.0.0.1:")


def test_where_a_file_is_mounted() -> None:
    mounts = "22 1 0:1 / / rw - ext4 /dev/a rw\n23 22 0:2 / /data rw - nfs4 server:/data rw\n"
    assert proc_tasks.mount(mounts, "/data/shard-17") == ("/data", "nfs4")
    assert proc_tasks.mount(mounts, "/home/x") == ("/", "ext4")


def test_in_a_container_somebody_may_be_out_of_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_endpoints, "_sees_all", lambda: False)
    found = other("ends = os.pipe(); os.read(ends[0], 1)", "nobody")
    assert found == "nobody but itself that can be seen writes to it"
