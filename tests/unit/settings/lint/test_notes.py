"""Each setting of the notes that circulate about NCCL, and the verdict that facts give: one row for each."""

from __future__ import annotations

import pytest
from lint_scenes import TORCH_CPU, findings, only, told

from safelaunch.settings.lint.installed import Installed

SEARCH = {"debugging": True}
RUN: dict[str, bool] = {}

# Settings, the kind of run, and what is found: code and severity. What is valid has at most a note.
VERDICTS = [
    ("TORCH_NCCL_DEBUG=1", RUN, [("SL211", "warning")]),
    ("NCCL_DEBUG=INFO", RUN, []),
    ("NCCL_DEBUG=info", RUN, []),
    ("NCCL_DEBUG=VERBOSE", RUN, [("SL213", "warning")]),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE=67108864", RUN, [("SL218", "error")]),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE=67108864", SEARCH, [("SL218", "error")]),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE=lots", RUN, [("SL218", "error")]),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE=4294967296", RUN, [("SL218", "error")]),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", RUN, [("SL214", "note")]),
    ("NCCL_ASYNC_ERROR_HANDLING=1", RUN, [("SL214", "warning")]),
    ("NCCL_TIMEOUT=3600", RUN, [("SL211", "warning")]),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL", SEARCH, []),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL", RUN, [("SL216", "warning")]),
    ("NCCL_DEBUG_SUBSYS=ALL", RUN, [("SL215", "warning")]),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL", SEARCH, [("SL213", "note")]),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL", RUN, [("SL213", "note")]),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL,INIT,NET", SEARCH, []),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL,INIT,NET", RUN, [("SL216", "note")]),
    ("NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=COLL,INIT,NET", RUN, [("SL215", "warning")]),
    ("NCCL_SOCKET_IFNAME=^docker0,lo", RUN, [("SL213", "note")]),
    ("NCCL_IB_DISABLE=0", RUN, []),
    ("NCCL_IB_TIMEOUT=1000", RUN, [("SL213", "error")]),
    ("NCCL_IB_TIMEOUT=22", RUN, []),
    ("NCCL_BLOCKING_WAIT=1 NCCL_ASYNC_ERROR_HANDLING=1", RUN, [("SL215", "error")]),
    ("CUDA_MEMORY_FRACTION=0.9", RUN, [("SL211", "warning")]),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", RUN, []),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:10", RUN, [("SL213", "error")]),
    ("NCCL_P2P_DISABLE=1", SEARCH, []),
    ("NCCL_P2P_DISABLE=1", RUN, [("SL216", "note")]),
    ("NCCL_P2P_DISABLE=true", RUN, [("SL213", "error")]),
    ("NCCL_P2P_DISABLE=2", RUN, [("SL213", "error")]),
    ("TORCH_SHOW_CPP_STACKTRACES=1", RUN, [("SL215", "note")]),
    ("TORCH_SHOW_CPP_STACKTRACES=true", RUN, [("SL213", "warning")]),
    ("TORCH_DISTRIBUTED_DEBUG=DETAIL", RUN, [("SL216", "warning")]),
    ("TORCH_DISTRIBUTED_DEBUG=DETAIL", SEARCH, []),
    ("TORCH_DISTRIBUTED_DEBUG=INFO", RUN, []),
    ("TORCH_DISTRIBUTED_DEBUG=VERBOSE", RUN, [("SL213", "error")]),
    # Also inert or wrong.
    ("TORCH_USE_CUDA_DSA=1", RUN, [("SL211", "warning")]),
    ("TORCH_NCCL_P2P_DISABLE=1", RUN, [("SL211", "warning")]),
    ("NCCL_ABORT_ON_ERROR=1", RUN, [("SL211", "warning")]),
    ("NCCL_MIN_CHANNELS=4", RUN, [("SL211", "warning")]),
    # Parser traps.
    ("NCCL_IB_DISABLE=true", RUN, [("SL213", "error")]),
    ("NCCL_BUFFSIZE=4M", RUN, [("SL213", "error")]),
    ("NCCL_MIN_CTAS=010", RUN, [("SL213", "error")]),
    ("NCCL_P2P_LEVEL=nvl", RUN, [("SL213", "warning")]),
    ("GLOO_SOCKET_IFNAME=^docker0", RUN, [("SL213", "error")]),
    ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true", RUN, [("SL213", "error")]),
    ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True", RUN, [("SL213", "error")]),
    ("TORCH_CPP_LOG_LEVEL=WARN", RUN, [("SL213", "warning")]),
]


