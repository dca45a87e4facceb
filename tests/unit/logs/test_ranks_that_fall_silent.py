"""A rank that writes nothing more while the others go on is told, as a fact, and blamed by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_no_false_all_clear import judged

from safelaunch.model import Verdict


def steps(rank: int, minutes: int, every_s: int = 30, text: str = "step {n} loss 2.0") -> list[tuple[int, str]]:
    """Lines of a rank with the seconds since 12:00:00."""
    return [
        (at, f"[rank{rank}]: 2026-03-02 12:{at // 60:02}:{at % 60:02},000 {text.format(n=at // every_s)}")
        for at in range(0, minutes * 60, every_s)
    ]


def told(folder: Path, *lines: tuple[int, str], more: str = "") -> Verdict:
    return judged(folder, "".join(f"{line}\n" for _, line in sorted(lines)) + more)


OTHERS = (*steps(0, 20), *steps(1, 20), *steps(2, 20))


def test_what_is_known_is_when_it_fell_silent(tmp_path: Path) -> None:
    verdict = told(tmp_path, *OTHERS, *steps(3, 5))

    assert verdict.code == "SL499"
    assert "rank 3's last line is at 12:04:30, 15 min before the log's end" in verdict.summary
    assert verdict.culprit_ranks == ()


def test_beside_another_verdict_it_is_a_fact(tmp_path: Path) -> None:
    verdict = told(
        tmp_path,
        *OTHERS,
        *steps(3, 5),
        more="slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-02T12:20:00 DUE TO TIME LIMIT ***\n",
    )

    assert verdict.code == "SL603"
    assert "rank 3's last line is at 12:04:30, 15 min before the log's end" in verdict.because


def test_several_are_told_together(tmp_path: Path) -> None:
    verdict = told(tmp_path, *OTHERS, *steps(4, 19, text="step {n} x"), *steps(3, 5), *steps(5, 6))

    assert "ranks 3 and 5 wrote nothing" in verdict.summary


@pytest.mark.parametrize(
    "other",
    [
        steps(3, 5, text="loading shard"),  # which writes no steps may have nothing to write
        steps(3, 19),
        steps(3, 15, every_s=300),  # its next line is not due
        [*steps(3, 5), (300, "[rank3]: Training finished.")],
    ],
    ids=["no steps", "some seconds apart", "slow steps", "finished"],
)
def test_a_rank_with_nothing_to_write_is_not_told(tmp_path: Path, other: list[tuple[int, str]]) -> None:
    verdict = told(tmp_path, *OTHERS, *other)

    assert "last line is at" not in verdict.summary + " ".join(verdict.because)


def test_where_most_are_silent_one_goes_on_alone(tmp_path: Path) -> None:
    verdict = told(tmp_path, *steps(0, 20), *steps(1, 5), *steps(2, 5))

    assert "wrote nothing" not in verdict.summary
