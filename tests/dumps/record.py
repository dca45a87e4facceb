"""Writes the dumps of tests/dumps/gloo-*: `python tests/dumps/record.py`, with torch and its own ranks."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "faults"))

RANKS = HERE.parent / "faults" / "fr_ranks.py"


def record(scene: str, size: int) -> None:
    folder = HERE / f"gloo-{scene.replace('_', '-')}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common["TORCH_FR_BUFFER_SIZE"] = "2000"
    command = [sys.executable, RANKS.name, scene, str(folder)]
    ranks = [subprocess.Popen(command, cwd=RANKS.parent, env={**common, "RANK": str(r)}) for r in range(size)]
    for rank in ranks:
        rank.wait(60)
    for path in folder.glob("comm_lib_trace_rank_[0-9]"):
        path.write_bytes(pickle.dumps(elsewhere(pickle.loads(path.read_bytes())), protocol=2))  # torch's own


def elsewhere(dump: Any) -> Any:
    """The dump as another machine would have written it: no path of this one."""
    libraries = sysconfig.get_paths()["purelib"]
    for entry in dump["entries"]:
        for frame in entry.get("frames", []):
            name = frame["filename"].replace(libraries, "/opt/venv/lib/python3.11/site-packages")
            frame["filename"] = name.replace(str(RANKS), f"/home/user/{RANKS.name}")
    return dump


if __name__ == "__main__":
    from fr_ranks import SCENES

    for name, count in SCENES.items():
        if name in sys.argv[1:] or not sys.argv[1:]:
            record(name, count)
