"""Whether a signal was sent to one process, or to all around it."""

from __future__ import annotations

import subprocess
import sys

from harness import environment

PROGRAM = """
import os, signal, time
from safelaunch.launch.witness import Witness
os.setpgid(0, 0)
signals = (signal.SIGTERM, signal.SIGUSR1)
for each in signals:
    signal.signal(each, lambda *_: None)
witness = Witness(signals)
os.kill(os.getpid(), signal.SIGTERM)
print(witness.saw(signal.SIGTERM))
os.killpg(0, signal.SIGTERM)
print(witness.saw(signal.SIGTERM), witness.saw(signal.SIGTERM))
os.killpg(0, signal.SIGUSR1)
os.killpg(0, signal.SIGTERM)
print(witness.saw(signal.SIGTERM), witness.saw(signal.SIGUSR1))
witness.dismiss()
os.killpg(0, signal.SIGTERM)
print(witness.saw(signal.SIGTERM))
"""


def test_it_tells_which_signals_came_to_the_group() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment(), capture_output=True, text=True)

    assert ended.stdout.split() == ["False", "True", "False", "True", "True", "False"]
    assert ended.stderr == ""
