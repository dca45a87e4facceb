"""What evidence of other kinds makes of a verdict, in this order, whichever rule has concluded it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safelaunch.diagnosis.hang import does_not_end
from safelaunch.diagnosis.refine import active_exception, ddp_parameters, gpu_faults, nccl_ras, short_timeouts
from safelaunch.diagnosis.view import View
from safelaunch.model import Verdict


@dataclass(frozen=True)
class Refinement:
    """One refinement.

    Args:
        name: of the evidence.
        refine: gives the verdict back, perhaps with more to it.
        may_replace: whether it may say another code, culprit or summary; else it only adds reasons, or makes surer.
    """

    name: str
    refine: Callable[[Verdict, View], Verdict]
    may_replace: bool = False


REFINEMENTS = (
    Refinement("exceptions that are handled", active_exception.refine, may_replace=True),
    Refinement("parameters without gradients", ddp_parameters.refine, may_replace=True),
    Refinement("faults of GPUs and links", gpu_faults.refine, may_replace=True),
    Refinement("NCCL's RAS", nccl_ras.refine),
    Refinement("short time-outs", short_timeouts.refine),
    Refinement("what keeps ended ranks", does_not_end.refine),
)
