"""Flag > shell > later profile > earlier profile > default, for options and for the environment."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from safelaunch.model import SafelaunchError, Settings
from safelaunch.settings.resolve import resolve

# For each option: its default, the profile key that sets it, and its variable.
OPTIONS: dict[str, tuple[Any, str, str]] = {
    "nproc_per_node": ("1", "[launch]\nnproc_per_node", "PET_NPROC_PER_NODE"),
    "max_restarts": (0, "[launch]\nmax_restarts", "PET_MAX_RESTARTS"),
    "hang_abort_after": (None, "[hang]\nabort_after", "SAFELAUNCH_HANG_ABORT_AFTER"),
    "shutdown_timeout": (30.0, "[timeouts]\nshutdown", "PET_SHUTDOWN_TIMEOUT"),
}
LAYERS = ("earlier profile", "later profile", "shell", "flag")


@pytest.mark.parametrize("dest", OPTIONS)
@pytest.mark.parametrize(
    "present", [chosen for size in range(5) for chosen in itertools.combinations(LAYERS, size)], ids=" + ".join
)
def test_the_strongest_layer_wins(dest: str, present: tuple[str, ...], write: Any, environ: dict[str, str]) -> None:
    default, key, variable = OPTIONS[dest]
    argv = []
    for number, layer in enumerate(LAYERS[:2], start=1):
        if layer in present:
            argv += ["--profile", write(f"{key} = {number}", layer.replace(" ", "-"))]
    if "shell" in present:
        environ[variable] = "3"
    if "flag" in present:
        argv += ["--" + dest.replace("_", "-"), "4"]
    result = resolve([*argv, "train.py"], environ).options[dest]
    if not present:
        assert (result.value, result.origin.source) == (default, "default")
    else:
        strongest = present[-1]
        assert float(result.value) == LAYERS.index(strongest) + 1
        assert result.origin.source == strongest.split()[-1]


@pytest.mark.parametrize(
    ("text", "argv", "dest", "value"),
    [
        ("[preflight]\nmode = 'full'", [], "preflight", "full"),
        ("[preflight]\nmode = 'full'", ["--preflight", "off"], "preflight", "off"),
        ("[hang]\non_hang = 'abort'", [], "on_hang", "abort"),
        ("[hang]\nabort_after = '1m'", ["--hang-abort-after", "never"], "hang_abort_after", None),
        ("[launch]\nmodule = true", [], "module", True),
    ],
)
def test_profile_keys_that_are_options(
    text: str, argv: list[str], dest: str, value: object, write: Any, environ: dict[str, str]
) -> None:
    settings = resolve(["--profile", write(text), *argv, "train.py"], environ)
    assert settings[dest] == value


def test_tables_show_the_same_final_value_as_options(write: Any, environ: dict[str, str]) -> None:
    path = write("[timeouts]\nshutdown = 5\nprocess_group = '20m'\n[hang]\nabort_after = '1m'\n")
    settings = resolve(["--profile", path, "--shutdown-timeout", "7", "train.py"], environ)
    assert settings.timeouts["shutdown"].value == settings["shutdown_timeout"] == 7.0
    assert settings.timeouts["process_group"].value == 1200.0
    assert settings.hang["abort_after"].value == 60.0
    assert settings.preflight["mode"].value == "auto"
    assert settings.limits["nofile"].value == "auto"


def test_what_a_step_should_take_is_a_duration(write: Any, environ: dict[str, str]) -> None:
    settings = resolve(["--profile", write("[slow]\nexpect_step = '350ms'\n"), "train.py"], environ)
    assert settings.slow["expect_step"].value == pytest.approx(0.35)
    assert "watch" not in settings.slow


def test_torchs_own_variable_for_the_shutdown_timeout_ranks_as_shell(write: Any, environ: dict[str, str]) -> None:
    argv = ["--profile", write("[timeouts]\nshutdown = 5"), "train.py"]
    environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "9"
    assert resolve(argv, environ)["shutdown_timeout"] == 9.0


def test_severities_of_several_profiles_add_up(write: Any, environ: dict[str, str]) -> None:
    first = write("[preflight.severity]\nSL104 = 'off'\nSL105 = 'note'\n", "first")
    second = write("[preflight.severity]\nSL105 = 'error'\n", "second")
    settings = resolve(["--profile", first, "--profile", second, "train.py"], environ)
    assert settings.preflight["severity"].value == {"SL104": "off", "SL105": "error"}


def test_module_and_no_python_exclude_each_other_wherever_they_are_set(write: Any, environ: dict[str, str]) -> None:
    argv = ["--profile", write("[launch]\nmodule = true"), "--no-python"]
    with pytest.raises(SafelaunchError, match="--no-python and --module"):
        resolve([*argv, "train"], environ)
    assert resolve([*argv, "--run-path", "train"], environ)["run_path"] is True


# ------------------------------------------------------------------------------------------ order of layers


def env_of(settings: Settings) -> dict[str, str]:
    return {name: value.value for name, value in settings.env.items()}


def test_the_default_profile_is_below_all_others(write: Any, environ: dict[str, str]) -> None:
    assert resolve(["train.py"], environ).profiles == ("default",)
    settings = resolve(["--profile", write("[env]\nTORCH_FR_BUFFER_SIZE = 7"), "train.py"], environ)
    assert settings.profiles == ("default", "mine")
    assert env_of(settings)["TORCH_FR_BUFFER_SIZE"] == "7"


def test_a_users_default_profile_applies_only_when_named(write: Any, environ: dict[str, str]) -> None:
    write("[env]\nA = 1", "default", own=True)
    assert "A" not in env_of(resolve(["train.py"], environ))
    assert env_of(resolve(["--profile", "default", "train.py"], environ))["A"] == "1"


def test_a_shared_base_does_not_undo_an_earlier_profile(write: Any, environ: dict[str, str]) -> None:
    write("[env]\nA = 'base'\nB = 'base'", "base")
    first = write("extends = 'base.toml'\n[env]\nA = 'first'", "first")
    second = write("extends = 'base.toml'\n[env]\nB = 'second'", "second")
    env = env_of(resolve(["--profile", first, "--profile", second, "train.py"], environ))
    assert (env["A"], env["B"]) == ("first", "second")


def test_a_profile_named_last_wins_even_over_one_that_extends_it(write: Any, environ: dict[str, str]) -> None:
    base = write("[env]\nA = 'base'", "base")
    top = write("extends = 'base.toml'\n[env]\nA = 'top'", "top")
    assert env_of(resolve(["--profile", top, "--profile", base, "train.py"], environ))["A"] == "base"
    assert env_of(resolve(["--profile", base, "--profile", top, "train.py"], environ))["A"] == "top"


def test_the_profile_variable_holds_a_list_and_loses_to_the_flag(write: Any, environ: dict[str, str]) -> None:
    environ["SAFELAUNCH_PROFILE"] = f"debug,{write('[hang]')}"
    assert resolve(["train.py"], environ).profiles == ("default", "debug", "mine")
    assert resolve(["--profile", "production", "train.py"], environ).profiles == ("default", "production")


# ---------------------------------------------------------------------------------------- shell and [env]


def test_a_shell_variable_beats_a_profile_and_says_so(write: Any, environ: dict[str, str]) -> None:
    path = write("[env]\nNCCL_DEBUG = 'INFO'\nOTHER = 'x'")
    environ["NCCL_DEBUG"] = "WARN"
    settings = resolve(["--profile", path, "train.py"], environ)
    assert "NCCL_DEBUG" not in settings.env
    assert settings.env["OTHER"].origin.where == f"{path}:3"
    (note,) = settings.notes
    assert (note.code, note.severity) == ("SL206", "note")
    assert "NCCL_DEBUG=WARN" in note.summary
    assert f"{path}:2" in note.because[0]


def test_a_variable_set_to_nothing_is_set(write: Any, environ: dict[str, str]) -> None:
    settings = resolve(["--profile", write("[env]\nA = 1"), "train.py"], environ | {"A": ""})
    assert "A" not in settings.env
    assert settings.notes


def test_the_same_value_in_shell_and_profile_is_not_worth_a_note(write: Any, environ: dict[str, str]) -> None:
    assert not resolve(["--profile", write("[env]\nA = 1"), "train.py"], environ | {"A": "1"}).notes


def test_an_old_spelling_in_the_shell_beats_the_new_one_of_a_profile(environ: dict[str, str]) -> None:
    environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "50000"
    settings = resolve(["train.py"], environ)
    assert "TORCH_FR_BUFFER_SIZE" not in settings.env, "torch prefers this name, so it would hide the user's value"
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE=50000" in settings.notes[0].summary
