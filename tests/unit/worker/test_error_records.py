"""error-PID.json: the root exception, on disk before anybody else can know of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from ranks import Rank, run

from safelaunch import redaction
from safelaunch.codec import from_json
from safelaunch.model import PyError
from safelaunch.pulse import PROGRAM_RAISED


def test_an_uncaught_exception(tmp_path: Path) -> None:
    before = time.monotonic()
    rank = run(tmp_path, "def work():\n    raise ValueError('loss is nan')\n\nwork()\n")

    error = from_json(PyError, rank.error)
    assert (error.type, error.message, error.chain) == ("ValueError", "loss is nan", ())
    assert error.location is not None
    assert (error.location.file, error.location.line, error.location.function) == (
        str(tmp_path / "script.py"),
        2,
        "work",
    )
    assert before < error.t < time.monotonic()
    assert error.traceback == rank.err  # what the user saw, and nothing of ours in it
    assert rank.code == 1


def test_the_location_is_the_users_own_line(tmp_path: Path) -> None:
    rank = run(tmp_path, "import json\ndef load():\n    return json.loads('{')\nload()")

    assert rank.error["type"] == "json.decoder.JSONDecodeError"
    assert rank.error["location"] == {"file": str(tmp_path / "script.py"), "line": 3, "function": "load"}


@pytest.mark.parametrize(
    "hook",
    ["sys.excepthook = lambda *_: None", "sys.excepthook = lambda *_: os.write(2, b'theirs')", "del sys.excepthook"],
)
def test_a_script_that_replaces_the_excepthook(tmp_path: Path, hook: str) -> None:
    rank = run(tmp_path, f"import os, sys\n{hook}\nraise KeyError('label')")

    assert (rank.error["type"], rank.error["message"]) == ("KeyError", "'label'")


def test_an_excepthook_that_fails_itself(tmp_path: Path) -> None:
    rank = run(
        tmp_path, "import sys\ndef hook(*_):\n    raise OSError('hook')\nsys.excepthook = hook\nraise KeyError(1)"
    )

    assert rank.error["type"] == "KeyError"
    assert rank.code == 1


def test_a_script_that_wraps_our_excepthook(tmp_path: Path) -> None:
    source = "import sys\nformer = sys.excepthook\nsys.excepthook = lambda *a: former(*a)\nraise KeyError(1)"
    rank = run(tmp_path, source)

    assert rank.error["type"] == "KeyError"
    assert rank.err.count("Traceback") == 1


def test_causes_and_contexts_are_kept(tmp_path: Path) -> None:
    source = """
def read():
    try:
        {}["label"]
    except KeyError as error:
        raise OSError("disk on fire") from error

try:
    read()
except OSError:
    raise RuntimeError("the job failed")
"""
    rank = run(tmp_path, source)

    assert rank.error["type"] == "RuntimeError"
    assert rank.error["chain"] == ["OSError: disk on fire", "KeyError: 'label'"]
    assert rank.error["traceback"] == rank.err


def test_a_hidden_context_is_kept(tmp_path: Path) -> None:
    source = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('no batch') from None"

    assert run(tmp_path, source).error["chain"] == ["ZeroDivisionError: division by zero"]


def test_a_chain_that_bites_its_tail(tmp_path: Path) -> None:
    source = "a, b = ValueError('a'), ValueError('b')\na.__cause__ = b\nb.__cause__ = a\nraise a"
    rank = run(tmp_path, source)

    assert (rank.error["message"], rank.error["chain"]) == ("a", ["ValueError: b"])


def test_a_message_that_cannot_be_made(tmp_path: Path) -> None:
    source = "class Bad(Exception):\n    def __str__(self):\n        raise TypeError('no str')\nraise Bad"
    rank = run(tmp_path, source)

    assert rank.error["type"] == "Bad"
    assert "no str" in rank.error["message"]


@pytest.mark.parametrize("message", ["'ü\\udce9\\x00'", "'x' * 1_000_000", "'a\\nb\\nc'", "''"])
def test_messages_of_all_kinds(tmp_path: Path, message: str) -> None:
    rank = run(tmp_path, f"raise ValueError({message})")

    assert rank.error["message"] == eval(message)[:4000]
    assert len(json.dumps(rank.error)) < 200_000


@pytest.mark.parametrize("message", ["'x' * (50 << 20)", "'words and 12\\n' * (4 << 20)"])
def test_a_very_long_message_is_cut_before_anything_reads_it(tmp_path: Path, message: str) -> None:
    elastic = tmp_path / "error.json"
    rank = run(tmp_path, f"raise ValueError({message})", TORCHELASTIC_ERROR_FILE=str(elastic))

    assert len(rank.err) > 48 << 20  # what Python prints is its own affair
    text = rank.error["traceback"]
    assert len(text) < 20_000
    assert rank.err.startswith(text[:1000])
    assert rank.err.endswith(text[-1000:])
    sizes = [path.stat().st_size for path in (elastic, *rank.folder.iterdir())]
    assert max(sizes) < 100_000
    assert json.loads(elastic.read_text())["message"]["extraInfo"]["py_callstack"] == text


@pytest.mark.parametrize("rest", [14_381, 15_581, 16_000])
def test_no_secret_stands_behind_a_cut_without_what_tells_of_it(tmp_path: Path, rest: int) -> None:
    secret = "Qm7" + "".join(f"{number * 37 % 256:02x}" for number in range(400))
    source = f"""
