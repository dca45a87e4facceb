"""What looks at processes of others works in a process of its own: whatever holds or fills it, the answer comes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness import environment

PROGRAM = """
import os, signal, sys, threading, time
from safelaunch.cli import bounded
from safelaunch.model import SafelaunchError
def says():
    print("a verdict")
    return 3
def held():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    time.sleep(600)
def filled():
    kept = []
    while True:
        kept.append(bytearray(16 << 20))
def killed():
    os.kill(os.getpid(), signal.SIGKILL)
def held_at_its_end():
    threading.Thread(target=time.sleep, args=(600,)).start()
    print("a verdict", flush=True)
    return 3
try:
    code = bounded.run(globals()[sys.argv[1]], 2, 256 << 20)
except SafelaunchError as error:
    print(error.diagnostic.code, error.diagnostic.summary)
    code = error.exit_code
sys.stdout.flush()
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("says", 3, "a verdict"),
        ("held", 2, "SL008 to look at this job took more than 2 s"),
        ("filled", 2, "SL008 to look at this job took more than 256 MiB of memory"),
        ("killed", 2, "SL008 to look at this job took more than it may: a signal ended it"),
        ("held_at_its_end", 3, "a verdict"),
    ],
)
def test_the_work_says_its_word_or_the_limit_is_named(work: str, code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, work],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout.startswith(said)
    assert ended.stdout.count("\n") == 1
