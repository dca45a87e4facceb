"""Builds fake_nvml.c into a library that a child process finds as the real one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(folder: Path) -> Path | None:
    """Compile the library into `folder` and return the folder, for LD_LIBRARY_PATH; None without a C compiler.

    LD_LIBRARY_PATH is read when a process starts, so it works for children only.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    # ctypes and pynvml find a loaded library again by its soname.
    subprocess.run(
        [compiler, "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)], check=True
    )
    return folder