rest = " ".join(f"lr{{number}}=0.{{number}}" for number in range(4000))[:{rest}]
raise ValueError("options " * 500 + "Authorization: Bearer {secret}\\n" + rest)
"""
    rank = run(tmp_path, source)

    shown = redaction.text(rank.error["traceback"])
    assert "lr4=0.4" in shown
    assert not [at for at in range(0, len(secret) - 24, 4) if secret[at : at + 24] in shown]


def test_endless_recursion(tmp_path: Path) -> None:
    rank = run(tmp_path, "def down(n):\n    return down(n + 1)\ndown(0)")

    assert rank.error["type"] == "RecursionError"
    assert rank.error["location"]["function"] == "down"


def test_a_syntax_error_in_the_script(tmp_path: Path) -> None:
    rank = run(tmp_path, "x = 1\nstep = (1,\n")

    assert rank.error["type"] == "SyntaxError"
    assert rank.error["location"]["file"] == str(tmp_path / "script.py")
    assert rank.error["location"]["line"] == 2


def test_a_syntax_error_in_a_module(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("a = 1\nb = = 2\n")
    rank = run(tmp_path, "import config")

    assert rank.error["location"] == {"file": str(tmp_path / "config.py"), "line": 2, "function": "<module>"}


def test_a_missing_module(tmp_path: Path) -> None:
    assert run(tmp_path, "import a_module_that_does_not_exist").error["type"] == "ModuleNotFoundError"


def test_an_exception_group(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("this Python has no exception groups")
    rank = run(tmp_path, "raise ExceptionGroup('both', [OSError(1)])")

    assert rank.error["type"] == "ExceptionGroup"


def test_forked_children_do_not_speak_for_the_rank(tmp_path: Path) -> None:
    source = """
import os, sys
for end in (lambda: 1 / 0, lambda: sys.exit(3), lambda: os._exit(4)):
    if (pid := os.fork()) == 0:
        end()
        os._exit(0)
    os.waitpid(pid, 0)
if os.fork() == 0:
    raise ValueError('of the child')
os.wait()
"""
    rank = run(tmp_path, source)

    assert (rank.code, rank.errors()) == (0, [])
    assert "of the child" in rank.err
    assert rank.box is not None
    assert rank.box.exit_call is None


def test_spawned_children_do_not_speak_for_the_rank(tmp_path: Path) -> None:
    source = """
import multiprocessing as mp
def fail():
    raise ValueError('of the child')
if __name__ == '__main__':
    child = mp.get_context('spawn').Process(target=fail)
    child.start(); child.join()
"""
    rank = run(tmp_path, source)

    assert (rank.code, rank.errors()) == (0, [])
    assert "of the child" in rank.err


def test_a_caught_exception_is_no_error(tmp_path: Path) -> None:
    rank = run(tmp_path, "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass")

    assert (rank.code, rank.errors()) == (0, [])


def test_an_exception_in_a_thread_is_no_end_of_the_rank(tmp_path: Path) -> None:
    rank = run(tmp_path, "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()")

    assert (rank.code, rank.errors()) == (0, [])


def test_an_exception_that_sys_exit_hides_is_kept(tmp_path: Path) -> None:
    rank = run(tmp_path, "import sys\ntry:\n    {}['label']\nexcept KeyError:\n    sys.exit(1)")

    assert rank.error["type"] == "KeyError"
    assert (rank.code, rank.err) == (1, "")


def test_an_exit_that_was_caught_does_not_change_how_the_program_ends(tmp_path: Path) -> None:
    source = """
import sys
try:
    try:
        {}['label']
    except KeyError:
        sys.exit(1)
except SystemExit:
    pass
