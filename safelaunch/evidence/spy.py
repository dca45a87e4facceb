"""py-spy as a child process: stacks of any Python process, without its help."""

from __future__ import annotations

import functools
import json
import os
import selectors
import shutil
import subprocess
import sysconfig
import time
from typing import Any

from safelaunch import procfs

# Bytes. 100 threads of 100 frames are 2 MB; a program can make its stacks as large as its memory.
MOST = 16 << 20


@functools.cache
def find() -> str | None:
    """The py-spy that was installed with us, else one on PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "py-spy")
    return own if os.access(own, os.X_OK) else shutil.which("py-spy")


class Dump:
    """A dump that has been started; `result` waits for it."""

    def __init__(self, pid: int, how: str) -> None:
        self.late = False
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = "py-spy is not installed"
        tool = find()
        if tool is None:
            return
        try:
            self._process = subprocess.Popen(
                [tool, "dump", how, "--json", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._reason = f"py-spy: {error.strerror}"

    def result(self, until: float) -> tuple[list[dict[str, Any]] | None, str]:
        """The threads with their frames, innermost first, or None and the reason; not later than `until`
        (CLOCK_MONOTONIC). py-spy is killed then, and left to the kernel if that holds it."""
        if self._process is None:
            return None, self._reason
        try:
            output, complaint = self._said(until)
        except subprocess.TimeoutExpired:
            self.late = True
            self._process.kill()
            return None, "py-spy did not answer in time"
        if len(output) > MOST:
            return None, f"py-spy: the stacks are larger than {MOST >> 20} MiB"
        if self._process.returncode != 0:
            lines = procfs.lines(complaint.decode("utf-8", "replace").strip()) or ["no output"]
            return None, f"py-spy: {lines[-1]}"
        try:
            threads: list[dict[str, Any]] = json.loads(output)
        except ValueError:
            return None, "py-spy: its answer is not JSON"
        return threads, ""

    def _said(self, until: float) -> tuple[bytes, bytes]:
        """What it has written to both streams until it ended, or more than `MOST`; it is killed then.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        assert self._process is not None
        streams = {self._process.stdout: bytearray(), self._process.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self._process.args, 0)
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    streams[key.fileobj] += piece  # type: ignore[index]
                    if not piece:
                        selector.unregister(key.fileobj)
                if any(len(said) > MOST for said in streams.values()):
                    self._process.kill()
                    break
        self._process.wait(max(0.0, until - time.monotonic()))
        for stream in streams:
            assert stream is not None
            stream.close()
        output, complaint = streams.values()
        return bytes(output), bytes(complaint)
