"""The words in the constants of a library, and what it loads; whatever else lies in the file."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_elf import write_elf

from safelaunch.settings.lint.elf import Elf


def words(path: str) -> frozenset[str]:
    with Elf(path) as elf:
        return elf.words()


def test_words_are_whole_constants_or_their_ends(tmp_path: Path) -> None:
    library = write_elf(
        tmp_path / "libtorch_cuda.so",
        [
            b"TORCH_NCCL_BLOCKING_WAIT",
            b"please set NCCL_DEBUG",
            b"NCCL_DEBUG=%s is set",
            b"\x01\x00\x008NCCL_ALGO",
            b"xyz",
        ],
    )

    # NCCL_BLOCKING_WAIT may be folded into the first one, TORCH_NCCL is a part of it: neither is a word.
    assert words(library) == {"TORCH_NCCL_BLOCKING_WAIT", "NCCL_DEBUG", "NCCL_ALGO"}


def test_code_for_gpus_is_not_read(tmp_path: Path) -> None:
    library = write_elf(tmp_path / "libnccl.so.2", [b"NCCL_DEBUG"], data=b"\0NCCL_NOT_A_CONSTANT\0")

    assert words(library) == {"NCCL_DEBUG"}


def test_a_pattern_is_found_where_it_matches_first(tmp_path: Path) -> None:
    texts = [b"for NCCL version information only.", b"NCCL version 2.29.7+cuda13.2"]
    with Elf(write_elf(tmp_path / "libnccl.so.2", texts)) as elf:
        assert elf.search(re.compile(rb"NCCL version (\d+\.\d+\.\d+)")) == "2.29.7"
        assert elf.search(re.compile(rb"RCCL version (\d+)")) == ""


def test_what_it_loads(tmp_path: Path) -> None:
    path = write_elf(
        tmp_path / "a.so", needed=["libnccl.so.2", "libc.so.6"], rpath="$ORIGIN/../x:$ORIGIN", runpath="/r"
    )
    with Elf(path) as elf:
        loads = elf.loads()

    assert loads.needed == ("libnccl.so.2", "libc.so.6")
    assert (loads.rpath, loads.runpath) == (("$ORIGIN/../x", "$ORIGIN"), ("/r",))


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_library_of_a_real_compiler(tmp_path: Path) -> None:
    source = '#include <stdlib.h>\nchar *wait(void) { return getenv("TORCH_NCCL_BLOCKING_WAIT"); }\n'
    (tmp_path / "a.c").write_text(source)
    out = str(tmp_path / "liba.so")
    arguments = ["gcc", "-shared", "-fPIC", "-s", "-Wl,-rpath,/there", "-o", out, str(tmp_path / "a.c")]
    subprocess.run(arguments, check=True, timeout=60)

    assert words(out) == {"TORCH_NCCL_BLOCKING_WAIT"}
    with Elf(out) as elf:
        assert "/there" in (*elf.loads().rpath, *elf.loads().runpath)


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(60), bytes(100)])
def test_what_is_no_library_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.so").write_bytes(content)

    with pytest.raises(ValueError, match="odd"):
        words(str(tmp_path / "odd.so"))


def test_a_truncated_library_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    path = Path(write_elf(tmp_path / "libtorch_cpu.so", [b"TORCH_X_Y" * 20]))
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="libtorch_cpu"):
            words(str(path))


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 1200), byte=st.integers(0, 255))
def test_a_damaged_library_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    path = Path(write_elf(tmp_path_factory.mktemp("elf") / "a.so", [b"NCCL_DEBUG"], needed=["libnccl.so.2"]))
    content = bytearray(path.read_bytes())
    content[at % len(content)] = byte
    path.write_bytes(content)

    try:
        with Elf(str(path)) as elf:
            elf.words()
            elf.loads()
    except ValueError:
        pass
