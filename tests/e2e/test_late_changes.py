"""What a script changes before an import counts, though its rank was forked from a process that had done the import."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import REPOSITORY, Ended, launch

# PYTORCH_JIT is read once, when torch.jit is imported. The text alone does not show these to the launcher.
FORMS = {
    "another name": "E = os.environ; E['PYTORCH_JIT'] = '0'",
    "import as": "from os import environ as env\nenv['PYTORCH_JIT'] = '0'",
    "union": "os.environ |= {'PYTORCH_JIT': '0'}",
    "putenv by a mapping": "getattr(os.environ, '__setitem__')('PYTORCH_JIT', '0')",
    "exec of a file": "exec(open('settings.txt').read())",
    "a module of PYTHONPATH": "import settings_of_ours",
    "a module of sys.path": "sys.path.insert(0, 'more'); import settings_too",
}
LINE = "cold start: the script sets PYTORCH_JIT before train.py:"
SHOWN = "import torch\nprint(torch.jit._state._enabled.enabled)\n"


def train(tmp_path: Path, text: str, *options: object, **changes: str) -> Ended:
    script = tmp_path / "train.py"
    if not script.exists():
        script.write_text("import os, sys\n" + text)
    changes.setdefault("XDG_CACHE_HOME", str(tmp_path / "cache"))
    changes.setdefault("PYTHONDONTWRITEBYTECODE", "")  # as users have it: an import of theirs writes a file
    return launch("--nproc-per-node", 1, "--preflight", "off", *options, "train.py", cwd=tmp_path, **changes)


@pytest.mark.parametrize("form", FORMS)
def test_a_variable_that_is_set_before_the_import_is_in_force(form: str, tmp_path: Path) -> None:
    code = "import os\nos.environ['PYTORCH_JIT'] = '0'\n"
    (tmp_path / "settings.txt").write_text(code)
    for folder, name in (("library", "settings_of_ours"), ("more", "settings_too")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(code)
    ended = train(tmp_path, FORMS[form] + "\n" + SHOWN, PYTHONPATH=f"{REPOSITORY}:{tmp_path / 'library'}")

    assert (ended.code, ended.out) == (0, "False\n"), ended.err
    assert LINE in ended.err


def test_a_variable_that_only_c_sees_is_in_force(tmp_path: Path) -> None:
    sets = "import ctypes\nctypes.CDLL(None).setenv(b'OMP_NUM_THREADS', b'2', 1)\n"
    ended = train(tmp_path, sets + "import torch\nprint(torch.get_num_threads())\n", OMP_NUM_THREADS="1")

    assert (ended.code, ended.out) == (0, "2\n"), ended.err
    assert "cold start: the script sets OMP_NUM_THREADS before train.py:4 imports torch" in ended.err


@pytest.mark.parametrize("place", ["beside the script", "in a folder that it adds"])
def test_a_plugin_of_torch_is_loaded(place: str, tmp_path: Path) -> None:
    folder = tmp_path if place == "beside the script" else tmp_path / "more"
    (folder / "plugin.egg-info").mkdir(parents=True)
    (folder / "plugin.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (folder / "plugin.egg-info" / "entry_points.txt").write_text("[torch.backends]\nplugin = plugin:begin\n")
    (folder / "plugin.py").write_text("def begin():\n    import torch\n    torch.HAS_PLUGIN = True\n")
    ended = train(tmp_path, f"sys.path.append({str(folder)!r})\nimport torch\nprint(hasattr(torch, 'HAS_PLUGIN'))\n")

    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert "plugin.egg-info" in next(line for line in ended.err.splitlines() if "cold start: " in line)


def test_what_every_module_of_cython_makes_is_no_change(tmp_path: Path) -> None:
    ended = train(
        tmp_path, "import types\nsys.modules['cython_runtime'] = types.ModuleType('cython_runtime')\nimport torch\n"
    )

    assert (ended.code, ended.err.count("cold start") + ended.err.count("SL903")) == (0, 0), ended.err


@pytest.mark.parametrize("form", ["del os.environ['PYTORCH_JIT']", "os.environ.pop('PYTORCH_JIT')"])
def test_a_variable_that_is_deleted_before_the_import_is_not(form: str, tmp_path: Path) -> None:
    ended = train(tmp_path, f"{form}\n{SHOWN}", PYTORCH_JIT="0")

    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert "cold start: the script deletes PYTORCH_JIT before train.py:3 imports torch" in ended.err


def test_where_it_is_too_late_one_line_says_so_and_the_next_start_is_cold(tmp_path: Path) -> None:
    text = "print('begins', flush=True)\n" + FORMS["another name"] + "\n" + SHOWN

    first, second = train(tmp_path, text), train(tmp_path, text)

    assert first.out == "begins\nTrue\n"
    told = [line for line in first.err.splitlines() if "SL903" in line]
    assert len(told) == 1
    assert "sets PYTORCH_JIT before train.py:4 imports torch, without effect in this run" in told[0]
    assert [finding["code"] for finding in first.read("result.json")["findings"]].count("SL903") == 1
    assert second.out == "begins\nFalse\n"
    assert "cold start: the script sets PYTORCH_JIT before an import, as its last run has shown" in second.err
    assert "SL903" not in second.err


ONCE = ["os.mkdir('made')", "open('made', 'x').close()", "os.system('true')", "os.mkfifo('made')", "import threading; "
        "threading.Thread(target=__import__('time').sleep, args=[5], daemon=True).start()"]  # fmt: skip


@pytest.mark.parametrize("act", ONCE)
def test_what_must_not_be_done_twice_is_not(act: str, tmp_path: Path) -> None:
    ended = train(tmp_path, f"{act}\n{FORMS['another name']}\n{SHOWN}")

    assert (ended.code, ended.out) == (0, "True\n"), ended.err
    assert "warning[SL903]" in ended.err


def test_what_was_read_of_a_pipe_is_not_lost(tmp_path: Path) -> None:
    named = tmp_path / "named"
    os.mkfifo(named)
    writer = os.open(named, os.O_RDWR)
    os.write(writer, b"token")
    ended = train(
        tmp_path, f"found = os.read(os.open('named', os.O_RDONLY), 5)\n{FORMS['another name']}\n{SHOWN}print(found)\n"
    )
    os.close(writer)

    assert (ended.code, ended.out) == (0, "True\nb'token'\n"), ended.err
    assert "warning[SL903]" in ended.err


def test_what_was_read_of_the_input_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, sys\nfound = sys.stdin.read()\n{FORMS['another name']}\n{SHOWN}print(found)\n"
    )
    ended = launch("--nproc-per-node", 1, "train.py", cwd=tmp_path, stdin="typed")

    assert (ended.code, ended.out) == (0, "True\ntyped\n"), ended.err
    assert "warning[SL903]" in ended.err


HANDLERS = """
import logging, logging.config
logging.config.dictConfig({"version": 1, "handlers": {"one": {"class": "logging.StreamHandler", "level": "INFO"}}})
for handler in logging._handlerList:
    handler().setLevel(logging.ERROR)
