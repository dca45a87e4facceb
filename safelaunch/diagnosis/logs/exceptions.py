"""Which of the exceptions in a log count: what ended its process, and whether a lost peer explains it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from safelaunch.diagnosis.crash.first_failure import PEER_LOSS, TRANSPORT
from safelaunch.diagnosis.logs.exits import failed_by_itself, own_exits
from safelaunch.diagnosis.logs.timeline import before
from safelaunch.diagnosis.logs.witnesses import testifies
from safelaunch.model import Location
from safelaunch.model.logs import Known, LogFacts, LogLine, Raised, Sighting

NEAR_END = 30  # lines; tracebacks of launchers come after the last words of a rank

_CONTROLLER = re.compile(r"\w*(?:Controller|Coordinator|Supervisor|Driver)\b")
# Ray shows a line once, and counts the processes that wrote it as well.
REPEATED = re.compile(r"\s*\[repeated (\d{1,6})x across cluster\]")
_GONE = re.compile(
    r"\b(?:main|parent|master|driver) process (?:has |have |is |was |had )?(?:already |been )?"
    r"(?:disappear\w*|gone|exited|ended|died|dead|vanished|not alive|no longer|lost|terminated)\b",
    re.IGNORECASE,
)
LEAVING_ALONE = {"KeyboardInterrupt", "SystemExit", "GeneratorExit"}  # somebody asked for it
# Signatures that fit lost connections of any kind, not only those between ranks.
ANY_CONNECTION = {"gloo-lost-peer", "store-gone", "store-timeout"}


@dataclass(frozen=True)
class Exceptions:
    """The exceptions that count, by what they tell.

    - causes: nothing explains them.
    - consequences: they tell of a lost peer, or of somebody outside the job.
    - launcher: a launcher raised them.
    - survived: their process went on.
    - cut: the end of the traceback, which would say more, is not there.
    """

    causes: list[Raised]
    consequences: list[Raised]
    launcher: tuple[Raised, ...]
    survived: tuple[Raised, ...]
    cut: tuple[Raised, ...]


def sort_exceptions(facts: LogFacts) -> Exceptions:
    """Sort the exceptions of one attempt."""
    failed, failed_ranks = something_failed(facts), own_exits(facts).keys()
    launcher, raised = _partition(_foreground(facts), lambda one: one.launcher)
    raised = [one for one in raised if one.type.rpartition(".")[2] not in LEAVING_ALONE]
    caught = {id(one) for one in _not_listed(facts, raised)}

    def survived(one: Raised) -> bool:
        if not one.type:
            return False  # a traceback without its end is not understood: its lines may stand in another order
        if id(one) in caught or one.stepped:
            return True
        if failed:
            return one.survived and one.rank not in failed_ranks
        return one.survived or ended_well_after(facts, one.at, one.rank)

    survivors, raised = _partition(raised, survived)
    cut, raised = _partition(raised, lambda one: not one.type or (one.cut and _of_torch(one)))
    raised = _without_echoes([one for one in raised if one.whole or failed or near_end(facts, one.at)])
    first = {_said(one) for one in raised if not _relays(facts, one)}

    def follows(one: Raised) -> bool:
        echoes = _relays(facts, one) and _said(one) in first
        return echoes or _follows(facts, one) or after_a_death(facts, one) is not None

    consequences, causes = _partition(raised, follows)
    return Exceptions(causes, consequences, tuple(launcher), tuple(survivors), tuple(cut))


def ended_well_after(facts: LogFacts, at: LogLine, rank: int | None = None) -> bool:
    """Whether the same file says later that the job ended well, in words that speak for whoever wrote a line: of those
    who know it, of the same rank, or behind a step that the job has made since. A script says "finished" of anything.

    Args:
        rank: whose line it is, where that is known.
    """
    ends = (end for end in facts.finished if end.at.file == at.file and end.at.line > at.line)
    return any(end.proof or (rank is not None and end.rank == rank) or end.stepped > at.line for end in ends)


def follows_the_end(facts: LogFacts, at: LogLine) -> bool:
    """Whether a helper says, behind a line that tells of the job's end, that the process which started it has gone."""
    return _GONE.search(at.text) is not None and any(
        end.at.file == at.file and end.at.line < at.line for end in facts.finished
    )


def something_failed(facts: LogFacts) -> bool:
    """Whether a line says that a call, a process or a launcher failed, whatever exceptions there are."""
    ended = any(failed_by_itself(end) for end in facts.ended)
    return bool(facts.timed_out) or ended or any(one.launcher for one in _foreground(facts))


def _foreground(facts: LogFacts) -> list[Raised]:
    """The exceptions that may have ended their process."""
    return [one for one in facts.raised if not one.background]


def _partition(raised: Iterable[Raised], belongs: Callable[[Raised], bool]) -> tuple[list[Raised], list[Raised]]:
    """Those that belong together, and all others, each in their order."""
    parts: tuple[list[Raised], list[Raised]] = [], []
    for one in raised:
        parts[not belongs(one)].append(one)
    return parts


def _relays(facts: LogFacts, one: Raised) -> bool:
    """Whether an exception is shown by a process that only passes it on: Ray's caller, a controller of workers, or the
    driver, below its own exception that says that workers failed."""
    if one.relayed or _CONTROLLER.match(one.process):
        return True
    if one.process or one.rank is not None:
        return False
    groups = (other.at for other in facts.raised if other.type.endswith("WorkerGroupError"))
    return any(at.file == one.at.file and at.line < one.at.line for at in groups)


