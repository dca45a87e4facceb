"""An agent that does not see that its ranks have ended: a call of the rendezvous store holds it, over a network that is
cut. It then ends nothing, starts nothing, and leaves by no signal that Python handles."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.model import LaunchPlan, WorkerGroup

ACTS_S = 5.0  # an agent sees the end of a rank at once


class Blocked:
    """What becomes of such an agent, in a job of several nodes.

    Args:
        after: does something so many seconds later.
        abandon: ends the agent.
        say: prints a line.
        plan: of the run. Where attempts are left, the network may come back for as long as torch's rendezvous lets a
            node wait, and the agent with it.
    """

    def __init__(
        self,
        after: Callable[[float, Callable[[], None]], None],
        abandon: Callable[[], None],
        say: Callable[[str], None],
        plan: LaunchPlan,
    ) -> None:
        self._after, self._abandon, self._say = after, abandon, say
        self._plan = plan
        self._acts = self._ended = self._is_last = False

    def begins(self) -> None:
        """There are new ranks."""
        self._acts = self._ended = False

    def acts(self) -> None:
        """It ends the ranks itself."""
        self._acts = True

    def on_reaped(self, pid: int, code: int) -> None:  # noqa: ARG002  the event's
        """It has seen the end of a rank. One that has succeeded it sees at any time."""
        self._acts |= code != 0 or self._ended

    def look_at(self, group: WorkerGroup) -> None:
        """It is known why the ranks end: once all have, there is nothing left that it might wait for."""
        self._ended = not group.left
        if self._ended and not self._acts and self._plan.rendezvous_timeout is not None:
            self._is_last = group.attempt >= self._plan.torchrun["max_restarts"]
            self._after(ACTS_S, self.look_again)

    def look_again(self) -> None:
        """Where nothing follows, it is not waited for any longer."""
        if self._acts:
            return
        if self._is_last:
            self._abandon()
            return
        patience = self._plan.rendezvous_timeout or 0.0
        self._say(f"the agent is blocked in the rendezvous, of which no answer comes: it is ended in {patience:g} s")
        self._after(patience, self.give_up)

    def give_up(self) -> None:
        """End it, unless it has come back."""
        if not self._acts:
            self._abandon()
