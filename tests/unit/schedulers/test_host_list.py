"""Slurm's short form of host names."""

from __future__ import annotations

import pytest

from safelaunch.schedulers.host_list import MOST, spelled_out


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ("login",)),
        ("a,b", ("a", "b")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("gpu[08-11,20],login", ("gpu08", "gpu09", "gpu10", "gpu11", "gpu20", "login")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("rack[1]-node[7,3].cluster", ("rack1-node7.cluster", "rack1-node3.cluster")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
    ],
)
def test_names_are_spelled_out_in_their_order(text: str, names: tuple[str, ...]) -> None:
    assert spelled_out(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n[a-b]",
        "n[3-1]",
        "n[1-99999999]",
        f"n[0-{MOST}]",
        "a[0-999]b[0-999]c[0-999]",
        "a[" + "0-65535," * 150 + "1]",
    ],
)
def test_what_is_no_list_of_a_job_gives_no_names(text: str) -> None:
    assert spelled_out(text) == ()
