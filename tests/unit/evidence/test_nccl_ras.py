"""NCCL's RAS threads: a small server that speaks as they do, in this process, which stands for the rank."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from safelaunch import procfs
from safelaunch.diagnosis.refine import nccl_ras as ras_rules
from safelaunch.evidence import nccl_ras
from safelaunch.model import WorkerProcess

# As NCCL's user guide shows it, "RAS", sample output.
REPORT = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21
"""


class Ras:
    """A RAS thread: a greeting, `OK` to the timeout, then the report. `silent_at` is the request that it does not
    answer, `first` what comes of a report before it says no more."""

    def __init__(self, silent_at: str = "", first: str = "", greeting: str = "SERVER PROTOCOL 2") -> None:
        self.heard: list[str] = []
        self._silent_at, self._first, self._greeting = silent_at, first, greeting
        self._socket = socket.create_server(("127.0.0.1", 0), reuse_port=True)
        self.port = self._socket.getsockname()[1]
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()
        for line in self._held:
            line.close()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self._held.append(line)
            self._answer(line)

    def _answer(self, line: socket.socket) -> None:
        for request in line.makefile("r"):
            word = request.strip()
            self.heard.append(word)
            if self._silent_at and word.startswith(self._silent_at):
                line.sendall(self._first.encode())
                return
            if word.startswith("CLIENT"):
                line.sendall(self._greeting.encode() + b"\n")
            elif word.startswith("TIMEOUT"):
                line.sendall(b"OK\n")
            else:
                line.sendall(REPORT.encode())
                line.shutdown(socket.SHUT_RDWR)
                return


@pytest.fixture
def ras(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ras]]:
    servers: list[Ras] = []

    def begin(**more: str) -> Ras:
        servers.append(Ras(**more))
        monkeypatch.setattr(nccl_ras, "PORT", servers[0].port)
        monkeypatch.setattr(nccl_ras, "HOST", "127.0.0.1")
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def worker(pid: int | None = None, rank: int = 5) -> WorkerProcess:
    process = procfs.read(pid or os.getpid())
    assert process is not None
    return WorkerProcess(rank, 0, process.pid, process.start, "")


def ask(*workers: WorkerProcess, seconds: float = 10.0) -> nccl_ras.Answer:
    return nccl_ras.ask(workers, time.monotonic() + seconds)


def test_the_whole_report(ras: Callable[..., Ras]) -> None:
    server = ras()
    assert ask(worker()) == nccl_ras.Answer(REPORT, 5)
    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"]


def test_a_job_without_nccl_is_not_asked(ras: Callable[..., Ras]) -> None:
    """Whoever listens at the port is no rank of this job."""
    server = ras()
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert ask(worker(other.pid)) == nccl_ras.Answer()
    finally:
        other.communicate(b"\n")
    assert server.heard == []
    assert ask() == nccl_ras.Answer()


def test_ranks_listen_where_they_were_told_to(ras: Callable[..., Ras], monkeypatch: pytest.MonkeyPatch) -> None:
    server = ras()
    monkeypatch.setattr(nccl_ras, "PORT", 9)
    address = f"localhost:{server.port}"
    monkeypatch.setattr(nccl_ras, "_variable", lambda _, name: address if name == "NCCL_RAS_ADDR" else "")
    assert ask(worker()).text == REPORT


def test_a_thread_that_does_not_answer_costs_its_deadline(ras: Callable[..., Ras]) -> None:
    """It never does: without a deadline this would not end."""
    ras(silent_at="CLIENT")
    answer = ask(worker(), seconds=0.5)
    assert (answer.text, answer.rank, answer.missing) == ("", 5, "it did not answer in time")


def test_what_has_come_is_kept_where_other_ranks_do_not_answer(ras: Callable[..., Ras]) -> None:
    ras(silent_at="VERBOSE", first="Job summary\n===========\n\nCommunicators...")
    answer = ask(worker(), seconds=0.8)
    assert answer.text.startswith("Job summary\n===========\n")
    assert "not complete" in answer.missing


def test_something_else_at_the_port(ras: Callable[..., Ras]) -> None:
    ras(greeting="HTTP/1.1 400 Bad Request")
    answer = ask(worker(), seconds=5.0)
    assert (answer.text, answer.missing) == ("", "something else than NCCL listens there")


OTHER_JOB = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
print("ready", flush=True)
while True:
    line, _ = server.accept()
    line.recv(100)
    line.sendall(b"SERVER PROTOCOL 2\\n")
    if line.recv(100):
        print("asked", flush=True)
"""


def test_ranks_of_another_job_at_the_same_port_are_not_evidence(ras: Callable[..., Ras]) -> None:
    server = ras()
    command = [sys.executable, "-c", OTHER_JOB, str(server.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            answers = {ask(worker()).text for _ in range(8)}  # the kernel shares connections out by chance
            other.kill()
            assert other.stdout.read() == ""  # it was greeted, and asked nothing
        finally:
            other.kill()
    assert answers <= {REPORT, ""}
    assert REPORT in answers


def test_a_report_that_names_ranks_without_end_is_read_to_the_size_of_the_job() -> None:
    before = time.process_time()
    found = ras_rules.read(REPORT + "\n#0-0 (a) INCOMPLETE\n  The missing ranks: " + ",".join(["0-65534"] * 16_000), 32)

    assert time.process_time() - before < 2  # 0.05 s; each of the parts alone takes a millisecond
    assert found.absent <= set(range(32))
