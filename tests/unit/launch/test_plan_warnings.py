"""What a launch says of its surroundings before it starts."""

from __future__ import annotations

import pytest

from safelaunch.launch.plan import without_recorder


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TORCH_FR_BUFFER_SIZE": "0"}, "TORCH_FR_BUFFER_SIZE=0"),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, "TORCH_NCCL_TRACE_BUFFER_SIZE=0"),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "TORCH_FR_BUFFER_SIZE": "2000"}, ""),
        ({"TORCH_FR_BUFFER_SIZE": "2000"}, ""),
        ({}, ""),
    ],
)
def test_a_run_without_a_recorder_says_what_will_not_be_noticed(environ: dict[str, str], said: str) -> None:
    warning = without_recorder(environ)

    assert said in warning
    assert bool(said) == ("will not be noticed" in warning)
