"""CUDA_VISIBLE_DEVICES, read as torch reads it (torch/cuda/__init__.py, `_parse_visible_devices`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"
MOST = 64  # torch looks no further when the variable is not set


def visible_gpus(environ: Mapping[str, str], uuids: Sequence[str]) -> tuple[int, ...] | None:
    """The driver's indices of the GPUs that a rank sees, in the rank's order.

    Args:
        environ: where CUDA_VISIBLE_DEVICES is looked up.
        uuids: one for each GPU of the driver, in its order.

    Returns:
        None for MIG instances, which NVML counts in another way: then it cannot be told.

    The list ends at the first entry that names no GPU, and a GPU named twice empties it, as CUDA itself has it:
    `0,9,1` of 8 GPUs is one GPU, `2,5,2` is none, `1gpu2,2ampere` is 1 and 2.
    """
    text = environ.get(VARIABLE)
    if text is None:
        return tuple(range(min(len(uuids), MOST)))
    if text.startswith("MIG-"):
        return None
    if text.startswith("GPU-"):
        return _by_uuid(text.split(","), uuids)
    return _by_number(text.split(","), len(uuids))


def _by_number(entries: Sequence[str], count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    for entry in entries:
        number = _leading_number(entry.strip())
        if number in chosen:
            return ()
        if number < 0:
            break
        chosen.append(number)
    # A number twice empties the list even behind one that names no GPU, so the cut comes last.
    for place, number in enumerate(chosen):
        if number >= count:
            return tuple(chosen[:place])
    return tuple(chosen)


def _by_uuid(entries: Sequence[str], uuids: Sequence[str]) -> tuple[int, ...]:
    prefixes: list[str] = []
    for entry in entries:
        if entry in prefixes:
            return ()
        if not entry.startswith("GPU-"):
            break
        prefixes.append(entry)
    chosen: list[int] = []
    for prefix in prefixes:
        matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(prefix)]
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return ()
        chosen.append(matches[0])
    return tuple(chosen)


def _leading_number(text: str) -> int:
    """The number that a text starts with, as C's strtoul finds it; -1 where there is none."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") and text else ("", text)
    length = next((place for place, char in enumerate(digits) if char not in "0123456789"), len(digits))
    return int(sign + digits[:length]) if length else -1
