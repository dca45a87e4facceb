"""What `--fix` changes: only what is certain, all of it at once, and nothing when it is run again."""

from __future__ import annotations

import pytest
from files_of_jobs import EXAMPLES_OF_ALL, Example

from safelaunch.settings.lint.installed import stated
from safelaunch.settings.lint.jobs import fix, look


def fixed(name: str, text: str, torch: str = "2.15", nccl: str = "2.30") -> str:
    job = look.read(name, text)
    found = look.remarks(job, stated(torch, nccl), {})
    return fix.apply(job.text, [edit for one in found for edit in one.edits])


@pytest.mark.parametrize("example", EXAMPLES_OF_ALL, ids=lambda example: example.name)
def test_what_is_changed_is_right_and_done_at_once(example: Example) -> None:
    before = look.remarks(look.read(example.name, example.text), stated("2.15", "2.30"), {})
    text = fixed(example.name, example.text)
    after = look.remarks(look.read(example.name, text), stated("2.15", "2.30"), {})
    left = [one for one in before if not one.edits]
    assert {one.finding.code for one in after} <= {one.finding.code for one in left} | {"SL216"}, "nothing new is wrong"
    assert len(after) <= len(before)
    assert not any(one.edits for one in after)
    assert fixed(example.name, text) == text


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.sh", "export NCCL_MAX_NRINGS=4\n", "export NCCL_MAX_CTAS=4\n"),  # not NCCL_MAX_NCHANNELS, which is old too
        ("a.sh", "export NCCL_MIN_NCHANNELS=4\n", "export NCCL_MIN_CTAS=4\n"),
        (
            "a.sh",
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 # x\nexport TORCH_NCCL_TRACE_BUFFER_SIZE\npython x.py\n",
            "TORCH_FR_BUFFER_SIZE=2000 # x\nexport TORCH_FR_BUFFER_SIZE\npython x.py\n",
        ),
        ("a.sh", 'export TORCH_CPP_LOG_LEVEL="WARN"\n', 'export TORCH_CPP_LOG_LEVEL="WARNING"\n'),
        ("a.sh", "export NCCL_P2P_LEVEL=nvl\n", "export NCCL_P2P_LEVEL=NVL\n"),
        ("a.sh", "export NCCL_DEBUG =INFO\npython x.py\n", "export NCCL_DEBUG=INFO\npython x.py\n"),
        ("a.sh", "NCCL_DEBUG=INFO\npython x.py\n", "export NCCL_DEBUG=INFO\npython x.py\n"),
        ("a.sh", "export NCCL_IB_TIMEOUT=\uff12\uff12\n", "export NCCL_IB_TIMEOUT=22\n"),
        ("a.env", "NCCL_DEBUG=INFO\n", "NCCL_DEBUG=INFO\n"),
        (".deepspeed_env", 'NCCL_DEBUG="INFO"\n', "NCCL_DEBUG=INFO\n"),
        ("a.yaml", "env:\n  NCCL_P2P_LEVEL: sys # slow\n", "env:\n  NCCL_P2P_LEVEL: SYS # slow\n"),
    ],
)
def test_what_is_certain_is_changed(name: str, text: str, wanted: str) -> None:
    assert fixed(name, text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "export NCCL_TIMEOUT=3600\n",  # a script may read it
        "export NCCL_SOCKET_IFNAMES=eth0\n",  # a guess
        "export NCCL_IB_TIMEOUT=1000\n",  # which value was meant?
        "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_FR_BUFFER_SIZE=4000\n",  # which of the two?
        "export NCCL_TREE_THRESHOLD=0 NCCL_ALGO=Tree\n",
        # Gone for long: they did nothing, and their successors take other values.
        "export NCCL_TREE_THRESHOLD=0\n",
        "export NCCL_TREE_THRESHOLD=4294967296\n",
        "export NCCL_IB_CUDA_SUPPORT=1\n",
        "export NCCL_CHECKS_DISABLE=1\n",
        "export NCCL_WORK_FIFO_DEPTH=64\n",
        "export NCCL_ASYNC_ERROR_HANDLING=0\n",  # under torchrun it did nothing; by its new name it would
        "unset NCCL_DEBUG=1\n",
        "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING\n",  # just this may be wanted
        # Who calls the script may set the old name.
        "export TORCH_NCCL_TRACE_BUFFER_SIZE=${TORCH_NCCL_TRACE_BUFFER_SIZE:-4000}\n",
        ": ${NCCL_MIN_NRINGS=2}\nexport NCCL_MIN_NRINGS\n",
        "export NCCL_MAX_NRINGS=4 NCCL_MAX_CTAS=8\n",
    ],
)
def test_what_a_person_has_to_decide_is_left(text: str) -> None:
    assert fixed("a.sh", text) == text


def test_the_newest_name_is_that_of_the_version() -> None:
    assert fixed("a.sh", "export NCCL_MAX_NRINGS=4\n", nccl="2.16") == "export NCCL_MAX_NCHANNELS=4\n"


def test_a_new_name_is_not_written_for_a_torch_that_does_not_know_it() -> None:
    text = "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000\n"
    assert fixed("a.sh", text, torch="2.8") == text
    assert fixed("a.sh", text, torch="") == text
    assert fixed("a.sh", text, torch="2.15") == "export TORCH_FR_BUFFER_SIZE=2000\n"


@pytest.mark.parametrize(
    "line", ["CUDA_LAUNCH_BLOCKING=1", "NCCL_BLOCKING_WAIT=1", "NCCL_DEBUG=infos", "NCCL_TIMEOUT=60"]
)
def test_what_would_do_harm_once_it_is_exported_is_for_a_person(line: str) -> None:
    job = look.read("a.sh", f"{line}\npython x.py\n")
    [one] = look.remarks(job, stated("2.13", "2.29"), {})
    assert (one.finding.code, one.edits) == ("SL223", ())
    assert one.finding.remedy == f"take it away, or write export {line}"
