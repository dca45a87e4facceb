"""A file system that answers nobody: ext4 on a loop device, frozen, so that who writes to it sleeps in the kernel (D).

Needs root and loop devices. A shell of its own thaws and unmounts it, even where the test that made it is killed:
not even SIGKILL ends a process that waits for it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SIZE_MIB = 16
FREEZE_AND_THAW = 'fsfreeze -f "$0" && echo frozen; read _; fsfreeze -u "$0"; umount -l "$0"'


class Unavailable(Exception):
    """This machine does not let us mount or freeze anything."""


@contextlib.contextmanager
def frozen_disk(folder: Path) -> Iterator[Path]:
    """The mount point of a frozen file system below `folder`; it is thawed and gone when the block is left.

    Raises:
        Unavailable: with what was refused.
    """
    image, mount = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    mount.mkdir()
    for command in (["mkfs.ext4", "-q", "-F", str(image)], ["mount", "-o", "loop", str(image), str(mount)]):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable(str(error)) from None
        except subprocess.CalledProcessError as error:
            raise Unavailable(error.stderr.strip()) from None
    keeper = subprocess.Popen(
        ["sh", "-c", FREEZE_AND_THAW, str(mount)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout
    try:
        if keeper.stdout.readline() != "frozen\n":
            raise Unavailable(keeper.communicate()[1].strip())
        yield mount
    finally:
        keeper.communicate()  # its standard input ends
