"""Runs in: workers. Values that are to be the same on all ranks (`safelaunch.expect_same`), on their way to the
supervisor, which compares them."""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
from typing import Any, Dict, Iterator, List, Tuple

from safelaunch.worker.announcements import Remarks, user_line

MOST = 4000  # calls of a rank: a loop that compares a value at each step fills no memory
MOST_ITEMS = 256  # of one value; what is beyond is compared as one
LONGEST = 60  # characters of a value that are shown
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
PLAIN = (str, bytes, int, float, complex, bool, type(None))

_calls: Dict[str, int] = {}


def tell(remarks: Remarks, name: str, value: Any) -> None:
    """Write down what a rank has for a value.

    Args:
        remarks: of this rank.
        name: of the value.
        value: anything; of mappings, lists and objects with attributes the parts are told apart.
    """
    number = _calls[name] = _calls.get(name, 0) + 1
    if sum(_calls.values()) > MOST:
        return
    file, line = user_line()
    items = [(path, _digest(part), _shown(part)) for path, part in parts(name, value)]
    remarks.add("same", name=name, number=number, file=file, line=line, items=items)


def parts(name: str, value: Any) -> List[Tuple[str, Any]]:
    """The parts of a value, by their names: `config.lr`, `config.layers[3]`."""
    found = []  # type: List[Tuple[str, Any]]
    for path, part in _walk(name, value, 0):
        if len(found) >= MOST_ITEMS:
            return [(name, value)]
        found.append((path, part))
    return found


def _walk(path: str, value: Any, depth: int) -> Iterator[Tuple[str, Any]]:
    below = _below(value) if depth < 4 else None
    if not below:
        yield path, value
        return
    for key, part in below:
        for found in _walk(path + key, part, depth + 1):
            yield found


def _below(value: Any) -> "List[Tuple[str, Any]] | None":
    if isinstance(value, PLAIN) or _is_tensor(value):
        return None
    if isinstance(value, dict):
        return sorted((".%s" % key, part) for key, part in value.items()) if _sortable(value) else None
    if isinstance(value, (list, tuple)):
        return [("[%d]" % at, part) for at, part in enumerate(value)] if len(value) <= MOST_ITEMS else None
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, type) and not callable(value):
        return [(".%s" % key, part) for key, part in sorted(attributes.items()) if not key.startswith("_")]
    return None


def _sortable(value: Dict[Any, Any]) -> bool:
    return all(isinstance(key, (str, int)) for key in value) and len({str(key) for key in value}) == len(value)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _digest(value: Any) -> str:
    digest = hashlib.sha256(type(value).__name__.encode())
    if _is_tensor(value):
        digest.update(repr((value.dtype, tuple(value.shape))).encode())
        whole = value.detach().cpu().contiguous().flatten()
        size = whole.numel() * whole.element_size()
        digest.update((ctypes.c_char * size).from_address(whole.data_ptr()) if size else b"")
    elif callable(getattr(value, "tobytes", None)):  # an array of numpy, whose `repr` leaves out most of it
        digest.update(repr((getattr(value, "dtype", ""), getattr(value, "shape", ""))).encode())
        digest.update(value.tobytes())
    elif isinstance(value, (set, frozenset)):
        digest.update(repr(sorted(map(repr, value))).encode("utf-8", "replace"))
    else:
        digest.update(ADDRESS.sub("", repr(value)).encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _shown(value: Any) -> str:
    if _is_tensor(value):
        return "a tensor %s %s" % (str(value.dtype).replace("torch.", ""), list(value.shape))
    text = ADDRESS.sub("", repr(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
