"""Real ranks of a small gloo job on this host, started as the agent starts them, and what they left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import environment
from ranks import INJECT

from safelaunch import black_box, black_box_reader

PATIENCE_S = 110  # two cores, which others use too

# What every script here may use: `say` adds to what the test reads, `until` waits for another rank.
PREAMBLE = """
import json, os, sys, threading, time
from safelaunch import black_box, black_box_reader
RANK = int(os.environ["RANK"])
PLACE = os.environ["SAFELAUNCH_BLACK_BOX"], int(os.environ["SAFELAUNCH_SLOT"])
SAID = {}
def slot():
    return black_box_reader.read(*PLACE)
def entries():
    return [[e.op, e.group, e.seq, e.status, e.peer] for e in slot().entries]
def say(**what):
    SAID.update(what)
    with open(os.path.join(os.environ["SAFELAUNCH_RANK_DIR"], "said.json"), "w") as file:
        json.dump(SAID, file)
def until(look):
    while not look():
        time.sleep(0.005)
def mark(name):
    open(name, "w").close()
def marked(*names):
    until(lambda: all(map(os.path.exists, names)))
"""
GLOO = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
"""


@dataclass(frozen=True)
class Left:
    """What a rank left behind."""

    code: int
    pid: int
    out: str
    err: str
    said: dict[str, Any]
    slot: black_box_reader.Slot
    groups: dict[str, list[int]]
    new_groups: list[list[int]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(tmp_path: Path, source: str, *, ranks: int = 1, **changes: str | None) -> list[Left]:
    """Run `PREAMBLE` and `source` in each of `ranks` ranks to their ends."""
    script = tmp_path / "script.py"
    script.write_text(PREAMBLE + source)
    box = tmp_path / "black_box"
    black_box.create(str(box), ranks)
    port = free_port()
    processes = []
    for rank in range(ranks):
        folder = tmp_path / f"rank_{rank:03}"
        folder.mkdir()
        marks: dict[str, str | None] = {
            "PYTHONPATH": INJECT,
            "SAFELAUNCH_RANK_DIR": str(folder),
            "SAFELAUNCH_AGENT": str(os.getpid()),
            "SAFELAUNCH_SUPERVISOR": f"{os.getpid()}:0",
            "SAFELAUNCH_BLACK_BOX": str(box),
            "SAFELAUNCH_SLOT": str(rank),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCH_FR_BUFFER_SIZE": "2000",
            "OMP_NUM_THREADS": "1",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script)],
                env=environment(**{**marks, **changes}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                start_new_session=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also children that it has left behind
            process.wait()
    return [_left(tmp_path, rank, process, *outputs[rank]) for rank, process in enumerate(processes)]


def _left(tmp_path: Path, rank: int, process: subprocess.Popen[str], out: str, err: str) -> Left:
    box = str(tmp_path / "black_box")
    slot = black_box_reader.read(box, rank)
    assert slot is not None, err
    said = tmp_path / f"rank_{rank:03}" / "said.json"
    groups = Path(black_box.beside(box, rank, "groups"))
    lines = [json.loads(line) for line in groups.read_text().splitlines()] if groups.exists() else []
    return Left(
        process.returncode,
        process.pid,
        out,
        err,
        json.loads(said.read_text()) if said.exists() else {},
        slot,
        {line["name"]: line["ranks"] for line in lines if "name" in line},
        [line["new"] for line in lines if "new" in line],
    )