import torch
print(sorted(logging.getLevelName(handler.level) for handler in logging.getLogger("torch").handlers))
print(len(logging._handlerList) > 10)
"""


def test_who_sets_up_logging_finds_no_handler_of_torch(tmp_path: Path) -> None:
    warm, cold = train(tmp_path, HANDLERS), train(tmp_path, HANDLERS, "--no-warm-start")

    assert (warm.code, warm.out) == (0, cold.out), warm.err
    assert "cold start" not in warm.err


def test_a_rank_that_starts_again_is_as_it_was(tmp_path: Path) -> None:
    text = """
import resource, signal
found = [os.getcwd(), oct(os.umask(0o22)), signal.getsignal(signal.SIGUSR1), signal.pthread_sigmask(0, []),
         sorted(os.sched_getaffinity(0)), signal.getitimer(signal.ITIMER_REAL)[0]]
os.chdir("/")
os.umask(0o77)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.setitimer(signal.ITIMER_REAL, 3600)
os.dup2(0, 9)
E = os.environ; E["PYTORCH_JIT"] = "0"
import torch
print(found, torch.jit._state._enabled.enabled)
"""
    warm, cold = train(tmp_path, text), train(tmp_path, text, "--no-warm-start")

    assert (warm.code, warm.out) == (0, cold.out), warm.err
    assert LINE in warm.err


OTHERS = {
    "CPUs": ("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "sets the CPUs of its process"),
    "not found": ("sys.modules['numpy'] = None", "puts another module numpy into sys.modules"),
    "a finder": ("sys.meta_path.insert(0, type('F', (), {'find_spec': staticmethod(lambda *_: None)})())",
                 "changes sys.meta_path or sys.path_hooks"),
    "in front": ("sys.path.insert(0, 'vendor')", "has a module typing_extensions of its own in vendor"),
    "a stub": ("sys.modules['opt_einsum'] = os", "puts a module opt_einsum into sys.modules"),
    "replaced": ("import functools as f; f.lru_cache = f.lru_cache.__call__", "replaces functools.lru_cache"),
    "a stream": ("import io; sys.stderr = io.TextIOWrapper(sys.stderr.buffer)", "replaces sys.stdin, sys.stdout or"),
    "of a package": ("os.environ |= {'TYPING_EXTENSIONS_NEW': '1'}", "sets TYPING_EXTENSIONS_NEW"),
    "an audit hook": ("sys.addaudithook(lambda *_: None)", "adds an audit hook"),
    "a method": ("import logging; logging.Logger.setLevel = print", "replaces logging.Logger.setLevel"),
    "a tracer": ("sys.setprofile(lambda *_: None)", "starts a tracer or a profiler"),
    "a logger": ("import logging; logging.getLogger('torch.distributed').setLevel(10)", "makes the logger torch"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_what_else_an_import_looks_at(what: str, tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "typing_extensions.py").write_text("raise SystemExit(7)\n")
    change, told = OTHERS[what]

    ended = train(tmp_path, f"{change}\nimport torch\n")

    assert f"cold start: the script {told}" in ended.err
    assert ended.code == (1 if what == "in front" else 0), ended.err


def test_a_module_that_is_put_in_front_is_what_an_import_finds(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "typing_extensions.py").write_text("MINE = True\n")

    ended = train(tmp_path, "sys.path.insert(0, 'vendor')\nimport typing_extensions\nprint(typing_extensions.MINE)\n")

    assert (ended.code, ended.out) == (0, "True\n"), ended.err


def test_a_folder_for_temporary_files_that_is_set_late_is_used(tmp_path: Path) -> None:
    text = "E = os.environ; E['TMPDIR'] = os.getcwd()\nimport torch, tempfile\nprint(tempfile.gettempdir())\n"

    assert train(tmp_path, text).out == f"{tmp_path}\n"


def test_an_import_that_fails_may_be_tried_again(tmp_path: Path) -> None:
    text = """
