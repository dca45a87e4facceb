"""Evidence of a job that somebody else started: two looks from outside, and what its own recorders say."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.evidence import ASKED, black_box, case, devices, groups, kernel, pipes, proc_tasks, stacks
from safelaunch.evidence.gather import gather
from safelaunch.evidence.offline import dump_case, dump_files
from safelaunch.evidence.offline.dump import Dump
from safelaunch.evidence.ranks import Group
from safelaunch.evidence.source_lines import describe, places, rights_of
from safelaunch.model import Case, Evidence, Gap, Incident, RankFacts, SourceLine, Stack, WorkerGroup, WorkerProcess

# None of these stops a rank. One of safelaunch is asked for its Flight Recorder, as its own launcher does.
COLLECTORS = (kernel.collect, black_box.collect, groups.collect, devices.collect, *ASKED, stacks.collect)
LOOK_S = 5.0  # py-spy takes 0.1 to 0.5 s for a rank, and all ranks share the cores that are left
SOURCE_S = 1.0
PIPE_S = 6.0  # the monitor of NCCL looks at its pipe each second, and a busy machine takes its time to write
# When a call times out, all ranks write their dumps, told by the store, and wait no longer than this for it to be done
# (c10d/ProcessGroupNCCL.cpp: TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC, 60 s up to torch 2.4, 15 s later).
TOGETHER_S = 60.0
OF_OUTSIDE = ("recorder", "collectives")  # what is not to be had from there is no fault
ENDED = "X"


@dataclass(frozen=True)
class Taken:
    """What was taken of a job. `alive` says whether any of its ranks still runs, `notes` what is to be said besides."""

    case: Case
    evidence: tuple[Evidence, ...]
    alive: bool
    notes: tuple[str, ...] = ()


def take(found: Group, wait: float, host: str) -> Taken:
    """Look at all ranks twice, `wait` seconds apart, and make the case of it."""
    workers = tuple(one.worker() for one in found.ranks)
    group = WorkerGroup(0, found.world_size, len(workers), workers)
    begun = time.monotonic()
    asked = pipes.ask(found.ranks)
    incident = Incident("hang", 0, (), begun)
    earlier = gather(incident, workers, COLLECTORS, LOOK_S)
    time.sleep(wait)
    proc_tasks.forget()
    evidence = gather(incident, workers, COLLECTORS, LOOK_S)
    now = time.monotonic()
    facts = case.build(incident, group, evidence, host, None, earlier=earlier, now=now)
    ended = {worker.rank for worker in workers if not _runs(worker)}
    ranks = [_ended(rank) if rank.rank in ended else _seen(rank) for rank in facts.ranks]
    ranks += [_ended(RankFacts(rank, local, 0, watched=False)) for rank, local in found.ended]
    notes = [f"rank {one.rank}: {one.reason}" for one in asked if one.reason]
    facts = dataclasses.replace(facts, ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)), origin="attach")
    dumps = pipes.answers(asked, max(now, begun + PIPE_S)) if asked else {}
    facts, more = _with_dumps(found, facts, dumps) if dumps else _with_old_dumps(found, facts)
    late = [one.rank for one in asked if not one.reason and one.rank not in dumps]
    notes += [*more, *(f"rank {rank} was asked for a Flight Recorder dump and wrote none" for rank in late)]
    facts = dataclasses.replace(facts, source=_source(facts.ranks))
    return Taken(facts, evidence, len(ended) < len(workers), tuple(notes))


def yama() -> int:
    """kernel.yama.ptrace_scope: from 1 on, only what is above a process may read its memory; -1 where there is none."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


def _source(ranks: Iterable[RankFacts]) -> tuple[SourceLine, ...]:
    """What stands around the lines of all stacks, in the files as the ranks see them and may read them."""
    stacks: dict[tuple[str, str], list[Stack]] = {}
    roots: dict[str, str] = {}
    own = _mounts("self")
    for rank in ranks:
        mounts = _mounts(str(rank.pid)) if rank.pid else ""
        rights = rights_of(rank.pid) if rank.pid else None
        if rights is None:
            continue
        roots.setdefault(mounts, "" if mounts in ("", own) else f"/proc/{rank.pid}/root")
        stacks.setdefault((mounts, rights), []).extend(places(rank))
    until = time.monotonic() + SOURCE_S
    lines: list[SourceLine] = []
    for (mounts, rights), seen in stacks.items():
        if (left := until - time.monotonic()) > 0:
            lines += describe(seen, left, roots[mounts], rights)
    return tuple(lines)


