"""Values that a script says are the same on all ranks (`safelaunch.expect_same`), and are not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from safelaunch.model import Finding
from safelaunch.model.values import Told

KEPT = 4096  # calls whose ranks have not all come yet
MOST = 3  # calls that are told of in one attempt
SHOWN = 4  # values that are shown of one that differs


class Values:
    """Compares what ranks have told.

    Args:
        ranks: how many there are that are compared.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._calls: dict[tuple[str, int], dict[int, dict[str, Told]]] = {}
        self._unlike: dict[tuple[str, int], None] = {}
        self._waited: set[tuple[str, int]] = set()
        self._told: set[str] = set()

    def add(self, values: Iterable[Told]) -> None:
        """Take in the values of one call of a rank, or of several."""
        for value in values:
            key = value.name, value.number
            self._calls.setdefault(key, {}).setdefault(value.rank, {})[value.part] = value
        for key, ranks in list(self._calls.items()):
            first, *others = [_digests(parts) for parts in ranks.values()]
            if any(other != first for other in others):
                self._unlike.setdefault(key)
            elif len(ranks) >= self._ranks:
                del self._calls[key]
        for key in list(self._calls)[: max(0, len(self._calls) - KEPT)]:
            del self._calls[key]

    def told(self, *, last: bool = False) -> list[Finding]:
        """What differs, once for each name: when all ranks have come, or at the second look. `last` says that nobody
        comes any more."""
        found: list[Finding] = []
        for key in list(self._unlike):
            ranks = self._calls.get(key, {})
            if not last and key not in self._waited and len(ranks) < self._ranks:
                self._waited.add(key)
                continue
            del self._unlike[key]
            self._calls.pop(key, None)
            if ranks and key[0] not in self._told and len(self._told) < MOST:
                self._told.add(key[0])
                found.append(different_values(ranks))
        return found


def _digests(parts: Mapping[str, Told]) -> dict[str, str]:
    return {part: value.digest for part, value in parts.items()}


def different_values(ranks: Mapping[int, Mapping[str, Told]]) -> Finding:
    """Ranks have different values where the script says that they are the same.

    The script calls `safelaunch.expect_same(name, value)` on every rank. Ranks that differ in their configuration,
    their vocabulary or their number of batches part later, in a collective that hangs or in weights that drift apart.

    How it is concluded: the values of the ranks' calls with one name are compared in the order of these calls. Of
    mappings, lists and objects the parts are told apart. Numbers of call are compared, so that a rank which has left a
    call out shows the value of its next one.

    What to do: look at where this value comes from on the rank that is named: an argument, a file, the environment, a
    seed, a copy of the code that is older.
    """
    some = next(iter(ranks.values()))
    parts = dict.fromkeys(part for told in ranks.values() for part in told)
    different = [part for part in parts if len({_digest(told, part) for told in ranks.values()}) > 1]
    part, value = different[0], next(iter(some.values()))
    digests = {rank: _digest(told, part) for rank, told in ranks.items()}
    shown = {rank: told[part].shown if part in told else "none" for rank, told in ranks.items()}
    counts = Counter(digests.values())
    usual, most = counts.most_common(1)[0]
    others = [rank for rank, digest in sorted(digests.items()) if digest != usual]
    one = next(rank for rank, digest in digests.items() if digest == usual)
    call = f" (call {value.number})" if value.number > 1 else ""
    if 2 * most > len(ranks) and len(others) == 1:
        summary = f"rank {others[0]} differs from its peers in {part}{call}: {_pair(shown[others[0]], shown[one])}"
    else:
        values = [f"{shown[next(r for r in digests if digests[r] == digest)]} on {_ranks(digests, digest)}"
                  for digest in list(counts)[:SHOWN]]  # fmt: skip
        summary = f"ranks differ in {part}{call}: {', '.join(values)}"
    return Finding(
        code="SL234",
        severity="warning",
        summary=summary,
        because=(f"they differ as well in {', '.join(different[1:6])}",) if different[1:] else (),
        remedy="look at where this value comes from on the ranks that differ: an argument, a file, a seed, older code",
        where=value.place,
    )


def _digest(told: Mapping[str, Told], part: str) -> str:
    return told[part].digest if part in told else ""


def _pair(own: str, theirs: str) -> str:
    return f"{own}, theirs {theirs}" if own != theirs else f"all have {own}, and not the same"


def _ranks(digests: Mapping[int, str], digest: str) -> str:
    ranks = [rank for rank in sorted(digests) if digests[rank] == digest]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks ({', '.join(map(str, ranks[:8]))})"
