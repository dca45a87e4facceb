"""What files say that is not written plainly: sums, blocks without a language, variables for other processes."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.extract import arithmetic
from tests.unit.settings.lint.jobs.test_words import only, said


def codes(text: str, name: str) -> list[str]:
    return [one.finding.code for one in said(text, name=name)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8*1024*1024", "8388608"),
        (" 1 << 20 ", "1048576"),
        ("(1800 + 200) / 3", "666"),
        ("7 % 4", "3"),
        ("10 - 12 + 1", None),
        ("010", None),  # 8 in the shell
        ("2**70", None),
        ("1/0", None),
        ("1 << 99", None),
        ("9" * 79, None),
        ("i + 1", None),
        ("", None),
        ("(" * 70, None),
        ("3 < 4", None),
    ],
)
def test_a_sum_of_numbers_is_known_before_the_run(text: str, value: str | None) -> None:
    assert arithmetic.value(text) == value


def test_a_recorder_sized_in_bytes_is_told_however_the_bytes_are_written() -> None:
    one = only("export TORCH_FR_BUFFER_SIZE=$((8 * 1024 * 1024))\ntorchrun --standalone t.py\n", name="a.sh")
    assert one.finding.code == "SL218"
    assert "8388608" in one.finding.summary
    assert one.edits == ()


def test_a_sum_with_a_variable_is_not_known() -> None:
    text = "i=31\nfor x in a b; do i=$((i+1)); export NCCL_IB_TIMEOUT=$i; python t.py; done\n"
    assert codes(text, "a.sh") == []


@pytest.mark.parametrize(
    "body",
    [
        "NCCL_SOCKET_IFNAME=ib0 python -m torch.distributed.launch --nnodes=1 t.py",
        "mpirun -np 8 \\\n  -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=INET \\\n  ./test -g <gpus>",
        "srun --export=ALL,NCCL_TIMEOUT=60 python t.py",
    ],
)
def test_a_block_without_a_language_that_starts_ranks_is_one_of_the_shell(body: str) -> None:
    [code] = codes(f"# How to run\n\n```\n{body}\n```\n", "README.md")
    assert code in ("SL248", "SL213", "SL211")


def test_a_block_without_a_language_that_a_program_printed_is_none() -> None:
    text = "```\nrank 0: torchrun started\nNCCL_TIMEOUT is read by nobody\n  usage: python -m torch\n```\n"
    assert [code for code in codes(text, "README.md") if code != "SL219"] == []


LATE = 'import os\nimport torch\n\ndef main():\n    os.environ["OMP_NUM_THREADS"] = "4"\n'


@pytest.mark.parametrize(
    "more",
    [
        "    subprocess.run(['python', 'train.py'])\n",
        "    torch.multiprocessing.spawn(work, nprocs=2)\n",
        "    torch.set_num_threads(4)\n",
        "    torchrun.main(args)\n",
        "    os.execvp('python', args)\n",
    ],
)
def test_a_program_that_starts_others_may_set_a_variable_for_these(more: str) -> None:
    assert codes(LATE, "launch.py") == ["SL217"]
    assert codes(LATE + more, "launch.py") == []


def test_a_limit_that_nobody_watches_is_told_as_such_whatever_it_is() -> None:
    text = (
        "export TORCH_NCCL_ENABLE_MONITORING=0\nexport TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=0\ntorchrun --standalone t.py\n"
    )
    one = only(text, name="a.sh", torch="2.13")
    assert (one.finding.code, one.finding.severity) == ("SL215", "warning")


def test_a_function_of_ones_own_around_ssh_runs_what_ssh_would() -> None:
    text = '_ssh "$host" "\n  export NCCL_TIMEOUT=5\n  python t.py\n"\n'
    assert codes(text, "a.sh") == ["SL211"]


@pytest.mark.parametrize("value", ["NONE", "ERROR", "error"])
def test_rccl_has_levels_of_its_own(value: str) -> None:
    text = f"export NCCL_DEBUG={value}\npython t.py\n"
    assert codes(text, "a.sh") == ["SL213"]
    assert codes(f"export HIP_VISIBLE_DEVICES=0\n{text}", "a.sh") == []


def test_a_name_that_nccl_does_not_know_may_be_one_of_rccl() -> None:
    text = "export NCCL_SOME_COPY_ENABLE=1\npython t.py\n"
    assert only(text, name="a.sh").finding.severity == "warning"
    one = only(f"module load rocm\n{text}", name="a.sh").finding
    assert (one.code, one.severity) == ("SL210", "note")
    assert "RCCL has names of its own" in one.because[-1]
    assert codes("module load rocm\nexport NCCL_BOOTSTRAP_BIDIR_ALLGATHER=0\npython t.py\n", "a.sh") == []
