"""System calls by what a thread waits for in them, and what to do about such a wait."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.model import Kernel

SLEEPS = {"clock_nanosleep", "nanosleep"}
POLLS = {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"}
READS = {"read", "pread64", "readv", "preadv", "getdents64"}
WRITES = {"write", "pwrite64", "writev", "fsync", "fdatasync"}
OPENS = {"open", "openat", "openat2"}  # opening a FIFO waits for its other end
RECEIVES = {"recvfrom", "recvmsg", "connect", "accept", "accept4"}
WAITS_FOR_CHILD = {"wait4", "waitid"}
LOCKS = {"futex"}
FILE_LOCKS = {"flock", "fcntl"}

# Above this much CPU time per second a thread computes rather than waits.
BUSY = 0.5

ELSEWHERE = "all ranks must make the same collectives: look at what keeps this one"


def computes(kernel: Kernel) -> bool:
    """Whether a thread was seen at work, not in a wait."""
    return kernel.state == "R" or (kernel.cores or 0.0) > BUSY


def advice(kernel: Kernel | None, for_thread: bool) -> str:
    """What to do about a rank that does not come.

    Args:
        kernel: where the kernel has seen its thread, if it was asked.
        for_thread: whether the thread waits for another one of its process, as its stack says.
    """
    if for_thread:
        return "see who was to release or to feed it: a thread that died, a lock that is not given back, an empty queue"
    if kernel is None:
        return ELSEWHERE
    return next((words for holds, words in ADVICE if holds(kernel)), ELSEWHERE)


def _is_on_connection(kernel: Kernel) -> bool:
    if kernel.syscall in RECEIVES | POLLS:
        return True
    return kernel.syscall in READS | WRITES and kernel.file.startswith("socket:")


def _is_on_file(kernel: Kernel) -> bool:
    return kernel.syscall in READS | WRITES and kernel.file.startswith("/") and kernel.peer is None


# By the first of these that holds.
ADVICE: tuple[tuple[Callable[[Kernel], bool], str], ...] = (
    (lambda kernel: kernel.syscall in FILE_LOCKS, "see who holds that lock, and why it is not given back"),
    (
        lambda kernel: kernel.syscall in SLEEPS,
        "see what the program waits for at this line, and who was to bring it about",
    ),
    (
        lambda kernel: kernel.syscall in WAITS_FOR_CHILD,
        "see what that process does; a timeout turns such a wait into an error",
    ),
    (_is_on_connection, "see what the other end does, or did; a timeout turns such a wait into an error"),
    (_is_on_file, "look at that file, and at its file system"),
    (
        lambda kernel: kernel.syscall in READS and kernel.peer is not None and bool(kernel.peer.processes),
        "see what that process writes, and when: `readline()` waits for a newline, and `read()` for the end",
    ),
    (
        lambda kernel: kernel.syscall in READS | WRITES | OPENS,
        "see what this file is, and who was to be at its other end",
    ),
    (computes, "see why it is at work here while its peers are not: its data, a loop that does not end"),
)
