"""What supervisors say to each other. Of a newer version unknown fields are passed over."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Case, Verdict
from safelaunch.model.nodes import LostNode
from safelaunch.model.slow import SlowLink, Slowness
from safelaunch.model.slow_nodes import NodePace
from safelaunch.model.values import Told


@dataclass(frozen=True)
class Hello:
    """The first word of a node to the hub."""

    node_rank: int


@dataclass(frozen=True)
class Beat:
    """A node lives. `t` is its CLOCK_MONOTONIC, `step` its ranks' latest optimizer step."""

    t: float
    step: int = 0


@dataclass(frozen=True)
class Answer:
    """The hub's answer to a beat: the `t` that it told of, the hub's own, and its ranks' step."""

    asked: float
    t: float
    step: int = 0


@dataclass(frozen=True)
class Members:
    """The nodes that are connected to the hub."""

    node_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Goodbye:
    """A node's supervisor is about to end, and is not lost."""

    node_rank: int


@dataclass(frozen=True)
class Lost:
    """The hub has lost these nodes."""

    nodes: tuple[LostNode, ...]


@dataclass(frozen=True)
class Suspect:
    """Something is wrong at a node: its case, with times of the hub's clock. It asks for a verdict over all nodes.
    `number` counts what the node has asked."""

    number: int
    case: Case


@dataclass(frozen=True)
class Look:
    """The hub asks every node for its case, and for what its GPUs and ports do where who asks knows that of its own."""

    number: int
    hardware: bool = False


@dataclass(frozen=True)
class Seen:
    """A node's case, as the hub has asked for it; None where it has no ranks now."""

    number: int
    case: Case | None


@dataclass(frozen=True)
class Judged:
    """What the rules say of the cases of all nodes that have answered. `asked` are the suspicions among them, by node
    rank and number."""

    verdict: Verdict
    asked: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ends:
    """A node ends its ranks for this verdict, for good: there is no restart."""

    verdict: Verdict


@dataclass(frozen=True)
class Interrupted:
    """A node was told to end. Its ranks may take their time for it, and nobody ends for that alone: where ranks of
    others fail, this is why."""

    verdict: Verdict


@dataclass(frozen=True)
class Leaves:
    """A node that is to blame for the second time, for these codes, leaves the job; or it `stays`, for a reason that it
    says itself."""

    node_rank: int
    codes: tuple[str, ...]
    stays: bool


@dataclass(frozen=True)
class AskPaces:
    """A node asks the hub who is slow: its ranks are, or seem to be."""


@dataclass(frozen=True)
class TellPace:
    """The hub asks every node how fast its ranks are."""

    number: int


@dataclass(frozen=True)
class PaceTold:
    """How fast they are; None where that cannot be told now."""

    number: int
    pace: NodePace | None


@dataclass(frozen=True)
class TellWhy:
    """The hub asks a node what its ranks and its processes do: some of them are slow, or those of others are and have
    to be compared with them. Times are of the hub's clock."""

    number: int
    slow: Slowness


@dataclass(frozen=True)
class WhyTold:
    """What they do; None where nobody could look."""

    number: int
    case: Case | None


@dataclass(frozen=True)
class Paced:
    """What a look at the pace of all nodes has come to: who is slow, if anybody is, or why that is not known. `over`
    is the step since which those who were slow keep up again. It is a notice, for which nobody ends."""

    verdict: Verdict | None = None
    unknown: str = ""
    link: SlowLink | None = None
    over: int = 0


@dataclass(frozen=True)
class AskStop:
    """A node asks the hub to have all ranks stop at one call of `should_stop()`. `by` says why, in words."""

    by: str


@dataclass(frozen=True)
class Hold:
    """The hub has every node hold back its ranks' next calls for a moment, and asks how far they are."""

    number: int


@dataclass(frozen=True)
class Held:
    """They are held back, and have made so many calls at most."""

    number: int
    calls: int


@dataclass(frozen=True)
class StopAt:
    """The first call that returns True; 0 where that cannot be agreed: `by` says why then."""

    call: int
    by: str


@dataclass(frozen=True)
class TellValues:
    """What the ranks of a node have told in an attempt, for the hub to compare."""

    attempt: int
    values: tuple[Told, ...]


OfStop = AskStop | Hold | Held | StopAt
OfPace = AskPaces | TellPace | PaceTold | TellWhy | WhyTold | Paced
Message = (
    Hello
    | Beat
    | Answer
    | Members
    | Goodbye
    | Lost
    | Suspect
    | Look
    | Seen
    | Judged
    | Ends
    | Interrupted
    | Leaves
    | OfPace
    | OfStop
    | TellValues
)
KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Hello, Beat, Answer, Members, Goodbye, Lost, Suspect, Look, Seen, Judged, Ends, Interrupted, Leaves,
        AskPaces, TellPace, PaceTold, TellWhy, WhyTold, Paced, AskStop, Hold, Held, StopAt,
        TellValues,
    )
}  # fmt: skip
# Those that take long to read.
LONG = frozenset(kind.__name__ for kind in (Suspect, Seen, Judged, PaceTold, WhyTold, TellValues))
# Nobody else says these.
OF_THE_HUB = frozenset(
    kind.__name__ for kind in (Answer, Members, Lost, Look, Judged, TellPace, TellWhy, Paced, Hold, StopAt)
)
