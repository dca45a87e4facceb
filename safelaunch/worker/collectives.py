"""Runs in: workers. Records every collective, message and making of a group that the script calls from Python.

Numbers are made to agree with torch's Flight Recorder: gloo counts messages between two ranks along with its
collectives (measured with torch 2.13), which would shift the numbers of ranks that send more than others.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import threading
import weakref
import zlib
from threading import get_ident
from time import monotonic
from typing import Any, Callable

from safelaunch import black_box
from safelaunch.worker import rank
from safelaunch.worker.after_import import off
from safelaunch.worker.batches import BATCHES
from safelaunch.worker.groups import Memberships
from safelaunch.worker.signatures import COLLECTIVES, MESSAGES, REDUCTIONS, ROOTS, reductions
from safelaunch.worker.stream_marks import MARKS, WAITED
from safelaunch.worker.user_code import is_user_code

BATCH = "batch"  # of messages that are enqueued together
PLACES = 1024  # of which code is kept: more than a program has, unless it makes code as it goes

# What torch calls to carry out one of these is no second call.
ATOMIC = {*COLLECTIVES, *MESSAGES, "monitored_barrier"}


def record_collectives(module: Any, box: Any) -> None:
    """Wrap what `torch.distributed` offers, so that the black box knows the latest calls."""
    recorder = _Recorder(module, box)
    wrappers = [
        (name, recorder.collective(*how, ROOTS.get(name), REDUCTIONS.get(name))) for name, how in COLLECTIVES.items()
    ]
    wrappers += [(name, recorder.message(*how)) for name, how in MESSAGES.items()]
    wrappers += [
        ("init_process_group", recorder.init),
        ("new_group", recorder.new_group),
        ("split_group", recorder.split_group),
        ("monitored_barrier", recorder.monitored_barrier),
    ]
    for name, describe in wrappers:
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, recorder.wrap(name, function, describe))
    BATCHES.remember(module, recorder.place)
    recorder.watch_waits(module.Work)


class _Inside(threading.local):
    """What a thread is inside: the name of the recorded call, the group of a message with its number before, and the
    batch of messages that it belongs to, with whether it is another one of it: nothing stands between these."""

    call = ""
    group: Any = None
    before: Any = None
    batch: Any = None
    joins = False


class _Recorder:
    def __init__(self, module: Any, box: Any) -> None:
        self._module = module
        self._box = box
        self._torch = os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) + os.sep
        self._work = module.Work
        self._main = threading.main_thread().ident
        self._dtypes: dict[Any, str] = {}
        self._reductions = reductions(module)
        self._shift: dict[str, int] = {}  # group -> numbers that were no collectives
        self._takes: dict[tuple[str, bool], int] = {}  # numbers that one message (or barrier) takes
        self._counts: dict[Any, int] = {}
        self._inside = _Inside()
        self._library: dict[str, bool] = {}  # file -> whether it is no place of the user's
        self._places: dict[Any, Any] = {}  # line and name of code, instruction -> code, whether a library, place
        self._works: Any = weakref.WeakKeyDictionary()
        self._members = Memberships(box, module)

    # -------------------------------------------------------------------------------------------- wrapping

    def wrap(self, name: str, function: Callable, describe: Callable) -> Callable:  # type: ignore[type-arg]
        """`describe(args, kwargs)` gives what `black_box.Writer.enter` takes about the call (group, its size, number,
        elements, type, other rank, tag, how), or None for a call that is not to be recorded."""

        after: Any = None  # what the call has changed
        if name in MESSAGES or name == "monitored_barrier":
            after = functools.partial(self._note_shift, name)
        elif name in ("init_process_group", "new_group", "split_group"):
            after = self._members.update

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            inside = self._inside
            outer = inside.call
            entry = None if outer in ATOMIC else self._enter(name, describe, args, kwargs)
            if entry is None:
                return function(*args, **kwargs)
            inside.call = name
            try:
                result = function(*args, **kwargs)
            except BaseException:
                entry[0].leave(entry[1], black_box.RAISED_AN_ERROR)
                raise
            finally:
                inside.call = outer
            self._left(entry, result, after, outer)
            return result

        return recorded

    def watch_waits(self, work: Any) -> None:
        """Show that a rank waits for what it had issued: `Work.wait`."""
        wait = work.wait

        @functools.wraps(wait)
        def waiting(this: Any, *args: Any, **kwargs: Any) -> Any:
            box = self._box
            entry: Any = None
            call: Any = None
            if box is not None and not self._inside.call and rank.here:
                try:
                    call = self._works.get(this)
                    entry = box.again(*call) if call is not None else None
                except Exception as error:
                    self._give_up(error)
            if entry is None:
                result = wait(this, *args, **kwargs)
                BATCHES.waited(this)
                return result
            status = black_box.RAISED_AN_ERROR
            begun = monotonic()
            try:
                result = wait(this, *args, **kwargs)
                status = black_box.DONE
            finally:
                box.leave(entry, status)
            if get_ident() == self._main:
                box.pulse.waited(monotonic() - begun)
            if MARKS.followed is not None:
                MARKS.past(call[1][0], call[1][6:9], WAITED)
            return result

        work.wait = waiting

    def _enter(self, name: str, describe: Callable, args: Any, kwargs: Any) -> Any:  # type: ignore[type-arg]
        """What `_left` takes, or None for a call that is not recorded. After a step nothing of this is in the
        processor's caches, and each function of Python costs a µs: so it is few."""
        box = self._box
        if box is None or not rank.here:
            return None  # a forked child must not write into its parent's slot
        try:
            what = describe(args, kwargs)
            if what is None:
                return None
            group, size, seq, numel, dtype, *message = what
            try:
                frame = sys._getframe(2)  # in one step: frames that Python has to show as objects cost a µs each
            except ValueError:
                frame = sys._getframe(1)  # Python itself calls what `atexit` has
            place = self.place(frame)
            call = (name, group, size, seq, numel, dtype, *place, *message)
            if call[-1] is not BATCH or not self._inside.joins:
                MARKS.mark(name, place)
            return box, box.enter(*call), call
        except Exception as error:
            self._give_up(error)
            return None

    def _left(self, entry: Any, result: Any, after: Any, outer: str) -> None:
        try:
            box, place, call = entry
            if isinstance(result, self._work):
                self._works[result] = (place, call)
                box.leave(place, black_box.ISSUED)
            else:
                box.leave(place)
                if MARKS.followed is not None:
                    MARKS.past(call[0], call[6:9])
            if not outer and get_ident() == self._main:
                box.pulse.waited(monotonic() - place[2])
            if after is not None:
                after()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Off for good: a record with gaps would mislead."""
        box, self._box = self._box, None
        if box is not None:  # else somebody has given up already
            box.pulse.record_lost()
        off("the record of collectives", error)

    def place(self, frame: Any) -> Any:
        """File, line and function of the user's code that has called `frame`, or is that.

        A program makes its calls at a few places, and Python searches for the number of a line each time: what has
        been found is kept, with its code. That makes no key: its hash is that of all it holds, and its `id()` comes to
        audit hooks.
        """
        while True:
            code = frame.f_code
            found = self._places.get((code.co_firstlineno, code.co_name, frame.f_lasti))
            if found is None or found[0] is not code:
                found = self._note_place(frame)
            _, is_library, place = found
            before = frame.f_back if is_library else None
            if before is None:
                return place
            frame = before

    def _note_place(self, frame: Any) -> Any:
        code = frame.f_code
        if len(self._places) >= PLACES:
            self._places.clear()
        place = (code.co_filename, frame.f_lineno, code.co_name)
        found = (code, self._is_library(code.co_filename), place)
        self._places[code.co_firstlineno, code.co_name, frame.f_lasti] = found
        return found

    def _is_library(self, file: str) -> bool:
        found = self._library.get(file)
        if found is None:
            found = self._library[file] = file.startswith(self._torch) or not is_user_code(file)
        return found

    # -------------------------------------------------------------------------------------------- describing

    def collective(self, position: int, keyword: str, group_at: int, root: Any, reduction: Any) -> Callable:  # type: ignore[type-arg]
        """Describes a collective by the places of its tensor, its group, its root and its operation on elements."""

        def describe(args: Any, kwargs: Any) -> Any:
            count = len(args)
            group = args[group_at] if group_at < count else kwargs.get("group")
            if group is None:
                group = self._module._world.default_pg
            if group is None or isinstance(group, int):
                return None  # there is none yet, or this rank is no member: the call itself will say so
            try:
                seq = group._get_sequence_number_for_group() + 1
            except RuntimeError:
                return None  # see `_number`
            name = group.group_name
            if name not in self._members.known:
                self._members.update()
            if self._shift:
                seq -= self._shift.get(name, 0)
            tensor = args[position] if 0 <= position < count else kwargs.get(keyword)
            peer = -1 if root is None else self._root(group, root, args, kwargs)
            if reduction is None:
                return (name, group.size(), seq, *self._shape(tensor), peer)
            op = args[reduction] if reduction < count else kwargs.get("op")
            how = "sum" if op is None else next((how for what, how in self._reductions if what is op), "")
            return (name, group.size(), seq, *self._shape(tensor), peer, 0, how)

        return describe

    def _root(self, group: Any, root: tuple[int, str], args: Any, kwargs: Any) -> int:
        position, keyword = root
        peer = args[position] if position < len(args) else kwargs.get(keyword)
        if peer is None and kwargs.get("group_" + keyword) is not None:
            peer = self._module.get_global_rank(group, kwargs["group_" + keyword])
        return _rank(peer)

    def message(self, by_rank: str, by_group_rank: str) -> Callable:  # type: ignore[type-arg]
        """Describes a message by its other rank; messages between two ranks are numbered for themselves."""

        def describe(args: Any, kwargs: Any) -> Any:
            group = self._group(args[2] if len(args) > 2 else kwargs.get("group"))
            if group is None:
                return None
            peer = args[1] if len(args) > 1 else kwargs.get(by_rank)
            within = args[4] if len(args) > 4 else kwargs.get(by_group_rank)
            if peer is None and within is not None:
                peer = self._module.get_global_rank(group, within)
            name = self._name(group)
            self._inside.before = self._number(group)
            self._inside.group = group
            seq = self._next((by_rank, name, peer))
            tag = args[3] if len(args) > 3 else kwargs.get("tag", 0)
            shape = self._shape(args[0] if args else kwargs.get("tensor"))
            batches = self._module._world.pg_coalesce_state
            batch = batches.get(group) if batches else None  # a list of its own for each of them
            how = ""
            if batch is not None:
                how, inside = BATCH, self._inside
                inside.joins, inside.batch = batch is inside.batch, batch
            return (name, group.size(), seq, *shape, _rank(peer), _tag(tag), how)

        return describe

    def monitored_barrier(self, args: Any, kwargs: Any) -> Any:
        """Not in the Flight Recorder, and made of messages: its meetings are numbered for themselves."""
        group = self._group(args[0] if args else kwargs.get("group"))
        if group is None:
            return None
        self._inside.before = self._number(group)
        self._inside.group = group
        name = "%s:monitored_barrier" % self._name(group)
        self._members.add(name, self._module.get_process_group_ranks(group))
        return (name, group.size(), self._next(name), -1, "", -1)

    def init(self, *_: Any) -> Any:
        """All ranks of the job meet in `init_process_group`."""
        self._box.pulse.uses_groups()
        size = int(os.environ.get("WORLD_SIZE", "1"))
        self._members.add("init", range(size))
        return ("init", size, self._next("init"), -1, "", -1)

    def new_group(self, args: Any, kwargs: Any) -> Any:
        """The members of a new group meet in `new_group`; every rank calls it, in the same order, or the members alone
        (`use_local_synchronization`)."""
        ranks = args[0] if args else kwargs.get("ranks")
        members = sorted(map(int, ranks)) if ranks is not None else list(range(self._module.get_world_size()))
        if args[4] if len(args) > 4 else kwargs.get("use_local_synchronization"):
            name = "new_group of %d-%d, %08x" % (members[0], members[-1], zlib.crc32(str(members).encode()))
            name += " #%d" % self._next(name)
        else:
            self._members.ask(members)
            name = "new_group #%d" % self._next("new_group")
        if self._module.get_rank() not in members:
            return None
        self._members.add(name, members)
        return (name, len(members), 1, -1, "", -1)

    def split_group(self, args: Any, kwargs: Any) -> Any:
        """All members of the parent meet in `split_group`."""
        parent = self._group(args[0] if args else kwargs.get("parent_pg"))
        if parent is None:
            return None
        name = "%s:split_group" % self._name(parent)
        self._members.add(name, self._module.get_process_group_ranks(parent))
        return (name, parent.size(), self._next(name), -1, "", -1)

    @staticmethod
    def _number(group: Any) -> Any:
        """The group's sequence number, or None where it keeps none (`new_group(backend="gloo")` beside "cpu:gloo");
        its collectives are then left to the Flight Recorder."""
        try:
            return group._get_sequence_number_for_group()
        except RuntimeError:
            return None

    def _group(self, group: Any) -> Any:
        """The group itself, or None where there is none yet or this rank is no member: the call itself will say so."""
        if group is None:
            group = self._module._world.default_pg
        return None if isinstance(group, int) else group

    def _name(self, group: Any) -> str:
        name = str(group.group_name)
        if name not in self._members.known:
            self._members.update()
        return name

    def _shape(self, tensor: Any) -> tuple[int, str]:
        try:
            numel, dtype = tensor.numel(), tensor.dtype
        except AttributeError:
            numel, dtype = -1, None
        name = self._dtypes.get(dtype)
        if name is None:
            name = self._dtypes[dtype] = str(dtype or "").replace("torch.", "")
        return numel, name

    def _next(self, key: Any) -> int:
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]

    def _note_shift(self, name: str) -> None:
        """Whether messages take numbers is asked once for each group, and not measured again: another thread could be
        making a collective at the same moment."""
        group, before = self._inside.group, self._inside.before
        self._inside.group = None
        group_name = str(group.group_name)
        key = (group_name, name == "monitored_barrier")  # which is made of several messages
        if before is None:
            return
        if key not in self._takes:
            taken = group._get_sequence_number_for_group() - before
            # The recorder counts a monitored barrier as two, however many messages it is made of (torch 2.13).
            self._takes[key] = taken - 2 if key[1] and taken else taken
        self._shift[group_name] = self._shift.get(group_name, 0) + self._takes[key]


def _tag(tag: Any) -> int:
    try:
        return operator.index(tag)
    except TypeError:
        return 0  # torch will say so


def _rank(peer: Any) -> int:
    return peer if isinstance(peer, int) else -1
