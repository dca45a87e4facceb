"""Which torch and NCCL are found without loading them, which names they hold, and when these are read again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_elf import write_elf

from safelaunch.settings.lint import look as looking
from safelaunch.settings.lint.installed import NOTHING_INSTALLED, Installed, Library
from safelaunch.settings.lint.look import look

SCAN_S = 60.0


class Site:
    """A site-packages with a torch of a few files, and a user with a cache folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packages = root / "site"
        self.environ = {"HOME": str(root / "home"), "XDG_CACHE_HOME": str(root / "cache")}
        self.records = root / "cache" / "safelaunch"

    def torch(self, version: str = "2.13.0+cu130", cuda: str | None = "13.0", rpath: str = "") -> Path:
        """Install a torch whose libtorch_cuda loads NCCL, and looks for it in `rpath` first."""
        folder = self.packages / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
        version_py = f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\n"
        (folder / "version.py").write_text(version_py)
        write_elf(folder / "lib" / "libtorch_cpu.so", [b"TORCH_CPP_LOG_LEVEL"])
        if cuda:
            names = [b"TORCH_NCCL_BLOCKING_WAIT", b"TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
            write_elf(folder / "lib" / "libtorch_cuda.so", names, needed=["libnccl.so.2"], rpath=rpath)
        return folder

    def nccl(self, folder: Path, version: str = "2.29.7", *names: bytes) -> Path:
        """Install an NCCL into a folder."""
        text = f"NCCL version {version}+cuda13.0".encode()
        return Path(write_elf(folder / "libnccl.so.2", [text, b"NCCL_DEBUG", *names]))

    def look(self, scan_s: float | None = SCAN_S, **environ: str) -> Installed:
        return look({**self.environ, **environ}, [str(self.packages)], scan_s)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# ---------------------------------------------------------------------------------------------- what is found


def test_torch_and_its_nccl(site: Site) -> None:
    torch = site.torch(rpath="$ORIGIN/../../nvidia/nccl/lib")
    nccl = site.nccl(site.packages / "nvidia" / "nccl" / "lib")

    found = site.look()

    assert found.torch == Library("2.13.0", str(torch), cuda=True)
    assert found.nccl == Library("2.29.7", str(nccl))


def test_a_torch_without_cuda_loads_no_nccl(site: Site) -> None:
    site.torch("2.13.0+cpu", cuda=None)
    site.nccl(site.packages / "nvidia" / "nccl" / "lib")

    found = site.look()

    assert found.torch is not None
    assert (found.torch.cuda, found.nccl) == (False, None)


def test_the_rpath_comes_before_ld_library_path_and_a_runpath_after(site: Site) -> None:
    site.torch(rpath="$ORIGIN/../../nvidia/nccl/lib")
    site.nccl(site.packages / "nvidia" / "nccl" / "lib", "2.29.7")
    site.nccl(site.root / "own", "2.21.5")
    own = str(site.root / "own")

    assert site.look(LD_LIBRARY_PATH=own).nccl == site.look().nccl
    runpath = "$ORIGIN/../../nvidia/nccl/lib"
    write_elf(site.packages / "torch" / "lib" / "libtorch_cuda.so", needed=["libnccl.so.2"], runpath=runpath)
    with_runpath = site.look(LD_LIBRARY_PATH=f"/nowhere:{own}").nccl

    assert with_runpath is not None
    assert with_runpath.version == "2.21.5"


def test_a_preloaded_nccl_comes_first(site: Site) -> None:
    site.torch(rpath="$ORIGIN/../../nvidia/nccl/lib")
    site.nccl(site.packages / "nvidia" / "nccl" / "lib", "2.29.7")
    own = site.nccl(site.root / "own", "2.21.5")

    assert site.look(LD_PRELOAD=f"/lib/other.so {own}").nccl == Library("2.21.5", str(own))


def test_an_nccl_that_is_built_into_torch(site: Site) -> None:
    torch = site.torch()
    built_in = write_elf(torch / "lib" / "libtorch_cuda.so", [b"NCCL version 2.10.3+cuda11.3", b"NCCL_DEBUG"])

    found = site.look()

    assert found.nccl == Library("2.10.3", built_in)
    assert found.holds("NCCL_DEBUG") is True


def test_no_torch_is_nothing(site: Site) -> None:
    site.packages.mkdir()
    (site.packages / "torch").mkdir()  # a folder of the user's, with the same name

    assert (site.look().torch, site.look().names, site.look().holds("NCCL_DEBUG")) == (None, None, None)
    assert NOTHING_INSTALLED.holds("NCCL_DEBUG") is None


def test_what_is_called_torch_and_is_none(site: Site) -> None:
    site.packages.mkdir()
    (site.packages / "torch.py").write_text("")
    assert site.look().torch is None

    (site.packages / "torch.py").unlink()
    site.torch().joinpath("version.py").write_bytes(b"\xff\xfe no version here")
    assert site.look().torch is None


# ---------------------------------------------------------------------------------------------- what is held


def test_names_are_held_as_whole_words(site: Site) -> None:
    site.torch()
    found = site.look()

    assert found.holds("TORCH_NCCL_BLOCKING_WAIT") is True
    assert found.holds("TORCH_NCCL_DEBUG") is False  # the start of a longer one
    assert found.holds("NCCL_BLOCKING_WAIT") is None  # it may be folded into the longer one that ends so
    assert found.holds("BLOCKING_WAITS") is False


def test_python_files_that_ask_for_variables_and_headers_count_too(site: Site) -> None:
    torch = site.torch()
    (torch / "distributed").mkdir()
    (torch / "distributed" / "run.py").write_text("import os\nx = os.environ.get('TORCHELASTIC_X', 'NCCL_RINGS')\n")
    (torch / "other.py").write_text("KINDS = ['TORCH_NO_VARIABLE']\n")
    header = torch / "include" / "torch" / "csrc" / "distributed" / "c10d" / "FlightRecorder.hpp"
    header.parent.mkdir(parents=True)
    header.write_text('getCvarInt({"TORCH_FR_BUFFER_SIZE", "NCCL_OLD_NAME"}, 2000);\n')
    found = site.look()

    assert found.holds("TORCHELASTIC_X") is True
    assert found.holds("TORCH_NO_VARIABLE") is False
    assert found.holds("TORCH_FR_BUFFER_SIZE") is True
    assert found.holds("NCCL_OLD_NAME") is True
    assert found.holds("NCCL_RINGS") is False  # torch's Python lists NCCL's variables to print them


def test_a_library_that_cannot_be_read_makes_no_name_absent(site: Site) -> None:
    torch = site.torch()
    (torch / "lib" / "libtorch_python.so").write_bytes(b"truncated")
    assert site.look().names is None

    (torch / "lib" / "libtorch_python.so").unlink()
    assert site.look().names is not None
    for library in (torch / "lib").iterdir():
        library.unlink()
    assert site.look().names is None


def test_without_cuda_nothing_is_judged_that_only_cuda_reads(site: Site) -> None:
    site.torch(cuda=None)
    found = site.look()

    assert found.holds("TORCH_NCCL_BLOCKING_WAIT") is False
    assert not found.judges("TORCH_NCCL_BLOCKING_WAIT", "torch")
    assert not found.judges("PYTORCH_ALLOC_CONF", "torch-cuda")
    assert not found.judges("NCCL_DEBUG", "nccl")
    assert found.judges("TORCH_CPP_LOG_LEVEL", "torch")
    assert not found.judges("CUDA_VISIBLE_DEVICES", "cuda")


def test_with_cuda_and_nccl_their_names_are_judged(site: Site) -> None:
    site.torch(rpath="$ORIGIN")
    site.nccl(site.packages / "torch" / "lib")
    found = site.look()

    assert found.judges("TORCH_NCCL_BLOCKING_WAIT", "torch")
    assert found.judges("NCCL_DEBUG", "nccl")
    assert not found.judges("NCCL_IBEXT_DISABLE", "plugin")


def test_what_was_not_read_is_not_judged(site: Site) -> None:
    site.torch()

    assert not site.look(None).judges("TORCH_NCCL_BLOCKING_WAIT", "torch")


# ---------------------------------------------------------------------------------------------- the record


def test_names_are_read_once_and_then_remembered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.torch()
    assert site.look(None).names is None
    names = site.look().names
    monkeypatch.setattr(looking, "PROGRAM", "/nonexistent/program.py")

    assert names
    assert site.look(None).names == names
    (record,) = site.records.iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert site.records.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", ["same-size", "other-nccl", "version.py", "scanner"])
def test_another_library_is_read_again(site: Site, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = site.torch(rpath="$ORIGIN/../../nvidia/nccl/lib")
    nccl = site.nccl(site.packages / "nvidia" / "nccl" / "lib", "2.29.7", b"NCCL_FIRST")
    assert site.look().holds("NCCL_FIRST") is True
    assert site.look(None).holds("NCCL_FIRST") is True

    if change == "same-size":  # as `rsync -t` does it: a file of its own, with the same size and time
        before = nccl.stat()
        nccl.rename(site.root / "kept")  # so that its inode is not given out again
        site.nccl(nccl.parent, "2.29.7", b"NCCL_OTHER")
        os.utime(nccl, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert nccl.stat().st_size == before.st_size
    elif change == "other-nccl":
        site.nccl(nccl.parent, "2.30.7", b"NCCL_SECOND")
    elif change == "version.py":
        (torch / "version.py").write_text("__version__ = '2.14.0'\ncuda = '13.0'\n")
    else:
        monkeypatch.setattr(looking, "SCANNER", looking.SCANNER + 1)

    assert site.look(None).names is None
    assert (site.look().holds("NCCL_FIRST") is True) == (change in ("version.py", "scanner"))
    assert site.look(None).names is not None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"of": 1}', '{"of": 1, "names": [1]}', "\0", "[" * 100_000])
def test_a_damaged_record_is_as_good_as_none(site: Site, content: str) -> None:
    site.torch()
    assert site.look().names
    (record,) = site.records.iterdir()
    record.write_text(content)

    assert site.look(None).names is None
    assert site.look().names
    assert site.look(None).names


def test_a_cache_folder_that_cannot_be_written_costs_the_memory_only(site: Site) -> None:
    site.torch()
    site.environ["XDG_CACHE_HOME"] = "/proc/nonexistent"

    assert site.look().names
    assert site.look(None).names is None


def test_no_home_at_all(site: Site) -> None:
    site.torch()
    site.environ.clear()

    assert site.look().names


def test_nothing_is_left_over_where_a_record_cannot_be_replaced(site: Site) -> None:
    site.torch()
    assert site.look().names
    (record,) = site.records.iterdir()
    record.unlink()
    record.mkdir()

    assert site.look().names
    assert list(site.records.iterdir()) == [record]


def test_a_scan_that_takes_too_long_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site.torch()
    slow = tmp_path / "slow.py"
    slow.write_text("import sys, time\nsys.stdin.read()\ntime.sleep(600)\n")
    monkeypatch.setattr(looking, "PROGRAM", str(slow))

    assert site.look(0.2).names is None


def test_not_every_launch_waits_for_a_slow_file_system(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.torch()
    tried: list[float] = []

    def too_slow(_libraries: object, _torch: str, seconds: float) -> None:
        tried.append(seconds)
        raise TimeoutError

    with monkeypatch.context() as slow:
        slow.setattr(looking, "_scan", too_slow)
        for seconds in (10.0, 10.0, 5.0, 60.0, 10.0):
            assert site.look(seconds).names is None
        assert tried == [10.0, 60.0], "less time than it had in vain is not tried again"
        later = time.time() + looking.AGAIN_S + 60
        slow.setattr(looking.time, "time", lambda: later)
        assert site.look(10.0).names is None
        assert tried[2:] == [10.0], "the next day it is"

    assert site.look(SCAN_S).names
    assert site.look(None).names


@pytest.mark.parametrize("slow", [1, {}, {"in_s": "x", "at": 1}, {"in_s": 10}, {"in_s": 10.0, "at": None}])
def test_a_damaged_word_about_slowness_counts_for_nothing(slow: object) -> None:
    assert not looking._in_vain({"too_slow": slow}, 1.0)


@pytest.mark.parametrize("says", ["print('no json')", "print('[]')", "raise SystemExit(1)", "print('[1]')"])
def test_a_scan_that_goes_wrong_says_nothing(
    site: Site, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site.torch()
    odd = tmp_path / "odd.py"
    odd.write_text(f"{says}\n")
    monkeypatch.setattr(looking, "PROGRAM", str(odd))

    assert site.look().names is None
    assert not site.records.exists() or not list(site.records.iterdir())


# ---------------------------------------------------------------------------------------------- the real one


def test_the_torch_of_this_python(tmp_path: Path) -> None:
    found = look({"HOME": str(tmp_path)}, scan_s=SCAN_S)
    text = "import torch; print(torch.__version__.split('+')[0], torch.version.cuda is not None)"
    version = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()

    assert found.torch is not None
    assert [found.torch.version, str(found.torch.cuda)] == version
    held = [
        *("TORCH_NCCL_BLOCKING_WAIT", "TORCH_FR_BUFFER_SIZE", "TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG"),
        *("GLOO_SOCKET_IFNAME", "TORCHELASTIC_RUN_ID", "USE_LIBUV", "NCCL_ASYNC_ERROR_HANDLING"),
    ]
    for name in held:
        assert found.holds(name) is True, name
    for name in ("TORCH_NCCL_DEBUG", "TORCH_NCCL_TIMEOUT", "CUDA_MEMORY_FRACTION", "NCCL_TREE_THRESHOLD"):
        assert found.holds(name) is False, name


def test_looking_imports_neither_torch_nor_anything_heavy() -> None:
    source = "import json, sys\nfrom safelaunch.settings.lint.look import look\n"
    source += "look({}).names\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert not {"torch", "numpy", "rich", "psutil"} & set(json.loads(done.stdout))
