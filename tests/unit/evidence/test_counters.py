"""How far a rank has come in each group, from the counters of torch's Flight Recorder."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.codec import from_json, to_json
from safelaunch.evidence.counters import progress
from safelaunch.model import GroupProgress, RankFacts


def dump(status: dict[Any, tuple[int, int, int]], names: list[str], *entries: tuple[int, str]) -> dict[str, Any]:
    """A dump with counters (enqueued, started, completed) by local id, the names of groups, and (local id, name) of
    entries."""
    keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    return {
        "pg_config": {name: {"name": name, "ranks": "[0, 1]"} for name in names},
        "pg_status": {key: dict(zip(keys, numbers, strict=True)) for key, numbers in status.items()},
        "entries": [{"pg_id": key, "process_group": (name, "undefined")} for key, name in entries],
    }


def test_the_old_backend_counts_from_one() -> None:
    found = progress(dump({"0": (12, -1, 11)}, ["0"]), "nccl")

    assert found == (GroupProgress("0", "nccl", 12, 11),)
    assert found[0].pending


def test_nccl2_counts_from_zero_and_is_told_from_one() -> None:
    assert progress(dump({"0": (11, -1, 10)}, ["0"]), "nccl2") == (GroupProgress("0", "nccl2", 12, 11),)


@pytest.mark.parametrize(("backend", "first"), [("nccl", 1), ("nccl2", 0)])
def test_what_never_happened_is_none_of_either(backend: str, first: int) -> None:
    (found,) = progress(dump({0: (first, -1, -1)}, ["0"]), backend)

    assert (found.enqueued, found.started, found.completed) == (1, None, 0)
    (found,) = progress(dump({0: (-1, -1, -1)}, ["0"]), backend)
    assert (found.enqueued, found.completed, found.pending) == (0, 0, False)


def test_what_has_started_is_known_where_calls_are_timed() -> None:
    assert progress(dump({0: (9, 7, 6)}, ["0"]), "nccl")[0].started == 7


def test_json_has_numbers_as_text() -> None:
    document = dump({"0": (3, -1, 3)}, ["0"])
    document["pg_status"]["0"] = {key: str(number) for key, number in document["pg_status"]["0"].items()}

    assert progress(document, "nccl") == (GroupProgress("0", "nccl", 3, 3),)


def test_groups_without_entries_have_their_names_in_order() -> None:
    document = dump({"10": (4, -1, 4), "0": (1, -1, 1), "2": (2, -1, 2)}, ["33", "0", "108"])

    assert [(one.group, one.enqueued) for one in progress(document, "nccl")] == [("0", 1), ("33", 2), ("108", 4)]


def test_nccl2_names_groups_without_a_call_as_well() -> None:
    document = dump({2: (4, -1, 4), 0: (1, -1, 1)}, ["5", "0", "12", "33"])

    assert [(one.group, one.enqueued) for one in progress(document, "nccl2")] == [("0", 2), ("12", 5)]
    assert [one.group for one in progress(document, "nccl")] == ["", ""]


def test_entries_say_which_names_are_left_between_them() -> None:
    """Of six groups, five have counters: one was made, and never called."""
    document = dump({key: (key, -1, key) for key in (1, 2, 3, 5, 6)}, ["1", "4", "7", "9", "11", "20"], (3, "7"))

    assert [one.group for one in progress(document, "nccl")] == ["1", "4", "7", "", ""]


def test_a_name_that_is_a_hash_stands_in_no_order() -> None:
    names = ["0", "8c2d5f", "1"]
    status = {0: (1, -1, 1), 1: (2, -1, 2), 2: (3, -1, 3)}

    assert [one.group for one in progress(dump(status, names), "nccl")] == ["", "", ""]
    document = dump(status, names, (0, "0"), (2, "1"))
    assert [one.group for one in progress(document, "nccl")] == ["0", "8c2d5f", "1"]


def test_a_group_made_anew_is_the_latest() -> None:
    document = dump({0: (8, -1, 7), 1: (2, -1, 2)}, ["0"], (0, "0"), (1, "0"))

    assert progress(document, "nccl") == (GroupProgress("0", "nccl", 2, 2),)


def test_one_entry_tells_that_a_group_has_had_messages() -> None:
    document = dump({0: (4, -1, 4), 1: (4, -1, 4)}, ["0", "1"], (0, "0"), (1, "1"))
    document["entries"][1]["p2p_seq_id"] = 2

    assert [one.messages for one in progress(document, "nccl2")] == [False, True]


def test_a_recorder_that_is_off_tells_nothing() -> None:
    assert progress({"version": "2.10"}, "nccl2") == ()
    assert progress({"pg_status": {}, "pg_config": {}}, "nccl2") == ()


def test_progress_survives_a_bundle() -> None:
    facts = RankFacts(0, 0, 0, progress=(GroupProgress("0", "nccl2", 12, 11, None),))

    assert from_json(RankFacts, to_json(facts)) == facts
