"""Whether a rank has left a loop and begun the function around it anew, while its peers are still in that loop."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from safelaunch.diagnosis.blame.loop_exit import UNEVEN, Frame, frames, is_usual
from safelaunch.diagnosis.blame.variants import Place, Variant
from safelaunch.diagnosis.blame.ways_out import AFTER_AN_EXCEPTION, Ways
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.diagnosis.wording import call_at, names
from safelaunch.model import RankFacts, SourceLine


@dataclass(frozen=True)
class BeganAnew:
    """The rank that is in front of a loop again, and a peer that is inside it.

    Args:
        who: that rank, and its call.
        peers: those that are inside the loop, each with its call.
        function: that it has begun anew.
        caller: the line that calls this function, inside a loop.
    """

    who: Place
    peers: Variant
    function: str
    caller: SourceLine

    @property
    def summary(self) -> str:
        (facts, call), (_, theirs) = self.who, self.peers[0]
        still = names(peer.rank for peer, _ in self.peers)
        return (
            f"rank {facts.rank} left the loop of {self.function} and began anew: it is in {call_at(call)}, "
            f"and {still} still in {call_at(theirs)}"
        )

    @property
    def ways(self) -> Ways:
        """How it came there, and what to do about it."""
        return Ways(self.because, AFTER_AN_EXCEPTION if self.caller.caught else UNEVEN)

    @property
    def because(self) -> tuple[str, ...]:
        file, caught = self.caller.file, self.caller.caught
        after = f", and again after `{caught[0][1]}` ({file}:{caught[0][0]})" if caught else ""
        return (f"{self.function} is called in a loop ({file}:{self.caller.line}){after}",)


def began_anew(variants: list[Variant], lines: Lines) -> BeganAnew | None:
    """The one rank that has, by stacks and source:

    - it stands in front of the loop that all others are inside of, in one function, which a loop calls;
    - it has made their call before, so it was in that loop; nor have they passed its call by: no condition guards it.
    """
    for variant, others in _one_against_others(variants):
        who = variant[0]
        found = [where for peer in others if (where := _in_front_of_loop(who, peer, lines)) is not None]
        if found and len(found) == len(others):
            return BeganAnew(who, others, *found[0])
    return None


def _one_against_others(variants: list[Variant]) -> list[tuple[Variant, Variant]]:
    return [
        (variant, list(itertools.chain(*(other for other in variants if other is not variant))))
        for variant in variants
        if len(variant) == 1
    ]


def _in_front_of_loop(who: Place, peer: Place, lines: Lines) -> tuple[str, SourceLine] | None:
    """The function in which one is in front of the loop around the other, and the line in a loop that calls it."""
    own, theirs = frames(*who), frames(*peer) or _of_host(peer[0])
    depth = next((n for n, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]), 0)
    if not depth or (own[depth][0], own[depth][2]) != (theirs[depth][0], theirs[depth][2]):
        return None
    there, here, caller = (lines.get(frame[:2]) for frame in (own[depth], theirs[depth], own[depth - 1]))
    if there is None or here is None or caller is None or not caller.loops or not is_usual(who[0], peer[1]):
        return None
    around = [lines[frame[:2]] for frame in own[depth:] if frame[:2] in lines]
    return (own[depth][2].rpartition(".")[2], caller) if _is_in_front(there, here, around) else None


def _is_in_front(there: SourceLine, here: SourceLine, around: list[SourceLine]) -> bool:
    """Whether a line is in front of the loop that another one is in, and is never passed by on the way there."""
    inner = [first for first, last in here.loops if (first, last) not in there.loops]
    guards = itertools.chain(*(line.conditions for line in around))
    return bool(inner) and inner[0] > there.line and all(each in here.conditions for each in guards)


def _of_host(facts: RankFacts) -> list[Frame]:
    """Where the program is that has left a call to the device: it has gone on from there."""
    return [(frame.file, frame.line, frame.function) for frame in reversed(frames_of(facts, facts.pid))]
