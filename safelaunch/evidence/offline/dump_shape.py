"""A Flight Recorder's document, checked: what has not its shape is left out, and counted.

A rank may write its dump while it crashes, a disk may lose a block, and somebody may send anything. Behind this, an
entry has the texts and numbers that are read of all entries; what is read of the few that tell something is asked for
through the functions below, which answer with nothing where it is of another kind. Types are compared before values: a
pickle of 300 bytes can hold tuples of tuples that share their parts, and to hash one, or to write it out, never ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from safelaunch.codec import LARGEST

Entry = dict[str, Any]

MOST_DIMENSIONS = 64  # of a tensor, as torch has it

# `state`, `is_p2p` and `retired` are compared with one value, or are true or not: of whichever type they are.
_ROWS = (list, tuple)
_WHOLE = (int, type(None))
COUNTERS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


def plain(document: Mapping[Any, Any]) -> tuple[dict[str, Any], int]:
    """What of a document has its shape, with the names of its calls, and how many entries, groups and counters have
    not."""
    entries = document.get("entries")
    kept, names, torn = _entries(entries) if type(entries) is list else ([], set(), int(entries is not None))
    config, of_groups = _only(document.get("pg_config"), _is_group)
    status, of_counters = _only(document.get("pg_status"), _is_status)
    version, *libraries = (document.get(name) for name in ("version", "comm_lib_version", "nccl_version"))
    found = {
        "entries": kept,
        "names": names,
        "pg_config": config,
        "pg_status": status,
        "version": version if type(version) in (str, float, int) else "",
        "comm_lib_version": any(type(one) is str and one for one in libraries),
    }
    return found, torn + of_groups + of_counters


def _entries(entries: list[Any]) -> tuple[list[Entry], set[str], int]:
    # In one pass, for 2,000 entries of 1,000 ranks are two million, and none stays in the CPU's cache.
    kept: list[Entry] = []
    names: set[str] = set()
    for entry in entries:
        if type(entry) is dict and _is_entry(entry):
            kept.append(entry)
            names.add(entry["profiling_name"])
    return kept, names, len(entries) - len(kept)


def _is_entry(entry: Mapping[Any, Any]) -> bool:
    group, number = entry.get("process_group"), entry.get("collective_seq_id")
    return (
        type(entry.get("profiling_name")) is str
        and type(group) in _ROWS
        and len(group) > 0  # type: ignore[arg-type]
        and type(group[0]) is str  # type: ignore[index]
        and type(number) is int
        and -LARGEST < number < LARGEST
        and type(entry.get("pg_id")) in _WHOLE
    )


def _only(table: Any, fits: Any) -> tuple[dict[str, Any], int]:
    if type(table) is not dict:
        return {}, int(table is not None)
    found = {str(key): item for key, item in table.items() if type(key) in (str, int) and fits(str(key), item)}
    return found, len(table) - len(found)


def _is_group(key: str, group: Any) -> bool:  # noqa: ARG001
    ranks: Any = group.get("ranks", "") if type(group) is dict else None
    return type(ranks) is str or (type(ranks) in (list, tuple) and set(map(type, ranks)) <= {int})


def _is_status(key: str, counts: Any) -> bool:
    if type(counts) is not dict or not key.isdecimal() or len(key) > 18:
        return False
    return all(type(counts.get(name)) is int and abs(counts[name]) < LARGEST for name in COUNTERS)


# ------------------------------------------------------------------------------------- of the entries that tell


def whole(entry: Mapping[str, Any], name: str) -> int:
    """A number of an entry; 0 where it has none."""
    value = entry.get(name)
    return value if type(value) is int and abs(value) < LARGEST else 0


def sizes(entry: Entry) -> list[list[int]]:
    """The sizes of the first input; nothing where they are not known."""
    return shapes(entry, "input_sizes", 1)


def shapes(entry: Entry, name: str, most: int) -> list[list[int]]:
    """The dimensions of the first tensors; nothing where those of one are not known."""
    found = _list(entry.get(name))[:most]
    return [_list(one) for one in found] if all(map(_is_shape, found)) else []


def _is_shape(dimensions: Any) -> bool:
    if type(dimensions) not in (list, tuple) or len(dimensions) > MOST_DIMENSIONS:
        return False
    return all(type(one) is int and 0 <= one < LARGEST for one in dimensions)


def dtypes(entry: Entry) -> list[str]:
    """The type of the first input; nothing where it is not known."""
    return [one for one in _list(entry.get("input_dtypes"))[:1] if type(one) is str]


def frames(entry: Entry) -> Iterator[dict[str, Any]]:
    """The frames of an entry, innermost first."""
    for frame in _list(entry.get("frames")):
        if type(frame) is dict and type(frame.get("filename")) is str and type(frame.get("name")) is str:
            yield frame


def _list(value: Any) -> list[Any]:
    return list(value) if type(value) in (list, tuple) else []
