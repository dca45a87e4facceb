"""What a known exception means in its details: one function for each code, from what is known of the rank that raised
it. `failures` says which ranks those are; nothing here names one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.crash.known import gpu, host
from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.model import Case, PyError, RankFacts

Explainer = Callable[[Case, Sequence[RankFacts], PyError], ExceptionDetail | None]

EXPLAINERS: Mapping[str, Explainer] = {
    "SL404": host.no_memory,
    "SL420": gpu.memory,
    "SL421": host.shared_memory,
    "SL422": host.open_files,
    "SL423": host.disk,
    "SL424": host.port,
    "SL425": gpu.ordinal,
    "SL426": gpu.nccl,
    "SL427": gpu.kernel,
    "SL429": host.loader_worker,
}


def detail_of(case: Case, ranks: Sequence[RankFacts]) -> ExceptionDetail | None:
    """What the exception of these ranks means, by the first of them; None where no signature knows it, or where what
    is known of the rank speaks against the signature.

    That somebody outside ended the job is not to be had from what a rank raised: a `KeyboardInterrupt` may be of its
    own making.
    """
    error = ranks[0].error
    if error is None or error.known is None or error.known.role != "cause":
        return None
    known = error.known
    explain = EXPLAINERS.get(known.code)
    if explain is not None:
        return explain(case, ranks, error)
    # Its own rules know more of other codes than a message does, except of those that only a message leads to.
    if not known.code or has(known.code, Trait.OWN_RULE):
        return ExceptionDetail("", "", (known.means,), known.remedy)
    return ExceptionDetail(known.code, f"failed: {known.means}", remedy=known.remedy)
