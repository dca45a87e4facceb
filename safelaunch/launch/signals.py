"""Signals of the supervisor: handlers only note them; the loop acts."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

TERMINATING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Catches signals from the first moment on, also as PID 1, for whom the kernel has no default actions.

    SIGHUP stays ignored where it was ignored at our start: that is what `nohup` asks for. SIGCHLD is needed here: where
    it was ignored or blocked at our start (`ignored_children`), that is for the ranks alone.
    """

    def __init__(self) -> None:
        self.ignored_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        self._inherited = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        self.terminating: frozenset[int] = frozenset(TERMINATING)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.fd = reader
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # What is ignored is ignored in the ranks, too: they inherit it.
        forwarded = [signum for signum in FORWARDED if signal.getsignal(signum) is not signal.SIG_IGN]
        for signum in (*TERMINATING, *forwarded, signal.SIGCHLD):
            self._catch(signum)

    @contextlib.contextmanager
    def as_inherited(self) -> Iterator[None]:
        """What is started in here blocks the signals that we were started to block."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._inherited)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def treat_as_terminating(self, names: Iterable[str]) -> None:
        """Apply torchrun's `--signals-to-handle`: these end the run, whatever they are."""
        numbers = {getattr(signal, name.strip(), None) for name in names}
        self.terminating = frozenset(int(number) for number in numbers if number is not None)
        for signum in self.terminating:
            self._catch(signum)

    def _catch(self, signum: int) -> None:
        if signum == signal.SIGHUP and signal.getsignal(signum) is signal.SIG_IGN:
            return
        signal.signal(signum, lambda _signum, _frame: None)

    def pending(self) -> list[int]:
        """The signals that came since the last call, in order."""
        try:
            return list(os.read(self.fd, 4096))
        except BlockingIOError:
            return []