def after_a_death(facts: LogFacts, one: Raised) -> Sighting | None:
    """The line in which the process that raised an exception has said, shortly before, that another one died: what it
    raises then follows from that death. None where there is none, and of ranks."""
    if one.rank is not None or not one.process:
        return None
    above = one.traceback.count("\n") + NEAR_END
    died = (s for s in facts.sightings if s.known.name == "worker-died" and s.process == one.process)
    return next((s for s in died if s.at.file == one.at.file and 0 < one.at.line - s.at.line <= above), None)


def _said(one: Raised) -> tuple[str, str]:
    return one.type.rpartition(".")[2], REPEATED.sub("", one.message).strip()


def _of_torch(one: Raised) -> bool:
    """Whether an exception was raised in torch.distributed, where its words decide whether a peer was lost."""
    return one.type.startswith("torch.distributed") or any("/torch/distributed/" in f.file for f in one.frames[-2:])


def near_end(facts: LogFacts, at: LogLine) -> bool:
    """Whether a file ends soon after a line: a job that goes on says more."""
    lines = next((file.lines for file in facts.files if file.path == at.file), 0)
    return lines - at.line <= NEAR_END


def _not_listed(facts: LogFacts, raised: list[Raised]) -> list[Raised]:
    """Exceptions that were caught: torch elastic, in the same file, does not list their ranks among the failed, and one
    that it lists failed by itself."""
    failed: dict[str, set[int]] = {}
    for end in facts.ended:
        if end.by == "elastic" and end.rank is not None and end.code:
            failed.setdefault(end.at.file, set()).add(end.rank)
    own = [one for one in raised if one.rank in failed.get(one.at.file, ()) and not _follows(facts, one)]
    files = {one.at.file for one in own}
    # A rank that met the same may have been ended before the launcher noticed.
    alike = {(one.at.file, *_error(one)) for one in own}
    return [
        one
        for one in raised
        if one.at.file in files and one.rank is not None and one.rank not in failed[one.at.file] and one.whole
        if (one.at.file, *_error(one)) not in alike
    ]


def _error(one: Raised) -> tuple[str, str]:
    """What is equal of one error on several ranks: its message may tell of a GPU, a shard or a pid of each."""
    known = one.known.name if one.known is not None else re.sub(r"\d+", "0", one.message.partition("\n")[0])
    return one.type.rpartition(".")[2], known


def _without_echoes(raised: list[Raised]) -> list[Raised]:
    """Of one rank, only its last whole exception: what it raised before it had caught. Lines that stand alone count
    where nothing else is there."""
    last: dict[int, Raised] = {}
    for one in raised:
        if one.rank is not None and one.whole:
            latest = last.get(one.rank)
            if latest is None or before(latest.at, one.at) is not False:
                last[one.rank] = one
    errors = {_error(one) for one in raised if one.whole}
    raised = _once_of_each_process(raised)

    def is_kept(one: Raised) -> bool:
        if one.rank is not None and one.rank in last:
            return last[one.rank] is one
        return one.whole or not errors or (one.rank is not None and _error(one) in errors)

    return [one for one in raised if is_kept(one)]


def _once_of_each_process(raised: list[Raised]) -> list[Raised]:
    """What a process, which its mark names and no rank is known of, has printed twice in the same words, once."""
    found: dict[object, Raised] = {}
    for one in raised:
        own = one.rank is None and "pid=" in one.process and one.whole
        found.setdefault(
            (one.process, one.host, one.type, one.message.strip().partition("\n")[0]) if own else id(one), one
        )
    return list(found.values())


def _tells_of_peer(said: Iterable[str], known: Known | None, frames: tuple[Location, ...]) -> bool:
    """Whether an exception tells of a lost peer, or of one that did not come: the same words as of live failures."""
    if known is not None and known.role == "consequence" and known.name not in ANY_CONNECTION:
        return True
    texts = list(said)
    transport = any(TRANSPORT.search(text) for text in texts) or any(
        "/torch/distributed/" in f.file for f in frames[-2:]
    )
    lost = (known is not None and known.role == "consequence") or any(PEER_LOSS.search(text) for text in texts)
    return transport and lost


def ended_losing_a_peer(one: Raised) -> bool:
    """Whether what was raised last, while another exception was handled, tells of a lost peer."""
    return bool(one.chain) and _tells_of_peer([f"{one.type}: {one.message}"], None, one.frames)


def _passes_on(facts: LogFacts, one: Raised) -> bool:
    """Whether the words of an exception are known to pass on what happened elsewhere, and what it was raised for says
    nothing: `TimeoutError`, and no more."""
    if one.known is not None or not all(first.endswith(": ") or ":" not in first for first in one.chain):
        return False
    said = (s.at for s in facts.sightings if s.known.name == "messenger" and s.inside)
    return bool(one.chain) and any((at.file, at.line) == (one.at.file, one.at.line) for at in said)


def _follows(facts: LogFacts, one: Raised) -> bool:
    """Whether an exception has its cause elsewhere: a lost peer, somebody outside, a wait that the watchdog gave up."""
    first = one.chain[0] if one.chain else f"{one.type}: {one.message}"
    if _tells_of_peer([first], one.known, one.frames):
        return True
    if one.known is not None and one.known.role == "outside":
        return True
    if _passes_on(facts, one):
        return True
    if (one.known is None or not one.known.code) and not one.chain and testifies(one.message, one.rank):
        return True
    own = (t.at for t in facts.timed_out if one.rank is None or t.rank == one.rank)
    return any(before(at, one.at) for at in own)
