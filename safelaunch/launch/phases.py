"""The phases of a run. The supervisor alone moves from one to the next."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a run is.

    ```
    CHECKING -> STARTING -> RUNNING -> INCIDENT -> CONCLUDED -> OVER
                            ^  |  ^                    |
                  REGROUPING+--+  +---- restart -------+
    ```

    From each of them a signal leads to ENDING, and so do a preflight that refuses and a hang that ends the run. The end
    of the agent leads to OVER.
    """

    CHECKING = "the node is checked, and the agent imports torch"
    STARTING = "the agent may start ranks, and joins the rendezvous"
    RUNNING = "the ranks of an attempt run, and none has failed"
    INCIDENT = "a rank has failed, or ranks hang: evidence is taken while the others are held back"
    CONCLUDED = "there is a verdict: torch elastic ends the others, and may start the next attempt"
    REGROUPING = "torch elastic ends the ranks, and none of them is the reason"
    ENDING = "the run ends by our will, and nothing is restarted"
    OVER = "the agent has ended: what is left is settled"


# It is known by then why the ranks end, or the run.
DECIDED = frozenset({Phase.CONCLUDED, Phase.ENDING, Phase.OVER})
