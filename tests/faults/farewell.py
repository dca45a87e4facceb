"""Saves something when it is told to end, and takes its time; a second SIGTERM in between must not disturb it."""

from __future__ import annotations

import os
import signal
import sys
import time


def save(signum: int, _frame: object) -> None:
    os.write(1, b"saving\n")
    signal.signal(signum, signal.SIG_DFL)  # as many scripts do: a second signal kills
    time.sleep(1)
    with open("saved", "w"):
        pass
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
os.write(1, b"ready\n")
while True:
    time.sleep(0.1)
