"""The table of GPUs: who uses each, what it does, and what the driver says of it; what NCCL says of the job."""

from __future__ import annotations

from safelaunch.model import Case, GpuState, Verdict
from safelaunch.report.page.element import Html, cell, tag
from safelaunch.report.page.subject import names

HEAD = (
    "GPU", "ranks", "memory", "processes", "busy", "SM clock", "held back by", "temperature", "NVLinks", "ECC errors",
    "driver says", "could not be had",
)  # fmt: skip
GIB = 1 << 30
MOST_LINES = 4  # of the kernel's log, for each GPU


def section(case: Case, verdict: Verdict | None) -> Html | None:
    """A row for each GPU of the job, of the nodes that told of theirs; nothing where there are none."""
    if not case.hardware:
        return None
    culprits = set(verdict.culprit_ranks) if verdict is not None else set()
    rows = [(gpu, _cells(gpu)) for gpu in case.gpus]
    filled = [column for column in range(len(HEAD)) if any(cells[column] for _, cells in rows)]
    head = tag("tr", *(tag("th", HEAD[column]) for column in filled))
    body = [
        tag(
            "tr",
            *(tag("td", cell(cells[column])) for column in filled),
            class_="culprit" if culprits & set(gpu.ranks) else None,
        )
        for gpu, cells in rows
    ]
    named = [(f"{port.host} {port.name}".strip(), port) for port in case.ports_down]
    ports = ", ".join(f"{name} ({port.state}, {port.physical})" for name, port in named)
    return tag(
        "section",
        tag("h2", "GPUs"),
        tag("table", tag("thead", head), tag("tbody", *body)) if rows else None,
        tag("p", cell(f"network ports that are down while their like are up: {ports}", 1000)) if ports else None,
        tag("details", tag("summary", "what NCCL's RAS threads report"), tag("pre", case.ras)) if case.ras else None,
    )


def _cells(gpu: GpuState) -> tuple[str, ...]:
    clock = f"{gpu.clock_mhz}" + (f" of {gpu.clock_max_mhz}" if gpu.clock_max_mhz else "") + " MHz"
    missing = "; ".join(filter(None, [gpu.missing, gpu.log_unread and f"kernel log: {gpu.log_unread}"]))
    lines = [line[line.find("NVRM:") :] for line in gpu.xids[-MOST_LINES:]]
    return (
        " ".join(filter(None, [gpu.host, str(gpu.index), gpu.name])),
        names(gpu.ranks).partition(" ")[2] if gpu.ranks else "",
        _memory(gpu),
        "; ".join(_tenants(gpu)),
        f"{gpu.busy_percent} %" if gpu.busy_percent is not None else "",
        clock if gpu.clock_mhz is not None else "",
        ", ".join(gpu.held_back),
        f"{gpu.temperature} °C" if gpu.temperature is not None else "",
        f"{gpu.links_down} of {gpu.links} down" if gpu.links and gpu.links_down else "",
        str(gpu.ecc_errors) if gpu.ecc_errors else "",
        "; ".join([*(["lost, or to be reset"] if gpu.lost else []), *lines]),
        missing,
    )


def _memory(gpu: GpuState) -> str:
    if gpu.memory_used is None:
        return ""
    total = f" of {gpu.memory_total / GIB:.1f}" if gpu.memory_total else ""
    return f"{gpu.memory_used / GIB:.1f}{total} GiB"


def _tenants(gpu: GpuState) -> list[str]:
    shown = []
    for one in gpu.tenants:
        who = f"rank {one.rank}" if one.rank is not None else f"pid {one.pid} {one.command or '(not visible here)'}"
        held = f" {one.memory_bytes / GIB:.1f} GiB" if one.memory_bytes else ""
        shown.append(f"{who}{held}")
    return shown
