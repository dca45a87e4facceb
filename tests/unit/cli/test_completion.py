"""`safelaunch completion SHELL`, in the shells themselves: what a person gets who presses the tab key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from harness import SAFELAUNCH, environment

from safelaunch.cli.completion import WRITERS, commands
from safelaunch.cli.main import SUBCOMMANDS, main
from safelaunch.codes import CATALOGUE
from safelaunch.settings import options, profile, usage

Complete = Callable[[str], list[str]]


@cache
def script(shell: str) -> str:
    return subprocess.run(
        [*SAFELAUNCH, "completion", shell], capture_output=True, text=True, check=True, env=environment()
    ).stdout


def in_bash(folder: Path) -> Complete:
    (folder / "script").write_text(script("bash"))
    # Readline takes `=` for a word of its own; a line that ends with a blank begins an empty word.
    words = """
    . ./script
    line=${1//=/ = }
    read -ra COMP_WORDS <<< "$line"
    [[ $1 == *' ' || $1 == *= ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _safelaunch
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    return lambda line: subprocess.run(
        ["bash", "--norc", "-c", words, "bash", line], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()


def in_fish(folder: Path) -> Complete:
    (folder / "script").write_text(script("fish"))
    ask = "source ./script; complete -C $argv[1]"
    return lambda line: [
        found.split("\t")[0].split("=")[-1] if line.endswith("=") else found.split("\t")[0]
        for found in subprocess.run(
            ["fish", "--no-config", "-c", ask, line], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]


class Zsh:
    """zsh completes on a terminal only: this writes a line to one, presses tab, and reads what is listed."""

    def __init__(self, folder: Path) -> None:
        (folder / "script").write_text(script("zsh"))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="dumb", COLUMNS="2000", LINES="1000")
            os.execvp("zsh", ["zsh", "-f", "-i"])
        # The prompt comes when zsh reads keys: what is typed before that, the terminal itself would take.
        self._type("unsetopt prompt_sp; PS1='<reads>'; LISTMAX=10000; setopt nobeep\n")
        self._type("autoload -Uz compinit && compinit -u -d ./dump; . ./script\n")
        self._type("zstyle ':completion:*' verbose no; bindkey '\\t' list-choices\n")

    def __call__(self, line: str) -> list[str]:
        clear = "\x15"  # what stands on the line, before the next command is typed
        return self._type(f"{line}\t{clear}").replace(line, " ").split()

    def close(self) -> None:
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _type(self, keys: str) -> str:
        """What is shown until the shell has come to a command behind it."""
        os.write(self.terminal, f"{keys}echo COME TO AN $((1))END\n".encode())
        text = ""
        while not text.partition("\nCOME TO AN 1END")[2].endswith("<reads>"):
            assert select.select([self.terminal], [], [], 60)[0], text
            text += os.read(self.terminal, 1 << 16).decode(errors="replace")
            text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x1b[=>]|\r", "", text)
        return text


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Complete]:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (tmp_path / "train.py").touch()
    (tmp_path / "safelaunch_runs" / "8f2c").mkdir(parents=True)
    if shell == "zsh":
        terminal = Zsh(tmp_path)
        yield terminal
        terminal.close()
    else:
        yield {"bash": in_bash, "fish": in_fish}[shell](tmp_path)


def test_first_comes_a_subcommand_or_a_script(complete: Complete) -> None:
    assert {"check", "diagnose", "explain", "train.py"} <= set(complete("safelaunch "))


def test_options_of_a_launch_and_their_values(complete: Complete) -> None:
    assert {"--max-restarts", "--hang-abort-after", "--no-warm-start"} <= set(complete("safelaunch --"))
    assert {"raw", "prefix", "merge"} <= set(complete("safelaunch --log "))
    assert {"auto", "report", "abort", "restart"} <= set(complete("safelaunch --on-hang="))


def test_options_of_a_subcommand_are_its_own(complete: Complete) -> None:
    offered = set(complete("safelaunch lint --"))
    assert {"--fix", "--format"} <= offered
    assert "--max-restarts" not in offered
    assert {"json", "github", "sarif"} <= set(complete("safelaunch lint --format "))


def test_names_of_profiles_codes_and_runs(complete: Complete) -> None:
    assert {"debug", "production", "consumer-gpu"} <= set(complete("safelaunch --profile "))
    assert {"show", "debug"} <= set(complete("safelaunch profile "))
    assert {"SL301", "SL302"} <= set(complete("safelaunch explain SL30"))
    assert {"slurm", "beaker"} <= set(complete("safelaunch policy "))
    assert "8f2c" in {word.rstrip("/") for word in complete("safelaunch stop ")}


def test_what_follows_the_script_is_its_own(complete: Complete) -> None:
    offered = complete("safelaunch --log raw train.py --")
    assert not {"--max-restarts", "--log"} & set(offered)
    assert "train.py" in complete("safelaunch --nproc-per-node 2 train.py tr")


def test_a_subcommand_name_behind_options_is_a_script(complete: Complete) -> None:
    assert "--fix" not in complete("safelaunch --log raw lint --")


def test_every_subcommand_and_option_is_described() -> None:
    described = {command.name: command for command in commands()}
    assert set(described) == {"", *SUBCOMMANDS}
    for name in SUBCOMMANDS:
        parser = import_module(f"safelaunch.cli.{name}").parser()
        spelled = {spelling for action in parser._actions for spelling in action.option_strings}
        assert spelled == {one for word in described[name].options for one in word.spellings + word.hidden}
    launch = {one for word in described[""].options for one in word.spellings}
    assert {name for option in options.OPTIONS for name in option.names + option.off} <= launch
    assert {text.split()[0] for text, _ in usage.COMMANDS} == set(SUBCOMMANDS)


def test_codes_and_profiles_are_all_offered() -> None:
    described = {command.name: command for command in commands()}
    assert [word for word, _ in described["explain"].arguments.words] == list(CATALOGUE)
    (of_profiles,) = (word.value for word in described["env"].options if "--profile" in word.spellings)
    assert of_profiles is not None
    assert {word for word, _ in of_profiles.words} == set(profile.available(os.environ))


def test_a_profile_whose_name_is_a_command_is_not_written_into_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "safelaunch" / "profiles"
    folder.mkdir(parents=True)
    for name in ("$(touch gone)", "';touch gone;'", "ours"):
        (folder / f"{name}.toml").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for shell in WRITERS:
        assert main(["completion", shell]) == 0
        written = capsys.readouterr().out
        assert "ours" in written
        assert "touch" not in written


def test_no_torch_is_loaded_for_it() -> None:
    load = "import sys; from safelaunch.cli.main import main; main(['completion', 'bash'])"
    subprocess.run(
        [sys.executable, "-c", f"{load}; sys.exit('torch' in sys.modules)"],
        check=True,
        capture_output=True,
        env=environment(),
    )


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
