"""Several that report one failure: all of them, by ranks, processes, hosts and GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis.logs.timeline import Candidate

MOST = 4  # processes without anything in common
_PROCESS = re.compile(r"^process (?P<pid>\d{1,9}) on (?P<host>\S+?)(?: \(GPU (?P<gpu>\d{1,4})[^)]*\))?$")
_GPU = re.compile(r"\bGPU (?P<gpu>\d{1,3})(?= has a total|;| \()|\bdeviceId[:= \[]{1,2}(?P<device>\d{1,3})")


def told(first: Sequence[Candidate]) -> str:
    """`4 processes on node-a (GPUs 1, 3, 5 and 7)`, or the GPUs of their messages; empty where there is but one, or
    nothing tells them apart."""
    processes = list(dict.fromkeys(one.process for one in first if one.process))
    if len(processes) > 1:
        return _of_processes(processes)
    gpus = of_gpus(first)
    return f"processes on GPUs {listed(gpus)}" if len(gpus) > 1 else ""


def of_gpus(first: Sequence[Candidate]) -> list[int]:
    """The numbers of the GPUs that the messages name."""
    found = (_GPU.search(one.at.text) for one in first)
    return sorted({int(match["gpu"] or match["device"]) for match in found if match})


def _of_processes(processes: list[str]) -> str:
    matches = [_PROCESS.match(name) for name in processes]
    if not all(matches):
        more = f" and {len(processes) - MOST} more" if len(processes) > MOST else ""
        return f"{len(processes)} processes ({', '.join(processes[:MOST])}{more})"
    hosts: dict[str, list[int]] = {}
    for match in matches:
        if match:
            hosts.setdefault(match["host"], []).extend([int(match["gpu"])] if match["gpu"] else [])
    where = " and ".join(f"{host}{f' (GPUs {listed(sorted(gpus))})' if gpus else ''}" for host, gpus in hosts.items())
    return f"{len(processes)} processes on {where}"


def listed(numbers: Sequence[int]) -> str:
    """`1, 3 and 5`."""
    texts = [str(number) for number in numbers]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + f" and {texts[-1]}"
