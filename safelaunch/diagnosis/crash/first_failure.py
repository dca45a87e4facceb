"""What failed, in which order, and which failures explain themselves: the ground on which the crash rules stand.

Order comes from when an exception was *raised*, not from when its process had ended: a victim often leaves
before the culprit has finished its interpreter shutdown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.frames import is_torch_distributed, is_user_code
from safelaunch.diagnosis.waitgraph.record import LEAVING, SIGABRT, left_cleanly
from safelaunch.model import Case, ExitCall, Location, PyError, RankFacts

Nature = Literal["exception", "signal", "abort", "exit_code"]

SIGKILL = 9
NATIVE_SIGNALS = {4, 5, 6, 7, 8, 11, 31}  # SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS

# How the loss of a peer reads on those who notice it.
PEER_LOSS = re.compile(
    r"Connection (?:closed|reset) by peer|/pair\.cc:\d+\] Connection (?:closed|reset)"  # gloo tcp; ECONNRESET anywhere
    r"|Broken pipe"
    r"|Socket closed|Connection was likely closed|failed to recv, got 0 bytes"  # c10d TCPStore, TCPStoreLibUvBackend
    r"|Connection refused"  # the store's host is gone
    r"|remote process exit|remote process has terminated"  # NCCL: ncclRemoteError
    r"|client socket has (?:timed out|failed to connect)"
    r"|wait timeout after \d+ms|Timed out after \d+ seconds waiting for"  # TCPStore: a peer never came
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (?:recv|send) operation"  # gloo timeouts
    r"|timed out in blocking wait|Watchdog caught collective operation timeout"  # ProcessGroupNCCL's
    r"|another rank.*(?:abort|fail)|NCCL communicator was aborted on rank"  # ProcessGroupNCCL
    r"|Detected (?:mismatch|that rank) .* did not|Ranks? [\d, ]+ failed to pass monitoredBarrier"  # c10d: names a peer
    r"|peer.{0,40}(?:disconnect|unreachable|is dead)",
    re.IGNORECASE,
)

# ... if it is a library of torch.distributed that says it: a data set on the network loses connections too.
TRANSPORT = re.compile(r"gloo|nccl|c10d|TCPStore|ProcessGroup|store->|torch[./]distributed", re.IGNORECASE)

# gloo's word for tensors that do not fit (transport/tcp/pair.cc); raised on whoever receives, culprit or victim.
SIZE_COMPLAINT = "doesn't match expected size"

# Within this time the order of two ends says nothing: an exit is stamped by the agent, which may be scheduled late
# on a busy machine. An estimate; a raised exception is stamped by the rank itself.
SIMULTANEOUS_S = 0.5

# Messages that speak of another rank. A DataLoader numbers its worker processes, CUDA names processes by their pids.
ANOTHER = re.compile(r"\b(?:another|other|some|a) (?:rank|worker|process|peer)s?\b", re.IGNORECASE)
OTHER_RANK = re.compile(r"(?<!worker )\b(?:rank|process)\s+(\d{1,9})\b(?! has )", re.IGNORECASE)

IMPORT_ERRORS = {"ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError"}

# torch/distributed/checkpoint/api.py: every rank raises it, and it names those whose own part had failed.
RELAYED = re.compile(r"^CheckpointException ranks:\s*dict_keys\(\[([\d, ]+)\]\)")


FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}), in (\S+)')


@dataclass(frozen=True)
class Failure:
    """One rank's failure. `t` is CLOCK_MONOTONIC of the first sign of it; `consequence` is true where the failure
    says itself that another process was lost first."""

    facts: RankFacts
    nature: Nature
    t: float
    consequence: bool

    @property
    def rank(self) -> int:
        return self.facts.rank


def failures(case: Case) -> list[Failure]:
    """All failures of a case, earliest first. A living rank counts once it has recorded an exception."""
    found = [failure for facts in case.ranks if (failure := _failure(facts)) is not None]
    inside = {failure.rank for failure in found if aborted_inside(failure)}
    by_themselves = {failure.rank for failure in found if _failed_by_itself(failure)}
    first = _first_two(case.ranks)
    first_outside = _first_two(facts for facts in case.ranks if facts.rank not in inside)
    first_of_its_own = _first_two(
        facts for facts in case.ranks if left_cleanly(facts) or left_group(facts) or facts.rank in by_themselves
    )

    def follows(failure: Failure) -> bool:
        """Whether another rank had departed before, which explains a failure of this kind."""
        rank, soon = failure.rank, failure.t + SIMULTANEOUS_S
        return (
            (rank in inside and _other(first_outside, rank) <= soon)
            or (unexplained(failure) and _other(first, rank) < failure.t - SIMULTANEOUS_S)
            or (_gave_up_inside(failure.facts) and _other(first_of_its_own, rank) <= soon)
            or retells(case, failure.facts)
        )

    explained = [dataclasses.replace(one, consequence=True) if follows(one) else one for one in found]
    return sorted(explained, key=lambda failure: failure.t)


def _first_two(ranks: Iterable[RankFacts]) -> list[tuple[float, int]]:
    """The first two departures, with their ranks: one of them is of another rank, whichever is asked for."""
    return sorted((departure(facts), facts.rank) for facts in ranks)[:2]


def _other(departures: list[tuple[float, int]], rank: int) -> float:
    """When the first rank other than this one departed; infinity if none did."""
    return next((moment for moment, other in departures if other != rank), float("inf"))


def _failure(facts: RankFacts) -> Failure | None:
    ended = facts.exit
    if ended is not None and ended.code == 0:
        return None  # an exception that it recorded and survived is its own affair
    if facts.error is not None:
        return Failure(facts, "exception", facts.error.t, is_peer_loss(facts))
    if ended is None or left_cleanly(facts):
        return None
    called = exit_call(facts)
    if called is not None and (ended.code > 0 or (ended.code == -SIGABRT and called.code != "0")):
        # What comes after a call of exit (an abort while libraries shut down) is not how the program ended.
        return Failure(facts, "exit_code", ended.t, False)
    if ended.code == -SIGABRT:
        return Failure(facts, "abort", ended.t, False)
    return Failure(facts, "signal" if ended.code < 0 else "exit_code", ended.t, False)


def exit_call(facts: RankFacts) -> ExitCall | None:
    """The call of exit that ended a rank; None for one that the program caught before it went on, or failed later with
    another code."""
    called, ended = facts.exit_call, facts.exit
    if called is None or facts.shut_down is None:
        return None
    number = exit_number(called)
    if number is not None and ended is not None and ended.code > 1 and ended.code != number & 255:
        return None  # of a text, which may be one of digits, `sys.exit` makes a 1
    return called


def exit_number(called: ExitCall) -> int | None:
    """The code of a call of exit, where it is not a text."""
    return int(called.code) if re.fullmatch(r"-?\d{1,9}", called.code, re.ASCII) else None


def unexplained(failure: Failure) -> bool:
    """Whether nothing that the rank left behind says why it ended: an error code, or an abort, and no more."""
    facts = failure.facts
    silent = facts.error is None and exit_call(facts) is None and (facts.fault is None or not facts.fault.frames)
    return silent and failure.nature in ("exit_code", "abort")


def is_peer_loss(facts: RankFacts) -> bool:
    """Whether the exception, or the one at the bottom of its chain, tells of a lost peer."""
    if facts.error is None:
        return False
    if facts.error.known is not None and facts.error.known.role == "consequence":
        return True  # the user's own signatures say so
    if is_relayed(facts):
        return True
    said = [f"{facts.error.type}: {facts.error.message}", *facts.error.chain]
    return any(TRANSPORT.search(text) and (PEER_LOSS.search(text) or SIZE_COMPLAINT in text) for text in said)


def is_relayed(facts: RankFacts) -> bool:
    """Whether a rank raised what a library told it of other ranks."""
    match = RELAYED.search(facts.error.message) if facts.error is not None else None
    return match is not None and facts.rank not in {int(rank) for rank in re.findall(r"\d{1,9}", match[1])}


def retells(case: Case, facts: RankFacts) -> bool:
    """Whether what a rank raised is the word of another rank's trouble that the program has passed on to it.

    - Its own words may say so: they name ranks, not itself, of which one has failed or is not of this node.
    - Or the program raised it in the words of a rank that had met the same trouble itself.
    """
    error, kind = facts.error, _class(facts)
    if error is None or not kind or has(kind, Trait.MAYBE_PEER) or RELAYED.search(error.message):
        return False
    named = {int(number) for number in OTHER_RANK.findall(error.chain[-1] if error.chain else error.message)}
    others = {rank for rank in named if rank < case.world_size}
    if others and facts.rank not in named:
        here = {other.rank: other for other in case.ranks}
        return any(rank not in here or _failure(here[rank]) is not None for rank in others)
    return _quotes_another(case, facts, error)


def _quotes_another(case: Case, facts: RankFacts, error: PyError) -> bool:
    """Whether the program raised it in the words of a rank that had met a trouble of this kind itself."""
    if error.chain:
        return False  # something lies beneath it, as with a trouble of one's own
    own, kind = _met_itself(error), _class(facts)
    others = (other.error for other in case.ranks if other.rank != facts.rank and _class(other) == kind)
    return any(_repeats(error, other, own) and _met_itself(other) for other in others if other is not None)


def _repeats(error: PyError, other: PyError, own: bool) -> bool:
    """Whether an exception has another's words; if it looks as one of its `own`, in another type and among others."""
    words = other.chain[-1].partition(": ")[2] if other.chain else other.message
    if not words or words not in error.message:
        return False
    return not own or (error.type != other.type and words != error.message)


