from __future__ import annotations

import fake_nvml
import pytest


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a libnvidia-ml.so.1 with eight GPUs, for LD_LIBRARY_PATH."""
    folder = fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("no C compiler")
    return str(folder)