print('went on')
"""
    rank = run(tmp_path, source)

    # The handled exception may be on record; with exit code 0 the rules do not count it.
    assert (rank.code, rank.out) == (0, "went on\n")


def test_torch_elastic_gets_its_error_file(tmp_path: Path) -> None:
    reply = tmp_path / "error.json"
    run(tmp_path, "raise ValueError('loss is nan')", TORCHELASTIC_ERROR_FILE=str(reply))

    assert json.loads(reply.read_text())["message"]["message"] == "ValueError: loss is nan"


def test_an_error_file_of_record_is_not_overwritten(tmp_path: Path) -> None:
    reply = tmp_path / "error.json"
    reply.write_text("{}")
    run(tmp_path, "raise ValueError('loss is nan')", TORCHELASTIC_ERROR_FILE=str(reply))

    assert reply.read_text() == "{}"


def test_a_script_that_closes_all_descriptors(tmp_path: Path) -> None:
    rank = run(tmp_path, "import os\nos.closerange(3, 4096)\nraise ValueError('of a daemon')\n")

    assert rank.error["message"] == "of a daemon"


def test_low_descriptors_are_left_to_the_script(tmp_path: Path) -> None:
    source = """
import os
for name in os.listdir("/proc/self/fd"):
    try:
        if os.readlink("/proc/self/fd/" + name) == os.devnull and 2 < int(name) < 60:
            print(name)
    except OSError:
        pass
"""
    assert run(tmp_path, source).out == ""


def test_a_record_is_made_without_a_descriptor_in_reserve(tmp_path: Path) -> None:
    source = "from safelaunch.worker import errors\nerrors._RESERVE.clear()\nraise ValueError('x')\n"
    assert run(tmp_path, source).error["message"] == "x"


def test_the_users_traceback_comes_before_our_looks_and_these_end(tmp_path: Path) -> None:
    """A disk that is full may be dead as well."""
    elastic = tmp_path / "elastic.json"
    source = f"""
import os, sys, threading
def statvfs(path):
    sys.stderr.write("looked, and elastic was told: %s\\n" % os.path.exists({str(elastic)!r}))
    threading.Event().wait()
os.statvfs = statvfs
raise OSError(28, "No space left on device", "model.pt")
"""
    rank = run(tmp_path, source, TORCHELASTIC_ERROR_FILE=str(elastic))

    assert rank.code == 1
    traceback, _, looked = rank.err.partition("looked, ")
    assert traceback == rank.error["traceback"]
    assert looked == "and elastic was told: True\n"
    assert "around" not in rank.error


def test_a_place_of_elastic_that_is_full_costs_nothing_else(tmp_path: Path) -> None:
    source = "raise OSError(28, 'No space left on device', 'model.pt')\n"
    rank = run(tmp_path, source, TORCHELASTIC_ERROR_FILE=str(tmp_path / "gone" / "elastic.json"))

    assert rank.error["around"]["disk"]["file"] == str(tmp_path / "model.pt")


def test_the_pulse_tells_of_an_exception_before_what_may_keep_the_process(tmp_path: Path) -> None:
    ends = "import atexit, os, threading\natexit.register(os._exit, 5)\n"
    assert failed(run(tmp_path, ends + "raise ValueError('no')\n"))


@pytest.mark.parametrize("hook", ["lambda *_: None", "print", "sys.__excepthook__"])
def test_a_hook_of_the_script_hides_nothing_from_the_pulse(tmp_path: Path, hook: str) -> None:
    ends = "import atexit, os, sys, threading\natexit.register(os._exit, 5)\n"
    source = f"{ends}sys.excepthook = {hook}\nraise ValueError('no')\n"
    rank = run(tmp_path, source)

    assert failed(rank)
    assert rank.error["message"] == "no"


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.excepthook(*sys.exc_info())\n",
        "def thread():\n    sys.excepthook(ValueError, ValueError('no'), None)\n"
        "t = threading.Thread(target=thread)\nt.start()\nt.join()\n",
        "import code\ncode.InteractiveInterpreter().runsource('1 / 0')\n",
        "def part():\n    1 / 0\ntry:\n    part()\nexcept ZeroDivisionError as error:\n"
        "    sys.last_value = sys.last_exc = error.with_traceback(error.__traceback__.tb_next)\n",
        "sys.exit(3)\n",
        "",
    ],
    ids=["printed", "in-a-thread", "console", "test-runner", "exit", "end"],
)
def test_the_pulse_tells_of_no_exception_that_the_program_survives(tmp_path: Path, source: str) -> None:
    assert not failed(run(tmp_path, "import sys, threading\n" + source))


def failed(rank: Rank) -> bool:
    """Whether the pulse says that an exception has ended the program."""
    assert rank.box is not None
    return bool(rank.box.pulse.state & PROGRAM_RAISED)
