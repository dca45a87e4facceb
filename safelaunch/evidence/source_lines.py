"""What stands around the lines at which ranks stand: loops and conditions, from the user's own source files.

The files are read by a child process: a script on a dead file system must not hold the supervisor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable

from safelaunch.codec import from_json
from safelaunch.model import SourceLine, Stack

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "source_probe.py")
LIMIT = 64
# The rank's Python need not be ours: a library is told by its path (.../lib/python3.11/..., python311.zip).
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/(python|pypy)\d[\d.]*t?/|/python\d+\.zip/|/safelaunch/worker/")


def describe(stacks: Iterable[Stack], seconds: float, root: str = "") -> tuple[SourceLine, ...]:
    """The lines of user code on these stacks, at most `LIMIT`, innermost frames of each stack first. A file that
    cannot be read is left out; after `seconds`, all that is not known yet. `root` is where the files of a container
    are seen from here."""
    lines = dict.fromkeys(
        (frame.file, frame.line)
        for stack in stacks
        for frame in stack.frames
        if frame.line > 0 and not frame.file.startswith("<") and not LIBRARY.search(frame.file)
    )
    asked = list(lines)[:LIMIT]
    if not asked:
        return ()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", PROBE, *([root] if root else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ()
    try:
        output, _ = process.communicate(json.dumps(asked).encode(), timeout=seconds)
    except subprocess.TimeoutExpired as late:
        process.kill()
        output = late.output or b""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            found.append(from_json(SourceLine, json.loads(line)))
        except (ValueError, TypeError):  # the child was killed while it wrote
            continue
    return tuple(found)
