"""Small real processes that say when they are ready."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

LISTEN = """
import socket, sys
server = socket.create_server(("{address}", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def python(source: str, environ: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A child that runs `source`, and the first line it printed; it ends with the block."""
    child = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    assert child.stdin
    assert child.stdout
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
