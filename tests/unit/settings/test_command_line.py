"""What a user sees of the command line: safelaunch's own options, variables, and messages for mistakes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safelaunch import codes
from safelaunch.model import Origin, SafelaunchError
from safelaunch.settings import safelaunch_options, torchrun
from safelaunch.settings.options import parse
from safelaunch.settings.usage import COMMANDS, help_text

SCRIPT = "train.py"


def refused(argv: list[str], **environ: str) -> SafelaunchError:
    with pytest.raises(SafelaunchError) as caught:
        parse(argv, environ)
    assert caught.value.diagnostic.code == "SL001"
    assert caught.value.exit_code == codes.EXIT_USAGE
    assert caught.value.diagnostic.remedy
    return caught.value


# ----------------------------------------------------------------------------------------- our own options


@pytest.mark.parametrize(
    ("argv", "dest", "value"),
    [
        (["--profile", "a", "--profile", "b,c/d.toml"], "profile", ("a", "b,c/d.toml")),
        (["--preflight", "full"], "preflight", "full"),
        (["--on_hang=report"], "on_hang", "report"),
        (["--hang-abort-after", "1h30m"], "hang_abort_after", 5400.0),
        (["--hang-abort-after", "never"], "hang_abort_after", None),
        (["--run-dir", "x"], "run_dir", "x"),
        (["--no-warm-start"], "warm_start", False),
        (["--no-warm-start", "--warm_start"], "warm_start", True),
        (["--dry-run"], "dry_run", True),
        (["--color", "never"], "color", "never"),
        (["--json", "-"], "json", "-"),
        (["-vv", "--verbose"], "verbose", 3),
        (["-qv"], "quiet", 1),
    ],
)
def test_own_options(argv: list[str], dest: str, value: object) -> None:
    assert parse([*argv, SCRIPT], {})[dest] == value


@pytest.mark.parametrize(
    ("variable", "text", "dest", "value"),
    [
        ("SAFELAUNCH_PROFILE", "debug, mine.toml", "profile", ("debug", "mine.toml")),
        ("SAFELAUNCH_PREFLIGHT", "off", "preflight", "off"),
        ("SAFELAUNCH_ON_HANG", "abort", "on_hang", "abort"),
        ("SAFELAUNCH_HANG_ABORT_AFTER", "90s", "hang_abort_after", 90.0),
        ("SAFELAUNCH_RUN_DIR", "/x", "run_dir", "/x"),
        ("SAFELAUNCH_WARM_START", "0", "warm_start", False),
        ("SAFELAUNCH_DRY_RUN", "yes", "dry_run", True),
        ("SAFELAUNCH_COLOR", "always", "color", "always"),
        ("SAFELAUNCH_JSON", "out.json", "json", "out.json"),
        ("SAFELAUNCH_VERBOSE", "2", "verbose", 2),
        ("SAFELAUNCH_QUIET", "1", "quiet", 1),
    ],
)
def test_each_own_option_has_a_variable(variable: str, text: str, dest: str, value: object) -> None:
    setting = parse([SCRIPT], {variable: text}).values[dest]
    assert setting.value == value
    assert setting.origin == Origin("shell", variable)


def test_an_empty_variable_of_ours_counts_as_unset() -> None:
    assert parse([SCRIPT], {"SAFELAUNCH_PROFILE": "", "SAFELAUNCH_PREFLIGHT": ""})["preflight"] == "auto"


def test_origins_tell_flag_variable_and_default_apart() -> None:
    values = parse(["--nproc_p", "2", SCRIPT], {"PET_NNODES": "2"}).values
    assert values["nproc_per_node"].origin == Origin("flag", "--nproc_per_node")
    assert values["nnodes"].origin == Origin("shell", "PET_NNODES")
    assert values["max_restarts"].origin == Origin("default")


def test_the_shutdown_timeout_has_a_second_variable_of_lower_rank() -> None:
    both = {"PET_SHUTDOWN_TIMEOUT": "5", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "6"}
    assert parse([SCRIPT], both)["shutdown_timeout"] == 5
    assert parse([SCRIPT], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "6"})["shutdown_timeout"] == 6


# ------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--nnodes", "x", "--help", "--nonsense"]])
def test_help_needs_nothing_else(argv: list[str]) -> None:
    assert parse(argv, {}).request == "help"


def test_version() -> None:
    assert parse(["--version"], {}).request == "version"
    assert parse([SCRIPT, "--version"], {}).request == "run"


def test_two_dashes_make_a_script_of_a_command_name() -> None:
    assert parse(["--", "check"], {})["training_script"] == "check"


# ------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    "argv",
    [
        ["--nproc-per-node", "-1"],
        ["--nproc-per-node", "0"],
        ["--nproc-per-node", "4x"],
        ["--nproc-per-node", "2.5"],
        ["--nproc-per-node", "cuda"],
        ["--nnodes", "0"],
        ["--nnodes", "2:1"],
        ["--nnodes", "1:2:3"],
        ["--nnodes", "two"],
        ["--max-restarts", "-1"],
        ["--shutdown-timeout", "-1"],
        ["--monitor-interval", "nan"],
        ["--master-port", "65536"],
        ["--node-rank", "-1"],
        ["--redirects", "4"],
        ["--local-ranks-filter", "a"],
        ["--rdzv-conf", "timeout"],
        ["--signals-to-handle", "SIGNONE"],
        ["--hang-abort-after", "0"],
        ["--hang-abort-after", "10 parsecs"],
        ["--color", "blue"],
    ],
    ids=" ".join,
)
def test_a_bad_value_is_named_with_its_flag(argv: list[str]) -> None:
    message = str(refused([*argv, SCRIPT]))
    assert message.startswith(f"{argv[0]} {argv[1]}: expected ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("variable", "text"),
    [("PET_MAX_RESTARTS", "x"), ("PET_STANDALONE", "true"), ("PET_NNODES", ""), ("SAFELAUNCH_VERBOSE", "very")],
)
def test_a_bad_value_is_named_with_its_variable(variable: str, text: str) -> None:
    assert str(refused([SCRIPT], **{variable: text})).startswith(f"{variable}={text}: expected ")


def test_a_flag_hides_a_bad_variable() -> None:
    assert parse(["--max-restarts", "2", SCRIPT], {"PET_MAX_RESTARTS": "x"})["max_restarts"] == 2


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--npro-per-node", "--nproc-per-node"),
        ("--profle=debug", "--profile"),
        ("--max_restart_s", "--max-restarts"),
        ("--warmstart", "--warm-start"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_spelling(word: str, meant: str) -> None:
    error = refused([word, "4", SCRIPT])
    assert str(error) == f"unknown option {word.split('=')[0]}"
    assert f"`{meant}`" in error.diagnostic.remedy


def test_an_unknown_option_is_reported_before_the_missing_script() -> None:
    assert "--standalon" in str(refused(["--standalone-", "--nnodes", "1"]))


def test_a_wrong_word_is_answered_with_the_nearest_choice() -> None:
    assert "`abort`" in refused(["--on-hang", "abrt", SCRIPT]).diagnostic.remedy


@pytest.mark.parametrize("argv", [[], ["--"], ["--nnodes", "1"]])
def test_a_missing_script(argv: list[str]) -> None:
    assert str(refused(argv)) == "no training script was given"


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--rdzv-id"], "expected one argument"),
        (["--standalone=1", SCRIPT], "--standalone"),
        (["--run", SCRIPT], "could match --run-path, --run_path, --run-dir, --run_dir"),
    ],
)
def test_argparse_mistakes_do_not_exit(argv: list[str], part: str) -> None:
    assert part in str(refused(argv))


# ---------------------------------------------------------------------------------------------------- help


def test_help_shows_every_option_and_command() -> None:
    text = help_text()
    for option in torchrun.OPTIONS + safelaunch_options.OPTIONS:
        assert all(name in text for name in option.names + option.off)
    assert all(command in text for command, _ in COMMANDS)


def test_help_keeps_our_options_apart_and_fits_a_terminal() -> None:
    lines = help_text().splitlines()
    ours = next(number for number, line in enumerate(lines) if line.startswith("safelaunch options"))
    assert any("--nproc-per-node" in line for line in lines[:ours])
    assert any("--profile" in line for line in lines[ours:])
    assert max(map(len, lines)) <= 100


def test_help_and_parsing_load_nothing_heavy() -> None:
    code = (
        "import sys; from safelaunch.settings import options, usage; usage.help_text();"
        "options.parse(['--nnodes', '1', 'x.py'], {}); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "rich", "psutil", "tomllib", "tomli", "difflib", "asyncio"} & set(loaded)
