"""What can be run is let through, and the rest is said before anything starts."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from safelaunch.launch import plan
from safelaunch.model import SafelaunchError, Settings
from safelaunch.settings import options, resolve


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a script, a package, an executable, a plain folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("")
    (tmp_path / "plain").mkdir()
    interpreters = {
        "run": "/bin/sh -e",
        "spaced": " \t/usr/bin/env sh",
        "gone": "/gone/sh",
        "dos": "/bin/sh\r",
    }
    for name, interpreter in interpreters.items():
        command = tmp_path / f"{name}.sh"
        command.write_bytes(f"#!{interpreter}\n".encode())
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def settings(*arguments: str) -> Settings:
    environ = {"HOME": os.getcwd(), "XDG_CONFIG_HOME": os.getcwd()}
    return resolve.settle(options.parse(list(arguments), environ), environ)


RUNS = [
    (("train.py",), "script"),
    (("./train.py",), "script"),
    (("package",), "script"),
    (("-m", "no.such.module"), "module"),  # each rank's own Python knows
    (("--no-python", "./run.sh"), "no_python"),
    (("--no-python", "./spaced.sh"), "no_python"),
    (("--no-python", "sh"), "no_python"),
    (("--run-path", "train.py"), "run_path"),
    (("--run-path", "plain"), "run_path"),
]


@pytest.mark.parametrize(("arguments", "mode"), RUNS)
@pytest.mark.usefixtures("folder")
def test_what_can_be_run(arguments: tuple[str, ...], mode: str) -> None:
    settled = settings(*arguments, "--lr", "1")

    assert plan.mode(settled) == mode
    assert plan.check_script(settled) == arguments[-1]


REFUSED = [
    (("missing.py",), "there is no file missing.py"),
    (("missing/train.py",), "there is no file"),
    (("plain",), "without __main__.py"),
    (("--run-path", "missing"), "there is no file"),
    (("--no-python", "no-such-command"), "no executable command no-such-command"),
    (("--no-python", "./train.py"), "no executable command"),
    (("--no-python", "./plain"), "no executable command"),
    (("--no-python", "./gone.sh"), "the first line of ./gone.sh asks for '/gone/sh', which does not exist"),
    (("--no-python", "./dos.sh"), r"asks for '/bin/sh\\r'"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
@pytest.mark.usefixtures("folder")
def test_what_cannot(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SafelaunchError, match=said) as caught:
        plan.check_script(settings(*arguments))
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL002", 2)
    assert caught.value.diagnostic.remedy


def test_a_missing_script_tells_where_we_looked(folder: Path) -> None:
    with pytest.raises(SafelaunchError) as caught:
        plan.check_script(settings("missing.py"))
    assert str(folder) in caught.value.diagnostic.remedy


def test_a_script_that_cannot_be_read() -> None:
    # Root reads everything, so the question is asked by a child that has become nobody.
    place = tempfile.mkdtemp()
    try:
        os.chmod(place, 0o755)
        script = os.path.join(place, "train.py")
        Path(script).write_text("")
        os.chmod(script, 0)
        settled = settings(script)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setresgid(65534, 65534, 65534)
                    os.setresuid(65534, 65534, 65534)
                plan.check_script(settled)
            except SafelaunchError as error:
                os.write(writer, error.diagnostic.summary.encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        assert os.read(reader, 4096).decode() == f"{script} cannot be read"
        os.close(reader)
    finally:
        shutil.rmtree(place)
