"""What is told of processes that are left when the ranks have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch import procfs
from safelaunch.launch.remains import Remains
from safelaunch.launch.tree import Tree
from safelaunch.preflight.machine.child import Children


@pytest.mark.parametrize("ended", [False, True])
def test_a_process_that_is_ending_is_not_one_that_ranks_have_detached(ended: bool) -> None:
    """Such as a child of our own that has been killed, and that nobody has waited for as yet."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.read(process.pid)
        assert found is not None
        if ended:
            process.kill()
            while (now := procfs.read(process.pid)) is not None and now.state != "Z":
                pass
        said: list[str] = []
        tree = SimpleNamespace(detached=lambda: [found], kill=lambda _: [], members=list)
        Remains(cast("Any", tree), said.append, lambda: None).kill()

        assert bool(said) is not ended
    finally:
        process.kill()
        process.communicate()


def test_a_probe_of_ours_is_not_one_either() -> None:
    """Another node may ask what the GPUs do while this one ends."""
    children = Children()
    running = threading.Thread(target=lambda: children.run(["sleep", "1000"], 1000.0, os.environ))
    running.start()
    try:
        while not procfs.OWN_SESSIONS:
            time.sleep(0.01)
        (session,) = procfs.OWN_SESSIONS
        found = procfs.read(session)
        assert found is not None
        assert found.sid == session
        assert Tree._is_attached(cast("Any", SimpleNamespace(_sessions=set())), found)
    finally:
        children.end()
        running.join()
    assert not procfs.OWN_SESSIONS