def _mounts(pid: str) -> str:
    """The mount namespace of a process: in another one, the same path may be another file."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _runs(worker: WorkerProcess) -> bool:
    process = procfs.read(worker.pid)
    return process is not None and process.start == worker.start and process.state not in "ZX"


def _ended(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(
        facts, state=ENDED, missing=(Gap("process", "it has ended"),), stack=None, stacks=(), kernel=None
    )


def _seen(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(facts, missing=tuple(gap for gap in facts.missing if gap.source not in OF_OUTSIDE))


def _with_dumps(found: Group, facts: Case, files: dict[int, str]) -> tuple[Case, list[str]]:
    """The case with what ranks have dumped now. Their times are of the wall clock."""
    dumps = _read(found, files)
    notes = [f"the dump of rank {dump.rank} cannot be read: {dump.unreadable}" for dump in dumps if dump.unreadable]
    return _with(facts, dumps), notes


def _read(found: Group, files: dict[int, str]) -> list[Dump]:
    """The dumps of ranks. What another user has put in the place of one is none."""
    owners = {one.rank: one.owner() for one in found.ranks}
    return dump_files.read_all([dump_files.Found(path, rank, owners[rank]) for rank, path in sorted(files.items())])


def _with(facts: Case, dumps: Sequence[Dump]) -> Case:
    built = dump_case.build(dumps)
    offset = time.time() - time.monotonic()
    recorded = {rank.rank: rank for rank in built.ranks if rank.recorded is not None}
    return dataclasses.replace(
        facts, ranks=tuple(_joined(facts.ranks, recorded, offset)), groups=(*facts.groups, *built.groups)
    )


def _with_old_dumps(found: Group, facts: Case) -> tuple[Case, list[str]]:
    """The case with the dumps that ranks have written before anybody asked. They count where they are of a call that
    has timed out, since no job goes on after that, and where no rank was seen to move."""
    unwatched = {rank.rank for rank in facts.ranks if not rank.watched and rank.state != ENDED}
    files = pipes.lying(one for one in found.ranks if one.rank in unwatched)
    dumps = [dump for dump in _read(found, files) if not dump.unreadable] if files else []
    if not dumps:
        return facts, []
    last = max((dump.written for dump in dumps if dump.gave_up or 0 < dump.limit <= dump.written), default=None)
    moved = any(
        rank.stack is not None and rank.earlier is not None and rank.stack.frames != rank.earlier.frames
        for rank in facts.ranks
    )
    latest = max(dump.written for dump in dumps)
    who = f"Flight Recorder dumps of {len(dumps)} rank{'s' * (len(dumps) != 1)}"
    when = f"written {time.strftime('%H:%M:%S', time.localtime(latest))}, {_ago(time.time() - latest)}"
    if last is None or moved:
        why = (
            "ranks have moved since" if moved else "no call in them had timed out, so that ranks may have gone on since"
        )
        where = shlex.quote(os.path.dirname(files[dumps[0].rank]))
        return facts, [f"{who} were not used ({when}): {why}; `safelaunch diagnose {where}` reads them"]
    together = [dump for dump in dumps if abs(dump.written - last) <= TOGETHER_S]
    return _with(facts, together), [f"{who} lay there since a call timed out ({when})"]


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def _joined(ranks: Iterable[RankFacts], recorded: dict[int, RankFacts], offset: float) -> Iterable[RankFacts]:
    for rank in ranks:
        dump = recorded.get(rank.rank)
        if dump is None or rank.watched or rank.state == ENDED:
            yield rank
            continue
        calls = tuple(dataclasses.replace(call, t=call.t - offset) for call in dump.recorded or ())
        yield dataclasses.replace(
            rank, recorded=calls, overwritten=dump.overwritten, missing=(*rank.missing, *dump.missing)
        )
