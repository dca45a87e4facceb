"""What an entry of the catalogue is, and what can hold of it."""

from __future__ import annotations

from enum import Enum


class Trait(Enum):
    """What holds of a code, for those who act on verdicts.

    - DIVERGED: the programs of ranks have come apart, so that progress of a culprit ends nobody's wait.
    - ELSEWHERE: ranks are in different calls; which of them is wrong may not be known.
    - LATE: a rank comes late, and may be at work on what the others wait for.
    - QUIET: it can be told where no rank waits for another.
    - UNKNOWN: the evidence says nothing.
    - NOBODY: it may name no rank.
    - EFFECT: it says how ranks ended, and not why.
    - MAYBE_GPU: a broken GPU can be behind it. A rank that left the loop, or waits in another collective, did so by its
      program; one that reads a file, or is stopped, is held up there.
    - EXCEPTION: an exception's own words say why it was raised.
    - MAYBE_PEER: ... but the cause may lie with another rank.
    - MISFIT: what ranks brought to one collective does not fit together.
    - OWN_RULE: a rule knows more of it than a message does, whatever signature a user has given the message.
    - INFRASTRUCTURE: it is not the program's: a scheduler may try again, on other nodes.
    - NOTHING_WRONG: nothing is wrong, and nothing makes it surer.
    - PROOF: it proves that the hardware of the node it names is bad: that node may be written on a list of bad nodes.
    - LEFT_OUT: the next attempt is better made without the node that it names; one that is named twice leaves the job.
    - COMMAND: the command line is at fault, so that no other node would help.
    - OF_ONE_RUN: a check of it concerns one run, or what jobs may take by right: no reason to refuse a node.
    - DECIDES: what else there is to say of that variable goes with it.
    - FOLLOWS: ... and this is such a thing.
    - NAMELESS: nobody reads a variable of this name, whatever its value is.
    - NAME: the name of a variable is what is wrong: another one may take its place.
    """

    DIVERGED = "diverged"
    ELSEWHERE = "elsewhere"
    LATE = "late"
    QUIET = "quiet"
    UNKNOWN = "unknown"
    NOBODY = "nobody"
    EFFECT = "effect"
    MAYBE_GPU = "maybe a GPU"
    EXCEPTION = "exception"
    MAYBE_PEER = "maybe a peer"
    MISFIT = "misfit"
    OWN_RULE = "own rule"
    INFRASTRUCTURE = "infrastructure"
    NOTHING_WRONG = "nothing wrong"
    PROOF = "proof"
    LEFT_OUT = "left out"
    COMMAND = "command"
    OF_ONE_RUN = "of one run"
    NAME = "name"
    NAMELESS = "nameless"
    DECIDES = "decides"
    FOLLOWS = "follows"


class Code:
    """One entry of the catalogue.

    Args:
        code: `SL` and three digits.
        slug: its name for machines.
        title: one line.
        text: where its text lives: the check or rule that concludes it, or several, apart by spaces.
        traits: what holds of it.
    """

    def __init__(self, code: str, slug: str, title: str, text: str, *traits: Trait) -> None:
        self.code, self.slug, self.title, self.text = code, slug, title, text
        self.traits = frozenset(traits)
