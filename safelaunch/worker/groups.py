"""Runs in: workers. Who belongs to which process group, written down as each group is made.

torch's Flight Recorder names groups, and with gloo forgets their members.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Set

from safelaunch import black_box
from safelaunch.worker import rank

ROOM = 10_000  # members, of all groups together, up to which calls of new_group are kept
PLACE = ("MASTER_ADDR", "MASTER_PORT")
# As `init_process_group` takes them by position.
METHOD, SIZE, RANK, STORE = 1, 3, 4, 5


class Unnamed(Exception):
    """A backend without the group around it, which has the name: torch.distributed.rpc makes one for itself."""


class Memberships:
    """Appends a JSON line `{"name", "ranks"}` for each group to a file that the supervisor reads, `{"new": ranks}`
    for each call of `new_group`, of groups that this rank does not belong to as well, and `{"meets": ...}` for each of
    `init_process_group` (`model.Rendezvous`)."""

    def __init__(self, box: Any, module: Any) -> None:
        self._box = box
        self._module = module
        self.known: Set[str] = set()  # their names
        self._room = ROOM
        self._mode = "w"  # what an earlier attempt has left there is not ours
        self._given = ""
        rank.when_born(self._begin)

    def _begin(self) -> None:
        self._given = _place(os.environ)

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

    def meet(self, args: Any, kwargs: Any) -> None:
        """Write down where this rank looks for the others in `init_process_group`, how many they are, and who it is."""
        method, size, own, store = (
            args[at] if len(args) > at else kwargs.get(name)
            for at, name in ((METHOD, "init_method"), (SIZE, "world_size"), (RANK, "rank"), (STORE, "store"))
        )
        by_environment = method is None or str(method).startswith("env:")
        where = "" if store is not None else _place(os.environ) if by_environment else str(method)
        facts: Dict[str, Any] = {"where": where, "given": self._given}
        facts["size"] = _number(size, by_environment and store is None, "WORLD_SIZE")
        facts["rank"] = _number(own, by_environment and store is None, "RANK")
        self._write({"meets": facts})

    def _write(self, line: Any) -> None:
        with open(black_box.beside(self._box.path, self._box.index, "groups"), self._mode) as file:
            file.write(json.dumps(line) + "\n")
        self._mode = "a"

    def update(self) -> None:
        """Write down the groups that torch knows and we do not."""
        for group, ranks in list(self._module._world.pg_group_ranks.items()):
            if not isinstance(group, int):  # a group that this rank is no member of
                self.add(str(group.group_name), ranks)


def _place(environ: Any) -> str:
    """`node-a:29500`, or nothing where no place is set."""
    address, port = (environ.get(name, "") for name in PLACE)
    return "%s:%s" % (address, port) if address or port else ""


def _number(said: Any, by_environment: bool, variable: str) -> int:
    """What the call says, or else the environment; -1 where neither does."""
    if isinstance(said, int) and said >= 0:
        return said
    text = os.environ.get(variable, "") if by_environment else ""
    return int(text) if text.isdecimal() else -1
