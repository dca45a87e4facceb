"""Calls of torch.distributed that were refused for their arguments, before any message was sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.diagnosis.waitgraph.calls import MAKING
from safelaunch.model import Case, PyError, RankFacts

CHECKS = ("ValueError", "TypeError")
FRAME = re.compile(r'^  File "([^"\n]+)", line \d{1,9}, in ', re.MULTILINE)
WHERE = re.compile(r"/torch/distributed/distributed_c10d\.py$")
# torch/distributed/distributed_c10d.py, get_group_rank and get_global_rank.
NO_MEMBER = re.compile(r"\b(Global|Group) rank (\d{1,9}) is not part of group\b")
OBJECT = re.compile(r" ?<[\w.]+ object at 0x[0-9a-f]+>")


def is_refused(error: PyError) -> bool:
    """Whether torch.distributed itself raised it over what it was given: no rank has any part in that but the one that
    made the call."""
    if error.type not in CHECKS or error.chain:
        return False
    places = FRAME.findall(error.traceback)
    return bool(places) and WHERE.search(places[-1]) is not None


def of_exception(case: Case, ranks: Sequence[RankFacts]) -> ExceptionDetail | None:
    """What was refused, and what to do; None for other errors."""
    error = ranks[0].error
    if error is None or not is_refused(error):
        return None
    before = "torch refused the arguments of this call before any message was sent: no peer has a part in it"
    found = NO_MEMBER.search(error.message)
    if found is None:
        return ExceptionDetail("", "", (before,), "see what this call is given on these ranks")
    members = _group_without(case, [facts.rank for facts in ranks], int(found[2])) if found[1] == "Global" else None
    said = OBJECT.sub("", error.message[:400]).strip()
    if members is None:
        remedy = "src and dst are ranks of the whole job, group_src and group_dst are ranks in the group"
        return ExceptionDetail("", f"raised {error.type}: {said}", (before,), remedy)
    rank = int(found[2])
    mean = f", or get_global_rank(group, {rank}), which is {members[rank]}" if rank < len(members) else ""
    return ExceptionDetail(
        "",
        f"raised {error.type}: {said} {list(members) if len(members) <= 8 else f'of {len(members)} ranks'}",
        (before, "src and dst are ranks of the whole job, not of the group"),
        f"pass the rank in the group as group_src or group_dst{mean}",
    )


def _group_without(case: Case, ranks: Iterable[int], missing: int) -> tuple[int, ...] | None:
    """The members of the only group that holds these ranks, and not the missing one; None where that is not sure."""
    wanted = set(ranks)
    found = {
        group.ranks
        for group in case.groups
        if wanted <= set(group.ranks) and missing not in group.ranks and not group.name.startswith(MAKING)
    }
    return found.pop() if len(found) == 1 else None
