"""What ranks brought to one number of a group: the variants of a call on which they should agree."""

from __future__ import annotations

import dataclasses

from safelaunch.diagnosis.frames import is_torch_distributed, is_user_code
from safelaunch.diagnosis.waitgraph.calls import blocked_in, call_at_number, differs, frames_at, in_backward, stack_of
from safelaunch.model import Case, Collective, Location, RankFacts

Place = tuple[RankFacts, Collective]  # a rank, and the call that it waits in
Variant = list[Place]  # the ranks that came to one number with the same operation


def variants_at(case: Case, met: Collective) -> list[Variant]:
    """The ranks that came to the number of a call, by what they came with."""
    variants: list[Variant] = []
    for facts in case.ranks:
        own = next((call for call in blocked_in(facts) if same_place(call, met)), None)
        call = own or (call_at_number(facts, met) if facts.exit is None else None)
        if call is None or call.seq != met.seq:
            continue
        for variant in variants:
            if not differs(variant[0][0], facts, met):
                variant.append((facts, placed(facts, call)))
                break
        else:
            variants.append([(facts, placed(facts, call))])
    return variants


def placed(facts: RankFacts, call: Collective) -> Collective:
    """The call as it is shown, with its line where only the Flight Recorder has it on a device: a function of
    torch.distributed has made it, in which the thread still is. What a backward pass makes has no line."""
    stack = stack_of(facts, facts.pid)
    if call.location is not None or not call.state or stack is None:
        return call
    latest = max((own.seq for own in facts.recorded or () if own.group == call.group), default=0)
    if call.seq != latest or in_backward(facts):
        return call
    inner = next((n for n, frame in enumerate(stack.frames) if is_user_code(frame)), len(stack.frames))
    inside = any(map(is_torch_distributed, stack.frames[:inner]))
    line = stack.frames[inner] if inside and inner < len(stack.frames) else None
    return dataclasses.replace(call, location=line)


def same_place(one: Collective, other: Collective) -> bool:
    """Whether two calls have one number in one group."""
    return (one.group, one.seq) == (other.group, other.seq)


def where_they_part(mine: Place, theirs: Place) -> tuple[Location | None, Location | None]:
    """Of two calls at one line, which a helper makes, the innermost lines at which the two programs differ; None where
    the calls are made at different lines, or no stack tells them apart."""
    if mine[1].location is None or mine[1].location != theirs[1].location:
        return None, None
    own, other = (frames_at(facts, call, call.thread) for facts, call in (mine, theirs))
    pairs = zip(own, other, strict=False)
    return next(((one, two) for one, two in pairs if (one.file, one.line) != (two.file, two.line)), (None, None))
