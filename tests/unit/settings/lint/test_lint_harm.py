"""SL216, SL217 and SL218: what costs, what comes too late, and what does harm."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from lint_scenes import context, cuda, findings, only, setting, told

from safelaunch.model import Finding
from safelaunch.settings.lint import RULES, Rule, catalogue, lint
from safelaunch.settings.lint.context import LintContext
from safelaunch.settings.lint.judge.dangers import DANGERS
from safelaunch.settings.profile import shipped_folder

# ----------------------------------------------------------------------------------------------- speed

SLOW = [
    ("CUDA_LAUNCH_BLOCKING=1", "warning"),
    ("TORCH_NCCL_ENABLE_TIMING=1", "warning"),
    ("TORCH_NCCL_DESYNC_DEBUG=true", "warning"),
    ("TORCH_NCCL_NAN_CHECK=1", "warning"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING=1", "warning"),
    ("TORCH_CUDA_SANITIZER=1", "warning"),
    ("NCCL_P2P_DISABLE=1", "note"),
    ("NCCL_IB_DISABLE=1", "note"),
    ("NCCL_NET=Socket", "note"),
]


@pytest.mark.parametrize(("text", "severity"), SLOW)
def test_what_costs_speed_is_told_with_how_much_and_a_source(text: str, severity: str) -> None:
    found = only(text)
    assert (found.code, found.severity) == ("SL216", severity)
    assert "costs speed: " in found.summary
    assert "source: " in found.because[0]


@pytest.mark.parametrize("text", [text for text, _ in SLOW])
def test_not_in_a_run_that_is_for_debugging(text: str) -> None:
    assert told(text, debugging=True) == []


@pytest.mark.parametrize("text", [text for text, _ in SLOW])
def test_what_is_off_costs_nothing(text: str) -> None:
    name, _, value = text.partition("=")
    assert "SL216" not in [code for code, _ in told(f"{name}={'IB' if value == 'Socket' else '0'}")]


def test_on_one_node_the_network_between_nodes_costs_nothing() -> None:
    assert told("NCCL_IB_DISABLE=1", nodes=1) == []
    assert told("NCCL_IB_DISABLE=1", nodes=2) == [("SL216", "note")]


def test_what_is_not_known_to_be_on_costs_nothing() -> None:
    assert told(setting("CUDA_LAUNCH_BLOCKING")) == []
    assert told("CUDA_LAUNCH_BLOCKING=$DEBUG") == []


def test_shipped_profiles_have_said_it() -> None:
    assert told(setting("NCCL_P2P_DISABLE=1", f"{shipped_folder()}/consumer-gpu.toml:9", "profile")) == []
    assert told(setting("NCCL_P2P_DISABLE=1", "/home/me/my.toml:9", "profile")) == [("SL216", "note")]


def test_every_cost_has_its_source_in_brackets() -> None:
    for name in sorted(catalogue.names()):
        variable = catalogue.variable(name)
        assert variable is not None
        assert not variable.cost or variable.cost.endswith(")"), name


# ------------------------------------------------------------------------------------------------ harm


@pytest.mark.parametrize(
    ("text", "severity", "words"),
    [
        ("TORCH_FR_BUFFER_SIZE=200000", "warning", "198 MB"),
        ("TORCH_FR_BUFFER_SIZE=1000000", "error", "takes 37 s, and torch waits 15 s"),
        ("TORCH_FR_BUFFER_SIZE=", "error", "hangs init_process_group"),
        ("TORCH_FR_BUFFER_SIZE=2147483648", "error", "does not fit into 32 bits"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=10", "warning", "kills healthy ranks"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "warning", "leaves ranks hanging"),
        ("TORCH_NCCL_BLOCKING_WAIT=1", "warning", "switches off torch's watchdog"),
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1", "warning", "all of its GPU memory"),
        ("CUDA_DEVICE_WAITS_ON_EXCEPTION=1", "warning", "wait for a debugger"),
        ("NCCL_PROTO=LL128", "warning", "corrupt data"),
    ],
)
def test_what_does_harm(text: str, severity: str, words: str) -> None:
    found = only(text)
    assert (found.code, found.severity) == ("SL218", severity)
    assert words in "\n".join([found.summary, *found.because])


@pytest.mark.parametrize(
    "texts",
    [
        "TORCH_FR_BUFFER_SIZE=20000",
        "TORCH_FR_BUFFER_SIZE=0",
        "TORCH_FR_BUFFER_SIZE={entries}",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800",
        "TORCH_NCCL_BLOCKING_WAIT=0",
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_GENERATION_FLAGS=skip_global_memory",
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0",
        "CUDA_DEVICE_WAITS_ON_EXCEPTION=0",
        "NCCL_PROTO=LL,LL128,Simple",
    ],
)
def test_what_does_none(texts: str) -> None:
    assert told(*texts.split(), debugging=True) == []


def test_a_short_heartbeat_that_nobody_watches_kills_nobody() -> None:
    found = told("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=10", "TORCH_NCCL_ENABLE_MONITORING=0")
    assert found == [("SL215", "warning")]


def test_each_variable_that_can_do_harm_is_known() -> None:
    assert set(DANGERS) <= catalogue.names()


# ---------------------------------------------------------------------------------------------- too late

TORCH = frozenset({"torch"})
CUDA = frozenset({"torch", "cuda"})


@pytest.mark.parametrize(
    ("text", "after", "late"),
    [
        ("OMP_NUM_THREADS=8", TORCH, True),
        ("OMP_NUM_THREADS=8", frozenset(), False),
        ("OMP_NUM_THREADS=8", None, False),
        ("TORCH_CPP_LOG_LEVEL=INFO", TORCH, True),
        ("TORCH_DISTRIBUTED_DEBUG=INFO", TORCH, True),
        ("TORCH_DISTRIBUTED_DEBUG=INFO", frozenset(), False),
        ("LD_LIBRARY_PATH=/opt/lib", frozenset(), True),
        ("LD_LIBRARY_PATH=/opt/lib", None, False),
        ("TORCHELASTIC_ENABLE_FILE_TIMER=1", frozenset(), True),
        ("NVIDIA_VISIBLE_DEVICES=0", frozenset(), True),
        ("CUDA_VISIBLE_DEVICES=0", TORCH, False),
        ("CUDA_VISIBLE_DEVICES=0", CUDA, True),
        ("NCCL_DEBUG=INFO", CUDA, False),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=1", CUDA, False),
    ],
)
def test_assignments_of_the_script(text: str, after: frozenset[str] | None, late: bool) -> None:
    assert told(setting(text, "train.py:9", after=after)) == ([("SL217", "warning")] if late else [])


def test_what_the_container_runtime_reads_does_nothing_in_a_profile() -> None:
    found = only(setting("NVIDIA_VISIBLE_DEVICES=0", "my.toml:3", "profile"))
    assert (found.code, found.where) == ("SL217", "my.toml:3")
    assert "docker run --env" in found.remedy
    assert told("NVIDIA_VISIBLE_DEVICES=0") == []  # a Dockerfile or a job's specification


def test_a_profile_is_in_time_for_all_else() -> None:
    texts = ("LD_LIBRARY_PATH=/opt/lib", "OMP_NUM_THREADS=8", "TORCH_DISTRIBUTED_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0")
    assert told(*(setting(text, "my.toml:3", "profile") for text in texts)) == []


def test_what_comes_too_late_says_nothing_else() -> None:
    assert [found.code for found in findings(setting("TORCH_DISTRIBUTED_DEBUG=DETAIL", after=TORCH))] == ["SL217"]
    assert told("NCCL_DEBUG=INFO", setting("OMP_NUM_THREADS=8", after=TORCH), installed=cuda()) == [
        ("SL217", "warning")
    ]


def test_setdefault_leaves_alone_what_is_set() -> None:
    weak = setting("NCCL_P2P_LEVEL=NVL", after=frozenset(), weak=True)
    assert told("NCCL_P2P_LEVEL=LOC", weak, debugging=True) == []
    assert told("NCCL_P2P_DISABLE=1", weak, debugging=True) == [("SL215", "warning")]


def test_a_weak_setting_does_nothing_where_there_is_another() -> None:
    late = setting("OMP_NUM_THREADS=8", "train.py:3", after=frozenset({"torch"}), weak=True)
    bad = setting("NCCL_IB_TIMEOUT=1000", "train.py:4", after=frozenset(), weak=True)
    shell = [setting(text, "the environment", "shell") for text in ("OMP_NUM_THREADS=4", "NCCL_IB_TIMEOUT=22")]
    assert told(*shell, late, bad) == []
    assert sorted(told(late, bad)) == [("SL213", "error"), ("SL217", "warning")]


def test_what_is_set_late_to_what_is_in_force_is_not_lost() -> None:
    late = setting("OMP_NUM_THREADS=8", "train.py:3", after=frozenset({"torch"}))
    assert told(setting("OMP_NUM_THREADS=8", "the environment", "shell"), late) == []
    assert told(setting("OMP_NUM_THREADS=4", "the environment", "shell"), late) == [("SL217", "warning")]


ENDLESS = ("9" * 5000, "0x" + "f" * 120_000, "[," * 60_000, "COLL," * 24_000, "é" * 120_000)


@pytest.mark.parametrize("text", ENDLESS, ids=["digits", "hex", "brackets", "words", "letters"])
@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_IB_TIMEOUT", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "PYTORCH_ALLOC_CONF"),
        *("NCCL_DEBUG_SUBSYS", "NCCL_ALGO", "NCCL_BUFFSIZE", "OMP_NUM_THREADS", "CUDA_DEVICE_MAX_CONNECTIONS"),
    ],
)
def test_an_endless_value_is_not_judged(name: str, text: str) -> None:
    before = time.process_time()
    assert told(f"{name}={text}", "NCCL_DEBUG=INFO") == []
    assert time.process_time() - before < 1


def test_a_rule_that_fails_costs_the_others_nothing() -> None:
    def broken(context: LintContext) -> Iterator[Finding]:
        yield from ()
        raise RuntimeError(f"no idea what {len(context.settings)} settings mean")

    rules = (Rule("SL210", broken), Rule("SL212", broken), *RULES)
    found = lint(context("NCCL_TIMEOUT=3600"), {}, rules)
    assert [(each.code, each.severity) for each in found] == [("SL211", "warning"), ("SL902", "warning")]
    assert "SL210, SL212" in found[1].summary
    assert "no idea what 1 settings mean" in found[1].because[0]
