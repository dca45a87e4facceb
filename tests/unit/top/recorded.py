"""A run as `safelaunch top` finds it: a folder with what a launcher writes, and pulses that this process writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safelaunch import black_box, procfs
from safelaunch.codec import to_json
from safelaunch.model import Verdict

HOST = os.uname().nodename


@dataclass
class Run:
    """One run of ranks that are all played by this process."""

    path: Path
    ranks: int = 3
    box: str = ""
    writers: list[black_box.Writer] = field(default_factory=list)
    time: float = 1_000_000.0

    def start(self, **changes: Any) -> Run:
        """Write run.json, and take the slots."""
        self.path.mkdir(parents=True)
        scratch = self.path.parent / f"scratch-{self.path.name}"
        scratch.mkdir()
        self.box = str(scratch / "black_box")
        black_box.create(self.box, self.ranks)
        self.writers = [black_box.Writer(self.box, index) for index in range(self.ranks)]
        places = [{"rank": rank, "host": HOST, "gpu_index": None} for rank in range(self.ranks)]
        plan = {"script": "train.py", "script_args": ["--lr", "1"], "scratch_dir": str(scratch)}
        document = {"run_id": "r1", "started": self.time, "plan": plan, "mapping": [{"attempt": 0, "ranks": places}]}
        self.write("run.json", document | changes)
        self.event("preflight", refused=False)
        return self

    def begin(self, attempt: int = 0, **changes: Any) -> Run:
        """An attempt begins."""
        own = procfs.read(os.getpid())
        assert own is not None
        self.event("group", attempt=attempt, world_size=self.ranks, local_world_size=self.ranks)
        for rank in range(self.ranks):
            fields = {"rank": rank, "local_rank": rank, "pid": own.pid, "start": own.start, "rank_dir": ""}
            self.event("worker", **{**fields, "black_box": self.box, "logs": [], **changes})
        return self

    def event(self, name: str, **fields: Any) -> None:
        """Something happens, a second later."""
        self.time += 1
        of_programs = name in ("notice", "progress")
        with (self.path / ("events.jsonl" if of_programs else "agent.jsonl")).open("a") as file:
            file.write(json.dumps({"event": name, "time": self.time, "t": self.time, **fields}) + "\n")

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """A document of the folder."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(document))
        os.utime(place, (self.time, self.time))

    def tell(self, incident: int, verdict: Verdict, name: str = "verdict") -> None:
        """A verdict is told, a second later."""
        self.time += 1
        self.write(f"incident-{incident}/{name}.json", to_json(verdict))

    def meet(self, rank: int, seq: int, *, returns: bool = True) -> None:
        """A rank comes to a collective, and goes on where the others have come."""
        writer = self.writers[rank]
        text = writer.text("all_reduce", ("/work/train.py", 41, "train"), "0", "float32")
        entry = writer.enter(text, self.ranks, seq, 10)
        if returns:
            writer.leave(entry, waited=True)


def verdict(code: str = "SL301", **changes: Any) -> Verdict:
    """A verdict on rank 1."""
    fields: dict[str, Any] = {"slug": "never-entered", "kind": "hang", "culprit_ranks": (1,)}
    return Verdict(code=code, summary="rank 1 sleeps, and 2 peers wait for it", **{**fields, **changes})
