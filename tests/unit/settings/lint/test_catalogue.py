"""The form of the catalogue, which its fast reader relies on, and what it answers about names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.catalogue import AllocOption, Unread, Variable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = Path(catalogue.FILE).read_text(encoding="utf-8")
DATA: dict[str, Any] = tomllib.loads(TEXT)
VARIABLES: list[dict[str, Any]] = DATA["variable"]
LISTED = {entry["name"]: entry for entry in VARIABLES}

OWNERS = {"nccl", "torch", "torch-cuda", "gloo", "elastic", "omp", "cuda", "aws-ofi-nccl", "libfabric", "plugin",
          "container", "loader", "image"}  # fmt: skip
KINDS = {"bool", "int", "bytes", "seconds", "ms", "enum", "list", "string"}
PARSERS = {"", "strtoll", "strtol", "stoi", "int()", "torch-bool", "check_env", '== "1"', "presence", "truthy-string",
           "nccl-bool", "enum-ci", "enum-cs", "enum-ci-strict", "list-ci", "list-ci-strict", "exact-list", "string-ci",
           "iflist", "alloc-conf", "ofi"}  # fmt: skip
NUMBERS = {"int", "bytes", "seconds", "ms"}
READ = {"", "loader", "container", "agent", "load", "import", "cuda", "init"}
VERSION = re.compile(r"\d+(\.\d+)+")


# ---------------------------------------------------------------------------------------------- the form


def test_the_fast_reader_finds_what_toml_has() -> None:
    tables = {
        table: [entry["name"] for entry in DATA[table]] for table in ("variable", "family", "not_read", "alloc_option")
    }

    assert {table: list(blocks) for table, blocks in catalogue._blocks().items() if table != "meta"} == tables
    assert set(DATA) == {"meta", *tables}
    for table in tables:
        assert [catalogue._parsed(table, name) for name in tables[table]] == DATA[table]


def test_no_name_stands_in_it_twice() -> None:
    names = [entry["name"] for table in ("variable", "not_read") for entry in DATA[table]]

    assert sorted(names) == sorted(set(names))


def variables() -> list[Variable]:
    found = [catalogue.variable(name) for name in LISTED]
    assert None not in found
    return [variable for variable in found if variable is not None]


def test_every_variable_is_well_formed() -> None:
    fields = set(Variable._fields)
    for variable in variables():
        name = variable.name
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", name), name
        assert {*LISTED[name]} <= fields, name
        assert variable.owner in OWNERS, name
        assert variable.kind in KINDS, name
        assert variable.parse in PARSERS, name
        assert variable.read in READ, name
        assert variable.status in ("", "alias", "removed", "set-by-launcher"), name
        assert variable.doc, name
        assert "\n" not in variable.doc, name
        assert len(variable.source) > 5, name


def test_values_and_ranges_fit_their_kind() -> None:
    for variable in variables():
        name, low, high = variable.name, variable.min, variable.max
        assert low is None or high is None or low < high, name
        # OMP_NUM_THREADS is a list of numbers.
        assert variable.kind in NUMBERS | {"list"} or (low, high) == (None, None), name
        assert len(set(variable.values)) == len(variable.values), name
        assert variable.kind not in NUMBERS or all(re.fullmatch(r"-?\d+", value) for value in variable.values), name
        assert variable.kind != "enum" or len(variable.values) > 1 or variable.confidence, name
        if variable.values and low is not None and high is not None:
            assert all(low <= int(value) <= high for value in variable.values), name


def test_other_names_and_versions_can_be_followed() -> None:
    for variable in variables():
        name = variable.name
        assert not variable.renamed_to or variable.renamed_to in LISTED, name
        assert variable.renamed_to != name, name
        assert set(variable.aliases) <= set(LISTED), name
        assert all(VERSION.fullmatch(version) for version in (variable.since, variable.removed_in) if version), name
        assert variable.status != "alias" or variable.renamed_to, name


def test_a_cost_has_a_source_and_values() -> None:
    costly = [variable for variable in variables() if variable.cost or variable.costs_when]
    assert len(costly) > 10
    for variable in costly:
        name = variable.name
        assert re.search(r"\(.+\)$", variable.cost), f"{name}: how much, and from where that is known"
        assert variable.costs_when, name
        words = {word for word in variable.costs_when if not re.fullmatch(r"on|set|>\d+", word)}
        if variable.values and variable.kind in ("enum", "list"):
            assert words <= set(variable.values), name


def test_names_that_nothing_reads_point_at_names_that_something_reads() -> None:
    for name in (entry["name"] for entry in DATA["not_read"]):
        unread = catalogue.unread(name)
        assert unread is not None, name
        named = re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", unread.instead)
        assert catalogue.variable(name) is None, name
        assert [other for other in named if other not in LISTED or "removed_in" in LISTED[other]] == [], name


def test_who_follows_advice_is_not_told_of_an_old_name_next() -> None:
    for name in ("NCCL_MIN_CHANNELS", "NCCL_MAX_CHANNELS", "NCCL_NCHANNELS"):
        entry = catalogue.unread(name)
        assert entry is not None
        advised = [catalogue.variable(word) for word in re.findall(r"NCCL_\w+", entry.instead)]
        assert advised
        assert [each.name for each in advised if each is None or each.deprecated] == []


def test_families_and_options_are_well_formed() -> None:
    assert all({*entry} == {"name", "doc", "source"} and entry["source"] for entry in DATA["family"])
    fields = set(AllocOption._fields)
    assert all({"name", "kind", "valid", "doc"} <= {*entry} <= fields for entry in DATA["alloc_option"])


# ---------------------------------------------------------------------------------------------- what it answers


def test_what_is_known_of_a_variable() -> None:
    timeout = catalogue.variable("NCCL_IB_TIMEOUT")

    assert timeout is not None
    assert (timeout.kind, timeout.min, timeout.max, timeout.parse) == ("int", 1, 31, "strtoll")
    assert catalogue.variable("NCCL_TIMEOUT") is None
    assert catalogue.variable("nccl_ib_timeout") is None
    assert "NCCL_IB_TIMEOUT" in catalogue.names()
    assert "NCCL_TIMEOUT" not in catalogue.names()


def test_what_nothing_reads() -> None:
    assert catalogue.unread("NCCL_IB_HCAS") == Unread("NCCL_IB_HCAS", "NCCL_IB_HCA")
    assert catalogue.unread("NCCL_IB_HCA") is None
    assert catalogue.unread("SOMETHING_ELSE") is None


def test_the_options_of_the_allocator() -> None:
    options = {option.name: option for option in catalogue.alloc_options()}

    assert options["expandable_segments"].kind == "bool"
    assert options["per_process_memory_fraction"].since == "2.10"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NCCL_X", "strict"),
        ("TORCH_NCCL_X", "strict"),
        ("TORCHELASTIC_X", "strict"),
        ("TORCH_X", "loose"),
        ("CUDA_X", "loose"),
        ("NCCL_FASTRAK_X", ""),
        ("NCCL_GPUDIRECTTCPX_X", ""),
        ("TORCHINDUCTOR_X", ""),
        ("TORCH_COMPILE_X", ""),
        ("UCX_TLS", ""),
        ("RCCL_MSCCL_ENABLE", ""),
        ("PATH", ""),
        ("NCCLX", ""),
    ],
)
def test_namespaces(name: str, expected: str) -> None:
    assert catalogue.namespace(name) == expected


def test_a_family_does_not_hide_what_the_catalogue_has() -> None:
    assert catalogue.is_third_party("FI_EFA_SOMETHING")
    assert not catalogue.is_third_party("FI_EFA_USE_HUGE_PAGE")
    assert not catalogue.is_third_party("NCCL_DEBUG")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOKCET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("NCCl_DEBUG", "NCCL_DEBUG"),
        ("TROCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SECS", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
        ("NCCL_IB_QPS", "NCCL_IB_QPS_PER_CONNECTION"),
        ("NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("TORCH_NCCL_SOCKET_NTHREADS", "NCCL_SOCKET_NTHREADS"),
        ("NCCL_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),  # NCCL_IB_GDR_LEVEL is nearer, but gone
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
        # Nothing is near, or more than one is.
        ("NCCL_FOO", ""),
        ("NCCL_NET_GDR", ""),
        ("CUDA_FOO", ""),
        # Others' names, and a script's own.
        ("RCCL_DEBUG", ""),
        ("HCCL_SOCKET_IFNAME", ""),
        ("nccl_debug", ""),
        ("MY_NCCL_DEBUG", ""),
        ("PATH", ""),
        ("RANKS", ""),
        ("", ""),
    ],
)
def test_slips(name: str, meant: str) -> None:
    assert catalogue.nearest(name) == meant


def test_no_known_name_is_taken_for_another_one() -> None:
    """Names of one namespace that torch or an image has, and that the catalogue leaves out, are not called slips."""
    others = [
        *("TORCH_NUM_THREADS", "TORCH_ALLOW_TF32", "TORCH_SERIALIZATION_DEBUG", "TORCH_WARM_POOL", "TORCH_DTYPE"),
        *("TORCH_COMPILE", "PYTORCH_FUSION_DEBUG", "PYTORCH_API_USAGE_STDERR", "OMP_PREFIX", "MKL_ROOT"),
        *("CUDA_API_KEY", "CUDA_ENABLED", "CUDA_DEVICE", "CUDA_TAG", "CUDA_DIR", "NVIDIA_API_KEY"),
    ]

    assert {name: catalogue.nearest(name) for name in others if catalogue.nearest(name)} == {}
