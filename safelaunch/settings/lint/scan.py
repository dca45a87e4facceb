"""Runs in: a child process, by its path. Collects the names that may be variables from torch and NCCL as they are
installed: no library is loaded, and nothing of torch is imported. Their file system may hold it, so others wait for it
only as long as they want.

On stdin a JSON object of `libraries` (files) and `torch` (torch's folder), on stdout a JSON list of names. It exits
with an error where one of the files cannot be read: what is not seen must not be taken for absent.

No one source has all names: compilers turn short strings into code, linkers fold a string into another with the same
end, and much is read by torch's Python. So it looks at the constants of the libraries, at the quoted words of Python
files that deal with the environment, and at the quoted words of the headers of c10d and of the allocators.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # alone, it has neither PYTHONPATH nor a working directory

from safelaunch.settings.lint.elf import Elf

HEADERS = ("include/torch/csrc/distributed/c10d", "include/c10/core", "include/c10/cuda", "include/c10/util")
QUOTED = re.compile(rb"""[A-Z][A-Z0-9_]{2,}(?=["'])""")
# How Python files ask for a variable: os.environ, os.getenv, `_get_env(...)` and `env_name_force=` of configurations.
ASKS = (b"environ", b"getenv", b"_env(", b"env_name")
# Below torch/: headers, libraries and tests of torch itself, which no job runs.
APART = frozenset({"include", "lib", "bin", "share", "test", "testing", "__pycache__"})


def names(libraries: Iterable[str], torch: str) -> frozenset[str]:
    """Every word that may be the name of a variable.

    Args:
        libraries: the files of the libraries.
        torch: the folder of the package torch, for its Python files and headers; "" for none.

    Raises:
        OSError: a file cannot be read.
        ValueError: a library is no ELF file, or is damaged.
    """
    found: set[str] = set()
    for library in libraries:
        with Elf(library) as elf:
            found |= elf.words()
    if torch:
        words = {word for text in _headers(torch) for word in QUOTED.findall(text)}
        # DDP prints a list of NCCL's variables, with some that NCCL gave up long ago. No Python file reads any of them.
        words |= {word for text in _programs(torch) for word in QUOTED.findall(text) if not word.startswith(b"NCCL_")}
        found |= {word.decode("ascii") for word in words}
    return frozenset(found)


def _headers(torch: str) -> Iterator[bytes]:
    for folder in HEADERS:
        for path in _files(os.path.join(torch, folder), (".h", ".hpp"), frozenset()):
            yield _read(path)


def _programs(torch: str) -> Iterator[bytes]:
    for path in _files(torch, (".py",), APART):
        text = _read(path)
        if any(word in text for word in ASKS):
            yield text


def _files(folder: str, endings: tuple[str, ...], apart: frozenset[str]) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:  # no headers: a build of one's own
        return
    for entry in entries:
        if entry.name.endswith(endings):
            yield entry.path
        elif entry.name not in apart and entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, endings, apart)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def main() -> None:
    asked = json.load(sys.stdin)
    print(json.dumps(sorted(names(asked["libraries"], asked["torch"]))))


if __name__ == "__main__":
    main()
