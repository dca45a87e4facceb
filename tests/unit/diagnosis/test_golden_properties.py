"""What holds for every golden case: names of ranks do not matter, healthy ranks do not, and lost evidence never names
a rank that was not named before."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import pytest
from golden import golden
from hang_stories import _as
from scenes import rank
from variants import fewer, in_order

from safelaunch.codec import from_json, to_json
from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.view import View
from safelaunch.evidence.offline.nodes import shifted
from safelaunch.model import Case, RankFacts, Verdict

CASES = {name: case for name, (case, _) in golden().items()}
SAYS_A_RANK = re.compile(r"rank\W{0,2}\d", re.IGNORECASE)
ORDERS = 24  # permutations of each case: all of four ranks

# Two ranks are wrong, each for itself: without the one that is told, the other one is left to tell.
# So it is where the one who holds a lock is not known to be a rank, or what they wait for not to be a semaphore that
# ranks share, and where the source is needed to tell a call of
# C++ from one like it that all ranks have always made.
BOTH_WRONG = {
    # It aborted: where nothing tells of its peers, no more is known.
    "gloo-aborts-who-is-one-call-behind": {1},
    "attach-waits-differ": {2},
    "attach-all-are-stopped": {0, 1, 2},  # each of them is
    "attach-one-could-not-be-looked-at": {1},  # it sleeps, and would be late if the other one were elsewhere
    "exit-of-two-and-a-third-at-work": {0, 1},
    "hang-wrong-operation-and-a-late-rank": {3},
    "hang-exited-beside-a-late-rank": {2},
    "hang-lock-of-a-rank-that-sleeps": {1},
    "hang-semaphore-held-in-a-barrier": {1, 2},
    "hang-semaphore-of-a-library-without-symbols": {1, 2},
    "hang-semaphore-of-a-rank-that-sleeps": {1},
    "hang-semaphore-that-nobody-is-seen-to-hold": {1, 2},
    "hang-polls-while-cpp-gathers": {1, 2},
    "hang-two-send-to-one-of-many": {3, 4},
    "hang-looks-for-a-file-of-rank-0": {1, 2},
    "hang-looks-for-a-file-of-the-main-rank": {1, 2},
    "hang-looks-where-rank-0-does-not-come": {1, 2},
    "hang-waits-for-the-lock-of-rank-0-to-go": {1, 2},
}


def told(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.code, verdict.culprit_ranks, verdict.confidence, verdict.conclusive)


@pytest.mark.parametrize("name", CASES)
def test_other_numbers_name_the_same_rank(name: str) -> None:
    case = CASES[name]
    size = len(case.ranks)
    before = diagnose(case)
    if [facts.rank for facts in case.ranks] != list(range(size)):
        pytest.skip("ranks of a node that is not the first")
    if any("is_main" in condition.text for line in case.source for condition in line.conditions):
        pytest.skip("the main process is that of rank 0")
    errors = [facts.error for facts in case.ranks if facts.error is not None]
    if any(SAYS_A_RANK.search(f"{error.message} {error.chain}") for error in errors):
        pytest.skip("a message speaks of a rank")
    if "with its own number" in before.summary:
        pytest.skip("a key of the store speaks of a rank")
    for order in itertools.islice(itertools.permutations(range(size)), ORDERS):
        after = diagnose(in_order(case, list(order)))

        expected = tuple(sorted(order[number] for number in before.culprit_ranks))
        assert (after.code, tuple(sorted(after.culprit_ranks))) == (before.code, expected), order
        assert (after.confidence, after.conclusive) == (before.confidence, before.conclusive), order


@pytest.mark.parametrize("name", CASES)
def test_lost_evidence_never_names_another_rank(name: str) -> None:
    case = CASES[name]
    before = diagnose(case)
    may = {*before.culprit_ranks, *BOTH_WRONG.get(name, ())}
    for lost, poorer in fewer(case):
        after = diagnose(poorer)

        assert set(after.culprit_ranks) <= may, f"without {lost}: {after.code} {after.culprit_ranks} {after.summary}"
        assert before.conclusive or not after.conclusive, f"without {lost}: {after.summary}"


def grown(case: Case, more: list[RankFacts], joining: bool) -> Case:
    """The case of a larger job; `joining` says that the new ranks belong to the groups of all ranks."""
    size, added = case.world_size, tuple(facts.rank for facts in more)

    def resized(facts: RankFacts) -> RankFacts:
        calls = tuple(
            dataclasses.replace(call, group_size=size + len(more)) if call.group_size == size else call
            for call in facts.collectives
        )
        return dataclasses.replace(facts, collectives=calls)

    ranks = (*case.ranks, *more)
    groups = tuple(
        dataclasses.replace(group, ranks=(*group.ranks, *added)) if joining and len(group.ranks) == size else group
        for group in case.groups
    )
    if joining:
        ranks = tuple(map(resized, ranks))
    return dataclasses.replace(case, ranks=ranks, groups=groups, world_size=size + len(more))


def waits_as_most(case: Case) -> RankFacts | None:
    """A rank that waits, in the call that most ranks wait in, and that nobody blames; all know who belongs there."""
    blamed = set(diagnose(case).culprit_ranks)
    waits = [wait for wait in View(case).graph.waits if wait.rank not in blamed and wait.call.peer is None]
    everywhere = [group.name for group in case.groups if len(group.ranks) == case.world_size] + ["init"]
    waits = [wait for wait in waits if wait.call.group in everywhere]
    sites = [(wait.call.group, wait.call.seq, wait.call.op, wait.call.location) for wait in waits]
    if not sites or any(wait.thread not in (0, 4100 + wait.rank) for wait in waits):
        return None
    most = max(sites, key=sites.count)
    number = waits[sites.index(most)].rank
    return next(facts for facts in case.ranks if facts.rank == number)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.incident.kind == "hang"])
@pytest.mark.parametrize("count", [1, 3])
def test_more_ranks_that_wait_like_the_others_name_nobody_else(name: str, count: int) -> None:
    case = CASES[name]
    example = waits_as_most(case)
    if example is None or len(case.ranks) != case.world_size or case.origin != "run":
        pytest.skip("nobody waits like that")
    before = diagnose(case)
    after = diagnose(grown(case, [_as(example, case.world_size + n) for n in range(count)], joining=True))

    if before.culprit_ranks:
        # Of more that wait, none is likely to wait in what it calls alone, and more votes are a reason of their own.
        surer = before.confidence == "low" or (before.confidence, after.confidence) == ("medium", "high")
        confidence = after.confidence if surer else before.confidence
        assert told(after) == told(dataclasses.replace(before, confidence=confidence)), after.summary
    else:  # more votes may show who is alone
        assert not any(number >= case.world_size for number in after.culprit_ranks)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.incident.kind == "hang" and case.groups])
def test_ranks_with_a_group_of_their_own_change_nothing(name: str) -> None:
    case = CASES[name]
    if case.origin != "run" or len(case.ranks) != case.world_size:
        pytest.skip("of jobs that are not whole")
    before = diagnose(case)
    if (
        before.code in ("SL315", "SL316", "SL317")
        or "all wait in" in before.summary
        or "all others wait" in before.summary
    ):
        pytest.skip("it is said of all ranks that run")
    asked = case.ranks[0].new_groups  # all ranks of a job are asked, whoever is to belong to a group
    idle = [dataclasses.replace(rank(case.world_size + n, inside=()), new_groups=asked) for n in range(2)]

    assert told(diagnose(grown(case, idle, joining=False))) == told(before)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by", [86400.0, 1.7e9], ids=["another machine", "the wall clock"])
def test_when_the_machine_was_booted_does_not_matter(name: str, by: float) -> None:
    """Cases of several nodes are put on one clock: on that of the hub while they run, on the wall clock afterwards."""
    case = CASES[name]

    def gist(verdict: Verdict) -> tuple[object, ...]:
        return (*told(verdict), verdict.summary, verdict.because)

    assert gist(diagnose(shifted(case, by))) == gist(diagnose(case))


@pytest.mark.parametrize("name", CASES)
def test_where_python_is_installed_does_not_matter(name: str) -> None:
    """RHEL, Rocky, Fedora and SLES have it below lib64, conda and pyenv in folders of their own."""

    def moved(text: str) -> str:
        return text.replace("/usr/lib/python3.11/", "/usr/lib64/python3.9/").replace("/opt/venv/lib/", "/opt/c/lib64/")

    case = CASES[name]
    elsewhere = from_json(Case, json.loads(moved(json.dumps(to_json(case)))))

    assert json.dumps(to_json(diagnose(elsewhere))) == moved(json.dumps(to_json(diagnose(case))))
