"""Check that there is room where the job writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.storage import Volume
from safelaunch.preflight.node.directories import TEMPORARY, absolute
from safelaunch.sizes import size

ELSEWHERE = "a launch that was not told this folder keeps its evidence in TMPDIR, or in ~/.local/state/safelaunch"


@dataclass(frozen=True)
class Place:
    """A directory that the job writes to: what for, what room it should have (bytes), and what would help. `volume`
    is that of the nearest directory which exists."""

    purpose: str
    path: str
    volume: Volume
    wanted: float
    least: float
    remedy: str

    @property
    def file_system(self) -> str:
        return self.volume.mount.device if self.volume.mount else self.volume.path


def disk(host: Host) -> Iterator[Finding]:
    """The file system of the run directory, or that for temporary files, is full or cannot be written.

    Logs, evidence and most often checkpoints go below the run directory; compiled kernels, sockets and files of
    multiprocessing to TMPDIR. A full disk ends a run hours after its start, with a truncated checkpoint.

    How it is concluded: statvfs on both, or on the nearest directory above that exists, and an attempt to write into a
    file without a name. For the run directory less than 1 GiB or 10000 inodes is a warning. So is less than 100 MiB for
    temporary files (TMPDIR, TEMP or TMP, else /tmp, as Python looks for them). How much the job writes is not known, so
    it is an error only where a profile demands more: `min_free_disk` in [preflight]. One that cannot be written is a
    warning as well: a launch keeps its evidence elsewhere, and says where. Leptonai/gpud calls a node degraded below
    500 MB; a share of the size is not judged, since 5 % of a large disk is plenty. What does not answer a writer within
    15 s is an error; on file systems of a network SL139 tells it.

    What to do: make room, or choose another place with --run-dir or TMPDIR.
    """
    temporary = _temporary(host)
    if temporary is None:
        yield Finding(
            code="SL105",
            severity="warning",
            summary="no directory for temporary files can be written: data loaders, compilers and caches fail",
            because=("TMPDIR, /tmp, /var/tmp and the working directory were tried",),
            remedy="set TMPDIR to a directory that you can write to",
        )
    file_systems = _by_file_system([*_run_directory(host), *filter(None, [temporary])])
    faults = [fault for shared in file_systems for fault in _judge(host, shared)]
    yield from faults
    if temporary is not None and not faults:
        volumes = [shared[0].volume for shared in file_systems]
        yield ok("SL105", ", ".join(f"{size(volume.free)} free at {volume.path}" for volume in volumes))


def _run_directory(host: Host) -> Iterator[Place]:
    if host.job.run_dir:
        path = absolute(host, host.job.run_dir)
        volume = host.volume(path, write=True)
        wanted = host.wanted.free_disk or host.threshold("disk_wanted")
        least = host.wanted.free_disk or host.threshold("disk_least")
        yield Place("the run directory", path, volume, wanted, least, "choose another place with --run-dir")


def _temporary(host: Host) -> Place | None:
    """The directory that Python takes for temporary files: the first that can be written."""
    wanted, least = host.threshold("temporary_wanted"), host.threshold("temporary_least")
    named = map(host.environ.get, ("TMPDIR", "TEMP", "TMP"))
    for name in filter(None, [*named, *TEMPORARY, host.working_directory()]):
        path = absolute(host, name)
        volume = host.volume(path, write=True)
        if volume.path == path and not volume.unwritable:
            return Place("temporary files", path, volume, wanted, least, "choose another place with TMPDIR")
    return None


def _by_file_system(places: list[Place]) -> list[list[Place]]:
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(place.file_system, []).append(place)
    return list(found.values())


def _judge(host: Host, shared: list[Place]) -> Iterator[Finding]:
    """The worst of one file system, said once."""
    for place in shared:
        volume = place.volume
        if not volume.directory:
            yield Finding(
                code="SL105",
                severity="warning",
                summary=f"{place.purpose} {place.path} cannot be made: {volume.path} is not a directory",
                because=(ELSEWHERE,),
                remedy=place.remedy,
            )
            return
        if (volume.late or volume.error) and not (volume.mount is not None and volume.mount.network):
            yield Finding(
                code="SL105",
                severity="error",
                summary=f"the file system of {volume.path} does not answer",
                because=(volume.error or f"nothing could be written within {volume.elapsed_s:.3g} s",),
                remedy=f"see `dmesg` for its disk, or {place.remedy}",
                where=_where(volume),
            )
            return
        if volume.late or volume.error:
            yield unchecked(
                "SL105", f"no room was measured at {volume.path}", "its file system does not answer (see SL139)"
            )
            return
        if volume.unknown:
            yield unchecked("SL105", f"the file system of {volume.path} could not be looked at", volume.unknown)
            return
        if volume.unwritable:
            exists = place.path == volume.path
            yield Finding(
                code="SL105",
                severity="warning",
                summary=f"{place.purpose} {place.path} cannot be "
                + (f"written: {volume.unwritable}" if exists else f"made in {volume.path}: {volume.unwritable}"),
                because=(ELSEWHERE,),
                remedy=f"{place.remedy}, or have it made writable for you",
                where=_where(volume),
            )
            return
    for place in shared:
        fault = _full(host, place, shared)
        if fault:
            yield fault
            return


def _full(host: Host, place: Place, shared: list[Place]) -> Finding | None:
    volume = place.volume
    # File systems without a fixed number of inodes (btrfs, many network file systems) say 0 of 0.
    few_inodes = volume.inodes > 0 and volume.free_inodes < host.threshold("inodes_wanted")
    if volume.free >= place.wanted and not few_inodes:
        return None
    if volume.free < place.wanted:
        severe = volume.free < place.least
        summary = f"{size(volume.free)} free at {volume.path}, {size(int(place.wanted))} wanted"
        total = f"{size(volume.total)} in all"
    else:
        severe = volume.free_inodes < host.threshold("inodes_least")
        summary = f"{volume.free_inodes} inodes free at {volume.path}: hardly any new file can be made"
        total = f"{volume.inodes} in all; {size(volume.free)} of space would be free"
    purposes = " and ".join(other.purpose for other in shared)
    return Finding(
        code="SL105",
        severity="error" if severe else "warning",
        summary=summary,
        because=(f"{total}; {purposes} {'lies' if purposes == 'the run directory' else 'lie'} there",),
        remedy=f"make room, or {place.remedy}",
        where=_where(volume),
    )


def _where(volume: Volume) -> str:
    mount = volume.mount
    return f"{mount.source} ({mount.kind}) on {mount.point}" if mount else ""
