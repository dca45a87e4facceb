from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import environment

from safelaunch.launch.journal import Journal


def test_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.jsonl"
    Journal(str(path)).write("worker", rank=3, note="a\nb")
    Journal(str(path)).write("exit", path=Path("/x"))  # a restart appends

    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["event"], first["rank"], first["note"]) == ("worker", 3, "a\nb")
    assert (second["event"], second["path"]) == ("exit", "/x")
    assert first["t"] <= second["t"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_silences_it_and_stops_nothing() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    journal = Journal("/dev/full")
    journal.write("worker")
    journal.write("exit")

    assert journal.failed is not None
    assert journal.failed.strerror == "No space left on device"


def signalled(source: str, *, nohup: bool = False) -> str:
    script = f"import os, signal\nfrom safelaunch.launch.signals import Signals\nme = os.getpid()\n{source}"
    command = [*(["nohup"] if nohup else []), sys.executable, "-c", script]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True).stdout


def test_signals_are_noted_in_order_and_do_nothing_else() -> None:
    source = """
signal.signal(1, signal.SIG_DFL)  # these tests may run under nohup themselves
s = Signals()
print(s.pending())
for number in (15, 10, 2, 1, 3, 12):
    os.kill(me, number)
print(s.pending(), s.pending())
"""

    assert signalled(source) == "[]\n[15, 10, 2, 1, 3, 12] []\n"


def test_nohup_is_respected() -> None:
    assert signalled("s = Signals()\nos.kill(me, 1)\nos.kill(me, 15)\nprint(s.pending())", nohup=True) == "[15]\n"


def test_signals_to_handle() -> None:
    source = """
s = Signals()
s.treat_as_terminating(['SIGTERM', ' SIGALRM', 'SIGNONSENSE'])
os.kill(me, 14)
print(sorted(s.terminating), s.pending())
"""

    assert signalled(source) == "[14, 15] [14]\n"


def test_a_storm_of_signals_blocks_nothing() -> None:
    source = "s = Signals()\nfor _ in range(100_000): os.kill(me, 10)\nprint(set(s.pending()))"

    assert signalled(source) == "{10}\n"
