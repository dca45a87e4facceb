"""SL210, SL211, SL212 and SL214: names that nothing reads, and old ones."""

from __future__ import annotations

import pytest
from lint_scenes import TORCH_CPU, cuda, findings, only, setting, told

from safelaunch.settings.lint.installed import Installed, Library

HELD = frozenset({"NCCL_DEBUG", "NCCL_BRAND_NEW", "TORCH_NCCL_BRAND_NEW", "TORCH_FR_BUFFER_SIZE", "NCCL_RINGS"})


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLNG", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("CUDA_VISIBLE_DEVCES", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(slip: str, meant: str) -> None:
    found = only(f"{slip}=1")
    assert (found.code, found.severity) == ("SL210", "warning")
    assert found.remedy == f"did you mean {meant}?"


def test_what_is_too_far_is_not_meant() -> None:
    assert "NCCL_IB_TC" not in only("NCCL_IB_MTU=4096").remedy


def test_an_unknown_name_in_a_namespace_that_is_known_whole() -> None:
    assert told("NCCL_FROBNICATE=1") == [("SL210", "warning")]
    assert "`known` in [lint]" in only("NCCL_FROBNICATE=1").remedy


@pytest.mark.parametrize(
    "name",
    ["NCCL_FASTRAK_LLCM", "UCX_TLS", "NVSHMEM_HCA", "RCCL_DEBUG", "HCCL_SOCKET_IFNAME", "CCL_DEBUG", "TORCH_HOME"]
    + [
        "NCCL_ENABLE_DMABUF_SUPPORT",
        "NCCL_NCHANNELS_PER_PEER",
        "NCCL_TESTS_HOME",
        "NCCL_NET_PLUGIN_HOME",
        "NCCL_OFI_VERSION",
        "PYTORCH_HOME",
    ]
    + ["CUDA_MY_OWN_THING", "PYTORCH_MY_SWITCH", "WANDB_MODE", "PATH", "nccl_debug"],
)
def test_names_of_others_are_left_alone(name: str) -> None:
    assert told(f"{name}=1") == []


def test_what_the_installed_libraries_hold_is_known() -> None:
    assert told("NCCL_BRAND_NEW=1", "TORCH_NCCL_BRAND_NEW=1", installed=cuda(names=HELD)) == []


def test_what_the_script_or_the_user_knows_is_known() -> None:
    assert told("NCCL_TIMEOUT=1", "NCCL_MINE=1", read_by_script=frozenset({"NCCL_TIMEOUT", "NCCL_MINE"})) == []
    assert told("NCCL_TIMEOUT=1", "NCCL_MINE=1", known=frozenset({"NCCL_TIMEOUT", "NCCL_MINE"})) == []


def test_a_name_that_nothing_reads_gets_no_second_finding_about_its_value() -> None:
    assert told("NCCL_TIMEOUT=soon") == [("SL211", "warning")]
    assert told('NCCL_DEUBG="yes"') == [("SL210", "warning")]


def test_a_name_that_circulates_and_is_held_after_all() -> None:
    assert told("NCCL_TIMEOUT=1", installed=cuda(names=HELD | {"NCCL_TIMEOUT"})) == []


# ------------------------------------------------------------------------------------------- this version


def test_a_variable_that_is_gone() -> None:
    found = only("NCCL_WORK_FIFO_DEPTH=1024")
    assert (found.code, found.severity) == ("SL212", "warning")
    assert "gone since NCCL 2.22.3, and NCCL 2.29.7 is installed" in found.because[0]
    assert found.remedy == "use NCCL_WORK_FIFO_BYTES"


def test_a_variable_that_is_still_to_come() -> None:
    found = only("NCCL_DEBUG_LEVELS=INFO")
    assert found.code == "SL212"
    assert "NCCL reads it from 2.31 on" in found.because[0]


def test_an_older_torch_is_sent_to_the_older_name() -> None:
    found = only("TORCH_FR_BUFFER_SIZE=2000", installed=cuda(torch="2.7.1"))
    assert (found.code, found.remedy) == ("SL212", "write TORCH_NCCL_TRACE_BUFFER_SIZE, its older name")


def test_the_library_counts_more_than_its_version() -> None:
    assert told("NCCL_RINGS=0", installed=cuda(names=HELD)) == []


def test_a_name_that_the_library_does_not_have() -> None:
    found = only("NCCL_IB_SL=1", installed=cuda(names=HELD))
    assert found.code == "SL212"
    assert "libnccl.so.2 does not have the name in it" in found.because[0]


def test_no_verdict_where_the_scan_proves_nothing() -> None:
    # Short names of torch may be code instead of text; a plugin's names are in the plugin.
    assert told("USE_LIBUV=1", "NCCL_INSPECTOR_ENABLE=1", installed=cuda(names=HELD)) == []
    assert told("NCCL_IB_SL=1", "TORCH_NCCL_NAN_CHECK=0", installed=TORCH_CPU) == []


def test_without_versions_nothing_is_gone() -> None:
    assert told("NCCL_WORK_FIFO_DEPTH=1024", installed=TORCH_CPU) == []


NCCL2 = cuda(
    torch="2.15.0",
    names=HELD
    | {"TORCH_DIST_USE_NCCL2", "TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_DUMP_ON_TIMEOUT"},
)


def test_what_the_backend_in_use_does_not_read() -> None:
    found = only("TORCH_NCCL_NAN_CHECK=1", installed=NCCL2)
    assert (found.code, found.severity) == ("SL212", "warning")
    assert "only the old NCCL backend reads it" in found.summary
    assert "TORCH_DIST_USE_NCCL2=0" in found.remedy


