"""Runs in: Pythons below `safelaunch exec`, and those that call `safelaunch.join()`, from their import of torch on.

Whoever started them is not ours, so which of them are ranks is not known before they say so themselves: by RANK and
WORLD_SIZE in the environment, or in `init_process_group`. Until then the hooks are there and write for nobody, as in
the fork server. A rank takes a slot of the black box by a file of its own (`slot.N`), which says who it is: nobody is
asked, so nobody can keep it waiting.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from time import monotonic
from typing import Any, Callable, Dict, List

import safelaunch
from safelaunch import black_box
from safelaunch.worker import after_import, bootstrap, meeting, rank, torch_hooks
from safelaunch.worker.after_import import attempt, call_after_import

BELOW = "SAFELAUNCH_BELOW"  # set in a rank by its environment, for what it starts: these inherit its RANK


class Joining:
    """How far this process has come.

    Args:
        box: a `black_box.Writer` without a slot.
        folder: gives the folder of the watcher for a meeting, "" for none.
    """

    def __init__(self, box: Any, folder: Callable[[meeting.Place], str]) -> None:
        self._box = box
        self._folder = folder
        self._owner = 0  # the pid that has taken the slot: a forked child is another process
        self._claim = ""
        self._in_group = False
        self._module: Any = None

    def follow(self, module: Any) -> None:
        """Learn of the process groups of `torch.distributed.distributed_c10d`."""
        self._module = module
        init, destroy = module.init_process_group, module.destroy_process_group

        @functools.wraps(init)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            place = attempt(meeting.asked_for, init, args, kwargs)
            known = place is not None and place.known
            if known:
                attempt(self.become, place, True)
            result = init(*args, **kwargs)
            if not known:
                attempt(self.join_now)
            return result

        @functools.wraps(destroy)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            result = destroy(*args, **kwargs)
            if self._in_group and self._owner == os.getpid() and not module.is_initialized():
                self._in_group = False
                attempt(self._say, {"left": monotonic()})
            return result

        module.init_process_group, module.destroy_process_group = init_process_group, destroy_process_group

    def join_now(self) -> None:
        """Join the group that this process is in already, unless it has."""
        joined = self._in_group and self._owner == os.getpid()
        if joined or self._module is None or not self._module.is_initialized():
            return
        self.become(meeting.made(self._module), True)
        if self._in_group:
            self._box.pulse.uses_groups()
            torch_hooks.start_beat(self._module, self._box)

    def become(self, place: meeting.Place, in_group: bool) -> None:
        """This process is that rank; `in_group` where it has said so itself, and not its environment alone."""
        folder = self._folder(place)
        if not os.path.isdir(folder):
            return  # whoever watched has gone
        mine = self._owner == os.getpid()
        if mine and in_group and not self._in_group and self._claim.startswith(folder) and not self._used:
            self._say(_said(place, in_group))
        else:
            self._take_slot(folder, place, in_group, again=mine)
        self._used = in_group
        self._in_group = in_group
        rank.world_size = place.world_size

    _used = False  # whether the slot has been that of a group

    def _say(self, what: Dict[str, Any]) -> None:
        descriptor = os.open(self._claim, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, json.dumps(what).encode() + b"\n")
        finally:
            os.close(descriptor)

    def _take_slot(self, folder: str, place: meeting.Place, in_group: bool, again: bool) -> None:
        claimed = _claimed(folder, {**_said(place, in_group), "again": again})
        if claimed is None:
            return  # nobody is told: the program is not to hear of more ranks than we can watch
        index, claim = claimed
        self._box.bind(os.path.join(folder, "black_box"), index)
        if self._owner and not again:
            torch_hooks.forked()
        self._owner, self._claim = os.getpid(), claim
        if again:
            torch_hooks.another_group()
            return
        rank_dir = os.path.join(folder, "rank.%d.%d" % (os.getpid(), _start()))
        os.mkdir(rank_dir, 0o700)
        safelaunch._pulse = self._box.pulse
        os.register_at_fork(after_in_child=bootstrap.give_up_pulse)
        rank.born()
        bootstrap.arm_member(rank_dir, self._box, _watcher(folder))


def _said(place: meeting.Place, in_group: bool) -> Dict[str, Any]:
    return {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "start": _start(),
        "t": monotonic(),
        "rank": place.rank,
        "world_size": place.world_size,
        "meeting": place.words,
        "in_group": in_group,
        "loopback": place.loopback,
    }


def _start() -> int:
    """The start time of this process in ticks, as `procfs.Process` has it."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _claimed(folder: str, said: Dict[str, Any]) -> Any:
    """Take the first free slot: its number, and the file that says so, None where all are taken. A file that is there
    is complete.

    Raises:
        OSError: the folder is gone.
    """
    partial = os.path.join(folder, "new.%d" % os.getpid())
    with open(partial, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(json.dumps(said) + "\n")
    try:
        for index in range(black_box.MEMBERS):
            claim = os.path.join(folder, "slot.%d" % index)
            try:
                os.link(partial, claim)
                return index, claim
            except FileExistsError:
                continue
    finally:
        os.unlink(partial)
    return None


def _watcher(folder: str) -> int:
    """The pid of the process that watches; 0 where it is not known."""
    try:
        with open(os.path.join(folder, "watcher")) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


_HERE: List[Joining] = []


def prepare(folder: str) -> None:
    """Make the hooks, before torch is imported; folder as `safelaunch exec` has named it to this process."""
    if not os.path.isdir(folder):
        return
    after_import.silent_without(folder)
    attempt(_be_known, folder)
    joining = install(lambda _: folder)
    place = meeting.of_environment(os.environ)
    if place is not None and os.environ.get(BELOW) != place.text():
        os.environ[BELOW] = place.text()
        attempt(joining.become, place, False)


def _be_known(folder: str) -> None:
    """That this process imports torch: of ranks that do not come, it may be one."""
    with open(os.path.join(folder, "torch.%d" % os.getpid()), "x") as file:
        file.write("%d %d" % (os.getppid(), _start()))


def install(folder: Callable[[meeting.Place], str]) -> Joining:
    """The hooks of a process that may become a rank."""
    if not rank.is_expected():
        rank.expect()
    box = black_box.Writer()
    joining = Joining(box, folder)
    _HERE.append(joining)
    bootstrap.hook(box)
    call_after_import(torch_hooks.TARGET, joining.follow)
    return joining


def join() -> None:
    """See `safelaunch.join`."""
    if _HERE:
        _HERE[0].join_now()
    elif not LAUNCHED.intersection(os.environ) and safelaunch._pulse is None:
        module = sys.modules.get(torch_hooks.TARGET)
        before = dict(vars(module)) if module is not None else {}
        joining = install(_own_folder)
        if module is not None:
            _replace_names(before, vars(module))
            joining.join_now()


LAUNCHED = {"SAFELAUNCH_RANK_DIR", "SAFELAUNCH_FORK_SERVER"}


def _own_folder(place: meeting.Place) -> str:
    """That of a `safelaunch exec` further up whose sitecustomize this Python has not read, or of a watch of its own."""
    folder = os.environ.get("SAFELAUNCH_EXEC", "")
    if not os.path.isdir(folder):
        from safelaunch.worker import standing_watch

        folder = standing_watch.folder_of(place)
    after_import.silent_without(folder)
    return folder


def _replace_names(before: Dict[str, Any], now: Dict[str, Any]) -> None:
    """Have the program call what we have put in the place of functions that it has imported by their names already."""
    changed = {name: value for name, value in before.items() if now.get(name) is not value and callable(value)}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict or names is now:
            continue
        for name, value in changed.items():
            if names.get(name) is value:
                names[name] = now[name]
