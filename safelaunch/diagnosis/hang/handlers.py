"""Ranks that have come to a number of a group in a signal handler, where others came to it by their program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from safelaunch.diagnosis.blame.handlers import SET_A_FLAG, in_handler
from safelaunch.diagnosis.blame.variants import Variant, placed
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import is_irreversible
from safelaunch.diagnosis.wording import call_at, names, short, verb
from safelaunch.model import Verdict


def in_handlers(view: View, variants: Sequence[Variant]) -> Verdict | None:
    """The verdict on ranks whose handler makes a collective: it runs at another point of the program on each.

    Args:
        view: the case.
        variants: the ranks that have come to one number with different calls, two variants at least.
    """
    places = [*itertools.chain(*variants)]
    handled = [one for place in places if (one := in_handler(place, view.lines)) is not None]
    if not handled or len(handled) == len(places):
        return None
    first, ranks = handled[0], tuple(sorted(one.facts.rank for one in handled))
    rest = [place for place in places if place[0].rank not in ranks]
    others = [place for place in rest if not place[1].done] or rest
    name = first.handler.function.rpartition(".")[2]
    there = names(facts.rank for facts, _ in others)
    return hang_verdict(
        view,
        "SL302",
        f"{names(ranks)} {verb(ranks, 'makes', 'make')} {call_at(first.call)} in a signal handler ({name}), while "
        f"{there} {'is' if len(others) == 1 else 'are'} in {call_at(placed(*others[0]))}",
        ranks,
        location=first.handler,
        call=first.call,
        because=(
            f"{short(first.interrupted)} does not call {name}: Python has run it there, at another point on each rank",
            *waiters(view),
        ),
        remedy=SET_A_FLAG,
        confidence="medium",
        conclusive=is_irreversible(place for place in places if not place[1].done),
        waiting={facts.rank for facts, _ in places},
    )
