from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "rigs"))

import fake_nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a libnvidia-ml.so.1 with eight GPUs, for LD_LIBRARY_PATH."""
    folder = fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("no C compiler")
    return str(folder)
