"""The start banner is one screen, and its columns are those that say something."""

from __future__ import annotations

from safelaunch.model import Place
from safelaunch.report.banner import Banner, lines, table, wrapped

FIELDS = tuple((name, f"{name} text") for name in ("world", "run", "versions", "versions", "timeouts", "limits"))


def with_gpus(count: int) -> tuple[Place, ...]:
    return tuple(
        Place(n, "node-a", n, 1, n, f"GPU-8f2b{n:04d}-aaaa-bbbb-cccc-0123456789ab", f"0000:{n:02x}:00.0", 0, "0-31")
        for n in range(count)
    )


def test_eight_ranks_are_one_screen() -> None:
    shown = lines(Banner(0, FIELDS * 2, with_gpus(8)))

    assert len(shown) <= 24
    assert shown[0] == "safelaunch: 8 ranks started"
    assert max(map(len, shown)) <= 120
    assert "GPU-8f2b0007-aaaa-bbbb-cccc-0123456789ab  0000:07:00.0  0     0-31" in shown[-1]


def test_a_name_stands_once() -> None:
    shown = lines(Banner(2, FIELDS, ()))

    assert shown[0] == "safelaunch: 0 ranks started again (attempt 2)"
    assert [line.split()[0] for line in shown[1:]] == ["world", "run", "versions", "versions", "timeouts", "limits"]
    assert shown[4].startswith("               versions text")


def test_many_ranks_are_folded() -> None:
    shown = table(with_gpus(64))

    assert len(shown) == 9
    assert shown[-1] == "  ... and 57 more ranks, all in run.json"


def test_a_job_on_cpus_has_no_columns_of_gpus() -> None:
    shown = table([Place(n, "node-a", n, 4100 + n, cpus="0-3") for n in range(2)])

    assert [line.split() for line in shown] == [
        ["rank", "host", "local", "rank", "CPUs"],
        ["0", "node-a", "0", "0-3"],
        ["1", "node-a", "1", "0-3"],
    ]


def test_what_is_not_known_says_so() -> None:
    known = Place(0, "a", 0, 1, 0, unknown="NVML was not asked")
    none = Place(1, "a", 1, 2, unknown="no GPU: 1 visible")
    mixed = Place(2, "a", 2, 3, unknown="MIG instances")
    shown = table([known, none, mixed])

    assert shown[1].split() == ["0", "a", "0", "0", "?", "?", "?"]
    assert "no GPU: 1 visible" in shown[2]
    assert "unknown: MIG instances" in shown[3]


def test_long_lists_are_wrapped_and_cut() -> None:
    assert wrapped(["a" * 60, "b" * 60, "c"]) == ["a" * 60 + ",", "b" * 60 + ", c"]
    scattered = Place(0, "a", 0, 1, cpus=",".join(str(2 * cpu) for cpu in range(40)))
    assert table([scattered])[1].endswith(",...")
