# ruff: noqa: E501 - lines of logs are as long as they are
"""Lines that were broken where they were too wide are read as one where an open bracket shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_no_false_all_clear import judged

BY = "(Learner pid=4711, ip=10.1.0.7) "
CONNECT = "[E socket.cpp:9] [c10d] The client socket has timed out after 900s while trying to connect to ({}, {}).\n"
GAVE_UP = "(Actor pid=5, ip=10.1.0.8) [E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3856, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=900000) ran for 900268 milliseconds before timing out.\n"


def wrapped(text: str, *after: str) -> str:
    """A text with a break behind each of these parts of it."""
    for part in after:
        assert part in text
        text = text.replace(part, f"{part}\n", 1)
    return text


@pytest.mark.parametrize("part", ["10.1.9", "10.1.9.2", "10.1.9.2,", "10.1.9.2, 29"])
def test_an_address_that_was_broken_is_whole(tmp_path: Path, part: str) -> None:
    whole = BY + CONNECT.format("10.1.9.2", 29500)
    verdict = judged(tmp_path, wrapped(whole, part))

    assert verdict.code == "SL602"
    assert "(10.1.9.2, 29500)" in verdict.summary or "(10.1.9.2,29500)" in verdict.summary
    assert verdict.summary.endswith("so says 10.1.0.7")
    assert not any("the log also says" in line for line in verdict.because)


def test_a_number_that_was_broken_is_whole(tmp_path: Path) -> None:
    verdict = judged(tmp_path, wrapped(GAVE_UP, "SeqNum=385"))

    assert verdict.kind == "hang"
    assert verdict.seq == 3856


def test_who_did_not_reach_the_store_leads_over_watchdogs_of_others_that_gave_up_later(tmp_path: Path) -> None:
    verdict = judged(tmp_path, BY + CONNECT.format("10.1.9.2", 29500) + GAVE_UP)

    assert verdict.code == "SL602"
    assert judged(tmp_path, GAVE_UP + BY + CONNECT.format("10.1.9.2", 29500)).kind == "hang"


def test_the_bridge_of_docker_is_no_address_for_another_node(tmp_path: Path) -> None:
    advice = "Docker"

    assert advice in judged(tmp_path, BY + CONNECT.format("172.17.0.2", 44737)).remedy
    assert advice not in judged(tmp_path, BY + CONNECT.format("10.1.9.2", 44737)).remedy
    own = BY.replace("10.1.0.7", "172.17.0.3") + CONNECT.format("172.17.0.2", 44737)
    assert advice not in judged(tmp_path, own).remedy


@pytest.mark.parametrize(
    "text",
    [
        "it will take a while until the node is connected to (node-7\nstep 12 (of 90)\n",
        "[rank0]: the call was made from the first process at (1.2.3.4\n[rank1]: and 29500)\n",
        "a long line before a bracket that is never closed, from (abc",
    ],
)
def test_lines_of_their_own_are_not_joined(tmp_path: Path, text: str) -> None:
    steps = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(20))
    verdict = judged(tmp_path, f"{text}\nERROR: the disk failed\n{steps}ValueError: odd sample 3\n")

    assert "odd sample 3" in verdict.summary
