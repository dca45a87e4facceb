"""safelaunch reads torchrun's command line as torchrun does: checked against torch's own parser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelaunch.model import SafelaunchError
from safelaunch.settings import completion, torchrun
from safelaunch.settings.options import OPTIONS, parse

run = pytest.importorskip("torch.distributed.run")

SCRIPT = "train.py"
POSITIONAL = {"training_script", "training_script_args"}
ASKS = {"help", "print_completion"}  # what ends the reading at once

# A value that torch accepts and that is not the default, for each option that checks its value.
SAMPLES = {
    "nnodes": "1:3",
    "nproc_per_node": "gpu",
    "node_rank": "2",
    "master_port": "1234",
    "rdzv_conf": "timeout=3,is_host=0",
    "max_restarts": "5",
    "monitor_interval": "0.25",
    "shutdown_timeout": "7",
    "signals_to_handle": "SIGTERM,SIGUSR1",
    "redirects": "0:1,1:2",
    "tee": "3",
    "local_ranks_filter": "0,2",
    "duplicate_stdout_filters": "a,,b,c",
}


class Refused(Exception):
    """torch's parser does not accept the command line."""


@pytest.fixture
def torch_parser(monkeypatch: pytest.MonkeyPatch) -> Callable[..., argparse.ArgumentParser]:
    """Build torch's parser as if the given variables, and no other PET_*, were set."""

    def build(**environ: str) -> argparse.ArgumentParser:
        for dest in (option.dest for option in torchrun.OPTIONS):
            monkeypatch.delenv(f"PET_{dest.upper()}", raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return refusing(run.get_args_parser())

    return build


def refusing(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    def refuse(message: str) -> None:
        raise Refused(message)

    parser.error = refuse  # type: ignore[method-assign, assignment]
    return parser


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """torch's options, without its positionals and what ends the reading."""
    return [action for action in parser._actions if action.dest not in POSITIONAL | ASKS]


def sample(action: argparse.Action) -> list[str]:
    """The words that follow the option to give it a value other than its default."""
    if action.nargs == 0:
        return []
    return [str(list(action.choices)[-1]) if action.choices else SAMPLES.get(action.dest, "word")]


def ours(argv: list[str], environ: dict[str, str] | None = None) -> dict[str, Any]:
    values = parse(argv, environ or {}).values
    return {dest: value.value for dest, value in values.items()}


def torchs(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    return {dest: value for dest, value in vars(parser.parse_args(argv)).items() if dest not in ASKS}


def agree(parser: argparse.ArgumentParser, argv: list[str], environ: dict[str, str] | None = None) -> None:
    expected = torchs(parser, argv)
    actual = ours(argv, environ)
    assert {dest: actual[dest] for dest in expected} == expected


def test_every_option_of_torchrun_is_known_with_every_spelling(torch_parser: Any) -> None:
    theirs = {action.dest: set(action.option_strings) for action in actions(torch_parser())}
    spellings = {option.dest: set(option.spellings) for option in known(theirs)}
    assert spellings == theirs


def test_choices_are_the_same(torch_parser: Any) -> None:
    theirs = {action.dest: set(action.choices or ()) for action in actions(torch_parser())}
    assert {option.dest: set(option.kind.choices) for option in known(theirs)} == theirs


def known(theirs: dict[str, Any]) -> list[Any]:
    """Our options, without those that the installed torch is too old for."""
    return [option for option in torchrun.OPTIONS if option.dest in theirs or option.dest not in torchrun.LATER]


def test_defaults_are_the_same(torch_parser: Any) -> None:
    agree(torch_parser(), [SCRIPT])


def test_every_option_reads_its_value_alike(torch_parser: Any) -> None:
    parser = torch_parser()
    for action in actions(parser):
        for spelling in action.option_strings:
            agree(parser, [spelling, *sample(action), SCRIPT, "--its", "own"])


@pytest.mark.parametrize("option", torchrun.OPTIONS, ids=lambda option: option.dest)
def test_variables_act_alike(option: Any, torch_parser: Any) -> None:
    action = next((action for action in actions(torch_parser()) if action.dest == option.dest), None)
    if action is None:
        assert option.dest in torchrun.LATER
        pytest.skip("the installed torch does not have it")
    for text in ["1", "0", "7"] if action.nargs == 0 else sample(action):
        environ = {f"PET_{option.dest.upper()}": text}
        parser = torch_parser(**environ)
        agree(parser, [SCRIPT], environ)
        agree(parser, [action.option_strings[-1], *sample(action), SCRIPT], environ)


def test_every_prefix_that_torchrun_accepts_means_the_same(torch_parser: Any) -> None:
    parser = torch_parser()
    accepted = 0
    for action in actions(parser):
        for spelling in action.option_strings:
            for end in range(2, len(spelling)):
                argv = [spelling[:end], *sample(action), SCRIPT]
                try:
                    torchs(parser, argv)
                except Refused:
                    continue
                accepted += spelling[:end] != "--"
                agree(parser, argv)
    assert accepted > 100, "the walk must meet prefixes that torchrun accepts"


def test_what_older_torchs_take_for_one_option_stays_so() -> None:
    assert ours(["--log-", "logs", SCRIPT])["log_dir"] == "logs"
    assert ours(["--log-l", "${rank}: ", SCRIPT])["log_line_prefix_template"] == "${rank}: "


def test_the_template_of_newer_torchs_has_both_spellings_and_a_variable() -> None:
    for name in ("--log-line-prefix-template", "--log_line_prefix_template"):
        assert ours([name, "${hostname}:", SCRIPT])["log_line_prefix_template"] == "${hostname}:"
    assert ours([SCRIPT], {"PET_LOG_LINE_PREFIX_TEMPLATE": "x"})["log_line_prefix_template"] == "x"


@pytest.mark.parametrize("name", ["--print-completion", "--print_completion", "--print-c"])
@pytest.mark.parametrize("shell", torchrun.SHELLS)
def test_completion_is_asked_for_as_of_torchrun(name: str, shell: str) -> None:
    asked = parse(["--nnodes", "2", name, shell], {})
    assert (asked.request, asked.shell) == ("completion", shell)


def test_completion_is_for_known_shells() -> None:
    with pytest.raises(SafelaunchError, match="invalid choice: 'cmd'"):
        parse(["--print-completion", "cmd"], {})


def test_completion_knows_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shtab:
        @staticmethod
        def complete(parser: argparse.ArgumentParser, shell: str) -> str:
            return f"{shell} {parser.prog} " + " ".join(parser._option_string_actions)

    monkeypatch.setitem(sys.modules, "shtab", Shtab)
    words = completion.script("zsh").split()
    assert words[:2] == ["zsh", "safelaunch"]
    assert {spelling for option in OPTIONS for spelling in option.spellings} <= set(words)


def test_completion_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SafelaunchError, match="needs the package shtab"):
        completion.script("bash")


@pytest.mark.parametrize("prefix", ["--h", "--he", "--hel"])
def test_abbreviated_help_stays_help(prefix: str) -> None:
    assert parse([prefix], {}).request == "help"


@pytest.mark.parametrize(
    "argv",
    [
        ["--", SCRIPT, "--a"],
        ["-t3", "-r", "1", SCRIPT],
        ["-mt3", "package.module", "-m"],
        ["--rdzv-conf=timeout=3,a=b", SCRIPT],
        [SCRIPT, "--nnodes", "2"],
        [SCRIPT, "--", "--nnodes", "2"],
        [SCRIPT, "-h"],
        ["--nnodes", "1", "--nnodes", "3", SCRIPT],
        ["--role", "", SCRIPT],
        ["--role", "-a b", SCRIPT],
    ],
    ids=" ".join,
)
def test_the_corners_of_argparse_are_kept(argv: list[str], torch_parser: Any) -> None:
    agree(torch_parser(), argv)


PARSER = refusing(run.get_args_parser())
OPTION_WORDS = st.sampled_from(actions(PARSER)).flatmap(
    lambda action: st.sampled_from(list(action.option_strings)).map(lambda name: [name, *sample(action)])
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    options=st.lists(OPTION_WORDS, max_size=6),
    rest=st.lists(st.sampled_from(["--nnodes", "-m", "--profile", "x", "--", "-1", ""]), max_size=4),
)
def test_any_mixture_of_options_and_script_arguments_is_read_alike(
    options: list[list[str]], rest: list[str], torch_parser: Any
) -> None:
    argv = [word for words in options for word in words] + [SCRIPT, *rest]
    agree(torch_parser(), argv)
