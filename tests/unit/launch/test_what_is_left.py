"""What is told of processes that are left when the ranks have ended."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from safelaunch import procfs
from safelaunch.launch.remains import Remains


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
