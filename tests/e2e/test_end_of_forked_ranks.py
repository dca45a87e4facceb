"""A rank that was forked ends as one that was started by itself: what is to be told of its end is."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from harness import FAULTS, REPOSITORY, launch

AT_THE_END = """
import atexit, ctypes, os, sys, threading, time, weakref
import torch

class Last:
    def __del__(self):
        print(time.strftime("deleted"), flush=True)

def late():
    time.sleep(0.1)
    print("thread", flush=True)

last = Last()
left_open = open("left-open", "w")
left_open.write("data")
torch.kept = open("kept-by-torch", "w")
torch.kept.write("data")
weakref.finalize(last, torch.save, torch.ones(1), "saved.pt")
atexit.register(print, "atexit", flush=True)
threading.Thread(target=late).start()
# A thread that reads holds the lock of its stream.
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fdopen(os.pipe()[0], b"r"))
threading.Thread(target=libc.fgetc, args=[stream], daemon=True).start()
sys.exit(3)
"""


def test_a_rank_ends_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AT_THE_END)
    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert "rank 0 left with exit code 3" in ended.err
    assert "cold start" not in ended.err
    assert ended.out.split() == ["thread", "atexit", "deleted"]
    assert (tmp_path / "left-open").read_text() == (tmp_path / "kept-by-torch").read_text() == "data"
    assert (tmp_path / "saved.pt").exists()


IN_C = """
import ctypes
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
{more}
libc.__cxa_atexit(ctypes.cast(libc.puts, ctypes.c_void_p), ctypes.c_void_p(libc.strdup(b"C's end")), None)
libc.printf(b"in a buffer of C\\n")
"""
ANY_LIBRARY = """
for name in ("libBrokenLocale.so.1", "libanl.so.1", "libresolv.so.2"):
    ctypes.CDLL(name)
"""


@pytest.mark.parametrize(
    ("more", "whole"), [("", False), (ANY_LIBRARY, True), ("kept = open('kept', 'w')", True)], ids=str
)
def test_destructors_are_left_out_where_they_are_all_of_torchs(more: str, whole: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IN_C.format(more=more))
    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == sorted(["in a buffer of C", *(["C's end"] if whole else [])])


TELLS = "lambda *_, write=os.write: write(1, b'gone')"
WATCHED = """
class Kept: pass
{module}.kept = Kept()
{module}.watched = weakref.ref({module}.kept, {tells})
"""
BY_PROXY = """
class Kept: pass
{module}.kept = Kept()
{module}.watched = weakref.proxy({module}.kept, {tells})
"""
FROZEN = """
class Kept: __del__ = {tells}
{module}.kept = Kept()
gc.freeze()
"""
UNKNOWN = """
class Kept(int): __slots__, __del__ = (), {tells}
{module}.kept = Kept()
"""
IN_CPLUSPLUS = """
{module}.kept = torch.distributed.FileStore("store", 1)
{module}.kept.set("key", "value")
atexit.register(os.write, 1, b"gone" if os.path.exists("store") else b"never there")
"""


KEPT = {"watched": WATCHED, "by proxy": BY_PROXY, "frozen": FROZEN, "unknown": UNKNOWN, "C++": IN_CPLUSPLUS}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT.keys())
@pytest.mark.parametrize("module", ["torch", "json"])
def test_what_hangs_on_a_module_has_its_end(module: str, kept: str, tmp_path: Path) -> None:
    imports = "import atexit, gc, json, os, weakref\nimport torch.distributed\n"
    (tmp_path / "train.py").write_text(imports + kept.format(module=module, tells=TELLS))
    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert (ended.code, ended.out) == (0, "gone"), ended.err
    assert not (tmp_path / "store").exists()


IN_MID_SCRIPT = """
import atexit
atexit._run_exitfuncs()
import sys, torch.nn
print("torch.nn" in sys.modules)
"""
LATE = """
import sys
class Stream:
    def __init__(self, stream): self.stream = stream
    def write(self, text): self.stream.write(text)
    def flush(self):
        import json, torch.nn
        self.stream.write(json.dumps("torch.nn" in sys.modules))
        self.stream.flush()
        sys.stdout = self.stream
sys.stdout = Stream(sys.stdout)
"""


AUDITED = """
import os, sys
def refuse(event, arguments):
    if event.startswith("ctypes."):
        raise PermissionError(event)
sys.addaudithook(refuse)
"""
WHOLE = {
    "in mid-script": (IN_MID_SCRIPT, "True\n"),
    "flush": (LATE, "true"),
    "audited": (AUDITED, ""),
}


@pytest.mark.parametrize(("script", "said"), WHOLE.values(), ids=WHOLE.keys())
def test_modules_are_there_to_the_end(script: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script)
    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path)

    assert (ended.code, ended.out) == (0, said), ended.err
    assert "Exception ignored" not in ended.err


def test_preloaded_modules_end_and_keep_their_collector(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "other.py").write_text("file = open('written', 'w')\nimport __main__ as main\n")
    (library / "another.py").write_text("import gc\ngc.disable()\n")
    (tmp_path / "own.toml").write_text('[launch]\npreload = ["other", "another"]\n')
    (tmp_path / "train.py").write_text(
        "import gc, other\nX = 1\nprint(gc.isenabled(), other.main.X, flush=True)\ngc.enable()\n"
        "other.file.write('data')\n"
    )
    path = os.pathsep.join([str(library), str(FAULTS.parent.parent)])

    ended = launch("--profile", "./own.toml", "--nproc-per-node", 1, "train.py", cwd=tmp_path, PYTHONPATH=path)

    assert (ended.code, ended.out) == (0, "False 1\n"), ended.err
    assert (tmp_path / "written").read_text() == "data"


def test_what_a_library_of_torchs_refers_to_does_not_keep_the_script_from_its_end(tmp_path: Path) -> None:
    # dill is imported by torch where it is installed, and refers to `__main__`.
    library = tmp_path / "library"
    library.mkdir()
    (library / "dill.py").write_text("import __main__ as main\ndef extend(use_dill=True): pass\n")
    (tmp_path / "train.py").write_text("import gzip\nfile = gzip.GzipFile('left-open.gz', 'w')\nfile.write(b'data')\n")

    ended = launch("--preflight", "off", "train.py", cwd=tmp_path, PYTHONPATH=f"{REPOSITORY}:{library}")

    assert (ended.code, ended.err) == (0, "")
    assert gzip.decompress((tmp_path / "left-open.gz").read_bytes()) == b"data"
