"""What a rank leaves for its supervisor, changed at random: a kind of `mutations`."""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
import time
from pathlib import Path

from changed import of_bytes, of_document

WORDS = (b"\xff" * 8, bytes(8), struct.pack("<d", 1e300), struct.pack("<d", float("nan")), b"\x80" * 8, b"\0error[S")


def a_rank(folder: Path, chance: random.Random, real: dict[str, bytes]) -> list[str]:
    """What a rank leaves in its folder and in the memory that it shares, some of it changed."""
    (folder / "rank").mkdir()
    changed = {*chance.sample(sorted(real), chance.choice((1, 1, 2, 3)))}
    for name, data in real.items():
        if name in changed and name.endswith(".json"):
            data = json.dumps(of_document(json.loads(data), chance)).encode()
        elif name in changed and name == "box":
            for _ in range(chance.choice((1, 4, 40))):  # its size stays: it is sealed
                at = 8 * chance.randrange(1, len(data) // 8)
                data = data[:at] + chance.choice(WORDS) + data[at + 8 :]
        elif name in changed:
            data = of_bytes(data, chance)
        (folder / name).write_bytes(data)
    return [str(folder)]


def of_a_rank() -> dict[str, bytes]:
    """The files of a rank that has made some calls and failed."""
    from safelaunch import black_box

    pid = os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "box")
        Path(path).write_bytes(bytes(black_box.SLOT))
        writer = black_box.Writer(path, 0)
        for seq in range(1, 20):
            text = writer.text("all_reduce", ("/job/train.py", 61, "main"), "0", "float32", how="sum")
            writer.leave(writer.enter(text, 2, seq, 1000))
        writer.enter(writer.text("barrier", ("/job/train.py", 62, "main"), "0", ""), 2, 20, -1)
        writer.pulse.begin("checkpoint", 5.0)
        writer.pulse.step()
        writer.pulse.begin_pass(7, 100, 2)
        writer.exit_call("/job/train.py", 70, "main", 3)
        slot = Path(path).read_bytes()
    error = {
        "t": time.monotonic(), "type": "RuntimeError", "message": "CUDA out of memory", "chain": ["ValueError: x"],
        "traceback": 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\nRuntimeError: x\n',
        "frames": [{"file": "/job/train.py", "line": 61, "function": "main"}],
    }  # fmt: skip
    return {
        "box": slot,
        "box.0.groups": b'{"name": "0", "ranks": [0, 1]}\n{"new": [0, 1]}\n',
        f"rank/error-{pid}.json": json.dumps(error).encode(),
        f"rank/fault-{pid}.txt": b"Fatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n"
        b'  File "/job/train.py", line 61 in main\n',
        f"rank/stacks-{pid}.txt": b'Thread 0x01 (most recent call first):\n  File "/job/train.py", line 61 in main\n',
        "rank/stderr.log": b"step 1\nRuntimeError: x\n",
    }


def judged(paths: list[str]) -> None:
    """Collect, conclude, write the bundle, and read it again."""
    from safelaunch import codec, diagnosis, evidence
    from safelaunch.evidence import case, stack_text
    from safelaunch.evidence.gather import gather
    from safelaunch.model import Case, Incident, WorkerGroup, WorkerProcess
    from safelaunch.report import bundle

    (folder,) = paths
    box = os.path.join(folder, "box")
    worker = WorkerProcess(0, 0, os.getpid(), 0, os.path.join(folder, "rank"), box, owner=os.getuid())
    group = WorkerGroup(0, 1, 2, (worker,))
    incident = Incident("exit", 0, (0,), time.monotonic())
    found = gather(incident, [worker], evidence.LASTING, 5.0)
    facts = case.build(incident, group, found, "host", None, now=time.monotonic())
    verdict = diagnosis.diagnose(facts)
    place, fault = bundle.write(os.path.join(folder, "incident-0"), facts, verdict, found, stack_text.stack_text)
    if not place or fault:
        raise AssertionError(fault)
    codec.checked(Case, json.loads(Path(place, "evidence", "case.json").read_text()))
