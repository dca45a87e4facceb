"""An agent that does not see that its ranks have ended: a call of the rendezvous store holds it, over a network that is
cut. It then ends nothing, starts nothing, and leaves by no signal that Python handles."""

from __future__ import annotations

from collections.abc import Callable

ACTS_S = 5.0  # an agent sees the end of a rank at once


class Blocked:
    """What becomes of such an agent.

    Args:
        after: does something so many seconds later.
        abandon: ends the agent.
        say: prints a line.
        patience_s: for which torch's rendezvous lets a node wait. Where attempts are left, the network may come back
            so long, and the agent with it. None for a job of one node.
    """

    def __init__(
        self,
        after: Callable[[float, Callable[[], None]], None],
        abandon: Callable[[], None],
        say: Callable[[str], None],
        patience_s: float | None,
    ) -> None:
        self._after, self._abandon, self._say = after, abandon, say
        self._patience_s = patience_s
        self._acts = self._is_last = False

    def concluded(self, *, is_last: bool) -> None:
        """It may act on the end of its ranks from now on; no attempt follows where this one `is_last`."""
        self._acts, self._is_last = False, is_last

    def acts(self) -> None:
        """It does."""
        self._acts = True

    def ranks_have_ended(self) -> None:
        """There is nothing left that it might wait for."""
        if not self._acts and self._patience_s is not None:
            self._after(ACTS_S, self.look)

    def look(self) -> None:
        """Whether it has acted since; where nothing follows, it is not waited for."""
        if self._acts:
            return
        if self._is_last:
            self._abandon()
            return
        self._say(
            f"the agent is blocked in the rendezvous, of which no answer comes: it is ended in {self._patience_s:g} s"
        )
        self._after(self._patience_s or 0.0, self.give_up)

    def give_up(self) -> None:
        """End it, unless it has come back."""
        if not self._acts:
            self._abandon()
