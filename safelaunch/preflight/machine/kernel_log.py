"""What the kernel has logged since boot, from the first place that may be read: /dev/kmsg, dmesg, the journal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.root import Root

KMSG = "/dev/kmsg"
# In a container /dev/kmsg may be missing while dmesg works. The groups adm and systemd-journal may read the journal.
COMMANDS = (("dmesg",), ("journalctl", "-k", "-q", "-o", "short-monotonic", "--no-pager"))
DEADLINE_S = 3.0  # a journal on a slow disk; dmesg takes milliseconds

_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")  # /dev/kmsg: microseconds since boot
_LINE = re.compile(r"\[ *(\d+\.\d+)\] (?:\S+ kernel: )?(.*)")  # dmesg and journalctl: seconds since boot


@dataclass(frozen=True)
class Message:
    """One message, and when it was logged, in seconds since boot."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Log:
    """The messages in order, or why they could not be read."""

    messages: tuple[Message, ...] = ()
    unreadable: str = ""


def read(root: Root, run: Callable[[tuple[str, ...], float], Ended]) -> Log:
    """The kernel's messages since boot, as far as they are kept."""
    try:
        messages = _parse(root.read_available(KMSG))
    except OSError as error:
        reason = f"{KMSG}: {error.strerror}"
    else:
        if messages:
            return Log(messages)
        # The kernel always has something to tell: containers put /dev/null or a console in its place.
        reason = f"{KMSG}: it holds no messages of the kernel"
    for command in COMMANDS:
        try:
            ended = run(command, DEADLINE_S)
        except OSError:
            continue
        messages = _parse(ended.stdout)
        if ended.returncode == 0 and messages:  # a journal that may not be read looks empty
            return Log(messages)
    return Log(unreadable=reason)


def _parse(text: str) -> tuple[Message, ...]:
    messages = []
    for line in procfs.lines(text):
        record = _RECORD.match(line)
        if record:
            messages.append(Message(int(record[1]) / 1e6, record[2]))
            continue
        plain = _LINE.match(line)
        if plain:
            messages.append(Message(float(plain[1]), plain[2]))
    return tuple(messages)
