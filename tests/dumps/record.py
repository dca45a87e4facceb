"""Writes dumps of tests/dumps, with torch and its own ranks: `python tests/dumps/record.py [FOLDER...]`.

Those of gloo (gloo-*) by default; those of both backends of NCCL (nccl-*, nccl2-*) where they are named, with four GPUs
or fake ones and torch 2.15. Beside them lies what the ranks and torchrun printed.
"""

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
NCCL_RANKS = HERE.parent / "faults" / "nccl_ranks.py"


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


def record_nccl(name: str) -> None:
    """Run a scene under torchrun until torch's watchdog has dumped and aborted its ranks."""
    backend, _, scene = name.partition("-")
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stem = str(folder / "comm_lib_trace_rank_")
    variables = {"TORCH_DIST_USE_NCCL2": str(int(backend == "nccl2")), "TORCH_FR_BUFFER_SIZE": "2000"}
    for prefix in ("TORCH_NCCL", "TORCH_FR"):
        variables |= {f"{prefix}_DUMP_ON_TIMEOUT": "1", f"{prefix}_WAIT_TIMEOUT_DUMP_MILSEC": "2000"}
    variables |= {"TORCH_FR_DUMP_TEMP_FILE": stem, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": stem}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    command += [str(NCCL_RANKS), scene.replace("-", "_")]
    run = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    (folder / "log.txt").write_text(_anywhere(run.stderr))
    for path in folder.glob("comm_lib_trace_rank_[0-9]"):
        path.write_bytes(pickle.dumps(elsewhere(pickle.loads(path.read_bytes())), protocol=2))  # torch's own


def elsewhere(dump: Any) -> Any:
    """The dump as another machine would have written it: no path of this one."""
    for entry in dump["entries"]:
        for frame in entry.get("frames", []):
            frame["filename"] = _anywhere(frame["filename"])
    return dump


def _anywhere(text: str) -> str:
    text = text.replace(sysconfig.get_paths()["purelib"], "/opt/venv/lib/python3.11/site-packages")
    return text.replace(sys.prefix, "/opt/venv").replace(str(RANKS.parent), "/home/user")


if __name__ == "__main__":
    from fr_ranks import SCENES

    for name, count in SCENES.items():
        if f"gloo-{name.replace('_', '-')}" in sys.argv[1:] or not sys.argv[1:]:
            record(name, count)
    for name in sys.argv[1:]:
        if name.startswith("nccl"):
            record_nccl(name)
