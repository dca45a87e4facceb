"""Which file system a path lies on, told without touching it: one that is dead would hold whoever asks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.preflight.machine.root import Root

# File systems whose data lie on other machines, and autofs, which mounts such ones at the first touch.
NETWORK = {
    "9p", "acfs", "afs", "autofs", "beegfs", "beegfs_nodev", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre",
    "mmfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "weka", "wekafs",
}  # fmt: skip
# File systems in user space: those that are known to be local; any other may be a network's.
LOCAL_FUSE = {
    "fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.squashfuse", "fuse.squashfuse_ll", "fuse.portal", "fuse.gvfsd-fuse",
    "fuse.snapfuse", "fuse.ntfs-3g",
}  # fmt: skip
MOST_LINKS = 40  # the kernel's own limit


@dataclass(frozen=True)
class Mount:
    """A mounted file system. `device` is MAJOR:MINOR, the same for all mounts of one file system."""

    point: str
    kind: str
    source: str
    device: str

    @property
    def network(self) -> bool:
        return self.kind in NETWORK or (self.kind.startswith("fuse.") and self.kind not in LOCAL_FUSE)


def mounts(root: Root) -> tuple[Mount, ...]:
    """All mounts, later ones last; none where the kernel does not say (proc(5), mountinfo)."""
    try:
        lines = procfs.lines(root.read("/proc/self/mountinfo"))
    except OSError:
        return ()
    return tuple(_mount(*line.split(" - ", 1)) for line in lines if " - " in line and line.count(" ") > 6)


def mount_of(root: Root, known: Sequence[Mount], path: str) -> Mount | None:
    """The mount on which an absolute path lies. Links are followed up to the first network file system and no further;
    what does not exist lies where its parent does."""
    return _walk(root, known, path)[1]


def _walk(root: Root, known: Sequence[Mount], path: str) -> tuple[str, Mount | None]:
    links = 0
    here = "/"
    rest = _parts(path)
    while rest:
        part = rest.pop(0)
        here = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        mount = _longest(known, here)
        if mount is None or mount.network:
            return here, mount
        try:
            target = root.readlink(here)
        except OSError:
            continue  # no link, or not there
        links += 1
        if links > MOST_LINKS:
            break
        here = "/" if target.startswith("/") else os.path.dirname(here)
        rest = _parts(target) + rest
    return here, _longest(known, here)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _longest(known: Sequence[Mount], path: str) -> Mount | None:
    best = None
    for mount in known:
        below = mount.point == "/" or path == mount.point or path.startswith(mount.point + "/")
        # Of two mounts on one point the later one is seen.
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _mount(left: str, right: str) -> Mount:
    fields, (kind, source) = left.split(" "), right.split(" ")[:2]
    return Mount(_unescape(fields[4]), kind, _unescape(source), fields[2])


def _unescape(text: str) -> str:
    r"""Blanks and the like are written as octal numbers: `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
