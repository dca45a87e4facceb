"""Why a rank does not come: what it waits for outside, who holds its lock, how many batches it had."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import FAULTS, launch, survivors

REASONS = FAULTS / "reasons.py"
QUICKLY = ("--hang-abort-after", "8s")
NOTICE_S = 10.0


@dataclass(frozen=True)
class Reason:
    """`says` are patterns, all of which a line of the verdict must match; `function` is where the verdict points to."""

    kind: str
    code: str
    function: str
    says: tuple[str, ...]
    culprit: int | None = None
    ranks: int = 2
    slow: bool = True


CASES = (
    Reason("read_cache", "SL301", "fill", (r"for `cache`, which thread filler took at \S*reasons.py:\d+",)),
    Reason(
        "log_under_lock",
        "SL313",
        "log_under_lock",
        (r"waits at \S+ for `metrics`, which thread flusher took", r"for `cache`, which the main thread took"),
        slow=False,
    ),
    Reason("enter_again", "SL313", "append", ("for `cache`, which it holds itself",)),
    Reason("next_item", "SL301", "next_item", ("no other thread of rank 1 runs Python",)),
    Reason("fetched", "SL301", "download", (r"thread fetcher", r"recvfrom\(\) on a connection to 127.0.0.1:\d+")),
    Reason("download", "SL301", "download", (r"recvfrom\(\) on a connection to 127.0.0.1:\d+",), slow=False),
    Reason("read_pipe", "SL301", "read_pipe", (r"sleep \(pid \d+\) has its other end",)),
    Reason("lock_index", "SL301", "lock_index", (r"flock\(\) on \S*index: held by python\S* \(pid \d+\)",)),
    Reason("open_fifo", "SL301", "open_fifo", (r"openat\(\) on \S*samples: a FIFO that nobody has opened",)),
    Reason("fewer_batches", "SL303", "fewer_batches", ("rank 1 ran out of batches after 29; rank 0 has had 30",)),
    Reason(
        "fewer_from_workers",
        "SL303",
        "fewer_from_workers",
        ("rank 1 ran out of batches after 29",),
        ranks=4,
        slow=False,
    ),
    Reason("fewer_of_a_stream", "SL303", "fewer_of_a_stream", ("rank 1 ran out of batches after 29",), ranks=3),
    Reason("fewer_in_the_second_epoch", "SL303", "evaluate", ("rank 1 ran out of batches after 29",), ranks=3),
    Reason("fewer_and_an_upload", "SL303", "fewer_and_an_upload", ("rank 1 ran out of batches after 29", "sleeps")),
    Reason("fewer_with_ddp", "SL303", "fewer_with_ddp", ("rank 1 ran out of batches after 29",), ranks=3),
    Reason("fewer_with_fsdp", "SL303", "fewer_with_fsdp", ("rank 1 ran out of batches after 29",), ranks=3),
    Reason("barrier_of_rank_0", "SL302", "barrier_of_rank_0", ("below `RANK == 0`",), culprit=0, ranks=3),
    Reason("evaluated_by_rank_0", "SL302", "evaluate", ("below `number == FAULT and RANK == 0`",), culprit=0),
    Reason(
        "barrier_in_handler",
        "SL302",
        "barrier_in_handler",
        (r"handling KeyError: 'labels', raised at \S*reasons.py:\d+",),
        slow=False,
    ),
    Reason("saves_in_handler", "SL301", "saves_in_handler", ("handling KeyError: 'labels'",)),
    Reason(
        "rounds_by_marker", "SL311", "rounds_by_marker", ("ranks 1 and 2 look again and again",), culprit=0, ranks=3
    ),
    Reason("rounds_by_key", "SL311", "rounds_by_key", (r"rank 1 has set round/(\d+)/1, and not round/",), slow=False),
    Reason("rounds_by_message", "SL311", "rounds_by_message", ("rank 1 made 2 x send to rank 2",), ranks=3),
    Reason("rounds_by_tag", "SL302", "rounds_by_tag", ("rank 1 has sent it with tag",), ranks=4, slow=False),
    Reason("rounds_of_dispatch", "SL302", "rounds_of_dispatch", (r"rank 1 skipped all_reduce \(",), ranks=3),
    Reason("rounds_without_file", "SL301", "rounds_without_file", ("FileNotFoundError",), ranks=3, slow=False),
    Reason("rounds_in_asyncio", "SL301", "fetch", (r"its task Task-\d+ waits in fetch",), ranks=2, slow=False),
    Reason("rounds_on_mesh", "SL311", "rounds_on_mesh", ("rank 1 uses group 4 at .*, where it had a",), ranks=4),
)


def cases() -> list[object]:
    return [pytest.param(each, id=each.kind, marks=[pytest.mark.long] * each.slow) for each in CASES]


@pytest.mark.parametrize("reason", cases())
def test_the_verdict_says_why(reason: Reason, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", reason.ranks, *QUICKLY, REASONS, reason.kind, 1, cwd=tmp_path)

    print(ended.err)
    assert ended.code == 124, ended.err
    verdict = ended.verdict
    culprit = 1 if reason.culprit is None else reason.culprit
    assert (verdict["code"], verdict["culprit_ranks"]) == (reason.code, [culprit]), ended.err
    assert verdict["location"]["function"].rpartition(".")[2] == reason.function
    for pattern in reason.says:
        assert any(re.search(pattern, line) for line in (verdict["summary"], *verdict["because"])), (pattern, verdict)
    assert verdict["detected_after_s"] <= NOTICE_S
    assert len(ended.ours()) <= 10, ended.err
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.long
def test_a_subgroup_of_which_one_rank_has_fewer_batches(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 4, *QUICKLY, REASONS, "fewer_in_pairs", 3, cwd=tmp_path)

    # Its own peer alone waits in the loop; those of the other pair wait in the barrier, as it does itself.
    assert ended.code == 124, ended.err
    assert set(ended.verdict["culprit_ranks"]) <= {3}, ended.err


@pytest.mark.long
def test_a_rank_that_is_done_and_does_not_end(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--hang-abort-after", "20s", REASONS, "works_on", 1, cwd=tmp_path)

    assert (ended.code, ended.verdict["code"], ended.verdict["culprit_ranks"]) == (124, "SL315", [1]), ended.err
    assert any("thread uploader" in line for line in ended.verdict["because"])


@pytest.mark.long
def test_all_ranks_read_what_nobody_writes(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--hang-abort-after", "20s", REASONS, "all_read", 1, cwd=tmp_path)

    assert (ended.code, ended.verdict["code"], ended.verdict["culprit_ranks"]) == (124, "SL316", []), ended.err
    assert any("a FIFO that nobody has opened" in line for line in ended.verdict["because"])


@pytest.mark.long
def test_uneven_inputs_that_are_joined_are_no_hang(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 3, *QUICKLY, REASONS, "joined", 1, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert "without progress" not in ended.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("meet", r"looks again and again for arrived/10"),
        ("server", "KeyError"),
        ("directory", r"waits? in store.get\(plan\)"),
    ],
)
def test_ranks_that_wait_for_one_another_by_means_of_their_own(kind: str, says: str, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 3, "--hang-abort-after", "20s", FAULTS / "idle.py", kind, 1, cwd=tmp_path)

    assert (ended.code, ended.verdict["code"], ended.verdict["culprit_ranks"]) == (124, "SL317", [1]), ended.err
    assert any(re.search(says, line) for line in ended.verdict["because"]), ended.err


@pytest.mark.long
def test_a_hook_of_ddp_that_waits_for_what_its_own_backward_pass_holds(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 3, *QUICKLY, FAULTS / "hooked.py", 1, cwd=tmp_path)

    assert (ended.code, ended.verdict["code"], ended.verdict["culprit_ranks"]) == (124, "SL313", [1]), ended.err
    assert "waits for a lock that it holds" in ended.verdict["summary"], ended.err
