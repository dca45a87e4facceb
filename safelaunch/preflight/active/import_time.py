"""Check of the time that `import torch` takes."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_run import computed
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.machine.host import Host

REMEDY = "put the environment on a local disk, or in a container image or squashfs"


def import_time(host: Host) -> Iterator[Finding]:
    """torch cannot be imported on this node, or that takes very long.

    Every rank imports it once more at every start. From a file system that is slow today or that many nodes read from
    at once, a launch takes minutes, and ranks may run into the timeout of the rendezvous.

    How it is concluded: the probe that puts the devices to work imports torch first, and has 60 s and the time for its
    work. More than 30 s is a warning (threshold import_torch). That number is an estimate of ours: from a local disk
    it takes 1 to 2 s (measured), and some ten seconds from a shared file system that is cold.

    What to do: put the environment on a local disk, or into a container image or squashfs, which is read in large
    pieces. An error of the import is told with its own words; see what `python -c "import torch"` says.
    """
    found = computed(host)
    if found.import_s is not None:
        most = host.threshold("import_torch")
        text = f"import torch took {found.import_s:.1f} s"
        if found.import_s <= most:
            yield ok("SL157", text)
        else:
            because = f"{most:g} s are enough for a cold file system; it is read from {found.torch_path}"
            yield Finding(
                code="SL157",
                severity="warning",
                summary=text,
                because=(because,),
                remedy=REMEDY,
                where=found.torch_path,
            )
    elif found.import_unfinished:
        yield Finding(
            code="SL157",
            severity="warning",
            summary="import torch did not finish",
            because=(found.import_unfinished,),
            remedy=REMEDY,
        )
    elif found.import_error:
        yield Finding(
            code="SL157",
            severity="error",
            summary="torch cannot be imported",
            because=(found.import_error,),
            remedy='see what `python -c "import torch"` says in this environment',
        )
    else:
        yield unchecked("SL157", "the time of `import torch` was not taken", found.unknown)
