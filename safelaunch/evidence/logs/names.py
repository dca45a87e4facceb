"""What the path of a log file says about who wrote it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from safelaunch.model.ranks import MOST_RANKS

_ELASTIC = re.compile(r"(.*?)/?attempt_(\d+)/(\d+)/(?:stdout|stderr|error)[^/]*$")  # torchrun --log-dir -r 3
# `lora_rank16` and `low-rank-8` are those of matrices.
_RANK = re.compile(
    r"(?<![A-Za-z])(?<!lora[_.-])(?<!low[_.-])(?<!matrix[_.-])(?<!page[_.-])(node[_-]?|group[_-]?|local[_-]?|global[_-]?)?rank[_\-=.]?(\d+)(?!\d)",
    re.IGNORECASE,
)
_SLURM_TASK = re.compile(r"^\d+_(\d+)_log\.(?:out|err)$")  # submitit: %j_%t_log.out
_SLURM_SERIES = re.compile(r"^((?:slurm|[\w.-]+?)[-_]?\d+)_(\d+)\.(?:out|err|log|txt)$")  # %j_%t, or an array's %A_%a
_TASK = re.compile(r"(?<![A-Za-z])(?:task|proc)[_\-=.]?(\d+)(?!\d)", re.IGNORECASE)
# A pod by the words of its operator or by its random ending; `run-42.log` is the name of no host.
_POD = re.compile(
    r"^(?!slurm-)((?=.*(?:worker|master|launcher|leader|pod|node|host|replica))[a-z0-9][-a-z0-9.]*-\d+"
    r"|[a-z0-9][-a-z0-9.]*-\d+-[a-z0-9]{5})(?:[._].*)?$|^(?:node|host)[_-]?([\w.-]+?)\.\w+$"
)


@dataclass(frozen=True)
class PathHint:
    """`rank` is global, `local` a local rank of whatever node wrote below `node`, `task` Slurm's number.

    `series` is what stands before the number where it may be that of a task, or of another job of an array: one file
    alone does not tell.
    """

    rank: int | None = None
    local: int | None = None
    task: int | None = None
    host: str = ""
    node: str = ""
    attempt: int = 0
    series: str = ""


def hint(path: str) -> PathHint:
    """What a path says; compression endings are ignored, and so are numbers that are none of any job."""
    found = _hint(path)
    numbers = (found.rank, found.local, found.task, found.attempt)
    return PathHint() if any(number is not None and number > MOST_RANKS for number in numbers) else found


def _hint(path: str) -> PathHint:
    path = re.sub(r"\.(?:gz|bz2|xz|\d+)$", "", path.replace(os.sep, "/"))
    name = path.rpartition("/")[2]
    if match := _ELASTIC.search(path):
        return PathHint(local=int(match[3]), node=match[1], attempt=int(match[2]))
    attempt = re.search(r"attempt_(\d+)/", path)
    tries = int(attempt[1]) if attempt else 0
    folder = path.rpartition("/")[0].rpartition("/")[2]
    for part in (name, folder):
        if match := _RANK.search(part):
            kind, number = (match[1] or "").lower(), int(match[2])
            if kind.startswith(("node", "group")):
                return PathHint(host=f"node {number}", attempt=tries)
            if kind.startswith("local"):
                return PathHint(local=number, node=path.rpartition("/")[0], attempt=tries)
            return PathHint(rank=number, attempt=tries)
    if match := _SLURM_TASK.match(name) or _TASK.search(name):
        return PathHint(task=int(match[1]))
    if match := _SLURM_SERIES.match(name):
        return PathHint(task=int(match[2]), series=match[1])
    if match := _POD.match(name):
        return PathHint(host=match[1] or match[2])
    return PathHint()
