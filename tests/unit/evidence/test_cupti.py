"""Whether kernels can be recorded is tried in a child process, which may crash or wait."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.evidence import cupti

CUDA = "int cuInit(unsigned f) {{ {init} }}"
CUPTI = """
int cuptiSubscribe(void *a, void *b, void *c) {{ {subscribe} }}
int cuptiActivityEnable(int kind) {{ {enable} }}
int cuptiGetResultString(int code, const char **text) {{ *text = "NOT_PERMITTED"; return 0; }}
"""
WAITS = "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]; print('ready', flush=True); sys.stdin.read()"


pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")


class Made:
    """A process that has loaded libraries of CUDA's names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[str]]()

    def __call__(self, init: str = "return 0;", subscribe: str = "return 0;", enable: str = "return 0;") -> int:
        sources = {
            "libcuda.so.1": CUDA.format(init=init),
            "libcupti.so.13": CUPTI.format(subscribe=subscribe, enable=enable),
        }
        for name, source in sources.items():
            command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(self.folder / name)]
            subprocess.run(command, input=source, text=True, check=True)
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS, *(str(self.folder / name) for name in sources)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        self.processes.append(process)
        return process.pid


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    making = Made(tmp_path)
    yield making
    for process in making.processes:
        process.kill()
        process.communicate()


def test_nothing_is_missing_where_it_works(made: Made) -> None:
    assert cupti.missing([made()]) == ""


def test_what_the_driver_and_cupti_say_is_told(made: Made) -> None:
    assert cupti.missing([made(init="return 100;")]) == "cuInit says 100"
    assert cupti.missing([made(enable="return 35;")]) == "CUPTI says NOT_PERMITTED"


def test_a_crash_is_the_childs(made: Made) -> None:
    assert "crashed" in cupti.missing([made(subscribe="return *(volatile int *)0;")])


def test_a_driver_that_does_not_answer_is_not_waited_for(made: Made) -> None:
    assert "did not come to its end" in cupti.missing([made(init="for (;;) ;")], 0.5)


def test_without_the_driver_nothing_is_tried() -> None:
    assert "has loaded NVIDIA's driver" in cupti.missing([1 << 22, 1])
