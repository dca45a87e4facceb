"""A command that runs below us as it would without us: its streams, its signals, its terminal, its end."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from safelaunch import procfs, streams
from safelaunch.launch.witness import Witness

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have it
STOP_WAIT_S = 0.5  # in which a command that a terminal stops has stopped
ENDS_S = 60.0  # in which a command that was told to end has done so; one that goes on was only interrupted
STOPPING = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
TERMINATING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# What comes from a process's own doing, or that must do to us what it does.
OWN = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGBUS),
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS, signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ),
}


class CannotStart(Exception):
    """The command cannot be run. `code` is what a shell would exit with."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Command:
    """Starts the command; to be made while this process has one thread.

    Args:
        words: of the command line.

    `asked_at` is CLOCK_MONOTONIC of the latest terminating signal, 0 where none came. What was ignored at our start
    stays so, here and in the command.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.asked_at = 0.0
        self.pid = -1
        self._words = list(words)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._signals = reader
        self._children_ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        self._inherited = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        mine = [each for each in signal.valid_signals() if each not in OWN]
        self._caught = [each for each in mine if signal.getsignal(each) is not signal.SIG_IGN]
        self._witness = Witness(each for each in self._caught if each not in (*STOPPING, signal.SIGCONT))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in (*self._caught, signal.SIGCHLD):
            signal.signal(signum, lambda _signum, _frame: None)

    def start(self, environ: Mapping[str, str]) -> None:
        """Start it, with its streams and all open files.

        Raises:
            CannotStart: there is no such command, or it cannot be executed.
        """
        words = self._words
        for attempt in (words, ["/bin/sh", *words]):  # a script without a first line, as execvp(3) runs it
            try:
                process = subprocess.Popen(attempt, env=environ, close_fds=False, preexec_fn=self._in_child)
            except OSError as error:
                if error.errno == errno.ENOEXEC and attempt is words:
                    continue
                code = NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
                raise CannotStart(code, f"{words[0]}: {os.strerror(error.errno or 0)}") from None
            process.returncode = 0  # `wait` waits for it, not this object
            self.pid = process.pid
            break
        _let_go_of_streams()

    def _in_child(self) -> None:
        if self._children_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._inherited)
        procfs.die_with_parent()
        for descriptor in streams.closed():
            os.close(descriptor)

    def wait(self, wake: int, woken: Callable[[], None]) -> int:
        """Wait for its end; returns its exit code as a shell has it: 128 and the number of a signal that ended it.

        Args:
            wake: a descriptor; where it can be read, `woken` is called.
            woken: what to do then, in this thread.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                status = self._reap()
                if status is not None:
                    self._witness.dismiss()
                    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                for key, _ in selector.select():
                    if key.fd == wake:
                        os.read(wake, 1)
                        woken()
                    else:
                        self._act_on_signals()

    def interrupts(self, timeout: float) -> bool:
        """Whether a terminating signal comes within so many seconds, once the command is over."""
        until = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0 and selector.select(left):
                if any(signum in TERMINATING for signum in self._pending()):
                    return True
        return False

    @property
    def interrupted(self) -> bool:
        """Whether it was told to end, and has not lived on for long."""
        return bool(self.asked_at) and time.monotonic() - self.asked_at < ENDS_S

    def send(self, signum: int) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signum)

    def _reap(self) -> int | None:
        """The wait status of the command, once it has one. As PID 1 of a container, others come to us, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0  # somebody else has waited for it
            if pid == self.pid:
                return status
            if pid == 0:
                return None

    def _pending(self) -> list[int]:
        try:
            return list(os.read(self._signals, 4096))
        except BlockingIOError:
            return []

    def _act_on_signals(self) -> None:
        for signum in self._pending():
            if signum == signal.SIGCHLD:
                continue
            if signum in STOPPING:
                self._stop_with_it()
                continue
            if signum in TERMINATING:
                self.asked_at = time.monotonic()
            if signum == signal.SIGCONT or not self._witness.saw(signum):
                self.send(signum)

    def _stop_with_it(self) -> None:
        """The terminal stops the job: this process is stopped once the command is, and as long."""
        until = time.monotonic() + STOP_WAIT_S
        while time.monotonic() < until:
            process = procfs.read(self.pid)
            if process is not None and process.state == "T":
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            time.sleep(0.01)


def _let_go_of_streams() -> None:
    """Standard input and output, and all files that were open at our start, are the command's alone: who reads what it
    writes is to see it close them."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with contextlib.suppress(OSError):
            if descriptor > 2 and os.get_inheritable(descriptor):  # ours are not (PEP 446)
                os.close(descriptor)
