"""The table of variables that count before `import torch`, held against what the installed torch reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.import_variables import is_read

# Not set by anybody for torch, or of the shell.
OTHERS = {"PATH", "HOME", "TRACED", "LD_PRELOAD", "AS_SECURE_LOG_FILE", "CASK_LOG_INFO", "NV_NVVM_VERSION", "bar"}

ENVIRON = """
import os, sys
read = set()
kind = type(os.environ)
find = kind.__getitem__
def __getitem__(self, name):
    read.add(name)
    return find(self, name)
def __contains__(self, name):
    read.add(name)
    return self.encodekey(name) in self._data
kind.__getitem__, kind.__contains__ = __getitem__, __contains__
import torch
print(*sorted(read))
"""

GETENV = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
extern char **environ;
static void note(const char *name) {
    static int file = -2;
    char line[200];
    if (file == -2) {
        file = -1;
        for (char **each = environ; each && *each; each++)
            if (!strncmp(*each, "TRACED=", 7)) file = open(*each + 7, O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    if (file >= 0 && name && strlen(name) < 150) {
        int length = snprintf(line, sizeof line, "%s\n", name);
        if (write(file, line, length) < 0) file = -1;
    }
}
char *getenv(const char *name) {
    note(name);
    return ((char *(*)(const char *)) dlsym(RTLD_NEXT, "getenv"))(name);
}
char *secure_getenv(const char *name) {
    note(name);
    return ((char *(*)(const char *)) dlsym(RTLD_NEXT, "secure_getenv"))(name);
}
"""


def unknown(names: set[str]) -> set[str]:
    return {name for name in names - OTHERS if not is_read(name) and not name.startswith("CUDA_")}


def test_what_python_code_reads_while_torch_is_imported_is_known() -> None:
    found = subprocess.run([sys.executable, "-c", ENVIRON], capture_output=True, text=True, check=True).stdout.split()

    assert len(found) > 20
    assert unknown(set(found)) == set()


def test_what_libraries_read_while_torch_is_imported_is_known(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "traced.c").write_text(GETENV)
    library, log = tmp_path / "traced.so", tmp_path / "log"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "traced.c", "-ldl"], check=True)
    environ = {**os.environ, "LD_PRELOAD": str(library), "TRACED": str(log)}
    source = f"open({str(log)!r}, 'w').close()\nimport torch\n"  # without what Python's own start reads
    subprocess.run([sys.executable, "-c", source], env=environ, check=True)

    found = set(log.read_text().split())
    assert "OMP_NUM_THREADS" in found
    assert unknown(found) == set()


@pytest.mark.parametrize(
    ("name", "beside", "read"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", False, True),
        ("PYTORCH_CUDA_ALLOC_CONF", False, True),
        ("TORCHINDUCTOR_WHATEVER_COMES", False, True),
        ("MASTER_PORT", True, False),
        ("NCCL_DEBUG", True, False),
        ("TORCH_NCCL_BLOCKING_WAIT", False, False),
        ("WANDB_MODE", False, False),
        ("WANDB_MODE", True, True),
        ("LDFLAGS", False, False),
    ],
)
def test_families_and_what_is_read_later(name: str, beside: bool, read: bool) -> None:
    assert is_read(name, beside) is read
