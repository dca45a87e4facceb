"""How often srun starts a launcher, what each start sees, and who has which number."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.jobs.remark import Remark
from tests.unit.settings.lint.jobs.test_words import MET, only, said

ONE_EACH = "--ntasks=$SLURM_NNODES --ntasks-per-node=1"


def of(asked: str, call: str) -> list[Remark]:
    head = "".join(f"#SBATCH {option}\n" for option in asked.split())
    return said(f"#!/bin/bash\n{head}{call}\n")


def codes(asked: str, call: str) -> list[str]:
    return [one.finding.code for one in of(asked, call)]


@pytest.mark.parametrize(
    ("asked", "srun"),
    [
        ("--nodes=2 --ntasks-per-node=4 --gres=gpu:4", "srun"),
        ("--nodes=2 --ntasks=8 --gres=gpu:4", "srun"),
        # srun takes over the tasks of the job, and does not heed another --ntasks-per-node (Slurm 22.05).
        ("--nodes=2 --ntasks-per-node=4 --gres=gpu:4", "srun --ntasks-per-node=1"),
        ("--nodes=2 --ntasks=8 --gres=gpu:4", "srun -N 2 --ntasks-per-node=1"),
    ],
)
def test_the_remedy_for_several_starts_holds_beside_the_tasks_of_the_job(asked: str, srun: str) -> None:
    launch = f"torchrun --nnodes=2 --nproc-per-node=4 {MET} t.py"
    [one] = of(asked, f"{srun} {launch}")
    assert one.finding.code == "SL245"
    assert f"srun {ONE_EACH}" in one.finding.remedy
    assert codes(asked, f"srun {ONE_EACH} {launch}") == []


def test_the_remedy_for_one_node_only_starts_one_launcher_a_node() -> None:
    [one] = of("--nodes=2 --ntasks-per-node=4 --gres=gpu:4", f"torchrun --nnodes=2 --nproc-per-node=4 {MET} t.py")
    assert (one.finding.code, one.finding.remedy.startswith(f"write srun {ONE_EACH} torchrun")) == ("SL242", True)


@pytest.mark.parametrize(
    "call",
    [
        "torchrun --nnodes=2 --nproc-per-node=4 --master_addr $HEAD t.py",
        "torchrun --nproc-per-node=4 t.py",
        f"torchrun --nnodes=2 --nproc-per-node=4 {MET} t.py",
        "accelerate launch --num_machines 2 --main_process_ip $HEAD t.py",
    ],
)
def test_who_follows_the_remedy_for_one_node_only_hears_nothing_more(call: str) -> None:
    asked = "--nodes=2 --ntasks-per-node=1 --gres=gpu:4"
    [one] = of(asked, call)
    assert one.finding.code == "SL242"
    line, _, more = one.finding.remedy.removeprefix("write ").partition(", with ")
    if "bash -c" in more:
        line = f"srun bash -c '{line.removeprefix('srun ')}'".replace("launch", "launch --machine_rank $SLURM_NODEID")
    elif more:
        line = line.replace("--master_addr $HEAD ", "").replace("torchrun", f"torchrun {more}")
    assert codes(asked, line) == []


def test_one_task_cannot_have_the_gpus_of_all_tasks() -> None:
    asked = "--nodes=2 --ntasks-per-node=4 --gpus-per-task=1"
    [one] = of(asked, f"srun torchrun --nnodes=2 --nproc-per-node=4 {MET} t.py")
    assert one.finding.code == "SL245"
    assert one.finding.remedy == (
        "write #SBATCH --ntasks-per-node=1 and --gpus-per-node=4, in place of --gpus-per-task"
    )


def test_a_command_over_several_lines_is_not_cut_in_the_remedy() -> None:
    for asked, start in (("--nodes=2", ""), ("--nodes=1 --ntasks=2", "srun ")):
        [one] = of(asked, f"{start}accelerate launch --mixed_precision fp16 \\\n  --main_process_ip $HEAD t.py")
        assert "before accelerate launch" in one.finding.remedy
        assert "fp16" not in one.finding.remedy


@pytest.mark.parametrize(
    ("asked", "ranks", "wanted"),
    [
        ("--ntasks=6 --gpus-per-task=2", 2, ""),
        ("--ntasks=6 --gpus-per-task=2", 1, "write --nproc-per-node=2"),
        ("--nodes=1 --ntasks=4 --gres=gpu:4 --gpus-per-task=1", 1, ""),
        ("--nodes=2 --ntasks-per-node=4 --gres=gpu:4", 1, ""),  # 4 tasks of 1 rank
        ("--nodes=1 --ntasks-per-node=4 --gres=gpu:2", 1, "ask for 4 GPUs a node, or for 2 tasks"),
        ("--ntasks=3 --gpus=8", 1, ""),  # on how many nodes?
        ("--nodes=2 --ntasks-per-node=1 --gpus=8", 4, ""),
        ("--nodes=2 --ntasks-per-node=1 --gpus=8", 8, "--gpus-per-node=8 in its place"),
        ("--nodes=1 --gpus=2 --ntasks-per-node=1", 4, "write --nproc-per-node=2"),
    ],
)
def test_ranks_are_compared_with_the_gpus_of_one_start(asked: str, ranks: int, wanted: str) -> None:
    found = of(asked, f"srun torchrun --nnodes=$SLURM_NTASKS --nproc-per-node={ranks} {MET} t.py")
    assert [one.finding.code for one in found] == (["SL240"] if wanted else [])
    assert all(wanted in one.finding.remedy for one in found)


def test_tasks_that_need_more_gpus_than_their_node_has_are_refused() -> None:
    [one] = of("--nodes=1 --ntasks=4 --gres=gpu:2 --gpus-per-task=1", "srun python t.py")
    assert (one.finding.code, one.line) == ("SL240", 5)
    assert "sbatch refuses" in one.finding.summary


@pytest.mark.parametrize(
    ("asked", "call", "says"),
    [
        ("--nodes=2 --ntasks-per-node=1", "srun deepspeed t.py", "2 trainings"),
        ("--nodes=2 --ntasks-per-node=4", "srun deepspeed --hostfile=hosts t.py", "8 times"),
        ("--nodes=2", "srun --ntasks=$SLURM_NNODES deepspeed --hostfile hosts t.py", "2 times"),
    ],
)
def test_deepspeed_starts_a_whole_job_by_itself(asked: str, call: str, says: str) -> None:
    [one] = of(asked, call)
    assert one.finding.code == "SL245"
    assert says in one.finding.summary
    assert one.finding.remedy.startswith("take srun away")


@pytest.mark.parametrize(
    "call",
    [
        "deepspeed --hostfile=hosts t.py",
        "srun --ntasks=1 --nodes=1 deepspeed --hostfile=hosts t.py",
        "srun deepspeed --hostfile=hosts --no_ssh --node_rank=$R --master_addr=$HEAD t.py",
        "mkdir -p /job; make_hosts > /job/hostfile\nsrun deepspeed t.py",
    ],
)
def test_deepspeed_that_is_started_as_it_should_be_is_left(call: str) -> None:
    assert codes("--nodes=2 --ntasks-per-node=1", call) == []


def test_gpus_of_all_nodes_are_no_gpus_of_each() -> None:
    asked = "--nodes=2 --ntasks-per-node=1 --gpus=4"
    [one] = of(asked, "deepspeed --hostfile=hosts --num_gpus=4 t.py")
    assert (one.finding.code, one.finding.severity) == ("SL240", "error")
    assert codes(asked, "deepspeed --hostfile=hosts --num_gpus=2 t.py") == []
    [one] = of("--nodes=1 --gres=gpu:2", "deepspeed --num_gpus=4 t.py")
    assert one.finding.remedy == "write --num_gpus=2, or leave it out"


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("accelerate launch --num_machines 2 --main_process_ip $H t.py", True),
        ("accelerate launch --num_machines $SLURM_NNODES --main_process_ip $H t.py", True),
        ("accelerate launch --num_machines 2 --main_process_ip $H --machine_rank 0 t.py", True),
        ("torchrun --nnodes=2 --nproc-per-node=gpu --master-addr $H t.py", True),
        ("torchrun --nnodes=2 --nproc-per-node=gpu --rdzv-endpoint $H:1 t.py", True),  # static without a word
        # It wants the number with whatever rendezvous, and heeds it with a static one only.
        ("accelerate launch --num_machines 2 --main_process_ip $H --rdzv_backend c10d t.py", True),
        ("accelerate launch --num_machines 2 --main_process_ip $H --rdzv_backend c10d --machine_rank 0 t.py", False),
        ("accelerate launch --num_machines 2 --main_process_ip $H --use_deepspeed t.py", False),  # it starts pdsh
        ("accelerate launch --config_file a.yaml --num_machines 2 --main_process_ip $H t.py", False),
        (f"torchrun --nnodes=2 --nproc-per-node=gpu {MET} t.py", False),
        ("torchrun --nnodes=2 --nproc-per-node=gpu --master-addr $H $MORE t.py", False),
        ("torchrun --nnodes=1 --nproc-per-node=gpu --master-addr $H t.py", None),
        ("bash -c 'torchrun --nnodes=2 --nproc-per-node=gpu --master-addr $H --node-rank $SLURM_NODEID t.py'", False),
    ],
)
def test_nodes_that_nobody_numbers_are_all_the_first(call: str, wrong: bool | None) -> None:
    found = of("--nodes=2 --ntasks-per-node=1", f"srun {call}")
    assert [one.finding.code for one in found if one.finding.code != "SL241"] == (["SL249"] if wrong else [])
    assert all("$SLURM_NODEID" in one.finding.remedy for one in found if wrong)
    assert not any("torchrun" in one.finding.remedy for one in found if "accelerate" in call)


def test_nodes_that_are_started_one_by_one_are_numbered_by_the_loop() -> None:
    call = "accelerate launch --num_machines 2 --main_process_ip $H --machine_rank $i t.py"
    assert codes("--nodes=2 --ntasks-per-node=1", f"for i in 0 1; do srun -N 1 -n 1 {call} & done") == []


def test_a_number_that_the_batch_shell_fills_in_is_told_where_srun_starts_tasks() -> None:
    asked = "--nodes=2 --ntasks-per-node=1"
    call = "accelerate launch --num_machines 2 --main_process_ip $H --machine_rank $SLURM_PROCID t.py"
    [one] = of(asked, f"# one day with srun\n{call}")
    assert one.finding.code == "SL242"
    assert one.finding.remedy.endswith(", with --machine_rank $SLURM_NODEID in the quotes of bash -c")
    [one] = of(asked, f"srun {call}")
    assert one.finding.code == "SL243"
    assert "torchrun" not in one.finding.remedy


@pytest.mark.parametrize("dash", ["\u2014", "\u2013", "\u2014-", "\u2212\u2212"])
def test_a_long_dash_makes_a_script_of_an_option(dash: str) -> None:
    one = only(f"accelerate launch {dash}num_processes=4 --mixed_precision fp16 t.py\n", name="job.sh")
    assert one.finding.code == "SL247"
    assert one.finding.remedy == "write --num_processes"


def test_a_long_dash_is_told_in_the_words_of_slurm_too() -> None:
    call = f"torchrun --nnodes=2 --nproc-per-node=4 {MET} t.py"
    [one] = of("--nodes=2 --ntasks-per-node=4", f"srun \u2014ntasks=2 {call}")
    assert (one.finding.code, one.finding.remedy) == ("SL247", "write --ntasks")
    [one] = of("--nodes=2 \u2013\u2013gres=gpu:4", f"srun {call}")
    assert (one.finding.code, one.finding.remedy) == ("SL250", "write #SBATCH --gres=gpu:4")


@pytest.mark.parametrize(
    ("asked", "option", "wanted"),
    [
        ("--nodes=4 --gres=gpu:4", "--nproc_per_node=$SLURM_GPUS", "write $SLURM_GPUS_ON_NODE"),
        ("--nodes=1 --gres=gpu:4", "--nproc_per_node=$SLURM_NTASKS_PER_NODE", "write $SLURM_GPUS_ON_NODE"),
        ("--nodes=1 --gres=gpu:4", "--nproc_per_node=$SLURM_GPUS_PER_NODE", "or add #SBATCH --gpus-per-node"),
    ],
)
def test_what_is_written_for_a_variable_that_is_not_set_is_right_for_each_node(
    asked: str, option: str, wanted: str
) -> None:
    [one] = of(asked, f"srun torchrun --nnodes=$SLURM_NNODES {option} {MET} t.py")
    assert one.finding.code == "SL251"
    assert one.finding.remedy.endswith(wanted)


def test_an_option_that_is_near_is_told_with_its_form() -> None:
    one = only("torchrun --standalone --rdzv_confs 900 t.py\n", name="job.sh")
    assert "such as timeout=900" in one.finding.remedy