def _met_itself(error: PyError) -> bool:
    """Whether something beneath the program raised it: no `raise` of the program itself is its innermost line."""
    if error.chain:
        return True
    lines = error.traceback.split("\n")
    head = lines[1 : next((at for at, line in enumerate(lines) if at and not line.startswith("  ")), len(lines))]
    places = [at for at, line in enumerate(head) if FRAME.match(line)]
    if not places or places[-1] + 1 >= len(head):
        return True  # its source is not there
    file, line, function = FRAME.match(head[places[-1]]).groups()  # type: ignore[union-attr]
    return not (is_user_code(Location(file, int(line), function)) and head[places[-1] + 1].split()[:1] == ["raise"])


def _gave_up_inside(facts: RankFacts) -> bool:
    """Whether a rank failed after a collective that never returned to it: what the collective raised, its program
    may have caught, wrapped or hidden (`except ...: return 1`)."""
    failed = facts.error is not None or (facts.exit is not None and facts.exit.code > 0)
    last = facts.last_collective
    return failed and last is not None and not last.done and last.op != LEAVING


def _failed_by_itself(failure: Failure) -> bool:
    """Whether a rank failed, and neither a lost peer nor a wait for one is the reason."""
    facts = failure.facts
    if failure.consequence or _gave_up_inside(facts) or aborted_inside(failure) or unexplained(failure):
        return False
    # Where a rank was is known only with its black box; without it, it may have given up inside too.
    return bool(facts.collectives) or failure.nature in ("signal", "abort")


