"""Some of the programs of `benchmarks/compat`: what torchrun does with them, a warm start does."""

from __future__ import annotations

from pathlib import Path

import catalogue
import pytest
import run

PROGRAMS = [program for program in catalogue.programs() if program.ci]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_does_what_it_does_under_torchrun(program: catalogue.Program, tmp_path: Path) -> None:
    result = run.run(program, ["torchrun", "warm"], catalogue.known_differences(), tmp_path)

    assert not result.skipped
    assert not result.unexplained
