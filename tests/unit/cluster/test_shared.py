"""What is said several times stands in a message once, and nothing that is read stands for more than it may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnosis"))
from golden import golden

from safelaunch.cluster import shared
from safelaunch.codec import ShapeError, checked
from safelaunch.model import Case, Incident, Location, ProcessGroup, RankFacts, Stack

LINE = Location("/home/ada/project/train.py", 88, "train_step")


def back(case: Case) -> Case:
    return checked(Case, shared.read(shared.written(case).encode()))


def case(*ranks: RankFacts, groups: tuple[ProcessGroup, ...] = ()) -> Case:
    return Case(Incident("hang", 0, (), 1.0), "node-1", 6, ranks, groups=groups)


def test_a_case_arrives_as_it_was() -> None:
    for name, (sent, _) in golden().items():
        assert back(sent) == sent, name


def test_where_ranks_stand_at_the_same_lines_these_are_said_and_kept_once() -> None:
    ranks = [RankFacts(n, n, 4100 + n, stack=Stack((LINE,) * 50, "py-spy", thread=n)) for n in range(8)]
    text = shared.written(case(*ranks))
    assert text.count("train_step") == 1
    first, *others = back(case(*ranks)).ranks
    assert all(facts.stack and first.stack and facts.stack.frames is first.stack.frames for facts in others)


def test_a_group_of_all_ranks_is_a_few_characters_and_kept_once_for_all_messages() -> None:
    world = ProcessGroup("0", tuple(range(8192)))
    column = ProcessGroup("9", tuple(range(3, 8192, 8)))
    sent = case(groups=(world, column))
    assert len(shared.written(sent)) < 300
    one, other = back(sent), back(sent)
    assert one == other == sent
    assert one.groups[0].ranks is other.groups[0].ranks


@pytest.mark.parametrize("numbers", [(), (5,), tuple(range(8)), (*range(20), 19), tuple(range(20, 0, -1)), (7,) * 20])
def test_numbers_in_other_steps_are_written_one_by_one(numbers: tuple[int, ...]) -> None:
    sent = case(groups=(ProcessGroup("0", numbers),))
    assert back(sent) == sent


@pytest.mark.parametrize(
    "text",
    [
        b'{"=": 0}',  # of a line that is not there
        b'{"a": 1}\n{"=": "a"}',
        b'{"a": 1}\n{"=": []}',
        b'{"..": 5}',
        b'{"..": [0, 1]}',
        b'{"..": [0, 1, 1e9]}',
        b'{"..": [0, 1, 10000000]}',
        b'{"..": [0, 0, 30]}',
        b'{"..": ["a", 1, 30]}',
        b"",
        b"1\n2\n",
    ],
)
def test_what_refers_to_nothing_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, ShapeError)):
        checked(Case, shared.read(text))


def test_a_short_text_does_not_stand_for_a_vast_one() -> None:
    lines = [b'[{"a": 1}, {"a": 2}]', *(b'[{"=": %d}, {"=": %d}]' % (n, n) for n in range(40))]
    with pytest.raises(ValueError, match="too much"):
        shared.read(b"\n".join(lines))


def test_what_is_wrong_in_a_shared_part_is_still_told() -> None:
    text = shared.written(case(*(RankFacts(n, n, n, stack=Stack((LINE, LINE), "py-spy")) for n in range(3))))
    with pytest.raises(ShapeError, match=r"line: expected a whole number"):
        checked(Case, shared.read(text.replace(":88", ':"88"').encode()))
