"""From a case to its verdict, with what this run knows of messages. A rule that fails costs no verdict."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from safelaunch.diagnosis import diagnose, untold
from safelaunch.evidence import memory
from safelaunch.model import Case, Finding, Settings, Verdict
from safelaunch.run.console import Console
from safelaunch.run.own_faults import contained

if TYPE_CHECKING:
    from safelaunch.evidence.logs.signatures import Signature


def judged(facts: Case, tell: Callable[[str], None]) -> Verdict:
    """The verdict of the rules; one that says that nobody can tell, where one of them has failed itself.

    Args:
        facts: the case.
        tell: takes the sentence about such a fault.
    """
    with contained(tell, "a rule failed"):
        return diagnose(facts)
    with contained(tell, "nor is it known who waits for whom"):
        return untold(facts)
    return untold(Case(facts.incident, facts.host, facts.world_size, ()))


class Judge:
    """The rules, and the signatures of messages that were read at the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._signatures: tuple[Signature, ...] | None = None  # None: the user has none

    def read_signatures(self, settings: Settings) -> tuple[Finding, ...]:
        """Read the user's own messages, and tell what is wrong with them: now, and not when they are needed."""
        with contained(self._console.degraded, "files of signatures are not checked"):
            from safelaunch.run import messages

            try:
                self._signatures, found = messages.at_start(messages.files(settings.diagnosis), os.environ)
            except TimeoutError as error:
                self._console.say(f"warning[SL290]: this run knows its messages without the user's own: {error}")
                return ()
            self._console.findings(found)
            return found
        return ()

    def explained(self, facts: Case) -> Case:
        """The case with what the signatures know of its exceptions, and the room in /dev/shm."""
        facts = dataclasses.replace(facts, shm=memory.shm())
        if not any(rank.error for rank in facts.ranks):
            return facts
        with contained(self._console.degraded, "messages are not looked up"):
            from safelaunch.evidence.logs import signatures
            from safelaunch.run import messages

            known = self._signatures if self._signatures is not None else signatures.shipped()
            return messages.classified(facts, known)
        return facts  # the verdict names the exception alone

    def verdict(self, facts: Case) -> Verdict:
        """What the rules say."""
        return judged(facts, self._console.degraded)
