"""What a user is told to do about a rank that waits depends on what it waits for."""

from __future__ import annotations

import pytest

from safelaunch.diagnosis.stall.syscalls import ELSEWHERE, advice
from safelaunch.model import Endpoint, Kernel


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (Kernel("S", syscall="clock_nanosleep"), "what the program waits for"),
        (Kernel("S", syscall="flock", file="/tmp/lock"), "holds that lock"),
        (Kernel("S", syscall="wait4"), "what that process does"),
        (Kernel("S", syscall="recvfrom", file="socket:[7]"), "the other end"),
        (Kernel("S", syscall="read", file="socket:[7]"), "the other end"),
        (Kernel("S", syscall="openat", file="/tmp/fifo"), "what this file is"),
        (Kernel("S", syscall="write", file="pipe:[7]", peer=Endpoint("pipe")), "at its other end"),
        (Kernel("S", syscall="fsync", file="/ckpt/last.pt"), "its file system"),
        (Kernel("R"), "at work"),
        (Kernel("S", syscall="futex", cpu_s=0.9, since_s=1.0), "at work"),
    ],
)
def test_the_remedy_fits_the_call(kernel: Kernel, said: str) -> None:
    assert said in advice(kernel, False)


def test_a_wait_for_another_thread_is_not_told_as_what_the_kernel_sees_of_it() -> None:
    assert "queue" in advice(Kernel("S", syscall="clock_nanosleep"), True)


def test_where_nothing_is_seen_the_remedy_stays_general() -> None:
    assert advice(None, False) == advice(Kernel("S"), False) == ELSEWHERE
