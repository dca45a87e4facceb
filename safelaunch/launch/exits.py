"""How processes end that are not our children: pidfd_open(2) shows the end, and new kernels the status."""

from __future__ import annotations

import fcntl
import os
import select
import struct
from collections.abc import Iterable

# include/uapi/linux/pidfd.h, struct pidfd_info as it was at first: it begins with a mask, and its last word is the
# status, from Linux 6.15 on also of a process that is gone.
_ROOM, _EXIT_CODE_AT = 64, 60  # bytes
_WITH_EXIT = 1 << 3
PIDFD_GET_INFO = 3 << 30 | _ROOM << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, struct pidfd_info)


class Watched:
    """One process that is watched for its end.

    Args:
        pid: its pid, which is still its own.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.descriptor = os.pidfd_open(pid)
        except OSError:
            self.descriptor = -1

    def ended(self) -> bool:
        """Whether it has ended, waited for or not."""
        if self.descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def status(self) -> int | None:
        """Its exit code as `subprocess` has it, None where nobody but its parent can know."""
        if self.descriptor < 0:
            return None
        raw = _of_zombie(self.pid)
        raw = self._of_kernel() if raw is None else raw
        return None if raw is None else os.waitstatus_to_exitcode(raw)

    def _of_kernel(self) -> int | None:
        data = bytearray(_ROOM)
        struct.pack_into("<Q", data, 0, _WITH_EXIT)
        try:
            fcntl.ioctl(self.descriptor, PIDFD_GET_INFO, data)
        except OSError:
            return None
        known = struct.unpack_from("<Q", data, 0)[0] & _WITH_EXIT
        return int(struct.unpack_from("<i", data, _EXIT_CODE_AT)[0]) if known else None

    def close(self) -> None:
        """Let go of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _of_zombie(pid: int) -> int | None:
    """The wait status of a process that has ended and that its parent has not asked after."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[49]) if fields[0] == b"Z" and len(fields) > 49 else None


def wait_for_any(watched: Iterable[Watched], wake: int, seconds: float) -> None:
    """Return when one of them ends, when there is something to read at `wake`, or after so many seconds."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    for one in watched:
        if one.descriptor >= 0:
            poll.register(one.descriptor, select.POLLIN)
    poll.poll(seconds * 1000)
