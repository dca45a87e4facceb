"""Runs in: workers. Records every collective, message and making of a group that the script calls from Python.

Numbers are made to agree with torch's Flight Recorder: gloo counts messages between two ranks along with its
collectives (measured with torch 2.13), which would shift the numbers of ranks that send more than others.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
import zlib
from threading import get_ident
from typing import Any, Callable

from safelaunch import black_box
from safelaunch.worker import rank, signatures
from safelaunch.worker.after_import import off
from safelaunch.worker.batches import BATCHES
from safelaunch.worker.groups import Memberships, Unnamed
from safelaunch.worker.places import MOST as MOST_SITES
from safelaunch.worker.places import Places, Site
from safelaunch.worker.signatures import COLLECTIVES, MESSAGES, REDUCTIONS, ROOTS, reductions
from safelaunch.worker.stream_marks import MARKS, WAITED

_RECORDERS: list[Any] = []
BATCH = "batch"  # of messages that are enqueued together

# What torch calls to carry out one of these is no second call.
ATOMIC = {*COLLECTIVES, *MESSAGES, "monitored_barrier"}


def record_collectives(module: Any, box: Any) -> None:
    """Wrap what `torch.distributed` offers, so that the black box knows the latest calls."""
    recorder = _Recorder(module, box)
    wrappers = [(name, recorder.collective(name, *how)) for name, how in COLLECTIVES.items()]
    described = [(name, recorder.message(*how)) for name, how in MESSAGES.items()]
    described += [
        ("init_process_group", recorder.init),
        ("new_group", recorder.new_group),
        ("split_group", recorder.split_group),
        ("monitored_barrier", recorder.monitored_barrier),
    ]
    wrappers += [(name, recorder.described(name, describe)) for name, describe in described]
    for name, enter in wrappers:
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, recorder.wrap(name, function, enter))
    BATCHES.remember(module, recorder.places.of)
    recorder.watch_waits(module.Work)
    _RECORDERS.append(recorder)


def another_group() -> None:
    """This process joins another job, in a slot of its own: all numbers begin again."""
    for recorder in _RECORDERS:
        recorder.begin_again()


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
        self.places = Places(os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) + os.sep)
        self._work = module.Work
        self._default = module.GroupMember
        self._main = threading.main_thread().ident
        self._dtypes: dict[Any, str] = {}
        self._reductions = reductions(module)
        self._inside = _Inside()
        self._works: Any = weakref.WeakKeyDictionary()
        self.begin_again()

    def begin_again(self) -> None:
        """Number all from the start, as torch does for new groups."""
        self._shift: dict[str, int] = {}  # group -> numbers that were no collectives
        self._takes: dict[tuple[str, bool], int] = {}  # numbers that one message (or barrier) takes
        self._counts: dict[Any, int] = {}
        self._members = Memberships(self._box, self._module)

    # -------------------------------------------------------------------------------------------- wrapping

    def wrap(self, name: str, function: Callable, enter: Callable) -> Callable:  # type: ignore[type-arg]
        """`enter(box, frame, args, kwargs)` records that the call is made by `frame`, and returns what
        `black_box.Writer.leave` takes, the place of the call, and what `Writer.enter` took; or None for a call that is
        not to be recorded."""

        after: Any = None  # what the call has changed
        if name in MESSAGES or name == "monitored_barrier":
            after = functools.partial(self._note_shift, name)
        elif name in ("init_process_group", "new_group", "split_group"):
            after = lambda: self._members.update()  # noqa: E731  of the job that it is in then

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            # After a step nothing of this is in the processor's caches, where each function of Python costs a µs: so
            # few are called.
            box, inside = self._box, self._inside
            outer = inside.call
            if box is None or outer in ATOMIC or not rank.here:
                return function(*args, **kwargs)  # a forked child must not write into its parent's slot
            entered: Any = None
            try:
                try:
                    frame = sys._getframe(1)  # in one step: Python has to show those between as objects, for a µs
                except ValueError:
                    frame = sys._getframe()  # Python itself calls what `atexit` has
                entered = enter(box, frame, args, kwargs)
            except Unnamed:
                pass
            except Exception as error:
                self._give_up(error)
            if entered is None:
                return function(*args, **kwargs)
            entry, place, call = entered
            inside.call = name
            try:
                result = function(*args, **kwargs)
            except BaseException:
                box.leave(entry, black_box.RAISED_AN_ERROR)
                raise
            finally:
                inside.call = outer
            try:
                waited = not outer and get_ident() == self._main
                if isinstance(result, self._work):
                    self._works[result] = (entry, call, name, place)
                    box.leave(entry, black_box.ISSUED, waited)
                else:
                    box.leave(entry, black_box.DONE, waited)
                    if MARKS.followed is not None:
                        MARKS.past(name, place)
                if after is not None:
                    after()
            except Exception as error:
                self._give_up(error)
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
                    entry = box.again(*call[:2]) if call is not None else None
                except Exception as error:
                    self._give_up(error)
            if entry is None:
                result = wait(this, *args, **kwargs)
                BATCHES.waited(this)
                return result
            status = black_box.RAISED_AN_ERROR
            try:
                result = wait(this, *args, **kwargs)
                status = black_box.DONE
            finally:
                box.leave(entry, status, get_ident() == self._main)
            if MARKS.followed is not None:
                MARKS.past(call[2], call[3], WAITED)
            return result

        work.wait = waiting

    def _give_up(self, error: Exception) -> None:
        """Off for good: a record with gaps would mislead."""
        box, self._box = self._box, None
        if box is not None:  # else somebody has given up already
            box.pulse.record_lost()
        off("the record of collectives", error)

    # -------------------------------------------------------------------------------------------- describing

    def collective(self, name: str, position: int, keyword: str, group_at: int) -> Callable:  # type: ignore[type-arg]
        """Enters a collective; arguments as in `signatures.COLLECTIVES`."""
        root, reduction = ROOTS.get(name), REDUCTIONS.get(name)
        sites: dict[tuple[int, int], Site] = {}

        def enter(box: Any, frame: Any, args: Any, kwargs: Any) -> Any:
            count = len(args)
            group = args[group_at] if group_at < count else kwargs.get("group")
            if group is None:
                group = self._default.WORLD
                if group is None:
                    return None  # there is none yet: the call itself will say so
            tensor = args[position] if 0 <= position < count else kwargs.get(keyword)
            dtype = getattr(tensor, "dtype", None)
            op = None
            if reduction is not None:
                op = args[reduction] if reduction < count else kwargs.get("op")
            code = frame.f_code
            site = sites.get((code.co_firstlineno, frame.f_lasti))
            if (
                site is None
                or site.code is not code
                or site.group() is not group
                or site.dtype is not dtype
                or site.op is not op
            ):
                if isinstance(group, int):
                    return None  # this rank is no member: the call itself will say so
                site = self._site(box, name, frame, group, tensor, dtype, op)
                if self.places.is_users(frame):
                    if len(sites) >= MOST_SITES:
                        sites.clear()
                    sites[code.co_firstlineno, frame.f_lasti] = site
            try:
                seq = group._get_sequence_number_for_group() + 1
            except RuntimeError:
                return None  # see `_number`
            if self._shift:
                seq -= self._shift.get(site.name, 0)
            MARKS.mark(name, site.place)
            peer = -1 if root is None else self._root(group, root, args, kwargs)
            call = (site.text, site.size, seq, tensor.numel() if site.measured else -1, peer)
            return box.enter(*call), site.place, call

        return enter

    def _site(self, box: Any, name: str, frame: Any, group: Any, tensor: Any, dtype: Any, op: Any) -> Site:
        site = Site()
        site.code, site.group, site.dtype, site.op = frame.f_code, weakref.ref(group), dtype, op
        site.place, site.name, site.size = self.places.of(frame), self._name(group), group.size()
        numel, type_name = self._shape(tensor)
        site.measured = numel >= 0
        how = ""
        if name in REDUCTIONS:
            how = "sum" if op is None else next((how for what, how in self._reductions if what is op), "")
        site.text = box.text(name, site.place, site.name, type_name, 0, how)
        return site

    def described(self, name: str, describe: Callable) -> Callable:  # type: ignore[type-arg]
        """Enters what `describe(args, kwargs)` describes: group, its size, number, elements, type, other rank, tag and
        how; None for a call that is not to be recorded."""

        def enter(box: Any, frame: Any, args: Any, kwargs: Any) -> Any:
            what = describe(args, kwargs)
            if what is None:
                return None
            group, size, seq, numel, dtype, peer, tag, how = what
            place = self.places.of(frame)
            if how is not BATCH or not self._inside.joins:
                MARKS.mark(name, place)
            call = (box.text(name, place, group, dtype, tag, how), size, seq, numel, peer)
            return box.enter(*call), place, call

        return enter

    def _root(self, group: Any, root: tuple[int, str], args: Any, kwargs: Any) -> int:
        position, keyword = root
        peer = args[position] if position < len(args) else kwargs.get(keyword)
        if peer is None and kwargs.get("group_" + keyword) is not None:
            peer = self._module.get_global_rank(group, kwargs["group_" + keyword])
        return signatures.rank_number(peer)

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
            return (name, group.size(), seq, *shape, signatures.rank_number(peer), signatures.tag_number(tag), how)

        return describe

    def monitored_barrier(self, args: Any, kwargs: Any) -> Any:
        """Not in the Flight Recorder, and made of messages: its meetings are numbered for themselves."""
        group = self._group(args[0] if args else kwargs.get("group"))
        if group is None:
            return None
        name = "%s:monitored_barrier" % self._name(group)
        self._inside.before = self._number(group)
        self._inside.group = group
        self._members.add(name, self._module.get_process_group_ranks(group))
        return (name, group.size(), self._next(name), -1, "", -1, 0, "")

    def init(self, args: Any, kwargs: Any) -> Any:
        """All ranks of the job meet in `init_process_group`."""
        self._box.pulse.uses_groups()
        size = rank.world_size or int(os.environ.get("WORLD_SIZE", "1"))
        self._members.add("init", range(size))
        self._members.meet(args, kwargs)
        return ("init", size, self._next("init"), -1, "", -1, 0, "")

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
        return (name, len(members), 1, -1, "", -1, 0, "")

    def split_group(self, args: Any, kwargs: Any) -> Any:
        """All members of the parent meet in `split_group`."""
        parent = self._group(args[0] if args else kwargs.get("parent_pg"))
        if parent is None:
            return None
        name = "%s:split_group" % self._name(parent)
        self._members.add(name, self._module.get_process_group_ranks(parent))
        return (name, parent.size(), self._next(name), -1, "", -1, 0, "")

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
        try:
            name = str(group.group_name)
        except AttributeError:
            raise Unnamed from None
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
