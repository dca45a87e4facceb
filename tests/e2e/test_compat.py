"""Some of the programs of `benchmarks/compat`: what they do under torchrun, they do after a warm start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import catalogue
import pytest
import run

# torch 2.13's own abort now and then as it takes a reducer down ("terminate called without an active exception"), under
# torchrun and here alike: a run with it says nothing of the other one.
OF_TORCH = "an active exception"

PROGRAMS = [program for program in catalogue.programs() if program.ci]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Path]:
    """Not a folder of pytest's: sockets lie below it, and a path of theirs may have 108 characters."""
    with tempfile.TemporaryDirectory(prefix="compat-") as folder:
        yield Path(folder)


@pytest.mark.timeout(300)  # each starts up to nine Pythons that import torch
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_does_what_it_does_under_torchrun(program: catalogue.Program, sandbox: Path) -> None:
    def compared() -> run.Result:
        return run.run(program, ["torchrun", "warm"], catalogue.known_differences(), sandbox)

    result = compared()
    if any(OF_TORCH in line for difference in result.unexplained for line in difference.lines):
        result = compared()

    assert not result.skipped
    assert not result.unexplained
