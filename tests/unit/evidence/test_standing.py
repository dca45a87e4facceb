"""Where ranks mostly stand: the lines of the main thread, and those of other threads that run Python."""

from __future__ import annotations

import os
import time
from pathlib import Path

import living
import pytest
from living import python, until

from safelaunch.evidence import spy, stack_samples

PROGRAM = """
import threading, time
def redraw():
    while True: sum(range(1000))
def wait():
    threading.Event().wait()
for target in (redraw, redraw, wait):
    threading.Thread(target=target, daemon=True).start()
print("ready", flush=True)
def work():
    while True: time.sleep(0.001)
work()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy may not be allowed to look")
def test_threads_that_run_are_seen_beside_the_main_one(tmp_path: Path) -> None:
    if spy.find() is None:
        pytest.skip("py-spy is not installed")
    script = tmp_path / "train.py"  # what `python -c` runs is no user's line
    script.write_text(PROGRAM)
    with python("import runpy, sys; runpy.run_path(sys.argv[1])", str(script)) as process:

        def look() -> stack_samples.Standing | None:
            worker = living.rank(process.pid)
            (found,) = stack_samples.look([worker], {worker.rank}, 4, time.monotonic() + 20)
            return found if found.others == 2 else None

        found = until(look)

    assert found.beside is not None
    assert found.beside.function == "redraw"
    assert found.location is not None
    assert found.location.function == "work"
