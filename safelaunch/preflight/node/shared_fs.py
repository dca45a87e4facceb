"""Check that the network file systems that the job needs answer."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.mounts import Mount, mount_of, mounts
from safelaunch.preflight.machine.storage import Volume
from safelaunch.preflight.node.directories import needed

# What every job touches, and what Python touches at its start: it goes without where there is an error, but waits.
NEEDED = ("the run directory", "the working directory")
WAITED_FOR = (*NEEDED, "HOME", "TMPDIR")
LUSTRE_HEALTH = ("/sys/fs/lustre/health_check", "/proc/fs/lustre/health_check")


def shared_fs(host: Host) -> Iterator[Finding]:
    """A directory of a network file system that the job needs does not answer, or is slow.

    Each rank would block in the first call that touches it, in a state that not even SIGKILL ends.

    How it is concluded: directories on a network file system (nfs, lustre, gpfs, beegfs, ceph, cifs, fuse and others,
    by /proc/self/mountinfo) are looked at and listed in a child process:
    - the run directory and the working directory;
    - those that HOME, TMPDIR and the variables of caches (HF_HOME, TORCH_HOME and the like) name.
    No answer within 15 s is an error: that is the limit of NVIDIA's resiliency extension for the same. So is an error
    of the file system itself ("Stale file handle") of the run or working directory. Of a cache, which the job may never
    touch, both are warnings. So is an answer after more than 3 s. Where one of them is Lustre, so is a complaint of its
    own health check (/sys/fs/lustre). A child that the kernel holds is left behind. File systems of this machine are
    not looked at.

    What to do: see whether `ls DIRECTORY` hangs too; then the file server or the network to it is at fault, and an
    administrator has to look, or remount. Else work from another directory.
    """
    remote = list(_remote(host))
    volumes = _look(host, [path for _, path, _ in remote])
    faults: list[Finding] = []
    told: set[str] = set()
    for purpose, path, mount in remote:
        fault = _judge(host, purpose, volumes.get(path), mount) if mount.point not in told else None
        if fault:
            faults.append(fault)
            told.add(mount.point)
    faults += _lustre(host, {mount.kind for _, _, mount in remote})
    yield from faults
    if not faults:
        points = dict.fromkeys(f"{mount.point} ({mount.kind})" for _, _, mount in remote)
        answers = "answer" if len(points) > 1 else "answers"
        well = ok("SL139", f"{', '.join(points)} {answers}")
        yield well if points else skipped("SL139", "the job needs no network file system")


def _remote(host: Host) -> Iterator[tuple[str, str, Mount]]:
    known = mounts(host.root)
    for purpose, path in needed(host):
        mount = mount_of(host.root, known, path)
        if mount and mount.network:
            yield purpose, path, mount


def _look(host: Host, paths: list[str]) -> dict[str, Volume]:
    """All at once: a file system that is late must not keep the others waiting."""
    found: dict[str, Volume] = {}

    def work(path: str) -> None:
        found[path] = host.volume(path)

    threads = [threading.Thread(target=work, args=(path,), name="look", daemon=True) for path in dict.fromkeys(paths)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _judge(host: Host, purpose: str, volume: Volume | None, mount: Mount) -> Finding | None:
    where = f"{mount.source} ({mount.kind}) on {mount.point}"
    if volume is None or volume.unknown:
        reason = volume.unknown if volume else "looking at it failed"
        return unchecked("SL139", f"{purpose} on {mount.point} was not looked at", reason)
    listing = f"ls {shlex.quote(volume.path)}"
    remedy = f"see whether `{listing}` hangs too; an administrator has to look at the file server, or remount"
    if volume.late or volume.error:
        fatal = purpose in (WAITED_FOR if volume.late else NEEDED)
        return Finding(
            code="SL139",
            severity="error" if fatal else "warning",
            summary=f"{volume.path} does not answer"
            + (f" within {volume.elapsed_s:.3g} s" if volume.late else f": {volume.error}"),
            because=(f"{purpose} is there: {'every rank' if fatal else 'a rank that uses it'} would block or fail",),
            remedy=remedy if volume.late else "an administrator has to remount it, or look at the file server",
            where=where,
        )
    if volume.elapsed_s > host.threshold("directory_slow_s"):
        return Finding(
            code="SL139",
            severity="warning",
            summary=f"{volume.path} took {volume.elapsed_s:.1f} s to answer",
            because=(f"{purpose} is there, and all ranks will use it at once",),
            remedy="have an administrator look at the load of the file server, or work from another directory",
            where=where,
        )
    return None


def _lustre(host: Host, kinds: set[str]) -> Iterator[Finding]:
    for path in LUSTRE_HEALTH if "lustre" in kinds else ():
        try:
            said = host.root.read(path).strip()
        except OSError:
            continue
        if said != "healthy":
            yield Finding(
                code="SL139",
                severity="warning",
                summary=f"Lustre says that it is not well on this node: {said.splitlines()[0] if said else 'nothing'}",
                because=(f"{path} should say `healthy`",),
                remedy="an administrator has to look at the Lustre client of this node",
                where=path,
            )
        return
