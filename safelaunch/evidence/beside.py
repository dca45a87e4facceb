"""What a rank leaves beside its black box, for whoever looks at it."""

from __future__ import annotations

from safelaunch import black_box, regular
from safelaunch.model import WorkerProcess

# Bytes. The largest is a rank's memory of a hundred groups of 1,024 ranks each, 0.5 MB; as objects they take twenty
# times that.
MOST = 4 << 20


def read(worker: WorkerProcess, what: str, most: int = MOST) -> bytes:
    """The whole of a file.

    Args:
        worker: whose file it is; of a rank that we did not start, one of its user.
        what: the last part of its name.
        most: bytes; a larger file is none that a rank has left.

    Raises:
        OSError: it cannot be read, or is none of that kind.
    """
    return regular.read(black_box.beside(worker.black_box, worker.local_rank, what), most, worker.owner)
