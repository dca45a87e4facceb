"""Plain log files of torchrun, Slurm and Kubernetes: text -> LogFacts.

Files are streamed and never held as a whole. Lines are untangled into streams by their prefixes, then by their files;
tracebacks are put together within each stream. Nothing is concluded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safelaunch.evidence.logs.assemble import facts
from safelaunch.evidence.logs.contents import unread
from safelaunch.evidence.logs.find import find
from safelaunch.evidence.logs.reader import Reader
from safelaunch.evidence.logs.signatures import Signature, load
from safelaunch.model.logs import LogFacts

__all__ = ["load", "read"]


def read(paths: Sequence[str], signatures: Sequence[Signature] | None = None, without: Sequence[str] = ()) -> LogFacts:
    """The facts of one job from its log files.

    Args:
        paths: files, plain or compressed (gzip, bzip2, xz), and folders, of which the files that look like logs are
            read; `-` is the standard input. A log that cannot be read says so in the facts.
        signatures: the known messages; None: the shipped ones and the user's own.
        without: files in these folders that are known to be something else.

    Raises:
        SafelaunchError: SL290, where a file of signatures cannot be used.
    """
    reader = Reader(load() if signatures is None else signatures)
    known = frozenset(without)
    found = list({one.path: one for given in paths for one in find(given) if one.path not in known}.values())
    logs = [one for one in found if not one.unknown]
    contents = [
        unread(one.path, one.unread) if one.unread else reader.read(number, one.path) for number, one in enumerate(logs)
    ]
    return replace(facts(contents), passed_over=tuple(one.path for one in found if one.unknown))
