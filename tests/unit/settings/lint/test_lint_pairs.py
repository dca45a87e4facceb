"""SL215: settings that contradict one another; a row for each combination, and what keeps it quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_scenes import TORCH_CPU, context, cuda, findings, setting

from safelaunch.settings.lint import nccl_conf
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge.contradictions import PAIRS
from safelaunch.settings.lint.pairs import conflicting_variables


def pairs(*texts: str, installed: Installed | None = None) -> list[str]:
    return [found.severity for found in conflicting_variables(context(*texts, installed=installed))]


HOLDS = [
    ("TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "error"),
    ("NCCL_BLOCKING_WAIT=1 NCCL_ASYNC_ERROR_HANDLING=1", "error"),
    ("TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_DUMP_ON_TIMEOUT=1", "error"),
    ("TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/pipe", "error"),
    ("TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=0", "error"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_BUFFER_SIZE=0", "error"),
    ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTORCH_ALLOC_CONF=max_split_size_mb:64", "error"),
    ("PYTORCH_CUDA_ALLOC_CONF= PYTORCH_ALLOC_CONF=max_split_size_mb:64", "error"),
    ("PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync,max_split_size_mb:64", "warning"),
    ("NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=NVL", "warning"),
    ("NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1", "warning"),
    ("NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0 NCCL_IB_TC=106", "warning"),
    ("NCCL_IB_DISABLE=1 NCCL_NET=IB", "error"),
    ("NCCL_NET=Socket NCCL_IB_HCA=mlx5_0", "warning"),
    ("NCCL_NET=Socket NCCL_NET_GDR_LEVEL=PHB", "warning"),
    ("NCCL_DEBUG_SUBSYS=NET", "warning"),
    ("NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=NET", "warning"),
    ("NCCL_DEBUG_FILE=/tmp/nccl.%h.%p", "warning"),
    ("NCCL_SOCKET_NTHREADS=16 NCCL_NSOCKS_PERTHREAD=8", "warning"),
    ("NCCL_MIN_CTAS=32 NCCL_MAX_CTAS=16", "warning"),
    ("NCCL_MIN_NCHANNELS=32 NCCL_MAX_NCHANNELS=16", "warning"),
    ("NCCL_MAX_NCHANNELS=8 NCCL_MAX_CTAS=16", "warning"),
    ("NCCL_CUMEM_ENABLE=0 NCCL_MNNVL_ENABLE=1", "error"),
    ("NCCL_COMM_BLOCKING=0", "warning"),
    ("NCCL_ALGO=Ring NCCL_NET_PLUGIN=libnccl-net-ofi.so", "warning"),
    ("NCCL_PROTO=simple FI_PROVIDER=efa", "warning"),
    ("NCCL_OOB_NET_IFNAME=eth0", "warning"),
    ("CUDA_DEVICE_MAX_CONNECTIONS=1 ACCELERATE_USE_FSDP=true", "warning"),
    ("TORCH_SHOW_CPP_STACKTRACES=1", "note"),
    ("CUDA_COREDUMP_PIPE=/tmp/pipe.%h.%p", "warning"),
    ("TORCH_NCCL_NAN_CHECK=0 NCCL_DESYNC_DEBUG=1 TORCH_NCCL_DESYNC_DEBUG=0", "warning"),
    ("NCCL_SHM_DISABLE=1 NCCL_P2P_LEVEL=LOC", "warning"),
    ("NCCL_ALGO=NVLS,Ring NCCL_NVLS_ENABLE=0", "warning"),
    ("NCCL_ALGO=allreduce:nvlstree;broadcast:ring NCCL_NVLS_ENABLE=0", "warning"),
    ("NCCL_ALGO=CollNetDirect NCCL_COLLNET_ENABLE=0", "warning"),
    ("TORCH_NCCL_ENABLE_MONITORING=0 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200", "warning"),
    ("TORCH_FR_DUMP_TEMP_FILE=/a/x_ TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/b/x_", "warning"),
]

QUIET = [
    "TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
    "TORCH_NCCL_BLOCKING_WAIT=0 TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=$HANDLING",
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000",
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=$SIZE",
    "TORCH_NCCL_DUMP_ON_TIMEOUT=0 TORCH_FR_BUFFER_SIZE=0",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/pipe",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTORCH_ALLOC_CONF=expandable_segments:True",
    "PYTORCH_CUDA_ALLOC_CONF=backend:native,max_split_size_mb:64",
    "NCCL_P2P_DISABLE=0 NCCL_P2P_LEVEL=NVL",
    "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=0",
    "NCCL_P2P_LEVEL=NVL NCCL_SHM_DISABLE=1",
    "NCCL_ALGO=^NVLS NCCL_NVLS_ENABLE=0",
    "NCCL_ALGO=Ring,Tree NCCL_NVLS_ENABLE=0 NCCL_COLLNET_ENABLE=0",
    "TORCH_NCCL_ENABLE_MONITORING=1 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200",
    "NCCL_IB_DISABLE=0 NCCL_IB_HCA=mlx5_0",
    "NCCL_IB_DISABLE=1 NCCL_IB_HCA=mlx5_0 NCCL_NET_PLUGIN=libnccl-net-x.so",
    "NCCL_NET=IB NCCL_IB_HCA=mlx5_0",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET",
    "NCCL_DEBUG=$LEVEL NCCL_DEBUG_SUBSYS=NET",
    "NCCL_DEBUG=WARN NCCL_DEBUG_FILE=/tmp/nccl.%h.%p",
    "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4",
    "NCCL_MIN_CTAS=16 NCCL_MAX_CTAS=16",
    "NCCL_MIN_NCHANNELS=8 NCCL_MAX_CTAS=16",
    "NCCL_COMM_BLOCKING=0 TORCH_NCCL_USE_COMM_NONBLOCKING=1",
    "NCCL_ALGO=Ring",
    "NCCL_OOB_NET_IFNAME=eth0 NCCL_OOB_NET_ENABLE=1",
    "CUDA_DEVICE_MAX_CONNECTIONS=1",
    "TORCH_SHOW_CPP_STACKTRACES=1 TORCH_DISABLE_ADDR2LINE=1",
    "CUDA_COREDUMP_PIPE=/tmp/pipe CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
    "NCCL_DESYNC_DEBUG=1 TORCH_NCCL_DESYNC_DEBUG=1",
]


@pytest.mark.parametrize(("settings", "severity"), HOLDS)
def test_a_pair_is_told_once(settings: str, severity: str) -> None:
    assert pairs(*settings.split()) == [severity]


@pytest.mark.parametrize("settings", QUIET)
def test_what_goes_together(settings: str) -> None:
    assert pairs(*settings.split()) == []


@pytest.mark.parametrize(
    ("settings", "installed", "severity"),
    [
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/pipe", cuda(torch="2.9.0"), ["error"]),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/pipe TORCH_NCCL_TRACE_BUFFER_SIZE=2000", cuda(torch="2.9.0"), []),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/pipe", Installed(), []),
        ("NCCL_GRAPH_STREAM_ORDERING=0 NCCL_GRAPH_MIXING_SUPPORT=1", cuda(nccl="2.30.7"), ["error"]),
        ("NCCL_GRAPH_STREAM_ORDERING=0 NCCL_GRAPH_MIXING_SUPPORT=0", cuda(nccl="2.30.7"), []),
        ("NCCL_GRAPH_STREAM_ORDERING=0 NCCL_GRAPH_MIXING_SUPPORT=1", cuda(nccl="2.27.3"), []),  # not read there: SL212
        ("NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=1", cuda(nccl="2.30.7"), ["error"]),
        (
            "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            cuda(torch="2.2.2"),
            ["warning"],
        ),
        (
            "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            TORCH_CPU,
            [],
        ),
    ],
)
def test_what_depends_on_the_version(settings: str, installed: Installed, severity: list[str]) -> None:
    assert pairs(*settings.split(), installed=installed) == severity


def test_every_pair_has_been_told_and_has_been_quiet() -> None:
    told = {
        found.summary.partition(": ")[2] for text, _ in HOLDS for found in conflicting_variables(context(*text.split()))
    }
    by_version = {
        "there will be no pipe: before",
        "NCCL does not support this",
        "communicators cannot be made",
        "this torch",
    }
    untold = [pair.says for pair in PAIRS if pair.says not in told and not pair.says.startswith(tuple(by_version))]
    assert untold == []


def test_the_message_names_all_that_is_involved_and_where_it_is() -> None:
    (found,) = conflicting_variables(
        context(
            setting("NCCL_IB_DISABLE=1", "my.toml:3"),
            setting("NCCL_IB_HCA=mlx5_0", "job.sh:7"),
            setting("NCCL_IB_TC=106", "job.sh:8"),
        )
    )
    assert found.summary.startswith("NCCL_IB_DISABLE=1 beside NCCL_IB_HCA and NCCL_IB_TC: ")
    assert found.where == "my.toml:3"
    assert {"NCCL_IB_HCA is set at job.sh:7", "NCCL_IB_TC is set at job.sh:8"} <= set(found.because)


def test_only_what_is_in_force_counts() -> None:
    assert pairs("NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=NVL", "NCCL_P2P_DISABLE=0") == []


def test_what_is_told_as_a_pair_is_not_told_again_as_old_or_slow() -> None:
    codes = [found.code for found in findings("NCCL_BLOCKING_WAIT=1", "TORCH_NCCL_DUMP_ON_TIMEOUT=1")]
    assert codes == ["SL215"]


def test_the_file_of_nccl_loses_to_the_environment() -> None:
    file = setting("NCCL_DEBUG=INFO", "/shared/nc.cfg:1", of_nccl_conf=True)
    (found,) = conflicting_variables(context(file, setting("NCCL_DEBUG=WARN", "my.toml:2", "profile")))
    assert (found.severity, found.where) == ("note", "my.toml:2")
    assert "NCCL_DEBUG=WARN wins over NCCL_DEBUG=INFO of /shared/nc.cfg:1" in found.summary
    assert list(conflicting_variables(context(file, setting("NCCL_DEBUG=INFO", "my.toml:2")))) == []
    assert list(conflicting_variables(context(file))) == []


def test_a_file_of_nccl_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "nc.cfg").write_text("NCCL_DEBUG=INFO\n")
    settings = nccl_conf.settings({"NCCL_CONF_FILE": str(tmp_path / "nc.cfg")}, "/nonexistent")
    (found,) = conflicting_variables(context(*settings, setting("NCCL_DEBUG=WARN", "the environment", "shell")))
    assert f"of {tmp_path / 'nc.cfg'}:1" in found.summary
