"""What loaders gave to ranks that have come apart: who ran out of batches before its peers.

Only passes that began at the same place of the program, and are of the same number there, are compared: a loader for
training says nothing of one for evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, LoaderPass, RankFacts


def compared(case: Case, left: Iterable[int]) -> tuple[str, ...]:
    """How many batches the ranks that left a loop had, and how many those had that are still in it: one line, or
    nothing where the records do not show that they had fewer."""
    left = set(left)
    if any(facts.loaders for facts in case.ranks):
        return had_fewer(case, left)
    return _totals(case, [facts for facts in case.ranks if facts.rank in left])


def had_fewer(case: Case, left: Iterable[int]) -> tuple[str, ...]:
    """The same, of passes alone."""
    left = set(left)
    leavers = [facts for facts in case.ranks if facts.rank in left]
    others = [facts for facts in case.ranks if facts.rank not in left and facts.loaders]
    ended = [_shorter(facts, others) for facts in leavers]
    if not leavers or not others or None in ended:
        return ()
    open_ = [_same(facts, ended[0]) for facts in others]
    whose = "its" if len(leavers) == 1 else "their"
    peers = f"{whose} peers have" if len(others) > 1 else f"rank {others[0].rank} has"
    return (
        f"{names(facts.rank for facts in leavers)} ran out of batches after {_numbers(p.given for p in ended if p)}; "
        f"{peers} had {_numbers(p.given for p in open_ if p)}{_of(open_)} from the same loader",
    )


def has_run_out(case: Case, left: Iterable[int]) -> tuple[str, ...]:
    """The same, where these ranks have come to the end of that pass since their last collective: one that went on
    after it, as after an evaluation that peers have left early, does not stand still because of it."""
    left = set(left)
    others = [facts for facts in case.ranks if facts.rank not in left and facts.loaders]
    lately = all(_ended_since(facts, _shorter(facts, others)) for facts in case.ranks if facts.rank in left)
    return had_fewer(case, left) if lately else ()


def ran_out(variants: Iterable[list[RankFacts]]) -> tuple[int, ...]:
    """The ranks that have come to the end of a loader since their last collective, where all others are in the middle
    of the same pass and have had more of it; nothing where that is not so."""
    everybody = [facts for variant in variants for facts in variant]
    out = [facts for facts in everybody if any(_ended_since(facts, one) for one in facts.loaders)]
    others = [facts for facts in everybody if facts not in out]
    ended = [_shorter(facts, others) for facts in out]
    if not out or not others or not all(map(_ended_since, out, ended)):
        return ()
    return tuple(sorted(facts.rank for facts in out))


def _shorter(facts: RankFacts, others: list[RankFacts]) -> LoaderPass | None:
    """The pass that a rank came to the end of last, of those that have given more to all others, and still do."""
    passes = [
        one
        for one in facts.loaders
        if one.ended is not None
        and all((own := _same(other, one)) and own.ended is None and own.given > one.given for other in others)
    ]
    return max(passes, key=lambda one: one.ended or 0.0, default=None)


def _same(facts: RankFacts, one: LoaderPass | None) -> LoaderPass | None:
    if one is None:
        return None
    return next((own for own in facts.loaders if (own.place, own.number) == (one.place, one.number)), None)


def _ended_since(facts: RankFacts, one: LoaderPass | None) -> bool:
    """Whether a pass has ended since the rank's last collective came back."""
    if facts.reducers and facts.recorded is None:
        return False  # what DistributedDataParallel reduces, the recorder alone has
    made = (*facts.collectives, *(facts.recorded or ()))
    last = max((call.t for call in made if call.done and not call.issued), default=0.0)
    return one is not None and one.ended is not None and one.ended > last


def _numbers(counts: Iterable[int]) -> str:
    numbers = sorted(set(counts))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _of(passes: Iterable[LoaderPass | None]) -> str:
    lengths = {one.length for one in passes if one is not None}
    return f" of {lengths.pop()}" if len(lengths) == 1 and None not in lengths else ""


def _totals(case: Case, leavers: list[RankFacts]) -> tuple[str, ...]:
    """From evidence that has no passes: batches of all loaders, where that differs."""
    inside = {facts.batch for facts in leavers}
    others = {facts.batch for facts in case.ranks if facts not in leavers}
    if len(inside) != 1 or len(others) != 1 or inside == others:
        return ()
    who = names(facts.rank for facts in leavers)
    whose = "its" if len(leavers) == 1 else "their"
    return (f"{who} had {inside.pop()} batches of {whose} loaders, the others {others.pop()}",)
