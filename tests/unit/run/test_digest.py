"""What the other nodes see of a case: little in a large job, and never less of one rank's doings than of another's."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnosis"))
from golden import golden
from hang_scenes import call, done, hang, waiting

from safelaunch.cluster.frames import packed
from safelaunch.cluster.messages import Seen
from safelaunch.diagnosis import diagnose
from safelaunch.model import Case, Collective, Stack
from safelaunch.run.digest import FEWEST, RANK_BYTES, digest

LARGEST = 1 << 18  # ranks


def of_size(case: Case, world_size: int) -> Case:
    return dataclasses.replace(case, world_size=world_size)


def test_in_a_small_job_the_rules_see_as_much_as_on_the_node_itself() -> None:
    for name, (case, _) in golden().items():
        assert diagnose(digest(case, 0.0)) == diagnose(case), name


def test_in_the_largest_job_no_other_rank_is_named() -> None:
    """Habits take a longer record than the hub has room for: then it is not told who is to blame."""
    for name, (case, _) in golden().items():
        shown = of_size(digest(of_size(case, LARGEST), 0.0), case.world_size)
        shown = dataclasses.replace(
            shown,
            ranks=tuple(
                dataclasses.replace(less, new_groups=all_.new_groups)
                for less, all_ in zip(shown.ranks, case.ranks, strict=True)
            ),
        )
        found, whole = diagnose(shown).culprit_ranks, diagnose(case).culprit_ranks
        assert found in (whole, ()), name


def ring() -> tuple[Collective, ...]:
    """A group's only call, long ago, one that has not ended, and many of another group."""
    old = done(call("barrier", 3, group="7"))
    pending = call("all_gather", 5, group="8", issued=True)
    return (old, pending, *(done(call(seq=100 + n)) for n in range(120)), call(seq=220))


def test_of_each_group_the_latest_is_shown_and_all_that_have_not_ended() -> None:
    case = of_size(hang(waiting(0, *ring()), waiting(1, *ring())), LARGEST)
    for facts in digest(case, 0.0).ranks:
        assert [one.group for one in facts.collectives[:2]] == ["7", "8"]
        assert [one.seq for one in facts.collectives[2:]] == list(range(221 - FEWEST, 221))


def test_a_node_that_tells_too_much_tells_less() -> None:
    facts = waiting(0, *ring())
    noise = tuple(Stack(facts.stacks[0].frames, "py-spy", "", 7, os.urandom(500).hex()) for _ in range(100))
    case = hang(dataclasses.replace(facts, stacks=noise))
    shown = digest(case, 0.0)
    assert len(packed(Seen(1, shown))) <= RANK_BYTES < len(packed(Seen(1, case)))
    assert shown.ranks[0].stack is not None
    assert shown.ranks[0].collectives[-1].seq == 220


def test_times_are_of_the_hubs_clock_and_texts_of_stacks_stay_here() -> None:
    facts = waiting(0, *ring())
    stack = dataclasses.replace(facts.stacks[0], text="a text")
    case = hang(dataclasses.replace(facts, stack=stack, stacks=(stack,), last_lines=("api_key=abcdefghijklmnop",)))
    (shown,) = digest(case, 40.0).ranks
    assert shown.collectives[-1].t == facts.collectives[-1].t + 40.0
    assert [one.text for one in (shown.stack, *shown.stacks) if one is not None] == ["", ""]
    assert "abcdefghijklmnop" not in "".join(shown.last_lines)
