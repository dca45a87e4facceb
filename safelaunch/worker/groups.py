"""Runs in: workers. Who belongs to which process group, written down as each group is made.

torch's Flight Recorder names groups, and with gloo forgets their members.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Set

from safelaunch import black_box

ROOM = 10_000  # members, of all groups together, up to which calls of new_group are kept


class Unnamed(Exception):
    """A backend without the group around it, which has the name: torch.distributed.rpc makes one for itself."""


class Memberships:
    """Appends a JSON line `{"name", "ranks"}` for each group to a file that the supervisor reads, and `{"new": ranks}`
    for each call of `new_group`, of groups that this rank does not belong to as well."""

    def __init__(self, box: Any, module: Any) -> None:
        self._box = box
        self._module = module
        self.known: Set[str] = set()  # their names
        self._room = ROOM
        self._mode = "w"  # what an earlier attempt has left there is not ours

    def add(self, name: str, ranks: Iterable[int]) -> None:
        """Write down one group, once."""
        if name not in self.known:
            self.known.add(name)
            self._write({"name": name, "ranks": sorted(ranks)})

    def ask(self, members: List[int]) -> None:
        """Write down that this rank has called `new_group` for these, as all ranks should, in one order."""
        self._room -= len(members)
        if self._room >= 0:
            self._write({"new": members})

    def _write(self, line: Any) -> None:
        with open(black_box.beside(self._box.path, self._box.index, "groups"), self._mode) as file:
            file.write(json.dumps(line) + "\n")
        self._mode = "a"

    def update(self) -> None:
        """Write down the groups that torch knows and we do not."""
        for group, ranks in list(self._module._world.pg_group_ranks.items()):
            if not isinstance(group, int):  # a group that this rank is no member of
                self.add(str(group.group_name), ranks)
