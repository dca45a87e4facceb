"""A line apart is a call apart: ranks that met at one number from different lines, where one of them has made a call
that its peers never made. Nothing fails there: two barriers of one number let each other go. What fails comes later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.blame.rank_guard import is_for_one
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.waitgraph.calls import canonical, record_is_complete
from safelaunch.diagnosis.waitgraph.record import LEAVING, WORLD
from safelaunch.diagnosis.wording import below, call_at, names, short, under
from safelaunch.model import Case, Collective, Condition, Location, RankFacts

_Calls = dict[str, dict[int, Collective]]  # by group and number

LEAST_OF_MAJORITY = 2  # ranks that agree against one


@dataclass(frozen=True)
class Apart:
    """Ranks that have made a call more than others, and where these met it.

    Args:
        more: the ranks that made it.
        fewer: those that did not.
        extra: that call, of the first of them.
        met: what the others made at that number.
        condition: for one rank alone, where the call stands below one.
    """

    more: tuple[int, ...]
    fewer: tuple[int, ...]
    extra: Collective
    met: Collective
    condition: Condition | None = None

    @property
    def culprits(self) -> tuple[int, ...]:
        """Who is wrong: who made the call below a condition for it alone, else the one that stands against two others
        at least. Empty where that cannot be told."""
        if len(self.more) == 1 and (self.condition is not None or len(self.fewer) >= LEAST_OF_MAJORITY):
            return self.more
        return self.fewer if len(self.fewer) == 1 and len(self.more) >= LEAST_OF_MAJORITY else ()

    @property
    def is_sure(self) -> bool:
        """Whether more than a vote tells who is wrong."""
        return self.condition is not None and self.culprits == self.more

    @property
    def summary(self) -> str:
        """`rank 0 made barrier #31 (train.py:14) under `rank == 0`, which its peers never made`; or who skipped it."""
        call = call_at(self.extra)
        peers = "its peers" if len(self.fewer) > 1 else names(self.fewer)
        if self.culprits == self.fewer and self.fewer:
            return f"{names(self.fewer)} skipped {call}, which its peers made"
        where = under(self.condition) if self.condition is not None else ""
        return f"{names(self.more)} made {call}{where}, which {peers} did not make"

    @property
    def because(self) -> tuple[str, ...]:
        """Where they met, and what follows."""
        at = short(self.met.location) if self.met.location is not None else "another line"
        own = short(self.extra.location) if self.extra.location is not None else "its line"
        file = self.extra.location.file if self.extra.location is not None else ""
        stands = (f"the call at {own} {below(self.condition, file)}",) if self.condition is not None else ()
        return (
            f"{names(self.more)} came to #{self.extra.seq} at {own}, {names(self.fewer)} at {at}: "
            "from there on their calls are one apart",
            *stands,
        )


def came_apart(case: Case, one: Iterable[int], others: Iterable[int], lines: Lines) -> Apart | None:
    """Whether one of two sides has made a call that the other never made, and both have met all the same.

    From that number on, the calls of the one side without those of that line are the calls of the other, in the same
    order. All ranks of a side whose records are there must be alike.

    Args:
        case: with the records of all.
        one: the ranks of one side.
        others: those of the other.
        lines: of the source, where it could be read.
    """
    ranks = {facts.rank: facts for facts in case.ranks}
    sides = [[facts for rank in sorted(side) if _is_known(facts := ranks[rank])] for side in (one, others)]
    if not all(sides):
        return None
    calls = {facts.rank: _by_group(facts) for side in sides for facts in side}
    for more, fewer in (sides, sides[::-1]):
        # Each rank against the first one of the other side: all pairs of 256 ranks would take a minute.
        pairs = [(more[0], peer) for peer in fewer] + [(facts, fewer[0]) for facts in more[1:]]
        found = _all_extra((calls[facts.rank], calls[peer.rank]) for facts, peer in pairs)
        if len({(c.location, c.seq, m.location) for c, m in found}) == 1:
            extra, met = found[0]
            return Apart(_of(more), _of(fewer), extra, met, _for_one(more, extra, lines))
    return None


def lines_apart(case: Case) -> Iterator[Location]:
    """The lines at which ranks first came to one number from different places, of those that have more than one."""
    firsts: dict[tuple[str, int], list[Location]] = {}
    for facts in case.ranks:
        for call in _calls(facts):
            if call.location is not None:
                firsts.setdefault((call.group, call.seq), []).append(call.location)
    seen: set[str] = set()
    for (group, _), places in sorted(firsts.items(), key=lambda one: one[0][1]):
        if len({*places}) > 1 and group not in seen:
            seen.add(group)
            yield from dict.fromkeys(places)


def _is_known(facts: RankFacts) -> bool:
    return record_is_complete(facts) and bool(_calls(facts))


def _of(side: Collection[RankFacts]) -> tuple[int, ...]:
    return tuple(facts.rank for facts in side)


def _calls(facts: RankFacts) -> list[Collective]:
    """The collectives that the main thread of a rank has made in its latest groups, oldest first."""
    calls = list(facts.calls)
    while calls and calls[-1].op == LEAVING:  # how it took its leave is no part of what it did together with others
        calls.pop()
    begun = max((place + 1 for place, call in enumerate(calls) if _leaves_all(call)), default=0)
    return [
        call
        for call in calls[begun:]
        if call.seq > 0 and call.op != LEAVING and not call.is_message and call.thread in (0, facts.pid)
    ]


def _leaves_all(call: Collective) -> bool:
    return call.op == LEAVING and call.group == WORLD


def _by_group(facts: RankFacts) -> _Calls:
    found: _Calls = {}
    for call in _calls(facts):
        found.setdefault(call.group, {})[call.seq] = call
    return found


def _all_extra(pairs: Iterable[tuple[_Calls, _Calls]]) -> list[tuple[Collective, Collective]]:
    """What `_extra` says of each pair; nothing where it finds none in one of them."""
    found = []
    for own, theirs in pairs:
        extra = _extra(own, theirs)
        if extra is None:
            return []
        found.append(extra)
    return found


def _extra(calls: _Calls, of_peer: _Calls) -> tuple[Collective, Collective] | None:
    """The first call that a rank has made and its peer has not, with that of the peer at the same number."""
    for group, own in calls.items():
        theirs = of_peer.get(group, {})
        shared = sorted(own.keys() & theirs.keys())
        first = next((seq for seq in shared if own[seq].location != theirs[seq].location), None)
        if first is None or not _met(own[first], theirs[first]):
            continue
        if first != 1 and shared[0] == first:
            continue  # nobody knows whether they were together before
        rest = [own[seq] for seq in sorted(own) if seq >= first and own[seq].location != own[first].location]
        other = [theirs[seq] for seq in sorted(theirs) if seq >= first]
        if _are_alike(rest, other) and all(call.location != own[first].location for call in other):
            return own[first], theirs[first]
    return None


def _met(one: Collective, other: Collective) -> bool:
    """Whether two calls of known lines are of one operation: what did not fit together already is another matter."""
    return None not in (one.location, other.location) and canonical(one.op) == canonical(other.op)


def _are_alike(rest: Sequence[Collective], other: Sequence[Collective]) -> bool:
    """Whether these are the same calls in the same order, as far as both go, and at least one of them."""
    both = list(zip(rest, other, strict=False))
    return bool(both) and all((a.location, canonical(a.op)) == (b.location, canonical(b.op)) for a, b in both)


def _for_one(more: Sequence[RankFacts], extra: Collective, lines: Lines) -> Condition | None:
    """The condition for one rank alone that the call stands below."""
    line = lines.get((extra.location.file, extra.location.line)) if extra.location is not None else None
    if line is None or len(more) != 1:
        return None
    return next((each for each in reversed(line.conditions) if is_for_one(each, more[0])), None)
