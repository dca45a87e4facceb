"""Leaves a process in a session of its own, which looks for a file `enough` and then writes `uploaded`.

The process starts the Python that writes when the launcher may have gone: `detaches.py [fail] [forever]`.
"""

from __future__ import annotations

import os
import subprocess
import sys

WRITES = f"{sys.executable} -c \"open('uploaded', 'w')\""
WAITS = f"while [ ! -e enough ]; do sleep 0.05; done; {WRITES}"

words = sys.argv[1:]
if os.environ["RANK"] == "0":
    command = ["sleep", "600"] if "forever" in words else ["sh", "-c", WAITS]
    process = subprocess.Popen(
        command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.write(1, f"detached {process.pid}\n".encode())
if "fail" in words:
    raise ValueError("as it was asked to")
