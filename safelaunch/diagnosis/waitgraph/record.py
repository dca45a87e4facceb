"""What a rank's own record says of it: its latest calls, and whether it left in good order."""

from __future__ import annotations

from safelaunch.model import Collective, RankFacts

SIGABRT = 6
LEAVING = "destroy_process_group"  # recorded like a collective, as a rank's last word in a group
WORLD = "0"  # torch's name of the default group


def current_calls(facts: RankFacts) -> tuple[Collective, ...]:
    """The calls since a rank last destroyed all its groups: numbers begin anew with new ones."""
    calls = facts.calls
    ends = [i for i, call in enumerate(calls) if call.op == LEAVING and call.group == WORLD]
    return calls[ends[-1] :] if ends else calls


def left_cleanly(facts: RankFacts) -> bool:
    """Whether the rank ended in good order: exit code 0, or a shutdown that meant 0.

    A rank that leaves without `destroy_process_group` may abort while libraries are torn down, and its code is
    then -6, whatever the program meant.
    """
    if facts.exit is not None and facts.exit.code == 0:
        return True
    if facts.error is not None or facts.raised:
        return False
    meant = facts.exit_call is None or facts.exit_call.code == "0"
    torn_down = facts.exit is None or facts.exit.code == -SIGABRT
    return facts.shut_down is not None and meant and torn_down
