"""Flight Recorder dumps as torch writes them, made by hand: NCCL's format, for hangs that no CPU can produce."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

EPOCH_NS = 1_795_000_000_000_000_000
SITE = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = "/home/ada/project/train.py"


def frames(line: int, function: str = "train_step") -> list[dict[str, Any]]:
    return list(_frames(line, function))


@cache
def _frames(line: int, function: str) -> tuple[dict[str, Any], ...]:
    """torch keeps each frame once, and so does its pickle."""
    return (
        {"name": "all_reduce", "filename": SITE, "line": 2936},
        {"name": "wrapper", "filename": SITE.replace("distributed_c10d", "c10d_logger"), "line": 83},
        {"name": function, "filename": TRAIN, "line": line},
        {"name": "<module>", "filename": TRAIN, "line": 200},
    )


@dataclass
class Recorder:
    """One rank's recorder. Calls are recorded as done unless said otherwise."""

    rank: int
    groups: Mapping[str, Sequence[int]]
    room: int = 2000
    backend: str = "nccl"
    version: str = "2.10"
    counters: bool = False  # whether `pg_status` is filled in
    entries: list[dict[str, Any]] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    p2p: dict[str, int] = field(default_factory=dict)
    status: dict[str, list[int]] = field(default_factory=dict)  # of each group: enqueued, completed
    made: int = 0
    clock_ns: int = EPOCH_NS

    def call(
        self,
        op: str = "all_reduce",
        group: str = "0",
        *,
        state: str = "completed",
        numel: int = 1000,
        dtype: str = "Float",
        line: int = 88,
        same_launch: bool = False,
        message: bool = False,
        **more: Any,
    ) -> Recorder:
        counts = self.p2p if message else self.seqs
        counts[group] = counts.get(group, 0) + (not same_launch)
        self.clock_ns += 1_000_000
        done = state == "completed"
        ops = self.seqs.get(group, 0) + self.p2p.get(group, 0)
        status = self.status.setdefault(group, [-1, -1])
        status[0] = ops - 1 if self.backend == "nccl2" else counts[group]
        status[1] = status[0] if done else status[1]
        entry = {
            "frames": frames(line),
            "record_id": self.made,
            "pg_id": self._key(group),
            "process_group": (group, "default_pg" if group == "0" else "undefined"),
            "collective_seq_id": self.seqs.get(group, 0),
            "p2p_seq_id": self.p2p.get(group, 0),
            "op_id": self.made + 1,
            "profiling_name": f"{self.backend}:{op}",
            "time_created_ns": self.clock_ns,
            "input_sizes": [[numel]],
            "input_dtypes": [dtype],
            "output_sizes": [[numel]],
            "output_dtypes": [dtype],
            "state": state,
            "time_discovered_started_ns": self.clock_ns if state == "started" else None,
            "time_discovered_completed_ns": self.clock_ns if done else None,
            "retired": done,
            "timeout_ms": 600000,
            "is_p2p": message,
            **more,
        }
        self.made += 1
        self.entries.append(entry)
        del self.entries[: -self.room]
        return self

    def _key(self, group: str) -> int:
        """The number of a group among those that the rank has made."""
        own = [name for name, ranks in self.groups.items() if self.rank in ranks or name == group]
        return own.index(group) if group in own else 0

    def calls(self, count: int, **more: Any) -> Recorder:
        for _ in range(count):
            self.call(**more)
        return self

    def document(self, holds: str = "all") -> dict[str, Any]:
        """The dump's document. `holds`: `all` entries, those that are `active`, or no more than `counters`."""
        own = {name: ranks for name, ranks in self.groups.items() if self.rank in ranks}
        if self.counters and self.backend == "nccl":
            own = {name: ranks for name, ranks in own.items() if name in self.status}  # those with a communicator
        keys = [f"last_{what}_collective" for what in ("enqueued", "started", "completed")]
        document: dict[str, Any] = {
            "version": self.version,
            "pg_config": {n: {"name": n, "desc": "undefined", "ranks": str(list(ranks))} for n, ranks in own.items()},
            "comm_lib_version": "" if self.backend == "nccl2" else "2.29.3",
            "pg_status": {
                str(self._key(group)): dict(zip(keys, (enqueued, -1, completed), strict=True))
                for group, (enqueued, completed) in self.status.items()
                if group in self.groups and self.counters
            },
            "entries": [entry for entry in self.entries if holds == "all" or entry["state"] != "completed"],
        }
        if holds == "counters":
            del document["entries"]
        return document

    def write(self, folder: Path, stem: str = "nccl_trace_rank_") -> Path:
        path = folder / f"{stem}{self.rank}"
        path.write_bytes(pickle.dumps(self.document(), protocol=2))
        return path

    def write_json(self, folder: Path, stem: str = "nccl_trace_rank_") -> Path:
        path = folder / f"{stem}{self.rank}.json"
        document = self.document()
        document["entries"] = [{k: v for k, v in entry.items() if k != "frames"} for entry in document["entries"]]
        path.write_text(json.dumps(document, sort_keys=True))
        return path


def world(size: int) -> dict[str, Sequence[int]]:
    return {"0": tuple(range(size))}


def write_all(folder: Path, recorders: Iterable[Recorder]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for recorder in recorders:
        recorder.write(folder)
    return folder


def large_job(folder: Path, size: int, entries: int, late: int, node: int = 8, *, as_json: bool = False) -> None:
    """The dumps of `size` ranks in nodes of `node`: three of four calls are of the world, one of the rank's node; rank
    `late` does not come to the last call of the world."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes: dict[str, Sequence[int]] = {
        str(number + 1): tuple(range(number * node, number * node + node)) for number in range(size // node)
    }
    for number, ranks in nodes.items():
        groups = {**world(size), number: ranks}
        recorder = Recorder(0, groups)
        recorder.clock_ns += 1
        for index in range(entries - 1):
            recorder.call("_all_gather_base" if index % 4 == 3 else "all_reduce", number if index % 4 == 3 else "0")
        whole = Recorder(0, groups, entries=list(recorder.entries), seqs=dict(recorder.seqs), made=recorder.made)
        whole.status = {group: list(numbers) for group, numbers in recorder.status.items()}
        whole.clock_ns = recorder.clock_ns
        whole.call(state="scheduled")
        for rank in ranks:
            mine = recorder if rank == late else whole
            mine.rank = rank
            (mine.write_json if as_json else mine.write)(folder)
