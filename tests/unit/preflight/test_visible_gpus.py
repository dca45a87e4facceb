from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.preflight.machine.visible import visible_gpus

UUIDS = ("GPU-aaaa-1", "GPU-aaab-2", "GPU-bbbb-3")


@pytest.mark.parametrize(
    ("setting", "visible"),
    [
        (None, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("", ()),
        ("2,5,2", ()),
        ("0,9,1", (0,)),
        ("1gpu2,2ampere", (1, 2)),
        ("3,1", (3, 1)),
        ("-1", ()),
        ("0,-1,1", (0,)),
        (" 1 , 2", (1, 2)),
        ("none", ()),
        ("MIG-1234", None),
    ],
)
def test_numbers(setting: str | None, visible: tuple[int, ...] | None) -> None:
    environ = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert visible_gpus(environ, [f"GPU-{i}" for i in range(8)]) == visible


@pytest.mark.parametrize(
    ("setting", "visible"),
    [
        ("GPU-bbbb-3,GPU-aaaa-1", (2, 0)),
        ("GPU-b", (2,)),
        ("GPU-aaa", ()),  # ambiguous
        ("GPU-bbbb-3,GPU-b", ()),  # one GPU twice
        ("GPU-bbbb-3,1", (2,)),
        ("GPU-cccc,GPU-bbbb-3", ()),
    ],
)
def test_uuids(setting: str, visible: tuple[int, ...]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": setting}, UUIDS) == visible


ENTRY = st.one_of(
    st.integers(-2, 5).map(str),
    st.sampled_from(["", "GPU-a", "GPU-aaaa", "GPU-aaaa-1", "GPU-aaab", "GPU-b", "GPU-", "1x", "+2", " 0", "x", "00"]),
)


@settings(deadline=None)  # the first example imports torch
@given(st.lists(ENTRY, max_size=5).map(",".join))
def test_agrees_with_torch_on_any_setting(setting: str) -> None:
    from torch import cuda

    with (
        mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": setting}),
        mock.patch.object(cuda, "_raw_device_count_nvml", return_value=len(UUIDS)),
        mock.patch.object(cuda, "_raw_device_uuid_nvml", return_value=list(UUIDS)),
    ):
        expected = cuda._device_count_nvml()
    visible = visible_gpus({"CUDA_VISIBLE_DEVICES": setting}, UUIDS)
    assert visible is not None
    assert len(visible) == expected
