"""What a rule is: a row of stage, needs, codes and the function that concludes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from safelaunch.diagnosis.view import View
from safelaunch.model import Verdict


class Stage(IntEnum):
    """When a rule is asked. What proves comes before what is left over, and within a stage at most one rule concludes
    of any case: their order there means nothing.

    - RUNNING: nothing may be wrong at all.
    - LEFT: a rank can never come again.
    - MISFIT: ranks made calls that do not fit together.
    - PREMISE: the evidence of one particular cause is there.
    - SHAPE: the graph of waits alone: its sinks, its cycle, or that it has neither.
    - QUIET: no rank waits for another in a call that is known.
    - ALL_ALIKE: all ranks failed in one way.
    - FIRST: of failures, the one that no other explains.
    - TIMED_OUT: a rank gave up waiting.
    - CONSEQUENCE: all that is left of failures follows from something else.
    - STACKS: stacks alone, of a job that nothing had recorded.
    - UNKNOWN: what is left to say.
    """

    RUNNING = 1
    LEFT = 2
    MISFIT = 3
    PREMISE = 4
    SHAPE = 5
    QUIET = 6
    ALL_ALIKE = 7
    FIRST = 8
    TIMED_OUT = 9
    CONSEQUENCE = 10
    STACKS = 11
    UNKNOWN = 12


@dataclass(frozen=True)
class Need:
    """Evidence that a rule cannot do without.

    Args:
        lack: what is said where it is not there, such as `no rank is late`.
        met: whether it is there.
    """

    lack: str
    met: Callable[[View], bool]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        stage: when it is asked.
        conclude: gives the verdict, or None where it does not apply. Its docstring is the text of its first code.
        codes: all that it may conclude, but for what refinements make of it.
        needs: what has to be there for it to be asked.
    """

    stage: Stage
    conclude: Callable[[View], Verdict | None]
    codes: tuple[str, ...]
    needs: tuple[Need, ...] = ()

    @property
    def name(self) -> str:
        """That of its function."""
        return self.conclude.__name__

    def lacks(self, view: View) -> str:
        """What is not there of its needs, the first alone; nothing where it can be asked."""
        return next((need.lack for need in self.needs if not need.met(view)), "")


def _of_waits(lack: str, name: str, *, wanted: bool) -> Need:
    """That some wait of the graph has such ranks (`wanted`), or none has."""
    return Need(lack, lambda view: any(getattr(wait, name) for wait in view.graph.waits) is wanted)


ATTACHED = Need("the job was watched, or dumps are left of it", lambda view: view.from_outside)
DUMPS = Need("more than dumps is known", lambda view: view.from_dumps)
MORE_THAN_DUMPS = Need("nothing but dumps is left", lambda view: not view.from_dumps)
ALL_RANKS = Need("not all ranks of the job are known here", lambda view: view.sees_all_ranks)
WAITS = Need("no rank is known to wait in a call", lambda view: bool(view.graph.waits))
NO_WAITS = Need("ranks wait for one another", lambda view: not view.graph.waits)
SINKS = Need("no rank is known to be late", lambda view: bool(view.graph.sinks))
NO_SINKS = Need("a rank is late", lambda view: not view.graph.sinks)
CYCLE = Need("no ranks wait for one another in a circle", lambda view: bool(view.graph.cycle))
NO_CYCLE = Need("ranks wait for one another in a circle", lambda view: not view.graph.cycle)
OTHER_CALLS = _of_waits("no two ranks made different calls at one number", "differing", wanted=True)
NO_OTHER_CALLS = _of_waits("ranks made different calls at one number", "differing", wanted=False)
SOMEBODY_LEFT = _of_waits("no rank that is waited for has ended, or left the group", "gone", wanted=True)
NO_LEFT = _of_waits("a rank that is waited for has ended, or left the group", "gone", wanted=False)
NOBODY_AWAY = _of_waits("ranks are waited for of which nothing is known", "away", wanted=False)
