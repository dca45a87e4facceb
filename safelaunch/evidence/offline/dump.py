"""One rank's Flight Recorder dump, from its document to the few calls that a diagnosis needs.

The format is torch's own (c10d/FlightRecorder.hpp, versions 2.1 of torch 2.4 to 2.10 of torch 2.15); a newer minor
version only adds keys. A dump may hold all entries, those of active calls only, or none beside its counters. What the
entries mean:

- `state` follows CUDA events. A start event exists only with TORCH_NCCL_ENABLE_TIMING, so without it NCCL's entries go
  from `scheduled` straight to `completed`, and `scheduled` says nothing about the GPU. nccl2 (torch 2.15) has no start
  events at all: it writes the time of the end into both.
- Gloo's entries stay `scheduled` for ever; `retired` is what says that they are done, or have failed (measured with
  torch 2.13). NCCL's are `retired` as well when they have timed out, which is not done: a dump with such an entry is
  of a job that hung.
- The program enqueues ahead of the GPU. The first call that is not done is what the rank waits in; those after it stand
  behind it, and their peers do not see them yet.
- Calls within one coalesced launch share a number, and a last entry `coalesced` carries their state.
- Messages are numbered by each rank for itself. What compares is how many of one kind a rank has had with one peer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch.evidence import counters
from safelaunch.evidence.flight_recorder import DTYPES, LAST
from safelaunch.evidence.flight_recorder import NAMES as LIVE_NAMES
from safelaunch.evidence.offline import dump_shape
from safelaunch.evidence.offline.dump_shape import Entry, whole
from safelaunch.model import CallState, Collective, GroupProgress, Location, ProcessGroup
from safelaunch.model.ranks import MOST_RANKS
from safelaunch.user_code import is_user_code

KNOWN_MAJOR = "2"
BEHIND = 5  # calls kept that are enqueued behind the one that a rank waits in

NAMES = {**LIVE_NAMES, "all_reduce_barrier": "barrier", "_broadcast_oop": "broadcast", "_reduce_oop": "reduce"}
MESSAGE = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})$")
COALESCED = "coalesced"


class UnreadableError(Exception):
    """The document tells nothing of what its rank did last; the message says why."""


@dataclass(frozen=True)
class Dump:
    """What one rank's dump says. `calls` are the latest of each group, oldest first, as `RankFacts.recorded` wants
    them; `high` is the highest number of each group that the rank came to, `met` the highest one that it finished in a
    collective which nobody finishes before all have come, `ahead` how many of each group it has enqueued beyond `high`,
    where nobody knows whether they have begun. `since` and `t` are the wall clock of its first and latest
    entry, `written` that of its file (0: not known), in seconds; `left_out` counts entries of a second backend.
    `progress` is how far it has come in each group; by `counters` of the recorder, a group without them had no call.
    `gave_up` says that a call is marked as given up by its watchdog, `limit` at which time of the wall clock the first
    of the calls that are not done times out (0: not known). `torn` counts entries, groups and counters that were left
    out because they are not of their shape.
    """

    rank: int
    path: str
    backend: str = ""
    version: str = ""
    calls: tuple[Collective, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    progress: tuple[GroupProgress, ...] = ()
    high: dict[str, int] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    overwritten: bool = False
    frames: bool = False
    messages_lost: bool = False
    t: float = 0.0
    unreadable: str = ""
    left_out: int = 0
    since: float = 0.0
    written: float = 0.0
    gave_up: bool = False
    counters: bool = False
    limit: float = 0.0
    torn: int = 0


@dataclass
class _Launch:
    """What the recorder has of one launch: one entry, or all of a coalesced one, latest first."""

    group: str
    entries: list[Entry]
    message: bool
    done: bool
    started: bool
    later: list[int] = field(default_factory=list)  # for each entry: messages of its kind after it


@dataclass
class _Course:
    """What a rank's entries say, read from the latest one back. `launches` are those worth keeping, latest first."""

    launches: list[_Launch] = field(default_factory=list)
    messages_seen: dict[tuple[str, str], int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)
    timed: bool = False
    messages: bool = False


