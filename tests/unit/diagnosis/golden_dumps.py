"""Jobs of which Flight Recorder dumps are left, as real ranks have written them (tests/dumps)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from expected import Expected

from safelaunch.evidence.offline import dump_case, dump_files
from safelaunch.model import Case

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
GLOO, NCCL = "/home/user/fr_ranks.py", "/home/user/nccl_ranks.py"  # what the ranks ran
SOON_S = 0.001
LATER_S = 60.0  # after the last call in them: when a person looked; the times of the files are those of a checkout

SAID = {
    "gloo-late": Expected("SL301", (2,), confidence="medium", mentions=("never entered all_reduce #7",)),
    "gloo-operation": Expected(
        "SL302", (1,), location=(GLOO, 47), confidence="low", mentions=("rank 1 makes broadcast #3",)
    ),
    "gloo-left-loop": Expected(
        "SL302", (3,), location=(GLOO, 54), confidence="low", mentions=("the dumps do not say",)
    ),
    "gloo-subgroup": Expected("SL301", (3,), confidence="medium"),
    "gloo-order": Expected("SL311", (0,), location=(GLOO, 87), confidence="medium"),
    "gloo-message": Expected("SL399", location=(GLOO, 79), confidence="low", mentions=("gloo records no messages",)),
    "gloo-healthy": Expected("SL399", confidence="low", mentions=("no rank was inside a collective",)),
    "gloo-gone": Expected("SL399", confidence="low"),
    "nccl-late": Expected("SL301", (1,), confidence="medium", mentions=("the host of rank 1",)),
    "nccl-subgroup": Expected("SL301", (1,), confidence="medium"),
    "nccl-kernel": Expected(
        "SL310", location=(NCCL, 67), confidence="low", mentions=("does not say whose GPU has begun it",)
    ),
    "nccl2-late": Expected("SL301", (1,), confidence="low", mentions=("rank 1 left no dump, and 3 peers wait for it",)),
    "nccl2-subgroup-of-default": Expected("SL399", confidence="low", mentions=("one of them at least is late",)),
    "nccl2-pipeline": Expected("SL301", (1,), confidence="low"),
    "nccl2-size": Expected("SL410", (1,), location=(NCCL, 48), confidence="medium"),
    "nccl2-order": Expected("SL311", (0,), location=(NCCL, 107), confidence="medium"),
}
YOUNG = "nccl-late"


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    found = {f"dumps-{name}": (_of(name, LATER_S), expected) for name, expected in SAID.items()}
    soon = Expected("SL399", location=(NCCL, 25), confidence="low", mentions=("the job may simply have been running",))
    return {**found, f"dumps-{YOUNG}-soon-after": (dataclasses.replace(_of(YOUNG, SOON_S), gave_up=False), soon)}


def _of(name: str, later_s: float) -> Case:
    files, _ = dump_files.find([str(DUMPS / name)])
    case = dump_case.build(dump_files.read_all(files))
    latest = max((call.t for facts in case.ranks for call in facts.calls), default=0.0)
    return dataclasses.replace(case, now=latest + later_s)