def aborted_inside(failure: Failure) -> bool:
    """An abort inside a collective: what a communication library does that has lost a peer, or cannot go on."""
    stack = failure.facts.fault
    inside = stack is not None and bool(stack.frames) and is_torch_distributed(stack.frames[0])
    return failure.nature == "abort" and inside


def broken_by_gloo(case: Case) -> bool:
    """Whether gloo broke the connections of ranks that met with what does not fit.

    Its errors say so. Or, where all are quick enough to abort, all do so inside torch.distributed, on nodes whose ranks
    use no GPU.
    """
    errors = [facts.error.message for facts in case.ranks if facts.error is not None]
    if any("Timed out" in message for message in errors):
        return False
    found = failures(case)
    unseen = [failure for failure in found if failure.nature == "abort" and failure.facts.fault is None]
    inside = [failure for failure in found if aborted_inside(failure)]
    aborted = bool(inside) and len(inside) + len(unseen) == len(found)
    on_cpu = all(facts.device is None for facts in case.ranks)
    return (aborted and on_cpu) or any("gloo" in message for message in errors)


def left_group(facts: RankFacts) -> bool:
    """Whether the rank still lives, has not failed, and has destroyed its process group. One that faulthandler has
    written a stack of is being ended by a signal, whatever it was in."""
    last = facts.last_collective
    failed = facts.error is not None or facts.fault is not None
    return facts.exit is None and not failed and last is not None and last.op == LEAVING


