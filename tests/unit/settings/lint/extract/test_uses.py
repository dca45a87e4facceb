"""Which names a file makes use of itself, and which it only sets, passes on or prints."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.extract import reads


@pytest.mark.parametrize(
    "text",
    [
        "export X=/init.sh\nsource ${X}",
        'X=1; if [ "$X" = 1 ]; then :; fi',
        "Y=$X",
        "export X=/a && . $X/env.sh",
        'torchrun train.py --size "${X:-8}"',
        'echo "$X" > hosts',
        "echo $X | bash",
        "a ${!X} b",
        "export Y=${X}",
        "command: [bash, -c, 'source $X']",
        "cat <<EOF\nrun \\$X\nEOF",
    ],
)
def test_what_is_used(text: str) -> None:
    assert "X" in reads("job.sh", text)
    assert "X" in reads("job.yaml", text)


@pytest.mark.parametrize(
    "text",
    [
        "export X=1",
        "export X=${X:-1}",
        'X="$X:more"',
        "X+=$X",
        ": ${X:=1}",
        "# source $X",
        "mpirun -x X -x X=$X python x.py",
        "docker run -eX=$X image",
        "docker run -e X=${X} image",
        'ssh node "export X=$X; python x.py"',
        "srun --export=ALL,X=$X python x.py",
        'echo "X is $X"',
        'true; echo "X=$X Y: $X"',
        "env:\n- name: X\n  value: $X",
        "env:\n  X: ${X}",
        "environment:\n- X=${X}",
        "$XY ${X_Y}",
    ],
)
def test_what_is_only_set_passed_on_or_printed(text: str) -> None:
    assert "X" not in reads("job.sh", text)
    assert "X" not in reads("job.yaml", text)


def test_a_python_file_reads_the_names_in_its_text() -> None:
    text = 'import os\nos.environ["NCCL_ME"] = "1"\nif os.environ.get("NCCL_YOU"):\n    pass\n'
    assert reads("train.py", text) == {"NCCL_YOU"}
