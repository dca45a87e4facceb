"""What is said of a job file: the line to write, the reason, and no more than one thing for one cause."""

from __future__ import annotations

import re

import pytest

from safelaunch.settings.lint.installed import stated
from safelaunch.settings.lint.jobs import look
from safelaunch.settings.lint.jobs.remark import Remark

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gres=gpu:8\n"


def said(text: str, name: str = "job.sbatch", torch: str = "2.15", nccl: str = "2.30") -> list[Remark]:
    return list(look.remarks(look.read(name, text), stated(torch, nccl), {}))


def only(text: str, **more: str) -> Remark:
    [one] = said(text, **more)
    return one


EIGHT_OF = "--nproc_per_node=8 --master_addr $HEAD"
MET = "--rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500"
ONE, EIGHT = HEAD.format(tasks=1), HEAD.format(tasks=8)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (ONE + f"torchrun --nnodes=2 {EIGHT_OF} t.py", "SL242", "write srun torchrun --nnodes=2 "),
        (ONE + f"A=1 torchrun --nnodes=2 {EIGHT_OF} t.py", "SL242", "write A=1 srun torchrun --nnodes=2 "),
        (
            EIGHT + f"srun torchrun --nnodes=2 --nproc_per_node=8 {MET} t.py",
            "SL245",
            "write srun --ntasks=$SLURM_NNODES ",
        ),
        (ONE + f"srun torchrun --nnodes=3 --nproc_per_node=8 {MET} t.py", "SL241", "write --nnodes=$SLURM_NNODES"),
        ("#SBATCH --gres=gpu:4\ntorchrun --standalone --nproc_per_node=8 t.py", "SL240", "write --nproc-per-node=4"),
        ("python -m torch.distributed.launch --use_env --nnodes=1 t.py", "SL248", "write torchrun --nnodes=1 t.py"),
        ("torchrun --standalone --nproc_per_nodes=8 t.py", "SL247", "did you mean `--nproc_per_node`?"),
        ("#SBATCH --gres=gpu:2\n#SBATCH --signal=USR1@60\ntrap x USR1", "SL246", "write #SBATCH --signal=B:USR1@60"),
        ("#SBATCH --array=1-3\nexport MASTER_PORT=29500\npython t.py", "SL244", "SLURM_JOB_ID % 50000"),
        ("torchrun --nnodes=2 --rdzv_endpoint=localhost:29500 t.py", "SL249", "of the first node"),
        (
            ONE + f"srun torchrun --nnodes=2 {EIGHT_OF} --node_rank $SLURM_NODEID t.py",
            "SL243",
            "write srun bash -c",
        ),
    ],
)
def test_each_finding_about_a_launch_has_the_line_to_write(text: str, code: str, line: str) -> None:
    one = only(f"{text}\n")
    assert one.finding.code == code
    assert line in one.finding.remedy


def test_an_option_that_came_later_is_told_by_its_version() -> None:
    text = "torchrun --standalone --log-line-prefix-template x t.py\n"
    assert said(text, torch="2.15") == []
    assert "from torch 2.15 on" in only(text, torch="2.13").finding.summary


def test_what_only_the_old_backend_reads_is_told_with_the_way_to_it() -> None:
    one = only("export TORCH_NCCL_PROPAGATE_ERROR=1\ntorchrun --standalone t.py\n", name="a.sh")
    assert "only the old NCCL backend reads it" in one.finding.summary
    assert "TORCH_DIST_USE_NCCL2=0" in one.finding.remedy
    assert said("export TORCH_NCCL_PROPAGATE_ERROR=1\ntorchrun --standalone t.py\n", name="a.sh", torch="2.14") == []


def test_the_remedy_is_not_what_the_next_run_complains_of() -> None:
    text = "export NCCL_ASYNC_ERROR_HANDLING=0\ntorchrun --standalone t.py\n"
    assert only(text, name="a.sh").finding.remedy == "unset NCCL_ASYNC_ERROR_HANDLING"
    assert "torchrun" not in only(text.replace("torchrun", "./own"), name="a.sh").finding.because[0], "nothing says so"


def test_one_cause_is_one_finding() -> None:
    text = "export NCCL_IB_DISABLE=1 NCCL_IB_TIMEOUT=1000\npython t.py\n"
    assert [one.finding.code for one in said(text, name="a.sh") if one.finding.severity != "note"] == ["SL215"]


def test_sources_are_no_scraps_of_the_catalogue() -> None:
    text = "export TORCH_NCCL_AVOID_RECORD_STREAMS=1 NCCL_TREE_THRESHOLD=0 NCCL_LAUNCH_MODE=GROUP\n"
    because = " ".join(line for one in said(text, name="a.sh") for line in one.finding.because)
    assert "source: " in because
    assert not re.search(r"snapshot|-era|confirmed", because)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("if x; then {a}; else {b}; fi", 0),
        ("case $1 in a) {a};; b) {b};; esac", 0),
        ("f() {{ {a}; }}; g() {{ {b}; }}", 0),
        ("[ x ] && {a}; [ y ] && {b}", 1),
        ("{a}; if x; then {b}; fi", 1),
    ],
)
def test_branches_that_exclude_one_another_do_not_contradict(first: str, second: int) -> None:
    text = first.format(a="export NCCL_P2P_DISABLE=1", b="export NCCL_SHM_DISABLE=1") + "\npython t.py\n"
    assert sum(one.finding.code == "SL215" for one in said(text, name="a.sh")) == second


def test_services_side_by_side_do_not_contradict() -> None:
    one = "services:\n  a: {environment: {NCCL_P2P_DISABLE: 1}}\n  b: {environment: {NCCL_SHM_DISABLE: 1}}\n"
    both = "env: {NCCL_P2P_DISABLE: 1}\njobs:\n  a: {env: {NCCL_SHM_DISABLE: 1}}\n"
    assert not any(each.finding.code == "SL215" for each in said(one, name="a.yaml"))
    assert any(each.finding.code == "SL215" for each in said(both, name="a.yaml"))
