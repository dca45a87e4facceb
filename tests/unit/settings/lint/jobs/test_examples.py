"""Examples in Markdown are files of their own: each has its #SBATCH lines, and its own kind."""

from __future__ import annotations

import pytest

from tests.unit.settings.lint.jobs.test_words import only, said

_FOUR_TASKS = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
_RENDEZVOUS = "--rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500"


def codes(text: str, name: str = "README.md") -> list[str]:
    return [one.finding.code for one in said(text, name=name)]


def _block(body: str, language: str = "bash", margin: str = "") -> str:
    fenced = f"```{language}\n{body}```"
    return "\n".join(margin + line for line in fenced.split("\n")) + "\n"


def test_a_batch_script_in_an_example_is_held_against_its_own_lines() -> None:
    launch = f"srun torchrun --nnodes=2 --nproc-per-node=4 {_RENDEZVOUS} t.py\n"
    text = f"# Run\n\n{_block('torchrun --standalone t.py' + chr(10))}\n## Slurm\n\n{_block(_FOUR_TASKS + launch)}"
    one = only(text, name="README.md")
    assert one.finding.code == "SL245"
    assert one.finding.because == ("line 12 asks for 4 tasks a node",)
    assert text.split("\n")[one.line - 1] == launch.strip()


def test_an_example_in_a_list_is_read_without_its_margin() -> None:
    asked = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"
    body = f"{asked}srun torchrun --nnodes=4 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$H:1 t.py\n"
    assert codes("1. Run it:\n\n" + _block(body, margin="    ")) == ["SL241"]


def test_what_one_example_asks_for_another_does_not_get() -> None:
    launch = f"srun torchrun --nnodes=2 --nproc-per-node=4 {_RENDEZVOUS} t.py\n"
    assert codes(_block(_FOUR_TASKS + "srun python t.py\n") + "\nor\n\n" + _block(launch)) == []


def test_lines_that_sbatch_does_not_read_are_told_in_a_whole_example() -> None:
    late = "module load x\n#SBATCH --nodes=2\nsrun python t.py\n"
    assert codes("Text.\n\n" + _block("#!/bin/bash\n" + late)) == ["SL250"]
    assert codes("Text.\n\n" + _block(late)) == []  # a piece of a script


@pytest.mark.parametrize("language", ["yaml", "yml"])
def test_an_operator_may_name_the_master_in_an_example_too(language: str) -> None:
    words = ("python", "-m", "torch.distributed.run", "--nnodes=3", "/app/t.py")
    command = "\n".join(f"        - {word}" for word in words)
    body = f"kind: PyTorchJob\nspec:\n  containers:\n    - name: pytorch\n      command:\n{command}\n"
    assert codes(_block(body, language)) == []
    assert codes(_block("torchrun --nnodes=3 --nproc-per-node=8 t.py\n")) == ["SL249"]


@pytest.mark.parametrize(
    "options",
    [
        "--ntasks=$WORLD_SIZE --ntasks-per-node=$SLURM_NTASKS_PER_NODE",
        '--ntasks-per-node="${SLURM_NTASKS_PER_NODE}"',
        "-n $SLURM_NTASKS",
        "--ntasks=${SLURM_NTASKS}",
        "-N $SLURM_NNODES --ntasks $SLURM_NTASKS",
    ],
)
def test_a_step_that_repeats_what_the_job_asks_for_starts_as_many(options: str) -> None:
    launch = f"srun {options} \\\n  torchrun --nnodes=2 --nproc-per-node=4 {_RENDEZVOUS} t.py\n"
    assert codes(_FOUR_TASKS + launch, "job.sh") == ["SL245"]
    assert codes(_FOUR_TASKS.replace("node=4", "node=1", 1) + launch, "job.sh") == []
    assert codes(launch, "job.sh") == []


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER"])
def test_variables_of_cuda_that_stay_in_the_shell_are_told(name: str) -> None:
    value = "PCI_BUS_ID" if name.endswith("ORDER") else "1"
    one = only(f"{name}={value}\nsrun python -m torch.distributed.run t.py\n", name="a.sh")
    assert one.finding.code == "SL223"
    assert f"write export {name}={value}" in one.finding.remedy


@pytest.mark.parametrize("line", ["CUDA_VISIBLE_DEVICES=0", "CUDA_HOME=/usr/local/cuda", "CUDA_VERSION=12.4"])
def test_variables_that_the_job_may_have_had_before_are_not(line: str) -> None:
    assert codes(f"{line}\npython t.py\n", "a.sh") == []


_PAIRS = '- name: NCCL_IB_TIMEOUT\n  value: "50"\n- name: NCCL_SOCKET_IFNAME\n  value: eth0\n'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (_PAIRS, "env.yaml"),
        (f"Set these:\n\n```yaml\n{_PAIRS}```\n", "README.md"),
        ('[{"name": "NCCL_IB_TIMEOUT", "value": "50"}]', "env.json"),
    ],
)
def test_a_list_of_variables_alone_is_an_environment(text: str, name: str) -> None:
    assert codes(text, name) == ["SL213"]


def test_a_list_of_parameters_is_none() -> None:
    assert codes("parameters:\n" + _PAIRS, "a.yaml") == ["SL219"]


def test_a_python_that_an_argument_names_starts_a_launcher_too() -> None:
    text = (
        'py=$3\nif [ -z "$py" ]; then py=$PYTHON; fi\n'
        'CMD="$py \\\n    -m torch.distributed.launch --nproc_per_node=2 $1"\n$CMD\n'
    )
    assert codes(text, "a.sh") == ["SL248"]
    assert codes("$PYTHON -m torch.distributed.run --nnodes=2 --nproc-per-node=8 t.py\n", "a.sh") == ["SL249"]
    assert codes("$RUN -m pytest --nnodes=2 t.py\n", "a.sh") == []