path, sys.path[:] = sys.path[:], [entry for entry in sys.path if "site-packages" not in entry]
try:
    import torch
except ImportError:
    print("not found")
sys.path[:] = path
import torch
print(torch.ones(1).item())
"""
    assert train(tmp_path, text).out == "not found\n1.0\n"


def test_a_file_that_is_no_module_shadows_nothing(tmp_path: Path) -> None:
    for name in ("torch.log", "numpy.md"):
        (tmp_path / name).touch()
    (tmp_path / "typing_extensions").mkdir()

    ended = train(tmp_path, "import torch\nprint(torch.ones(1).item())\n")

    assert ended.out == "1.0\n"
    assert "cold start" not in ended.err


def test_what_was_registered_before_an_import_is_called_after_what_the_import_registers(tmp_path: Path) -> None:
    text = """
import atexit, tempfile
folder = tempfile.TemporaryDirectory()
atexit.register(lambda: print(os.path.isdir(folder.name)))
import torch
"""
    assert train(tmp_path, text).out == train(tmp_path, text, "--no-warm-start").out == "True\n"


def test_processes_begin_where_multiprocessing_was_imported(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    text = "os.chdir('below')\nimport multiprocessing.process as p\nprint(os.path.basename(p.ORIGINAL_DIR))\n"

    assert train(tmp_path, text).out == "below\n"


def test_backends_of_other_packages_are_imported_by_each_rank(tmp_path: Path) -> None:
    library = tmp_path / "library"
    (library / "other-1.0.dist-info").mkdir(parents=True)
    (library / "other-1.0.dist-info" / "METADATA").write_text("Name: other\nVersion: 1.0\n")
    (library / "other-1.0.dist-info" / "entry_points.txt").write_text("[torch.backends]\nother = other:load\n")
    (library / "other.py").write_text("import os\nRANK = os.environ.get('RANK')\ndef load(): pass\n")

    ended = train(tmp_path, "import torch, other\nprint(other.RANK)\n", PYTHONPATH=f"{REPOSITORY}:{library}")

    assert (ended.code, ended.out) == (0, "0\n"), ended.err
    assert "cold start: torch is to import other:load of another package" in ended.err


NAMES = ["traceback", "json", "select", "safelaunch", "sitecustomize"]


@pytest.mark.parametrize("start", [(), ("--no-warm-start",)])
def test_modules_of_the_script_come_before_ours(start: tuple[str, ...], tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"MINE = {name!r}\n")
    text = f"import {', '.join(NAMES)}\nprint({'.MINE, '.join(NAMES)}.MINE)\nraise ValueError\n"
    (tmp_path / "train.py").write_text(text)
    elsewhere = tmp_path / "elsewhere"  # `python -m safelaunch` of these tests looks in the working directory, too
    elsewhere.mkdir()
    ended = launch(*start, tmp_path / "train.py", cwd=elsewhere)

    assert ended.out == " ".join(NAMES) + "\n"
    assert "error[SL401]: rank 0 raised ValueError" in ended.err
