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


def node(folder: Path) -> dict[str, str] | None:
    """The environment of a node with eight GPUs and a torch that is built for them, as far as a check looks: what lies
    below `folder`. None without a C compiler."""
    libraries, torch = folder / "lib", folder / "site/torch"
    libraries.mkdir()
    torch.mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("cuda = '12.8'\nhip = None\n")
    if build(libraries) is None:
        return None
    return {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": str(torch.parent)}
