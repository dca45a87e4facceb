"""Runs in: workers. Which line of the user's code makes a call, and what its record says each time."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from safelaunch.worker.user_code import is_user_code

MOST = 1024  # places that are kept: more than a program has, unless it makes code as it goes
Place = Tuple[str, int, str]  # file, line, function


class Places:
    """Finds the user's line behind a frame.

    A program makes its calls at a few places, and Python searches for the number of a line each time: what has been
    found is kept, with its code. That makes no key: its hash is that of all it holds, and its `id()` comes to audit
    hooks.

    Args:
        torch: the folder of torch's package, whose files are no place of the user's.
    """

    def __init__(self, torch: str) -> None:
        self._torch = torch
        self._found: Dict[Tuple[int, str, int], Tuple[Any, bool, Place]] = {}  # code, whether a library's, its place
        self._library: Dict[str, bool] = {}  # file -> whether it is no place of the user's

    def of(self, frame: Any) -> Place:
        """File, line and function of the user's code that has called `frame`, or is that; of the outermost frame where
        none is the user's."""
        while True:
            _, is_library, place = self._of(frame)
            before = frame.f_back if is_library else None
            if before is None:
                return place
            frame = before

    def is_users(self, frame: Any) -> bool:
        """Whether the frame itself is of the user's code."""
        return not self._of(frame)[1]

    def _of(self, frame: Any) -> Tuple[Any, bool, Place]:
        code = frame.f_code
        key = (code.co_firstlineno, code.co_name, frame.f_lasti)
        found = self._found.get(key)
        if found is None or found[0] is not code:
            if len(self._found) >= MOST:
                self._found.clear()
            place = (code.co_filename, frame.f_lineno, code.co_name)
            found = self._found[key] = (code, self._is_library(code.co_filename), place)
        return found

    def _is_library(self, file: str) -> bool:
        found = self._library.get(file)
        if found is None:
            found = self._library[file] = file.startswith(self._torch) or not is_user_code(file)
        return found


class Site:
    """A call that the program makes at one place, again and again: what its record says of it stays, as long as its
    group, the type of its tensor and what it does with the elements do."""

    __slots__ = ("code", "dtype", "group", "measured", "name", "op", "place", "size", "text")

    code: Any
    group: Any  # a weak reference: it goes when the program lets it go
    dtype: Any
    op: Any
    place: Place
    name: str
    size: int
    measured: bool
    text: bytes
