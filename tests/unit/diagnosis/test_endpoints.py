"""The other end of a call: in words, and as bundles of older versions hold it, where it was a sentence."""

from __future__ import annotations

import time

import pytest

from safelaunch.codec import checked, from_json, to_json
from safelaunch.diagnosis.stall.activity import in_call
from safelaunch.diagnosis.stall.endpoints import described
from safelaunch.model import Endpoint, Kernel, Process
from safelaunch.model.kernel import from_sentence

PYTHON, SLEEP = Process(4100, "python"), Process(7, "sleep (1), 2")

ENDPOINTS = {
    "the store of torch.distributed, 127.0.0.1:29500": ("poll", Endpoint("store", "127.0.0.1:29500")),
    "a connection to its own port 8080": ("accept4", Endpoint("listener", "8080")),
    "unix socket /run/a socket, b": ("recvfrom", Endpoint("unix socket", "/run/a socket, b")),
    "held by python (pid 4100)": ("flock", Endpoint("file lock", processes=(PYTHON,))),
    "held by another process": ("flock", Endpoint("file lock")),
    "a FIFO that nobody has opened at its other end": ("openat", Endpoint("FIFO", sees_all=True)),
    "a FIFO": ("read", Endpoint("FIFO")),
    "a FIFO; python (pid 4100) has its other end": ("read", Endpoint("FIFO", processes=(PYTHON,))),
    "a FIFO; nobody but itself writes to it": ("read", Endpoint("FIFO", itself=True, sees_all=True)),
    "python (pid 4100), sleep (1), 2 (pid 7) has its other end": ("read", Endpoint("pipe", processes=(PYTHON, SLEEP))),
    "python (pid 4100) and 3 more has its other end": ("read", Endpoint("pipe", processes=(PYTHON,), more=3)),
    "nobody writes to it": ("read", Endpoint("pipe", sees_all=True)),
    "nobody but itself that can be seen reads it": ("write", Endpoint("pipe", itself=True, sees_all=False)),
    "10.0.0.5:443": ("recvfrom", Endpoint("connection", "10.0.0.5:443")),
    "[::1]:9, which python (pid 4100) has not accepted": (
        "recvfrom",
        Endpoint("connection", "[::1]:9", (PYTHON,), accepted=False),
    ),
    "[::1]:9, whose other end python (pid 4100) has and waits for input from it, too": (
        "recvfrom",
        Endpoint("connection", "[::1]:9", (PYTHON,), receives=True),
    ),
}


@pytest.mark.parametrize("sentence", ENDPOINTS)
def test_an_older_bundle_reads_as_it_was_meant(sentence: str) -> None:
    syscall, peer = ENDPOINTS[sentence]
    older = {"state": "S", "syscall": syscall, "other": sentence}
    kernel = checked(Kernel, older)
    assert kernel.peer == from_json(Kernel, older).peer == peer
    assert described(kernel) == sentence
    assert checked(Kernel, to_json(kernel)) == kernel


def test_a_call_on_a_socket_is_told_with_its_other_end() -> None:
    of_server = Kernel(state="S", syscall="poll", file="socket:[7]", peer=Endpoint("listener", "8080"))
    of_client = Kernel(state="S", syscall="recvfrom", file="socket:[7]", peer=Endpoint("connection", "10.0.0.5:443"))

    assert in_call(of_server) == "poll() for a connection to its own port 8080"
    assert in_call(of_client) == "recvfrom() on a connection to 10.0.0.5:443"


@pytest.mark.parametrize(
    "text", ["", "held by", "\n", "x" * 100_000 + ", whose", "a (pid 99999999999) has its other end"]
)
def test_what_no_version_wrote_names_no_process(text: str) -> None:
    peer = from_sentence(text)
    assert peer is None or not peer.pids


def test_what_is_no_text_is_no_peer() -> None:
    assert checked(Kernel, {"state": "S", "other": 5}).peer is None


def test_today_s_shape_goes_before_the_older_one() -> None:
    both = {"state": "S", "other": "held by a (pid 5)", "peer": {"kind": "file lock"}}
    assert checked(Kernel, both).peer == Endpoint("file lock")


@pytest.mark.parametrize("begin", ["held by ", "x, whose other end ", "", "a FIFO; "])
@pytest.mark.parametrize("unit", ["a, ", "a (pid ", " and 1 more", " has its other end", "(pid 1), ", ", which "])
@pytest.mark.parametrize("length", [4_000, 1_000_000])
def test_a_sentence_takes_time_by_its_length_alone(begin: str, unit: str, length: int) -> None:
    said = begin + unit * (length // len(unit))
    began = time.process_time()
    for _ in range(max(1, 1_000_000 // length)):  # a bundle of 1 MB holds as many
        from_sentence(said)

    assert time.process_time() - began < 2
