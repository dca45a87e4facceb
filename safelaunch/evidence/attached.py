"""Evidence of a job that somebody else started: two looks from outside, and what its own recorders say."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.evidence import black_box, case, devices, groups, kernel, pipes, stacks, tasks
from safelaunch.evidence.gather import gather
from safelaunch.evidence.offline import dump_case, dump_files
from safelaunch.evidence.ranks import Group
from safelaunch.evidence.source_lines import describe
from safelaunch.model import Case, Evidence, Incident, RankFacts, WorkerGroup, WorkerProcess

# Nothing of these asks the rank itself for anything, and none of them stops it.
COLLECTORS = (kernel.collect, black_box.collect, groups.collect, devices.collect, stacks.collect)
LOOK_S = 5.0  # py-spy takes 0.1 to 0.5 s for a rank, and all ranks share the cores that are left
SOURCE_S = 1.0
PIPE_S = 2.5  # the monitor of NCCL looks at its pipe each second
OF_OUTSIDE = ("recorder:", "collectives:")  # gaps that are no fault here
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
    tasks.forget()
    evidence = gather(incident, workers, COLLECTORS, LOOK_S)
    now = time.monotonic()
    facts = case.build(incident, group, evidence, host, None, earlier=earlier, now=now)
    ended = {worker.rank for worker in workers if not _runs(worker)}
    ranks = [_ended(rank) if rank.rank in ended else _seen(rank) for rank in facts.ranks]
    ranks += [_ended(RankFacts(rank, local, 0, watched=False)) for rank, local in found.ended]
    notes = [f"rank {one.rank}: {one.reason}" for one in asked if one.reason]
    facts = dataclasses.replace(facts, ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)), origin="attach")
    if asked:
        dumps = pipes.answers(asked, max(now, begun + PIPE_S))
        facts, more = _with_dumps(facts, dumps)
        late = [one.rank for one in asked if not one.reason and one.rank not in dumps]
        notes += [*more, *(f"rank {rank} was asked for a Flight Recorder dump and wrote none" for rank in late)]
    seen = [stack for rank in facts.ranks for stack in (*rank.stacks, rank.stack) if stack is not None]
    facts = dataclasses.replace(facts, source=describe(seen, SOURCE_S))
    return Taken(facts, evidence, len(ended) < len(workers), tuple(notes))


def yama() -> int:
    """kernel.yama.ptrace_scope: from 1 on, only what is above a process may read its memory; -1 where there is none."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


def _runs(worker: WorkerProcess) -> bool:
    process = procfs.read(worker.pid)
    return process is not None and process.start == worker.start and process.state not in "ZX"


def _ended(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(
        facts, state=ENDED, missing=("process: it has ended",), stack=None, stacks=(), kernel=None
    )


def _seen(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(facts, missing=tuple(g for g in facts.missing if not g.startswith(OF_OUTSIDE)))


def _with_dumps(facts: Case, files: dict[int, str]) -> tuple[Case, list[str]]:
    """The case with what ranks have dumped now. Their times are of the wall clock."""
    found = [dump_files.Found(path, rank) for rank, path in sorted(files.items())]
    dumps = dump_files.read_all(found)
    notes = [f"the dump of rank {dump.rank} cannot be read: {dump.unreadable}" for dump in dumps if dump.unreadable]
    built = dump_case.build(dumps)
    offset = time.time() - time.monotonic()
    recorded = {rank.rank: rank for rank in built.ranks if rank.recorded is not None}
    return dataclasses.replace(
        facts, ranks=tuple(_joined(facts.ranks, recorded, offset)), groups=(*facts.groups, *built.groups)
    ), notes


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