# Nobody comes out of these before all have gone in.
MEETS = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)


def read(document: Any, rank: int, path: str) -> Dump:
    """What a dump's document says.

    Raises:
        UnreadableError: when it is no dump, of an unknown version, or holds nothing of what the rank did last.
    """
    if not isinstance(document, dict) or not {"entries", "pg_config", "pg_status", "version"} & document.keys():
        raise UnreadableError("it is no dump of a Flight Recorder")
    told = bool(document.get("entries"))
    document, torn = dump_shape.plain(document)
    version = str(document.get("version", ""))
    if version.partition(".")[0] != KNOWN_MAJOR:
        raise UnreadableError(f"version {version[:20] or 'unknown'} of the format is not known")
    entries = document["entries"]
    if not entries and torn:
        what = "its entries" if told else "it holds no entries, and its counters"
        raise UnreadableError(f"{what} are not those of a Flight Recorder")
    if not entries and not document.get("pg_config"):
        raise UnreadableError("the recorder was off, or torch.distributed was not initialised")
    try:
        groups = _groups(document.get("pg_config"))
        backend, kept = _of_one_backend(entries, document["names"])
        backend = backend or _backend_of(document)
        course = _course(kept, backend)
        progress = counters.progress({**document, "entries": kept}, backend)
        first, last = (whole(entries[at], "record_id") if entries else 0 for at in (0, -1))
        lost = first > 0 or last - first + 1 != len(entries) if entries else any(one.enqueued for one in progress)
        return Dump(
            rank,
            path,
            backend,
            version,
            tuple(_calls(course, {group.name: group.ranks for group in groups})),
            groups,
            progress or _counted(course, backend, not lost),
            course.high if backend == "gloo" else _begun(course),
            course.met,
            {} if course.timed else _ahead(course),
            len(entries),
            # A recorder that was asked for active calls only leaves gaps, or nothing.
            lost,
            any(entry.get("frames") for entry in kept[-1:]),
            backend == "gloo" and course.messages,
            max((whole(entry, "time_created_ns") for entry in kept[-1:]), default=0) / 1e9,
            left_out=len(entries) - len(kept),
            since=min((whole(entry, "time_created_ns") for entry in kept[:1]), default=0) / 1e9,
            gave_up=backend != "gloo" and any(entry.get("retired") for entry in _open(course)),
            counters=bool(progress),
            limit=min(filter(None, map(_limit, _open(course))), default=0.0),
            torn=torn,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = "its entries" if entries else "it holds no entries, and its counters"
        raise UnreadableError(f"{what} are not those of a Flight Recorder ({type(error).__name__})") from error


def _begun(course: _Course) -> dict[str, int]:
    """The highest number of each group that the rank itself came to: of what it enqueued ahead, its GPU has begun
    nothing before the first call that is not done."""
    begun = dict(course.high)
    for launch in course.launches:  # latest first, so that the first call that is not done comes last
        if not (launch.done or launch.message):
            number = int(launch.entries[-1]["collective_seq_id"])
            begun[launch.group] = number - 1 if course.timed and not launch.started else number
    return begun


def _ahead(course: _Course) -> dict[str, int]:
    begun = _begun(course)
    return {group: number - begun[group] for group, number in course.high.items()}


def _counted(course: _Course, backend: str, whole: bool) -> tuple[GroupProgress, ...]:
    """Progress by the entries, of a recorder that has no counters (torch 2.4). Of a ring that has lost entries, groups
    are left out of which it shows no call that is done: more may have been pending."""
    done: dict[str, int] = dict.fromkeys(course.high, 0) if whole else {}
    for launch in course.launches:  # latest first
        if launch.done and not launch.message:
            done[launch.group] = max(done.get(launch.group, 0), int(launch.entries[-1]["collective_seq_id"]))
    messages = {group for group, _ in course.messages_seen}
    return tuple(
        GroupProgress(group, backend, high, done[group], messages=group in messages)
        for group, high in course.high.items()
        if group in done
    )


def _open(course: _Course) -> Iterator[Entry]:
    """The entries of calls that are not done."""
    return (launch.entries[0] for launch in course.launches if not launch.done)


def _limit(entry: Entry) -> float:
    """When the watchdog gives a call up, 0 where that is not known."""
    created, timeout = whole(entry, "time_created_ns"), whole(entry, "timeout_ms")
    return created / 1e9 + timeout / 1e3 if created > 0 and timeout > 0 else 0.0


def _backend_of(document: dict[Any, Any]) -> str:
    """The backend of a dump without entries: only the old one of NCCL tells its library's version, and gloo keeps one
    nameless group."""
    if document.get("comm_lib_version") or document.get("nccl_version"):
        return "nccl"
    return "gloo" if "" in document["pg_config"] else "nccl2"


def _groups(config: dict[str, Any]) -> tuple[ProcessGroup, ...]:
    """Membership as NCCL writes it down. Gloo keeps one nameless group without members (torch 2.13)."""
    found = []
    for key, group in config.items():
        numbers = [int(number) for number in re.findall(r"\d{1,9}", str(group.get("ranks", "")))]
        if key and numbers and max(numbers) < MOST_RANKS:
            found.append(ProcessGroup(key, tuple(numbers)))
    return tuple(found)


def _of_one_backend(entries: list[Entry], names: set[str]) -> tuple[str, list[Entry]]:
    """Backends number the calls of one group each for itself; where there are two, the busier one is looked at."""
    backends = {name.partition(":")[0] for name in names}
    if len(backends) < 2:
        return next(iter(backends), ""), entries
    each = [entry["profiling_name"].partition(":")[0] for entry in entries]
    backend = max(sorted(backends), key=each.count)
    return backend, [entry for name, entry in zip(each, entries, strict=True) if name == backend]


def _course(entries: list[Entry], backend: str) -> _Course:
    """Read entries from the latest one back, of the latest group of each name: a program may destroy its groups and
    make new ones. Of what is done, the last few are kept, and the latest of each kind: it tells what is new."""
    course = _Course()
    latest: dict[str, Any] = {}
    later: dict[str, tuple[bool, int, _Launch | None]] = {}  # of each group: message, number, launch
    kept: dict[str, int] = {}
    kinds: set[tuple[str, str]] = set()
    named_message: dict[str, bool] = {}  # by their names, of which there are a few
    gloo = backend == "gloo"
    high, met, seen = course.high, course.met, course.messages_seen
    for entry in reversed(entries):
        group, name = entry["process_group"][0], entry["profiling_name"]
        if group not in latest:
            latest[group] = entry.get("pg_id")
            # Gloo records no messages, but counts them among the group's operations.
            course.messages = course.messages or whole(entry, "op_id") > entry["collective_seq_id"]
        elif latest[group] != entry.get("pg_id"):
            continue
        if name not in named_message:
            named_message[name] = ":send" in name or ":recv" in name
        count_later = 0
        if message := named_message[name] or bool(entry.get("is_p2p")):
            number = whole(entry, "p2p_seq_id")
            count_later = seen.get((group, name), 0)
            seen[group, name] = count_later + 1
        else:
            number = entry["collective_seq_id"]
        following = later.get(group)
        if following is not None and following[1] == number and following[0] == message:
            # torch marks the parts of a coalesced launch as scheduled for ever: its end has their state.
            if following[2] is not None:
                following[2].entries.append(entry)
                following[2].later.append(count_later)
            continue
        state = entry.get("state")
        done = state == "completed" or (gloo and bool(entry.get("retired")))
        if not message:
            if group not in high:
                high[group] = number
            # The last of gloo's may be retired because it failed.
            if done and group not in met and not (gloo and number == high[group]) and MEETS.search(name):
                met[group] = number
        count = kept.get(group, 0)
        if done and count >= LAST and (group, name) in kinds:
            later[group] = (message, number, None)
            continue
        if type(state) is not str:
            continue  # nobody knows whether it is done
        launch = _Launch(group, [entry], message, done, state == "started", [count_later])
        course.timed = course.timed or _has_start(entry)
        course.launches.append(launch)
        later[group] = (message, number, launch)
        if done:
            kept[group] = count + 1
            kinds.add((group, name))
    return course


def _has_start(entry: Entry) -> bool:
    started = entry.get("time_discovered_started_ns")
    return bool(started) and started != entry.get("time_discovered_completed_ns")


def _calls(course: _Course, members: dict[str, tuple[int, ...]]) -> list[Collective]:
    """The calls of a rank, oldest first: done, waited in, and a few of those that stand behind."""
    launches = course.launches[::-1]
    waiting = [index for index, launch in enumerate(launches) if not launch.done]
    heads = {index for index in waiting if launches[index].started} if course.timed else set(waiting[:1])
    behind: dict[str, int] = {}
    calls: list[Collective] = []
    for index, launch in enumerate(launches):
        if not launch.done and index not in heads:
            behind[launch.group] = behind.get(launch.group, 0) + 1
            if behind[launch.group] > BEHIND:
                continue
        calls += _collectives(launch, index not in heads, members, course.messages_seen)
    return calls


def _collectives(
    launch: _Launch, behind: bool, members: dict[str, tuple[int, ...]], seen: dict[tuple[str, str], int]
) -> Iterator[Collective]:
    issued = behind and not launch.done
    if launch.message:
        ranks = members.get(launch.group, ())
        for entry, later in zip(reversed(launch.entries), reversed(launch.later), strict=True):
            name = entry["profiling_name"]
            found = MESSAGE.search(name)
            if found is None or int(found[3]) >= len(ranks):
                continue  # the end of a coalesced launch, or a group whose members are not known
            number = seen[launch.group, name] - later
            call = _collective(entry, launch, found[1], number, len(ranks))
            yield replace(call, peer=ranks[int(found[3])], issued=issued)
        return
    first = launch.entries[-1]
    op = _op(first)
    if len(launch.entries) > 1:
        op = f"{op}_{COALESCED}"
    seq = int(first["collective_seq_id"])
    size = len(members.get(launch.group, ()))
    yield replace(_collective(first, launch, op, seq, size), issued=issued)


def _collective(entry: Entry, launch: _Launch, op: str, seq: int, size: int) -> Collective:
    sizes, dtypes = dump_shape.sizes(entry), dump_shape.dtypes(entry)
    return Collective(
        op=op,
        group=launch.group,
        seq=seq,
        numel=math.prod(sizes[0]) if sizes else -1,
        dtype=DTYPES.get(dtypes[0], dtypes[0]) if dtypes else "",
        done=launch.done,
        t=whole(entry, "time_created_ns") / 1e9,
        group_size=size,
        location=_location(dump_shape.frames(entry)),
        state=_state(entry, launch),
    )


def _state(entry: Entry, launch: _Launch) -> CallState:
    if entry["profiling_name"].startswith("gloo:"):
        return ""  # no device, and one that has failed looks as if it were done
    return "completed" if launch.done else "started" if launch.started else "enqueued"


def _op(entry: Entry) -> str:
    name = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
    return str(NAMES.get(name, name))


def _location(frames: Any) -> Location | None:
    """The innermost line of the user's program."""
    for frame in frames:
        file: str = frame["filename"]
        if is_user_code(file):
            return Location(file, whole(frame, "line"), frame["name"])
    return None
