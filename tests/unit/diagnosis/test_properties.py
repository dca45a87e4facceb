"""What holds for every incident, whichever rank it strikes and whatever its peers do then.

Where a property does not hold yet, the stories that break it are left out by name here, and each has its smallest
example in test_former_gaps.py.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import case, raised, rank, speaker
from stories import ACTS, CONSEQUENCES, MISMATCHES, NO_CULPRIT, Story, permuted, pieces, reactions, stories, without

from safelaunch.codec import from_json, to_json
from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.crash.timeout import TIMED_OUT
from safelaunch.model import Case, RankFacts

# The same examples on every machine: a failure here must be about the change, not about luck.
steady = settings(max_examples=60, deadline=None, derandomize=True, database=None)

ALL = ACTS + MISMATCHES + NO_CULPRIT


def blamed(incident: Case) -> set[int]:
    return set(diagnose(incident).culprit_ranks)


def library_abort_beside_an_abort(story: Story) -> bool:
    """test_former_gaps: an abort of the user's own code, and peers that their communication library aborts."""
    aborted = [facts for facts in story.case.ranks if facts.exit is not None and facts.exit.code == -6]
    return story.act == "abort" and len(aborted) > 1


@pytest.mark.parametrize("act", ALL)
def test_the_true_culprit_is_named_and_nobody_else(act: str) -> None:
    @steady
    @given(stories((act,)).filter(lambda story: not library_abort_beside_an_abort(story)))
    def holds(story: Story) -> None:
        assert blamed(story.case) == set(story.culprits)

    holds()


@steady
@given(st.data(), stories())
def test_other_rank_numbers_name_the_same_rank(data: st.DataObject, story: Story) -> None:
    order = data.draw(st.permutations(range(len(story.case.ranks))))
    before, after = diagnose(story.case), diagnose(permuted(story.case, order))

    assert after.code == before.code
    assert set(after.culprit_ranks) == {order[number] for number in before.culprit_ranks}
    assert set(after.secondary) == {order[number] for number in before.secondary}
    assert after.confidence == before.confidence


def with_healthy(incident: Case, count: int) -> Case:
    size = len(incident.ranks)
    more = tuple(rank(number) for number in range(size, size + count))
    size += count
    groups = tuple(dataclasses.replace(group, ranks=tuple(range(size))) for group in incident.groups)
    return dataclasses.replace(
        incident, ranks=(*incident.ranks, *more), world_size=incident.world_size + count, groups=groups
    )


@steady
@given(stories(tuple(act for act in ALL if act != "everyone")), st.integers(1, 4))
def test_healthy_ranks_change_nothing(story: Story, count: int) -> None:
    before, after = diagnose(story.case), diagnose(with_healthy(story.case, count))

    assert (after.code, after.culprit_ranks) == (before.code, before.culprit_ranks)


@steady
@given(stories(("everyone",)), st.integers(1, 4))
def test_beside_a_healthy_rank_it_was_not_everyone(story: Story, count: int) -> None:
    verdict = diagnose(with_healthy(story.case, count))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", tuple(facts.rank for facts in story.case.ranks))


def may_lose(story: Story, number: int, kind: str) -> bool:
    """Whether losing this piece of evidence must not bring a new name in; the others are in test_former_gaps."""
    if number in story.culprits or kind in ("black_box", "stack"):
        return True
    # What explains a victim is lost. As long as the culprit's own failure stands before it, it explains the victim.
    return story.act in ACTS and story.act != "leave"


@pytest.mark.parametrize("act", ALL)
def test_lost_evidence_never_brings_in_a_new_name(act: str) -> None:
    @steady
    @given(stories((act,)).filter(lambda story: not library_abort_beside_an_abort(story)))
    def holds(story: Story) -> None:
        before = blamed(story.case)
        for number, kind in pieces(story.case):
            poorer = without(story.case, number, kind)
            # Without its stack a library's abort looks like the user's own: see library_abort_beside_an_abort.
            if may_lose(story, number, kind) and not (story.act == "abort" and kind == "fault"):
                assert blamed(poorer) <= before, f"without {kind} of rank {number}"

    holds()


@st.composite
def victims(draw: st.DrawFn) -> list[RankFacts]:
    return [draw(reactions(rank(number))) for number in range(draw(st.integers(1, 8)))]


def is_explained(facts: RankFacts) -> bool:
    """Whether the rank says itself that it lost a peer, or is well. An abort says nothing when nobody had left."""
    return facts.error is not None or facts.exit is None


@steady
@given(victims().filter(lambda ranks: all(map(is_explained, ranks))))
def test_who_only_lost_a_peer_is_not_to_blame(ranks: list[RankFacts]) -> None:
    assert blamed(case(*ranks, world_size=2 * len(ranks))) == set()


@pytest.mark.parametrize("message", CONSEQUENCES)
@pytest.mark.parametrize("chained", [False, True])
def test_one_lost_connection_alone_is_nobodys_fault(message: str, chained: bool) -> None:
    victim = (
        raised(rank(0), "RuntimeError", "training failed", chain=(f"{speaker(message)}: {message}",))
        if chained
        else raised(rank(0), speaker(message), message)
    )
    verdict = diagnose(case(victim, rank(1)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL414" if TIMED_OUT.search(message) else "SL412", ())


@steady
@given(stories())
def test_json_keeps_every_case_whole(story: Story) -> None:
    assert from_json(Case, to_json(story.case)) == story.case
