"""The nodes that verdicts have named as bad, their hardware or the machine itself: the second time is said, and a node
of an elastic job, or of one with spare nodes, leaves it then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from safelaunch.codes import CATALOGUE, Trait, has
from safelaunch.launch.spares import others_can_go_on
from safelaunch.model import Case, LaunchPlan, Verdict
from safelaunch.run.console import Console

TIMES = {2: "second", 3: "third"}
OTHERWISE = "its own evidence alone does not say so"
ASK_THERE = "its own output says why"


class BlamedNodes:
    """What this node knows of them. It leaves by its own evidence alone: its own ranks have failed or wait, and the
    rules say the same of its own case, without those of the others.

    Args:
        plan: of the run.
        console: of the run.
    """

    def __init__(self, plan: LaunchPlan, console: Console) -> None:
        self.left = False  # whether this node has left the job
        self.judged: Callable[[Case], Verdict] | None = None  # what the rules say of a case
        self.tell: Callable[[str], None] = lambda _: None  # takes a word for the agent
        self.tell_others: Callable[[tuple[str, ...], bool], None] = lambda *_: None  # `Leaves`, of this node
        self._elastic = others_can_go_on(plan.torchrun, plan.spare_nodes)
        self._console = console
        self._codes: dict[str, list[str]] = {}  # of the verdicts that have named a node, by its name
        self._host = ""

    def concluded(self, facts: Case, verdict: Verdict) -> None:
        """An attempt has its verdict, and another attempt follows."""
        self._host = facts.host
        host = verdict.host
        if facts.world_size <= len(facts.ranks) or not has(verdict.code, Trait.LEFT_OUT) or not host or ", " in host:
            return  # what several nodes have in common is no fault of one
        codes = self._codes.setdefault(host, [])
        codes.append(verdict.code)
        if len(codes) == 1:
            return
        if not self._elastic:
            self._console.aside(f"{blamed(host, codes)}: start again without it")
        elif host != facts.host:
            if not verdict.culprit_ranks:  # else it lives, and says itself what comes of it
                self._console.aside(blamed(host, codes))
        elif self._agrees(facts, verdict):
            self.tell("leave")
        else:
            self.on_leaves(OTHERWISE)

    def _agrees(self, facts: Case, verdict: Verdict) -> bool:
        """Whether this node's own evidence says so as well. That it was lost, its supervisor knows by itself, and its
        ranks have failed or wait."""
        if not has(verdict.code, Trait.PROOF):
            return True
        return self.judged is not None and has(self.judged(facts).code, Trait.LEFT_OUT)

    def on_leaves(self, stays: str) -> None:
        """What has come of it at the agent: this node leaves the job, or `stays` for this reason."""
        codes = tuple(self._codes.get(self._host, ()))
        self.left = not stays
        self.tell_others(codes, bool(stays))
        self._console.aside(leaving(self._host, codes, stays))


def blamed(host: str, codes: Sequence[str]) -> str:
    """That a node is to blame again, for these codes, of which an unknown one is of another version."""
    time = TIMES.get(len(codes), f"{len(codes)}th")
    known = dict.fromkeys(code for code in codes if code in CATALOGUE)
    return f"{host} is to blame for the {time} time ({', '.join(known)})"


def leaving(host: str, codes: Sequence[str], stays: str) -> str:
    """That a node leaves the job for it, or why it does not."""
    if stays:
        return f"{blamed(host, codes)}, and takes part all the same: {stays}"
    return f"{blamed(host, codes)}, and leaves the job: the others go on without it"
