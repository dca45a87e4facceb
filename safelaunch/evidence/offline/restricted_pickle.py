"""Pickles of strangers: containers, text and numbers are read; whatever would import or call something is refused."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class RefusedError(pickle.UnpicklingError):
    """The pickle asks for more than data."""


class _Plain(pickle.Unpickler):
    """An unpickler that knows no class and no function: without one there is nothing that a pickle could call."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedError(f"it asks for {module[:80]}.{name[:80]}, and nothing but plain data is read from a pickle")

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ARG002
        raise RefusedError("it refers to objects outside of it")


def loads(data: bytes) -> Any:
    """The document of a pickle that holds plain data only.

    A hostile pickle may still ask for much memory (a memo index of 2^32 makes the unpickler allocate 64 GiB): call
    this below a limit of memory, as `reading.read_all` does.

    Raises:
        RefusedError: for a pickle that would import or call something; it has not been done.
        Exception: whatever the unpickler makes of damaged data (EOFError, ValueError, MemoryError, ...).
    """
    # Without `peek`, which a BytesIO does not have, the unpickler asks for every few bytes: three times as slow.
    return _Plain(io.BufferedReader(io.BytesIO(data), len(data) + 1)).load()
