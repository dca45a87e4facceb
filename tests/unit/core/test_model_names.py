"""The model is loaded piece by piece, and each of its names can be had."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness import REPOSITORY

from safelaunch import model


@pytest.mark.parametrize("name", model.__all__)
def test_each_name_can_be_had(name: str) -> None:
    assert getattr(model, name) is not None


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'dataclass'"):
        model.dataclass  # noqa: B018


def test_who_wants_a_finding_does_not_load_what_a_diagnosis_is_made_of() -> None:
    program = "import sys; from safelaunch.model import Finding; sys.exit('safelaunch.model.evidence' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False).returncode == 0
