"""The notes of `safelaunch diagnose` on Flight Recorder dumps."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.diagnosis.wording import names
from safelaunch.evidence.offline import dump_case
from safelaunch.evidence.offline.dump import Dump
from safelaunch.model import Case
from safelaunch.sizes import plural


def lines(case: Case, dumps: Sequence[Dump], others: int) -> list[str]:
    """What was read of dumps, and what was not.

    Args:
        case: of all dumps.
        dumps: those that were found.
        others: how many other files lie beside them.
    """
    good = [dump for dump in dumps if not dump.unreadable]
    kinds = dict.fromkeys(f"{dump.backend or 'no calls'}, version {dump.version}" for dump in good)
    read = f"{len(good)} Flight Recorder dump{'s' * (len(good) != 1)}"
    told = [f"read {read} of {len(case.ranks)} rank{'s' * (len(case.ranks) != 1)} ({'; '.join(kinds)})"]
    told += [f"{dump.path}: {dump.unreadable}" for dump in dumps if dump.unreadable]
    torn = [dump for dump in good if dump.torn]
    told += [
        f"{dump.path}: {plural(dump.torn, 'part')} of it could not be read, and the others were" for dump in torn[:4]
    ]
    ranks = {dump.rank for dump in dumps}
    absent = [facts.rank for facts in case.ranks if facts.rank not in ranks]
    if absent:
        told.append(f"{names(absent)} left no dump")
    twice = (
        sorted({dump.rank for dump in good if sum(other.rank == dump.rank for other in good) > 1})
        if len(ranks) < len(dumps)
        else []
    )
    if twice:
        told.append(f"several dumps of {names(twice)}: the latest of each counts")
    if not any(dump.frames for dump in good):
        told.append("the dumps hold no frames (JSON has none): no lines can be named")
    if not any(group.name == dump_case.WORLD for group in case.groups):
        told.append("they do not tell how many ranks there were (gloo's never do): a last rank may be missing")
    if any(dump.left_out for dump in good):
        told.append("entries of a second backend were left out")
    if others and not case.incident.t:
        told.append(f"{others} other files were not looked at")
    return told
