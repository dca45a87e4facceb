"""How launchers are called: what a careful reader says of the command, and what the lint must not make of it."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.jobs import fix
from tests.unit.settings.lint.jobs.test_words import ONE, only, said


def codes(text: str, name: str = "job.sh") -> list[str]:
    return [one.finding.code for one in said(text, name=name)]


@pytest.mark.parametrize(
    "call",
    [
        "torchrun --nnodes=2 --nproc_per_node=8 t.py",
        "torchrun --nnodes 2 --nproc-per-node 8 --node-rank $RANK -m pkg.train",
        "torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-id=7 t.py",
        "export MASTER_ADDR=head\ntorchrun --nnodes=2 t.py",
    ],
)
def test_torchrun_of_several_nodes_without_a_master_takes_each_node_for_it(call: str) -> None:
    one = only(f"{call}\n", name="job.sh")
    assert one.finding.code == "SL249"
    assert "PET_MASTER_ADDR" in one.finding.because[0]
    assert "--master-addr" in one.finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nnodes=2 --master_addr head t.py",
        "torchrun --nnodes=2 --rdzv-endpoint head:1 t.py",
        "torchrun --nnodes=1 t.py",
        "torchrun --nnodes=1:4 t.py",
        "torchrun --nnodes=2 $ARGS t.py",
        "export PET_MASTER_ADDR=$HEAD\ntorchrun --nnodes=2 t.py",
        "torchrun --nnodes=2 --rdzv_conf=is_host=$(((SLURM_NODEID)) && echo 0 || echo 1) --rdzv_endpoint=a:1 t.py",
    ],
)
def test_a_master_that_is_named_or_may_be_is_none_missing(text: str) -> None:
    assert codes(f"{text}\n") == []


def test_on_slurm_the_missing_master_is_the_first_node_of_the_job() -> None:
    one = only(ONE + "srun torchrun --nnodes=2 --nproc_per_node=8 t.py\n")
    assert one.finding.code == "SL249"
    assert "scontrol show hostnames" in one.finding.remedy


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("accelerate launch --nnodes 2 --main_process_ip a t.py", "write --num_machines"),
        ("accelerate launch --nproc_per_node=8 t.py", "write --num_processes"),
        ("accelerate launch --num_process 8 t.py", ""),  # argparse of before 1.0 completes it
        ("accelerate launch --num_machine_s 2 t.py", "--num_machines"),
        ("deepspeed --num-gpus 8 t.py", "write --num_gpus"),
        ("deepspeed --nproc_per_node=8 t.py", "write --num_gpus"),
        ("torchrun --num_gpus 8 t.py", "behind the script"),
    ],
)
def test_options_of_another_launcher_are_told_with_the_own_one(call: str, meant: str) -> None:
    found = said(f"{call}\n", name="job.sh")
    assert [one.finding.code for one in found] == (["SL247"] if meant else [])
    assert all(meant in one.finding.remedy for one in found)


@pytest.mark.parametrize(
    "call",
    [
        "accelerate launch --multi-gpu --num-processes 8 --mixed-precision=bf16 t.py --nnodes 2",
        "accelerate launch --use_fsdp --fsdp_offload_params true --rdzv_conf a=b --tee 3 -m pkg.train",
        "accelerate launch --config_file c.yaml --deepspeed_multinode_launcher standard $ARGS t.py",
        "deepspeed --include localhost:0,1 --master_port=29501 --no_local_rank --no_python $CMD",
        "deepspeed -H hosts -i a:0 --module pkg.train --deepspeed c.json",
        "torchrun -r3 -t 3 --standalone t.py",
    ],
)
def test_own_options_in_all_their_spellings_are_no_finding(call: str) -> None:
    assert codes(f"{call}\n") == []


@pytest.mark.parametrize(
    "call",
    [
        "torchrun --standalone python t.py",
        "accelerate launch --num_processes 8 python3 t.py",
        "deepspeed --num_gpus=8 python t.py",
    ],
)
def test_a_launcher_starts_python_itself(call: str) -> None:
    one = only(f"{call}\n", name="job.sh")
    assert one.finding.code == "SL247"
    assert "leave out python" in one.finding.remedy
    assert codes(call.replace(" python", " --no_python python") + "\n") == []


def test_torchrun_that_another_program_starts_has_its_options_behind_the_dashes() -> None:
    text = "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\nsrun trainer fit c.yaml --launcher torchrun {}\n"
    assert codes(text.format("-- --nproc_per_node=$N"), name="a.sbatch") == []
    assert codes(text.format(""), name="a.sbatch") == []
    assert codes(text.format("-- --nproc_per_node=4"), name="a.sbatch") == ["SL240"]


def test_a_command_that_eval_puts_together_is_told_where_it_stands() -> None:
    text = 'x=1\ncmd="python -m torch.distributed.launch \\\n  --nproc_per_node=8 \\\n  t.py --fp16"\neval ${cmd}\n'
    one = only(text, name="job.sh")
    assert (one.finding.code, one.line) == ("SL248", 2)


def test_the_remedy_for_the_old_launcher_is_whole_where_the_command_goes_on_below() -> None:
    one = only("python3 -m torch.distributed.launch \\\n  --use_env \\\n  t.py\n", name="job.sh")
    assert one.finding.remedy == "write torchrun in place of python3 -m torch.distributed.launch, without --use-env"


def test_use_env_takes_no_value() -> None:
    text = "python -m torch.distributed.launch --nnodes=2 --master_addr a --use_env python t.py\n"
    assert sorted(codes(text)) == ["SL247", "SL248"], "python is the script, and no value"


BATCH = "#!/bin/bash\n#SBATCH --nodes=1\n"


def test_what_stands_below_the_first_command_is_not_read_by_sbatch() -> None:
    one = only("#!/bin/bash\n# a job\n\nset -e\n#SBATCH --nodes=1\n# more\n#SBATCH --time=1:00\nsrun python t.py\n")
    assert (one.finding.code, one.line, one.more) == ("SL250", 5, (7,))
    assert "on line 4" in one.finding.summary


def test_a_batch_script_begins_with_its_first_line() -> None:
    one = only(f"\n\n{BATCH}srun python t.py\n")
    assert (one.finding.code, one.line) == ("SL250", 3)
    assert codes(f"#SBATCH --nodes=1\n{BATCH}srun python t.py\n", "a.sbatch") == []


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        ("--nodes=$N", "$N"),
        ("--output=${HOME}/%x.log", "${HOME}"),
        ("-J run_$(date +%F)", "$("),
        ("--array=0-${LAST:-3}%1", "${LAST:-3}"),
    ],
)
def test_sbatch_fills_in_no_variables(line: str, variable: str) -> None:
    one = only(f"{BATCH}#SBATCH {line}\nsrun python t.py\n")
    assert (one.finding.code, one.line) == ("SL250", 3)
    assert f"takes {variable} as it stands" in one.finding.summary


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (BATCH + "#SBATCH --time=1:00   # or $TIME\n#SBATCH --output=%x-%j.out\nsrun python t.py\n", "a.sbatch"),
        (BATCH + "#SBATCH --nodes=$N\nsrun python t.py\n", "a.sbatch.in"),
        (BATCH + "#SBATCH --nodes={{ n }}\n{% if x %}\n#SBATCH --time=1\n{% endif %}\nsrun python t.py\n", "a.sbatch"),
        ("cat > job.sh <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\nsrun python t.py\nEOF\nsbatch job.sh\n", "a.sh"),
        ("echo hi\n# '#SBATCH' lines go above\nsrun python t.py\n", "a.sh"),
    ],
)
def test_templates_and_jobs_that_a_script_writes_are_filled_in_by_others(text: str, name: str) -> None:
    assert codes(text, name) == []


RANKS = "srun --ntasks-per-node=1 torchrun --nnodes=1 --nproc-per-node={} t.py\n"


@pytest.mark.parametrize(
    ("asked", "value", "wrong"),
    [
        ("--gres=gpu:4", "$SLURM_GPUS_PER_NODE", True),
        ("--gres=gpu:4", "${SLURM_GPUS_PER_NODE}", True),
        ("--gres=gpu:4", "${SLURM_GPUS_PER_NODE:-4}", False),
        ("--gpus-per-node=4", "$SLURM_GPUS_PER_NODE", False),
        ("--gres=gpu:4", "$SLURM_GPUS_ON_NODE", False),
        ("-G 4", "$SLURM_GPUS", False),
        ("--gres=gpu:4", "$SLURM_GPUS", True),
    ],
)
def test_slurm_sets_what_it_was_asked_for(asked: str, value: str, wrong: bool) -> None:
    text = f"{BATCH}#SBATCH {asked}\n" + RANKS.format(value)
    assert codes(text, "a.sbatch") == (["SL251"] if wrong else [])
    assert codes(text.replace("srun", "export SLURM_GPUS_PER_NODE=4 SLURM_GPUS=4\nsrun"), "a.sbatch") == []


def test_what_a_step_asks_for_counts_too() -> None:
    text = BATCH + RANKS.format("$SLURM_NTASKS_PER_NODE")
    assert codes(text, "a.sbatch") == []
    assert codes(text.replace(" --ntasks-per-node=1", ""), "a.sbatch") == ["SL251"]


@pytest.mark.parametrize(
    ("line", "below"),
    [
        ("torchrun --standalone \\ ", "  --nproc-per-node=8 \\\n  t.py"),
        ("NCCL_DEBUG=WARN \\\t ", "python t.py"),
        ("A=1 \\ ", "B=2 ./run"),
    ],
)
def test_a_blank_behind_the_backslash_ends_the_command(line: str, below: str) -> None:
    text = f"{line}\n{below}\n"
    one = only(text, name="job.sh")
    assert (one.finding.code, one.line) == ("SL252", 1)
    mended = fix.apply(text, one.edits)
    assert mended == f"{line.rstrip()}\n{below}\n"
    assert codes(mended) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# torchrun a \\ \n# --b\npython t.py\n", "a.sh"),
        ("echo hello\\ \npython t.py\n", "a.sh"),
        ("ls a\\\\ \n", "a.sh"),
        ("printf '%s' a \\ \nls\n", "a.sh"),
        ("FROM x\nRUN A=1 \\ \n  B=2 ./run\n", "Dockerfile"),  # Docker's parser takes the blank away
    ],
)
def test_a_blank_that_ends_nothing_of_a_launch_is_left(text: str, name: str) -> None:
    assert "SL252" not in codes(text, name)


@pytest.mark.parametrize(
    ("nodes", "given", "severity"),
    [
        (2, "--num_machines 2 --num_processes 8", "warning"),  # as many as one machine has
        (2, "--num_machines=$SLURM_NNODES --num_processes=8", "warning"),
        (2, "--num_machines 2 --num_processes 16", ""),
        (2, "--num_machines 2 --num_processes 32", "error"),
        (2, "--num_machines 2 --num_processes $N", ""),
        (1, "--num_processes 8", ""),
        (1, "--num_processes 7", ""),  # one GPU may be for something else
        (1, "--num_processes 9", "error"),
    ],
)
def test_accelerate_counts_the_ranks_of_all_machines(nodes: int, given: str, severity: str) -> None:
    head = f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    found = said(
        head + f"srun accelerate launch --main_process_ip $HEAD --machine_rank $R {given} t.py\n", name="a.sbatch"
    )
    assert [(one.finding.code, one.finding.severity) for one in found] == ([("SL240", severity)] if severity else [])
    assert all(f"write --num_processes={nodes * 8}" == one.finding.remedy for one in found)


@pytest.mark.parametrize(
    ("used", "name", "meant"),
    [
        ("nodes=($(scontrol show hostnames $SLURM_JOB_NODELITS))", "SLURM_JOB_NODELITS", "SLURM_JOB_NODELIST"),
        ('echo "in job ${SLURM_JOB_IDd}"', "SLURM_JOB_IDd", "SLURM_JOB_ID"),
        ("export SEED=$SLURM_TASK_ID", "SLURM_TASK_ID", "SLURM_ARRAY_TASK_ID"),
        ("export N=$((SLURM_NODES * 8))\nm=$SLURM_NODES", "SLURM_NODES", "SLURM_NNODES"),
        ("cd $SLURM_SUBMITDIR", "SLURM_SUBMITDIR", "SLURM_SUBMIT_DIR"),
    ],
)
def test_a_variable_that_slurm_does_not_have_is_told_with_the_one_that_was_meant(
    used: str, name: str, meant: str
) -> None:
    one = only(f"#!/bin/bash\n#SBATCH --nodes=2\n{used}\nsrun python t.py\n", name="job.sh")
    assert one.finding.code == "SL251"
    assert one.finding.summary.startswith(f"{name} is empty")
    assert one.finding.remedy == f"did you mean {meant}?"
    assert one.finding.severity == ("note" if "scontrol" in used else "warning")  # it takes those of the job


@pytest.mark.parametrize(
    "used",
    [
        "echo $SLURM_JOB_NODELIST $SLURM_TMPDIR $SLURM_NTASKS_HET_GROUP_1 $SLURM_MY_OWN",
        "# echo $SLURM_JOB_NODELITS",
        "export SLURM_NODES=2\necho $SLURM_NODES",
        "echo ${SLURM_NODES:-2}",
        "for SLURM_NODES in 1 2; do echo $SLURM_NODES; done",
        "read -r SLURM_NODES\necho $SLURM_NODES",
    ],
)
def test_variables_that_slurm_has_or_that_a_script_brings_are_none(used: str) -> None:
    assert codes(f"#!/bin/bash\n#SBATCH --nodes=2\n{used}\nsrun python t.py\n") == []
    assert codes("echo $SLURM_NODES\ntorchrun --standalone t.py\n") == []  # no batch script: it may be given