def unaccounted(case: Case) -> list[RankFacts]:
    """Living ranks that have neither failed nor wait in a collective nor leave: what they do is not known."""
    return [
        facts
        for facts in case.ranks
        if facts.exit is None
        and facts.error is None
        and facts.shut_down is None
        and (not facts.collectives or facts.collectives[-1].done)
    ]


def departure(facts: RankFacts) -> float:
    """CLOCK_MONOTONIC at which the rank stopped to be of use to its peers; infinity while it is."""
    moments = [facts.error.t] if facts.error else []
    moments += [facts.exit.t] if facts.exit else []
    moments += [facts.shut_down] if facts.shut_down is not None else []
    moments += [call.t for call in facts.collectives[-1:] if call.op == LEAVING]
    return min(moments, default=float("inf"))


def primary(case: Case) -> list[Failure]:
    """Failures that no lost peer explains, earliest first."""
    return [failure for failure in failures(case) if not failure.consequence]


def roots(case: Case) -> list[Failure]:
    """The failures to blame: one, or several that are alike and of which none explains the other.

    - Of primary failures, one that stands alone comes before a group that fails alike: an error that many ranks share
      has a cause outside of each of them.
    - An exception with a cause of its own comes before the same exception without one.
    - Otherwise the earliest is the root.
    """
    candidates = primary(case)
    if not candidates:
        return []
    groups: dict[object, list[Failure]] = {}
    for failure in candidates:
        groups.setdefault(_signature(failure), []).append(failure)
    if len(groups) == 1:
        return _of_one_kind(candidates)
    first = candidates[0]
    single = [group[0] for group in groups.values() if len(group) == 1]
    if len(single) == len(groups):
        return [first]
    # A crowd that fails alike, and others. One that stands alone explains the crowd if it was there in time, and if
    # it is known why it failed: else it may be one of the crowd whose record is missing, or a late consequence.
    if len(single) == 1 and not unexplained(single[0]) and single[0].t <= first.t + SIMULTANEOUS_S:
        return single
    return []


def _of_one_kind(candidates: list[Failure]) -> list[Failure]:
    """Of failures that are alike, the one whose exception has a cause beneath it, or all."""
    if known_class(candidates[0].facts):
        return candidates
    chained = [f for f in candidates if f.facts.error is not None and f.facts.error.chain]
    return chained if len(chained) == 1 else candidates


def _signature(failure: Failure) -> object:
    error = failure.facts.error
    if kind := known_class(failure.facts):
        return kind
    if error is not None:
        place = (error.location.file, error.location.line) if error.location else None
        return (error.type, place)
    code = failure.facts.exit.code if failure.facts.exit else None
    called = exit_call(failure.facts)
    return (failure.nature, code, called.location if called else None)


def known_class(facts: RankFacts) -> str:
    """The code of an exception that says itself why it was raised, or nothing: what speaks of other ranks may be
    theirs."""
    error, kind = facts.error, _class(facts)
    if error is None or has(kind, Trait.MAYBE_PEER) or RELAYED.search(error.message):
        return kind
    said = "\n".join((error.message, *error.chain))
    others = {int(number) for number in OTHER_RANK.findall(said)} - {facts.rank}
    return "" if others or ANOTHER.search(said) else kind


def _class(facts: RankFacts) -> str:
    known = facts.error.known if facts.error is not None else None
    return known.code if known is not None and known.role == "cause" and has(known.code, Trait.EXCEPTION) else ""


def secondary(case: Case, culprits: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks that failed, and are not to blame."""
    return tuple(sorted(failure.rank for failure in failures(case) if failure.rank not in culprits))
