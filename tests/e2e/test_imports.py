"""A rank that imports for long, as TensorBoard's logger makes rank 0 do, and one whose import does not end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness import FAULTS, launch, start

from safelaunch.watch.hang import NOTICE_S

MODULES, STUCK = 48, 5
SLEEP_S = 2 * NOTICE_S / MODULES


def package(folder: Path, stuck: str = "") -> Path:
    """A package of many slow modules, of which one may do something else."""
    heavy = folder / "site-packages" / "heavy"
    heavy.mkdir(parents=True)
    (heavy / "__init__.py").write_text("".join(f"import heavy.m{number}\n" for number in range(MODULES)))
    for number in range(MODULES):
        own = stuck if stuck and number == STUCK else f"import time\ntime.sleep({SLEEP_S})\n"
        (heavy / f"m{number}.py").write_text(own)
    return heavy.parent


def test_a_rank_that_imports_for_long_does_not_hang(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, FAULTS / "imports.py", package(tmp_path), cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert "without progress" not in ended.err
    assert ended.read("result.json")["verdicts"] == []


def test_an_import_that_waits_for_ever_is_told_with_the_module(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    folder = package(tmp_path, f"pass\nopen({str(fifo)!r}).read()\n")
    process = start("--nproc-per-node", 2, FAULTS / "imports.py", folder, cwd=tmp_path)
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "without progress" in line)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "SL301: rank 0 " in told
    assert ", and rank 1 waits for it in all_reduce" in told
    assert f"it imports {folder / 'heavy' / f'm{STUCK}.py'}, and is at line 2 of it" in err
