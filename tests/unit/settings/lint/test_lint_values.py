"""SL213: how each parser reads a value."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lint_scenes import TORCH_CPU, context, cuda, findings, only, setting, told

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.judge import alloc_conf
from safelaunch.settings.lint.judge.integers import strtoll
from safelaunch.settings.lint.judge.parsers import NAMED, PARSERS
from safelaunch.settings.lint.values import variable_value


def verdict(text: str, **more: object) -> str:
    """`error`, `warning` or `note` of SL213, or nothing."""
    return " ".join(found.severity for found in variable_value(context(text, **more)))  # type: ignore[arg-type]


FINE = [
    *("NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=false", "NCCL_IB_DISABLE=", "NCCL_IB_DISABLE=1 # why"),
    *("NCCL_BUFFSIZE=4194304", "NCCL_BUFFSIZE=0x400000", "NCCL_BUFFSIZE=8388608B", "NCCL_IB_TC=-1", "NCCL_MIN_CTAS=07"),
    *("NCCL_IB_TIMEOUT=23", "NCCL_IB_TIMEOUT=", "NCCL_CROSS_NIC=0", "NCCL_NVLS_ENABLE=0", "NCCL_CUMEM_ENABLE=-2"),
    *("TORCH_NCCL_BLOCKING_WAIT=0", "TORCH_NCCL_NAN_CHECK=No", "TORCH_NCCL_DUMP_ON_TIMEOUT=YES"),
    *("NCCL_DEBUG=", "NCCL_DEBUG=warn", "NCCL_DEBUG=VERSION"),
    *("NCCL_P2P_LEVEL=NVL", "NCCL_P2P_LEVEL=5", "NCCL_NET_GDR_LEVEL=PHB", "NCCL_SOCKET_FAMILY=AF_INET"),
    *("NCCL_ALGO=allreduce:tree;broadcast:ring", "NCCL_ALGO=Ring,Tree", "NCCL_ALGO=^tree", "NCCL_PROTO=SIMPLE"),
    *("NCCL_SOCKET_IFNAME==eth0", "NCCL_SOCKET_IFNAME=eth0,ib", "NCCL_SOCKET_IFNAME=^=eno1", "NCCL_IB_HCA=mlx5_0:1"),
    *("NCCL_SOCKET_IFNAME=", "GLOO_SOCKET_IFNAME=eth0,eth1", "GLOO_SOCKET_IFNAME=", "NCCL_NET=AWS Libfabric"),
    *("TORCH_DISTRIBUTED_DEBUG=off", "TORCH_CPP_LOG_LEVEL=1", "TORCH_CPP_LOG_LEVEL=info", "USE_LIBUV=0", "USE_LIBUV=1"),
    *("CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=0, 1"),
    *(
        "CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c",
        "CUDA_VISIBLE_DEVICES=MIG-GPU-1/2/3",
        "CUDA_VISIBLE_DEVICES=NoDevFiles",
    ),
    *("NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log", "NCCL_DEBUG_FILE=/dev/stderr", "CUDA_COREDUMP_FILE=/tmp/core.%p"),
    *("NCCL_NETDEVS_POLICY=MAX:4", "NCCL_CTA_POLICY=EFFICIENCY|ZERO", "NCCL_SET_THREAD_NAME=1", "MASTER_PORT=29500"),
    "LOGLEVEL=debug",  # guesses of the catalogue are not judged
    *("OMP_NUM_THREADS=4,2", "OMP_NUM_THREADS= 4 ", "OMP_PROC_BIND=TRUE", "OMP_PROC_BIND=spread,close"),
    *("OMP_PROC_BIND=primary", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8"),
    *("CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=32"),
    *("GLOO_DEVICE_TRANSPORT=TCP", "GLOO_DEVICE_TRANSPORT=TCP_TLS", "NCCL_SOCKET_FAMILY=AF_INET6"),
    *(
        "CUDA_VISIBLE_DEVICES=0,1,",
        "CUDA_VISIBLE_DEVICES=0,1,-1",
        "CUDA_VISIBLE_DEVICES=+1",
        "CUDA_VISIBLE_DEVICES=none",
    ),
    *("NCCL_IB_HCA=mlx5_bond_0", "NCCL_IB_HCA=^=mlx5_0", "NCCL_IB_HCA=ibp24s0", "NCCL_SOCKET_IFNAME=^mlx5_0"),
    *(
        "NCCL_SOCKET_IFNAME=bond0,enp1s0f0np0",
        "NCCL_SOCKET_IFNAME=rdma0",
        "NCCL_IB_HCA=rdmap0s6",
        "GLOO_SOCKET_IFNAME=lo",
    ),
    *("NCCL_IB_TIMEOUT=$T", "NCCL_IB_TIMEOUT={t}", "NCCL_SOCKET_IFNAME==<nic>", "NCCL_IB_TIMEOUT"),
    *("OFI_NCCL_PROTOCOL=rdma", "OFI_NCCL_MR_CACHE_DISABLE=0", "OFI_NCCL_NET_LATENCY=0.5"),
    "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8, max_split_size_mb:512,",
    "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[256:1,512:2,>:8],expandable_segments:False",
    "PYTORCH_CUDA_ALLOC_CONF=",
    "PYTORCH_ALLOC_CONF=expandable_segments:True",
]

WRONG = [
    ("NCCL_SHM_DISABLE=yes", "error", "NCCL_SHM_DISABLE=1"),
    ("NCCL_BUFFSIZE=auto", "error", "is read as 0"),
    ("NCCL_IB_TC=106x", "error", "is read as 106"),
    ("NCCL_MAX_CTAS=08", "error", "is read as octal: 0"),
    ("NCCL_BUFFSIZE=1e6", "error", "is read as 1"),
    ("NCCL_IB_TC=0.5", "error", "is read as 0"),
    ("NCCL_IB_TC=300", "error", "0 to 255"),
    ("NCCL_IB_RETRY_CNT=8", "error", "0 to 7"),
    ("NCCL_CROSS_NIC=3", "error", "0, 1, 2"),
    ("NCCL_MAX_CTAS=100", "warning", "1 to 64"),
    ("NCCL_RAS_TIMEOUT_FACTOR=0", "error", "1 or more"),
    ("NCCL_BUFFSIZE=8", "warning", "the unit is bytes"),
    ("NCCL_BUFFSIZE=99999999999999999999", "warning", "too large"),
    ("NCCL_IB_TIMEOUT=0", "warning", "no timeout at all"),
    ("NCCL_IB_TIMEOUT=22s", "warning", "is read as 22"),
    ("NCCL_IB_TIMEOUT=22m", "error", "is read as 22"),
    ("NCCL_BUFFSIZE=8388608.0", "warning", "is read as 8388608"),
    ("NCCL_BUFFSIZE=8388608.5", "error", "is read as 8388608"),
    ("TORCH_NCCL_RANKS_PER_ROOT=many", "error", "raises"),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=10m", "error", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600"),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200000", "warning", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200"),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=3000000000", "error", "32 bits"),
    ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=60", "warning", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=60000"),
    ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=30s", "error", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=30000"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING=4", "error", "0, 1, 2, 3"),
    ("TORCH_NCCL_BLOCKING_WAIT=enable", "error", "raise"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT=", "error", "TORCH_NCCL_DUMP_ON_TIMEOUT=0"),
    ("TORCH_DISABLE_ADDR2LINE=yes", "warning", "is ignored"),
    ("TORCH_DIST_INIT_BARRIER=yes", "error", "raises"),
    ("USE_LIBUV=true", "error", "counts as off"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING=0", "error", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
    ("TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK=0", "error", "any value does"),
    ("TORCH_DISTRIBUTED_DEBUG=", "error", "import torch"),
    ("NCCL_DEBUG=DEBUG", "warning", "write INFO"),
    ("NCCL_SOCKET_FAMILY=ipv4", "warning", "AF_INET"),
    ("NCCL_NET_GDR_LEVEL=phb", "warning", "NCCL_NET_GDR_LEVEL=PHB"),
    ("NCCL_ALGO=rings", "error", "fatal since NCCL 2.24"),
    ("NCCL_ALGO=Tree", "warning", "leaves out ring"),
    ("NCCL_ALGO=^ring", "warning", "leaves out ring"),
    ("NCCL_SOCKET_IFNAME=eth0,^docker", "error", "write NCCL_SOCKET_IFNAME=eth0"),
    ("NCCL_SOCKET_IFNAME=^docker0,^lo", "error", "write NCCL_SOCKET_IFNAME=^docker0,lo"),
    ("NCCL_SOCKET_IFNAME=^=docker0,^=lo", "error", "write NCCL_SOCKET_IFNAME=^=docker0,lo"),
    ("NCCL_SOCKET_IFNAME==eth0,=eth1", "error", "write NCCL_SOCKET_IFNAME==eth0,eth1"),
    ("NCCL_SOCKET_IFNAME=!docker0", "error", "write NCCL_SOCKET_IFNAME=^docker0"),
    ("NCCL_IB_HCA=^mlx5_0,^mlx5_1", "error", "write NCCL_IB_HCA=^mlx5_0,mlx5_1"),
    ("NCCL_SOCKET_IFNAME=mlx5_0", "warning", "seems to name an RDMA device, mlx5_0"),
    ("GLOO_SOCKET_IFNAME=mlx5_0", "warning", "seems to name an RDMA device"),
    ("NCCL_IB_HCA=eth0", "warning", "seems to name a network interface, eth0"),
    ("NCCL_IB_HCA==ib0:1", "warning", "seems to name a network interface"),
    ("NCCL_SOCKET_FAMILY=4", "warning", "write AF_INET;"),
    ("NCCL_SOCKET_IFNAME=eth0, eth1", "error", "a blank"),
    ("NCCL_SOCKET_IFNAME=eth0;eth1", "error", "commas"),
    ("NCCL_SOCKET_IFNAME=eth*", "error", "matches no interface"),
    ("NCCL_SOCKET_IFNAME=10.0.0.1", "error", "an address"),
    ("NCCL_SOCKET_IFNAME=e", "warning", "is ignored"),
    ("NCCL_SOCKET_IFNAME='eth0'", "error", "NCCL_SOCKET_IFNAME=eth0"),
    ("NCCL_IB_HCA=mlx5_0 mlx5_1", "error", "a blank"),
    ("GLOO_SOCKET_IFNAME==eth0", "error", "raise"),
    ("GLOO_SOCKET_IFNAME=eth0, eth1", "error", "a blank"),
    ("CUDA_VISIBLE_DEVICES=all", "error", "every GPU is hidden"),
    *((f"CUDA_VISIBLE_DEVICES={odd}", "error", "only GPU 0 is visible") for odd in ("0;1", "0-3", "0:3", "0 1")),
    ("CUDA_VISIBLE_DEVICES=0,one,2", "error", "only GPU 0 is visible"),
    ("CUDA_VISIBLE_DEVICES=0,,1", "error", "only GPU 0 is visible"),
    ("CUDA_VISIBLE_DEVICES=0,-1,1", "error", "only GPU 0 is visible"),
    ("CUDA_VISIBLE_DEVICES=2,3,x", "error", "only GPUs 2 and 3 are visible"),
    ("CUDA_VISIBLE_DEVICES=1gpu", "warning", "only GPU 1 is visible"),
    ("CUDA_VISIBLE_DEVICES=1.0", "warning", "only GPU 1 is visible"),
    ("CUDA_VISIBLE_DEVICES=0,1,1", "error", "names 1 twice, and hides every GPU"),
    ("CUDA_VISIBLE_DEVICES=GPU-1a,GPU-1a", "error", "twice"),
    ("CUDA_DEVICE_ORDER=PCI", "warning", "PCI_BUS_ID"),
    ("CUDA_DEVICE_MAX_CONNECTIONS=64", "warning", "1 to 32"),
    ("CUDA_DEVICE_MAX_CONNECTIONS=many", "warning", "1 to 32"),
    ("CUBLAS_WORKSPACE_CONFIG=4096:8", "warning", "write CUBLAS_WORKSPACE_CONFIG=:4096:8"),
    *(
        (f"OMP_NUM_THREADS={odd}", "warning", "a thread for every core")
        for odd in ("auto", "0", "-1", "4.5", "", "4,0")
    ),
    ("OMP_PROC_BIND=yes", "warning", "is ignored"),
    ("OMP_PROC_BIND=close,true", "warning", "is ignored"),
    *((f"GLOO_DEVICE_TRANSPORT={odd}", "error", "raise: it takes TCP") for odd in ("RDMA", "UV", "tcp", "")),
    ("TORCH_FR_CPP_STACK=on", "error", "abort or hang"),
    ("TORCH_NCCL_TRACE_CPP_STACK=", "error", "abort or hang"),
    ("TORCH_INCLUDE_STACK_TRACE=", "warning", "at a dump"),
    ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True;max_split_size_mb:512", "error", "True,max_split_size_mb:512"),
    ("CUDA_COREDUMP_FILE=/tmp/core", "warning", "/tmp/core.%h.%p"),
    ("CUDA_COREDUMP_GENERATION_FLAGS=skip_everything", "warning", "skip_everything"),
    ("OFI_NCCL_MR_CACHE_DISABLE=on", "error", "keeps the plugin"),
    ("OFI_NCCL_PROTOCOL=TCP", "error", "SENDRECV or RDMA"),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb", "error", "no value"),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_mb:128", "error", "did you mean max_split_size_mb?"),
    ("PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:80", "error", "between 0 and 1"),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512MB", "error", "leave out the unit"),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:536870912", "warning", "max_split_size_mb:512"),
    ("PYTORCH_CUDA_ALLOC_CONF=backend:cudamallocasync", "error", "backend:cudaMallocAsync"),
    ("PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:3", "error", "a power of two"),
]


@pytest.mark.parametrize("text", FINE)
def test_what_is_fine(text: str) -> None:
    assert verdict(text) == ""


@pytest.mark.parametrize(("text", "severity", "words"), WRONG)
def test_what_is_wrong(text: str, severity: str, words: str) -> None:
    (found,) = variable_value(context(text))
    assert found.severity == severity
    assert words in "\n".join([found.summary, *found.because, found.remedy])


@pytest.mark.parametrize("name", ["TORCH_INCLUDE_STACK_TRACE", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"])
def test_what_only_a_dump_of_nccl_reads_is_no_matter_without_it(name: str) -> None:
    assert verdict(f"{name}=", installed=TORCH_CPU) == ""


HERE = frozenset({"lo", "eth0", "ib0"})


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("GLOO_SOCKET_IFNAME=eth0,lo", ""),
        ("GLOO_SOCKET_IFNAME=eth", "warning"),
        ("GLOO_SOCKET_IFNAME=eth0,eth1", "warning"),
        ("NCCL_SOCKET_IFNAME=eth", ""),
        ("NCCL_SOCKET_IFNAME=eno1,ib", ""),
        ("NCCL_SOCKET_IFNAME==eth", "warning"),
        ("NCCL_SOCKET_IFNAME=ens", "warning"),
        ("NCCL_SOCKET_IFNAME=^docker,virbr", ""),
        ("NCCL_SOCKET_IFNAME=^lo,eth,ib", "warning"),
        ("NCCL_SOCKET_IFNAME=", ""),
        ("NCCL_IB_HCA=mlx5_7", ""),
    ],
)
def test_interfaces_that_this_machine_does_not_have(text: str, severity: str) -> None:
    found = [each for each in variable_value(context(text, interfaces=HERE)) if each.severity != "note"]
    assert [each.severity for each in found] == [severity] * bool(severity)
    assert all("eth0, ib0, lo" in each.because[0] for each in found)
    assert [each for each in variable_value(context(text)) if each.severity != "note"] == []


def test_a_log_file_that_all_ranks_share() -> None:
    found = only("NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/logs/nccl.log", debugging=True)
    assert (found.code, found.severity) == ("SL213", "warning")
    assert found.remedy == "write NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log"
    assert "of a host" in only("NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/logs/%h", debugging=True).summary


@pytest.mark.parametrize(("nccl", "severity"), [("2.23.4", "warning"), ("2.24.3", "error")])
def test_an_unknown_algorithm_is_fatal_in_newer_versions(nccl: str, severity: str) -> None:
    assert verdict("NCCL_ALGO=rings", installed=cuda(nccl=nccl)) == severity


def test_words_that_came_later() -> None:
    assert verdict("NCCL_DEBUG=ATTN", installed=cuda(nccl="2.27.3")) == "warning"
    assert verdict("NCCL_DEBUG=ATTN", installed=cuda(nccl="2.32.3")) == ""
    assert verdict("NCCL_DEBUG_SUBSYS=INIT,DESTROY", installed=cuda(nccl="2.30.7")) == ""
    assert verdict("NCCL_DEBUG_SUBSYS=INIT,DESTROY", installed=cuda(nccl="2.29.7")) == "warning"
    assert verdict("NCCL_SET_THREAD_NAME=true", installed=cuda(nccl="2.29.7")) == "error"
    assert verdict("NCCL_SET_THREAD_NAME=true", installed=cuda(nccl="2.30.7")) == ""
    assert verdict("PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.9", installed=cuda(torch="2.8.0")) == "error"


def test_one_unknown_subsystem_voids_the_whole_value() -> None:
    (found,) = variable_value(context("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT, NET"))
    assert '" NET"' in found.summary
    assert "voids the whole value" in found.because[0]


@pytest.mark.parametrize("variable", sorted(catalogue.names()))
def test_no_default_and_no_documented_value_is_wrong(variable: str) -> None:
    known = catalogue.variable(variable)
    assert known is not None
    values = [value for value in known.values if "<" not in value]
    if known.parse not in ("presence", "truthy-string"):
        values += re.findall(r"^(?:-?\d+|true|false)(?!\S)", known.default)
    for value in values:
        wrong = [found.summary for found in variable_value(context(f"{variable}={value}")) if found.severity == "error"]
        assert wrong == [], value


def test_each_parser_of_the_catalogue_is_known() -> None:
    parsers = {catalogue.variable(name).parse for name in catalogue.names()}  # type: ignore[union-attr]
    assert parsers - set(PARSERS) - {"", "string-ci"} == set()
    assert set(NAMED) <= catalogue.names()


def test_each_option_of_the_allocator_with_a_range_is_in_the_catalogue() -> None:
    assert set(alloc_conf.LIMITS) | set(alloc_conf.NATIVE_ONLY) <= {option.name for option in catalogue.alloc_options()}


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_are_read_as_they_are(number: int) -> None:
    assert strtoll(str(number)) == (number, "")
    assert strtoll(hex(number)) == (number, "")


@given(st.sampled_from(sorted(catalogue.names())), st.text(max_size=30))
def test_no_value_makes_a_rule_fail(name: str, value: str) -> None:
    for found in findings(setting(f"{name}={value}")):
        assert found.summary
        assert "\n" not in found.summary


def test_a_bad_value_is_one_finding() -> None:
    assert told("NCCL_IB_DISABLE=true", "NCCL_IB_TC=106") == [("SL213", "error")]
