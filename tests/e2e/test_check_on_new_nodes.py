"""`--preflight auto`: a new node is checked in full, a known one is not, and a suspect one is again."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import FAULTS, Ended, launch

HEALTHY = FAULTS / "healthy.py"
IN_FULL = "safelaunch: preflight: all checks ("


def once(tmp_path: Path, *options: object, **changes: str | None) -> Ended:
    changes = {"XDG_CACHE_HOME": str(tmp_path / "cache"), **changes}
    return launch("--nproc-per-node", 2, *options, HEALTHY, "steps", 0, cwd=tmp_path, **changes)


def checked(ended: Ended) -> set[str]:
    return {finding["check"] for finding in ended.read("result.json")["findings"]}


def test_the_first_run_on_a_node_checks_it_in_full_and_the_second_does_not(tmp_path: Path) -> None:
    first = once(tmp_path)
    assert first.code == 0, first.err
    assert IN_FULL + "this node has no full pass on record)" in first.err
    assert "collective" in checked(first)

    second = once(tmp_path)
    assert "slow check" in second.err
    assert "left out, passed " in second.err
    assert "collective" not in checked(second)


@pytest.mark.long
def test_a_run_that_was_refused_has_the_next_one_checked_in_full(tmp_path: Path) -> None:
    once(tmp_path)
    profile = tmp_path / "roomy.toml"
    profile.write_text('[preflight]\nmin_shm = "8000GiB"\n[preflight.severity]\nSL104 = "error"\n')
    refused = once(tmp_path, "--profile", profile)
    assert refused.code == 69
    again = once(tmp_path)
    assert IN_FULL + "the last run on this node ended with SL104)" in again.err
    assert IN_FULL not in once(tmp_path).err


@pytest.mark.long
def test_a_crash_of_the_program_casts_no_doubt_on_the_node(tmp_path: Path) -> None:
    once(tmp_path)
    crashed = launch(
        *("--nproc-per-node", 2, FAULTS / "broken.py"), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert crashed.code == 1
    assert IN_FULL not in once(tmp_path).err


@pytest.mark.long
def test_a_profile_says_for_how_long_a_pass_counts(tmp_path: Path) -> None:
    profile = tmp_path / "always.toml"
    profile.write_text('[preflight]\nfull_every = "1ms"\n')
    once(tmp_path)
    assert IN_FULL + "the last full pass is too old)" in once(tmp_path, "--profile", profile).err


@pytest.mark.long
def test_without_a_home_it_is_checked_in_full_and_runs(tmp_path: Path) -> None:
    ended = once(tmp_path, HOME=None, XDG_CACHE_HOME=None)
    assert ended.code == 0
    assert "no record can be kept: there is neither HOME nor XDG_CACHE_HOME" in ended.err
