"""When ranks came to the calls that their Flight Recorders hold."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from safelaunch import black_box
from safelaunch.evidence import arrivals
from safelaunch.model import WorkerProcess


def entry(record: int, group: str, seq: int, t: float, name: str) -> dict[str, object]:
    created = int((t + time.time() - time.monotonic()) * 1e9)
    return {
        "record_id": record,
        "process_group": [group, "default"],
        "collective_seq_id": seq,
        "time_created_ns": created,
        "profiling_name": name,
        "is_p2p": False,
    }


def test_each_backend_numbers_its_calls_and_groups_for_itself(tmp_path: Path) -> None:
    box = str(tmp_path / "box")
    dumps = {
        "gloo": {"entries": [entry(n, "0", n + 1, 10.0 + n, "gloo:all_reduce") for n in range(3)]},
        "nccl2": {"entries": [entry(n, "0", n + 1, 10.5 + n, "nccl2:_all_gather_base") for n in range(3)]},
    }
    Path(black_box.beside(box, 0, "recorder")).write_text(json.dumps(dumps))

    found = arrivals.recorded(WorkerProcess(0, 0, 1, 0, "", black_box=box))

    assert [call[0] for call in found] == sorted({call[0] for call in found})
    assert [call[1] for call in found] == pytest.approx([10.0, 10.5, 11.0, 11.5, 12.0, 12.5], abs=0.1)
    assert len({(call[3], call[4]) for call in found}) == len(found)
    assert [call[3] for call in found if call[2] == "all_reduce"] == ["0"] * 3
