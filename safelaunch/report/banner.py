"""The start banner: one screen about what a worker group runs with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch.model import Place
from safelaunch.printable import Line, line, ljust
from safelaunch.report.palette import PLAIN, Palette

ROWS = 8  # ranks that the table shows
LABEL = 12  # characters of a field's name
WIDTH = 118

HEAD = ("rank", "host", "local rank", "GPU", "UUID", "PCI address", "NUMA", "CPUs")


@dataclass(frozen=True)
class Banner:
    """What is known when all ranks of an attempt have been started; what is not, says why (`unknown: reason`).

    `fields` holds names and texts, in order; a name that comes again continues the one before.
    """

    attempt: int
    fields: tuple[tuple[str, str], ...]
    places: tuple[Place, ...]


def lines(banner: Banner, palette: Palette = PLAIN) -> list[Line]:
    """The banner for a terminal: at most 24 lines where the fields take 14 and ranks are many."""
    again = f" again (attempt {banner.attempt})" if banner.attempt else ""
    found = [palette.paint("strong", f"safelaunch: {_count(len(banner.places), 'rank')} started{again}")]
    before = ""
    for name, text in banner.fields:
        label = "" if name == before else name
        before = name
        found.append(line("  ", palette.paint("dim", ljust(line(label), LABEL)), " ", text))
    return [*found, *table(banner.places)]


def table(places: Sequence[Place]) -> list[Line]:
    """The mapping, a line for each rank; of many ranks the first ones. Columns that are empty for all are left out."""
    if not places:
        return []
    rows = [_row(place) for place in places]
    shown = rows if len(rows) <= ROWS else rows[: ROWS - 1]
    filled = [place for place in range(len(HEAD)) if place < 3 or any(row[place] for row in rows)]
    cells = [[row[place] for place in filled] for row in (HEAD, *shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    found = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    if len(shown) < len(rows):
        found.append(f"  ... and {_count(len(rows) - len(shown), 'more rank')}, all in run.json")
    return [line(row) for row in found]


def _row(place: Place) -> tuple[str, ...]:
    gpu = "" if place.gpu_index is None else str(place.gpu_index)
    if place.unknown and place.gpu_index is None:
        gpu = place.unknown if place.unknown.startswith("no GPU") else f"unknown: {place.unknown}"
    has_gpu = place.gpu_index is not None
    unknown = "?" if has_gpu else ""
    numa = unknown if place.numa_node is None else str(place.numa_node)
    uuid, address = place.uuid or unknown, place.address or unknown
    return (str(place.rank), place.host, str(place.local_rank), gpu, uuid, address, numa, _short(place.cpus))


def _short(cpus: str) -> str:
    """A list of CPUs may be long where a scheduler has given out single ones."""
    return cpus if len(cpus) <= 24 else cpus[:21].rpartition(",")[0] + ",..."


def wrapped(parts: Iterable[str], width: int = WIDTH - LABEL - 3) -> list[str]:
    """Parts joined by commas, in lines."""
    found: list[str] = []
    for part in parts:
        if found and len(found[-1]) + len(part) + 2 <= width:
            found[-1] += ", " + part
        else:
            if found:
                found[-1] += ","
            found.append(part)
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