def test_each_backend_has_its_variables() -> None:
    assert told("TORCH_NCCL_PROPAGATE_ERROR=1", "TORCH_DIST_USE_NCCL2=0", installed=NCCL2) == []
    assert told("TORCH_NCCL_DUMP_ON_TIMEOUT=1", installed=NCCL2) == []
    assert told("TORCH_NCCL_PROPAGATE_ERROR=1", installed=cuda(names=HELD | {"TORCH_NCCL_PROPAGATE_ERROR"})) == []


def test_a_local_version_is_a_version() -> None:
    assert told("TORCH_FR_BUFFER_SIZE=2000", installed=cuda(torch="2.8.0a0+git1234")) == []


@pytest.mark.parametrize(
    "name",
    ["NCCL_LL_THRESHOLD", "NCCL_TREE_THRESHOLD", "NCCL_IB_CUDA_SUPPORT", "NCCL_CHECKS_DISABLE"]
    + ["NCCL_SINGLE_RING_THRESHOLD"],
)
def test_what_is_gone_for_long_is_told_where_there_is_no_nccl_to_ask(name: str) -> None:
    assert told(f"{name}=1", installed=TORCH_CPU) == [("SL212", "warning")]
    assert told(f"{name}=1", installed=Installed()) == [("SL212", "warning")]
    assert told(f"{name}=1", installed=Installed(Library("2.9.0", "/torch", other_gpu=True))) == [("SL212", "note")]
    assert told(f"{name}=1", installed=TORCH_CPU, known=frozenset({name})) == []
    assert told(f"{name}=1") == [("SL212", "warning")]


# --------------------------------------------------------------------------------------------- old names


def test_an_old_name_is_a_note() -> None:
    found = only("TORCH_NCCL_TRACE_CPP_STACK=0")
    assert (found.code, found.severity, found.remedy) == ("SL214", "note", "use TORCH_FR_CPP_STACK")
    assert found.summary.endswith("is deprecated since torch 2.8")


def test_an_old_torch_knows_only_the_old_name() -> None:
    assert told("NCCL_DESYNC_DEBUG=0", installed=cuda(torch="2.1.0")) == []
    assert told("TORCH_NCCL_TRACE_CPP_STACK=0", installed=cuda(torch="2.7.0")) == []


def test_the_dump_wants_the_old_name_before_torch_2_11() -> None:
    assert told("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", installed=cuda(torch="2.9.1")) == []
    assert told("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "TORCH_FR_BUFFER_SIZE=2000") == []


@pytest.mark.parametrize("name", ["RDMAV_FORK_SAFE", "FI_EFA_FORK_SAFE"])
def test_what_is_deprecated_on_aws_only(name: str) -> None:
    assert told(f"{name}=1", "NCCL_NET=AWS Libfabric", debugging=True) == [("SL214", "note")]
    assert told("RDMAV_FORK_SAFE=1") == []


def test_one_value_only_is_deprecated() -> None:
    assert told("NCCL_LAUNCH_MODE=PARALLEL") == []
    assert told("NCCL_LAUNCH_MODE=GROUP") == [("SL214", "note")]


def test_a_bad_value_under_an_old_name_is_one_finding() -> None:
    assert told("NCCL_DESYNC_DEBUG=maybe") == [("SL213", "error")]


def test_secrets_and_long_values_are_not_shown() -> None:
    assert "hunter2" not in findings("NCCL_API_KEY=hunter2")[0].summary
    assert len(only("NCCL_FROBNICATE=" + "x" * 500).summary) < 200


def test_a_value_that_cannot_be_told_is_named_without_it() -> None:
    assert only(setting("NCCL_TIMEOUT")).summary.startswith("NCCL_TIMEOUT does nothing")


def test_a_deprecation_is_not_told_to_versions_from_before_it() -> None:
    found = only("TORCH_NCCL_AVOID_RECORD_STREAMS=1")
    assert (found.code, found.severity) == ("SL214", "note")
    assert "is deprecated since torch 2.8" in found.summary
    assert told("TORCH_NCCL_AVOID_RECORD_STREAMS=1", installed=cuda(torch="2.7.1")) == []


def test_a_deprecation_can_be_understood() -> None:
    group = only("NCCL_LAUNCH_MODE=GROUP")
    assert group.summary == "NCCL_LAUNCH_MODE=GROUP is deprecated since NCCL 2.9"
    assert group.remedy == "unset it; PARALLEL is the default"
    nested = only("OMP_NESTED=1")
    assert nested.summary.endswith("is deprecated since OpenMP 5.0")
    assert nested.remedy == "use OMP_MAX_ACTIVE_LEVELS"


@pytest.mark.parametrize("names", [None, frozenset({"PYTORCH_ALLOC_CONF"})], ids=["not read", "in a header"])
def test_an_older_torch_knows_the_allocator_by_its_older_name(names: frozenset[str] | None) -> None:
    found = only("PYTORCH_ALLOC_CONF=expandable_segments:True", installed=cuda(torch="2.9.1", names=names))
    assert (found.code, found.remedy) == ("SL212", "write PYTORCH_CUDA_ALLOC_CONF, its older name")
    assert told("PYTORCH_ALLOC_CONF=expandable_segments:True", installed=cuda(torch="2.10.0", names=names)) == []


def test_a_timeout_that_is_none() -> None:
    found = only(dead_timeouts=("train.py:7",))
    assert (found.code, found.severity, found.where) == ("SL211", "warning", "train.py:7")
    assert "_DEFAULT_PG_TIMEOUT" in found.summary
    assert "[timeouts]" in found.remedy
