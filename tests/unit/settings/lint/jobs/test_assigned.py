"""Whether anybody reads a value, and what its words show that it does not."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.jobs.remark import Remark
from tests.unit.settings.lint.jobs.test_words import said


def codes(text: str, name: str = "a.sh") -> list[str]:
    return [one.finding.code for one in of(text, name)]


def of(text: str, name: str = "a.sh") -> list[Remark]:
    return said(text, name=name)


WRONG = "export NCCL_DEBUG=VERBOSE"


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        (f"{WRONG}\nexport A=1\nexport NCCL_DEBUG=WARN\npython t.py", False),
        (f"{WRONG}\npython a.py\nexport NCCL_DEBUG=WARN\npython t.py", True),
        (f"{WRONG}\nsource more.sh\nexport NCCL_DEBUG=WARN\npython t.py", True),
        (f"{WRONG}\nNCCL_DEBUG=WARN python a.py\npython t.py", True),  # of one program only
        (f"{WRONG}\nif [ $1 ]; then export NCCL_DEBUG=WARN; fi\npython t.py", True),
        (f"f() {{\n{WRONG}\n}}\nexport NCCL_DEBUG=WARN\nf\npython t.py", True),
    ],
)
def test_a_value_that_is_set_anew_before_a_program_starts_is_not_judged(text: str, acts: bool) -> None:
    assert codes(f"{text}\n") == (["SL213"] if acts else [])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("export NCCL_IB_DISABLE=1\nexport NCCL_IB_TIMEOUT=90 NCCL_IB_RETRY_CNT=9\n", ["SL215"]),
        ("export NCCL_NET=Socket\nexport NCCL_IB_TIMEOUT=90\n", ["SL215"]),
        ("export NCCL_IB_DISABLE=0\nexport NCCL_IB_TIMEOUT=90\n", ["SL213"]),
        # On the way without the switch, it is read.
        ("if [ $1 ]; then export NCCL_IB_DISABLE=1; fi\nexport NCCL_IB_TIMEOUT=90\n", ["SL213"]),
    ],
)
def test_a_value_behind_a_switch_that_is_off_is_not_judged(text: str, wanted: list[str]) -> None:
    found = of(f"{text}torchrun --nnodes=$N --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$H:1 t.py\n")
    assert [one.finding.code for one in found if one.finding.severity != "note"] == wanted


def test_the_switch_comes_first_and_the_others_behind_it() -> None:
    [one] = of("export NCCL_IB_TIMEOUT=23 NCCL_IB_TC=41\nexport NCCL_IB_DISABLE=1\npython t.py\n")
    assert one.finding.summary.startswith("NCCL_IB_DISABLE=1 beside NCCL_IB_TC and NCCL_IB_TIMEOUT: ")
    assert one.line == 2


def test_what_costs_between_nodes_costs_nothing_on_one() -> None:
    serve = "python -m sglang.launch_server --model-path m --tp 4"
    assert codes(f"export NCCL_IB_DISABLE=1\n{serve}\n") == []
    assert codes(f"export NCCL_IB_DISABLE=1\n{serve} --nnodes 2 --dist-init-addr $H:1\n") == ["SL216"]


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("export NCCL_IB_HCA=mlx5_2, mlx5_3", True),
        ("declare -x NCCL_SOCKET_IFNAME=ens1, ens2", True),
        ("export NCCL_IB_HCA=mlx5_2,mlx5_3", False),
        ("export NCCL_IB_HCA=mlx5_2, NCCL_IB_TC=41", False),
        ("export NCCL_IB_HCA=mlx5_2, $MORE", False),
        ("export MY_LIST=1, 2", False),
    ],
)
def test_a_blank_behind_a_comma_ends_a_list(line: str, cut: bool) -> None:
    found = [one.finding for one in of(f"{line}\npython t.py\n")]
    assert [one.code for one in found if "blank" in one.summary] == (["SL213"] if cut else [])
    assert all(one.remedy == "write the list without blanks" for one in found if cut)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("77001", True),
        ("$SLURM_JOB_ID", True),
        ('"${SLURM_JOBID:-0}"', True),
        ("$HEAD:$PORT", False),
        ("$HEAD", False),  # who knows
        ("10.0.0.1:29501", False),
        ("'[fe80::1%eth0]:29501'", False),
        ("node-1.cluster:29501", False),
    ],
)
def test_the_number_of_a_job_is_no_address(value: str, wrong: bool) -> None:
    assert codes(f"export NCCL_COMM_ID={value}\npython t.py\n") == (["SL213"] if wrong else [])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TORCH_CUDA_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        ("PYTORCH_DISTRIBUTED_DEBUG", "TORCH_DISTRIBUTED_DEBUG"),
        ("PYTORCH_HOME", ""),
        ("TORCH_OWN_CONF", ""),
    ],
)
def test_pytorch_is_called_by_two_names(name: str, meant: str) -> None:
    found = of(f"export {name}=1\npython t.py\n")
    assert [one.finding.remedy for one in found] == ([f"did you mean {meant}?"] if meant else [])


def test_on_amd_all_names_that_are_gone_or_unknown_are_told_alike() -> None:
    names = ("NCCL_CHECKS_DISABLE", "NCCL_LL_THRESHOLD", "NCCL_TREE_THRESHOLD", "NCCL_IB_GDR_LEVEL", "NCCL_OWN_NAME")
    lines = "".join(f"export {name}=1\n" for name in names)
    found = of(f"module load rocm\n{lines}python t.py\n")
    assert len(found) == len(names)
    assert {one.finding.severity for one in found} == {"note"}


def test_names_of_one_idea_are_told_once() -> None:
    line = "NCCL_NODES=2 NCCL_MY_RANK={} python t.py\n"
    [one] = of(line.format(0) + line.format(1))
    assert one.finding.summary == "NCCL_NODES and NCCL_MY_RANK are variables that neither torch nor NCCL knows"
    [one] = of("export NCCL_NODES=2\npython a.py\nexport NCCL_NODES=4\npython b.py\n")
    assert one.more == (3,)
    [one] = of("export NCCL_TIMEOUT=60\npython a.py\nexport NCCL_TIMEOUT=90\npython b.py\n")
    assert one.more == (3,)


def test_a_threshold_of_zero_is_told_with_what_it_asked_for() -> None:
    [one] = of("export NCCL_TREE_THRESHOLD=0\npython t.py\n")
    assert one.finding.remedy.startswith("write NCCL_ALGO=Ring, which is what")


def test_above_the_most_threads_is_not_told_as_no_multiple() -> None:
    [one] = of("export NCCL_NTHREADS=2048\npython t.py\n")
    assert "above 512" in one.finding.because[0]


def test_advice_names_no_interface_of_another_machine() -> None:
    [one] = of("export NCCL_SOCKET_IFNAME=^lo,docker\npython t.py\n")
    assert "eth0" not in one.finding.remedy