@pytest.mark.parametrize(("settings", "run", "verdict"), VERDICTS)
def test_the_verdict(settings: str, run: dict[str, bool], verdict: list[tuple[str, str]]) -> None:
    assert told(*settings.split(), **run) == verdict


@pytest.mark.parametrize("installed", [TORCH_CPU, Installed()], ids=["no CUDA here", "nothing here"])
@pytest.mark.parametrize(
    ("settings", "run", "verdict"), [row for row in VERDICTS if "DETAIL" not in row[0]], ids=lambda part: str(part)
)
def test_the_verdict_does_not_need_nccl_here(
    settings: str, run: dict[str, bool], verdict: list[tuple[str, str]], installed: Installed
) -> None:
    assert told(*settings.split(), installed=installed, **run) == verdict


def test_detail_crashes_where_the_backend_is_gloo() -> None:
    assert told("TORCH_DISTRIBUTED_DEBUG=DETAIL", installed=TORCH_CPU) == [("SL216", "warning")], "it may run elsewhere"
    assert told("TORCH_DISTRIBUTED_DEBUG=DETAIL", backend="gloo", debugging=True) == [("SL218", "error")]
    assert "segmentation fault" in only("TORCH_DISTRIBUTED_DEBUG=DETAIL", backend="gloo").because[0]


def test_the_arithmetic_of_the_recorder() -> None:
    found = only("TORCH_NCCL_TRACE_BUFFER_SIZE=67108864")

    assert "entries, not bytes: 67 GB" in found.summary
    assert any("10 GB and takes 41 min, and torch waits 15 s" in line for line in found.because)
    assert "TORCH_FR_BUFFER_SIZE=2000" in found.remedy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("NCCL_TIMEOUT=3600", ("unless your script does", "init_process_group(timeout=...)", "[timeouts]")),
        ("TORCH_NCCL_DEBUG=1", ("TORCH_CPP_LOG_LEVEL", "NCCL_DEBUG")),
        ("CUDA_MEMORY_FRACTION=0.9", ("per_process_memory_fraction:0.9",)),
        ("NCCL_ASYNC_ERROR_HANDLING=1", ("the new name wins", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1")),
        ("NCCL_IB_TIMEOUT=1000", ("1 to 31", "no timeout at all")),
        ("NCCL_SOCKET_IFNAME=^docker0,lo", ("begins with docker0 or lo", "ib* first", "virbr*")),
        ("NCCL_BUFFSIZE=4M", ("is read as 4", "NCCL_BUFFSIZE=4194304")),
        ("NCCL_MIN_CTAS=010", ("is read as octal: 8", "NCCL_MIN_CTAS=10")),
        ("NCCL_IB_DISABLE=true", ("is read as 0", "NCCL_IB_DISABLE=1")),
        ("NCCL_P2P_LEVEL=nvl", ("upper case", "NCCL_P2P_LEVEL=NVL")),
        ("TORCH_CPP_LOG_LEVEL=WARN", ("write WARNING",)),
        ("NCCL_BLOCKING_WAIT=1 NCCL_ASYNC_ERROR_HANDLING=1", ("there is no watchdog", "unset the blocking wait")),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True", ("expandable_segments:True",)),
    ],
)
def test_what_the_verdict_says(settings: str, words: tuple[str, ...]) -> None:
    found = only(*settings.split())
    text = "\n".join([found.summary, *found.because, found.remedy])
    assert [word for word in words if word not in text] == []


def test_everything_says_why_where_and_what_to_do() -> None:
    for settings, run, _ in VERDICTS:
        for found in findings(*settings.split(), **run):
            assert found.because
            assert found.remedy
            assert found.where == "job.sh:1"
            assert settings.split()[-1].partition("=")[0] in found.summary
