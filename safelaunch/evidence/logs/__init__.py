"""Plain log files of torchrun, Slurm and Kubernetes: text -> LogFacts.

Files are streamed and never held as a whole. Lines are untangled into streams by their prefixes, then by their files;
tracebacks are put together within each stream. Nothing is concluded here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from safelaunch.evidence.logs.assemble import facts
from safelaunch.evidence.logs.reader import Reader
from safelaunch.evidence.logs.signatures import Signature, load
from safelaunch.model.logs import LogFacts

__all__ = ["load", "read"]

_LOG_NAME = re.compile(r"\.(?:log|out|err|txt|stdout|stderr)(?:\.\d+)?(?:\.(?:gz|bz2|xz))?$|^[^.]*$|log", re.IGNORECASE)
_OTHER_NAME = re.compile(
    r"\.(?:py|json|jsonl|toml|ya?ml|pt|pth|pkl|pickle|bin|safetensors|csv|md|html|svg|png|so|npz?)$"
)
_HEAD = 4096
DEPTH = 16  # folders below the one that was named


def read(paths: Sequence[str], signatures: Sequence[Signature] | None = None) -> LogFacts:
    """The facts of one job from its log files.

    Args:
        paths: files, plain or compressed (gzip, bzip2, xz), and folders, of which the files that look like logs are
            read; `-` is the standard input. A file that cannot be read says so in the facts.
        signatures: the known messages; None: the shipped ones and the user's own.

    Raises:
        SafelaunchError: SL290, where a file of signatures cannot be used.
    """
    reader = Reader(load() if signatures is None else signatures)
    found = [path for given in paths for path in _files(given)]
    return facts([reader.read(number, path) for number, path in enumerate(dict.fromkeys(found))])


def _files(path: str) -> Iterator[str]:
    if path == "-" or not os.path.isdir(path):
        yield path
        return
    deepest = path.rstrip(os.sep).count(os.sep) + DEPTH
    for folder, below, names in os.walk(path):
        below.sort()
        if folder.count(os.sep) >= deepest:
            below.clear()
        for name in sorted(names):
            full = os.path.join(folder, name)
            if _LOG_NAME.search(name) and not _OTHER_NAME.search(name) and _is_text(full):
                yield full


def _is_text(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return True  # named in the facts as what could not be read
    return head[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7") or head.count(0) <= len(head) // 3
