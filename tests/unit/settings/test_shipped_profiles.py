"""The shipped profiles load, stay quiet by default, and explain themselves."""

from __future__ import annotations

import importlib
import os

import pytest

from safelaunch.codes import CATALOGUE
from safelaunch.model import Settings
from safelaunch.settings import profile
from safelaunch.settings.resolve import resolve

NAMES = ("default", "debug", "production", "ethernet", "infiniband", "efa", "consumer-gpu", "cpu")
# What says how the ranks are connected: each of these goes with `debug` and with `production`.
PLACES = ("ethernet", "infiniband", "efa", "consumer-gpu", "cpu")


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_describes_itself(name: str, environ: dict[str, str]) -> None:
    (shipped,) = profile.load(name, environ)
    assert shipped.description
    resolve(["--profile", name, "train.py"], environ)


def test_these_are_all_that_ship(environ: dict[str, str]) -> None:
    assert sorted(profile.available(environ)) == sorted(NAMES)


def test_the_base_extends_nothing() -> None:
    assert profile.load_shipped("default").extends == ()


@pytest.mark.parametrize("name", NAMES)
def test_each_variable_says_what_it_costs_and_where_that_is_written(name: str) -> None:
    path = os.path.join(profile.shipped_folder(), f"{name}.toml")
    with open(path) as file:
        lines = file.read().splitlines()
    for (table, *_), value in profile.parse_file(path).values.items():
        if table == "env":
            above = lines[: int(value.origin.where.rpartition(":")[2]) - 1]
            comment = "\n".join(above[len(above) - above[::-1].index("") if "" in above else 0 :])
            assert all(f"# {word}:" in comment for word in ("What", "Cost", "Source")), value.origin.where


def test_no_shipped_profile_sets_what_is_known_to_hurt(environ: dict[str, str]) -> None:
    for name in NAMES:
        env = resolve(["--profile", name, "train.py"], environ).env
        # Segmentation fault in every DDP rank with gloo; a deprecation warning in every rank.
        assert "TORCH_DISTRIBUTED_DEBUG" not in env or env["TORCH_DISTRIBUTED_DEBUG"].value != "DETAIL"
        assert not {"TORCH_NCCL_TRACE_BUFFER_SIZE", "PYTORCH_CUDA_ALLOC_CONF"} & set(env)


@pytest.mark.parametrize(
    ("name", "mode", "abort_after"),
    [("default", "auto", None), ("debug", "full", 120.0), ("production", "auto", 540.0)],
)
def test_what_each_profile_promises(name: str, mode: str, abort_after: float | None, environ: dict[str, str]) -> None:
    settings = resolve(["--profile", name, "train.py"], environ)
    assert (settings["preflight"], settings["hang_abort_after"]) == (mode, abort_after)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("purpose", ["debug", "production"])
def test_a_place_and_a_purpose_go_together_in_any_order(purpose: str, place: str, environ: dict[str, str]) -> None:
    def resolved(*names: str) -> Settings:
        return resolve([*(word for name in names for word in ("--profile", name)), "train.py"], environ)

    one, other = resolved(purpose, place), resolved(place, purpose)
    assert one.env == other.env
    for name in (purpose, place):
        own = {path[1]: value for path, value in profile.load_shipped(name).values.items() if path[0] == "env"}
        assert own.items() <= one.env.items()
    for table in ("hang", "preflight", "limits", "timeouts", "lint"):
        assert getattr(one, table) == getattr(other, table)
    assert one["hang_abort_after"] == resolved(purpose)["hang_abort_after"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_takes_nothing_away_from_the_user(name: str, environ: dict[str, str]) -> None:
    assert [layer.unset for layer in profile.load(name, environ)] == [()]


@pytest.mark.parametrize("name", NAMES)
def test_the_list_has_one_line_for_it(name: str) -> None:
    description = profile.load_shipped(name).description
    assert "\n" not in description
    assert len(description) <= 105


def test_debugging_says_so_to_the_lint(environ: dict[str, str]) -> None:
    assert resolve(["--profile", "debug", "train.py"], environ).lint["debugging"].value is True
    assert "debugging" not in resolve(["--profile", "production", "train.py"], environ).lint


def test_an_abort_of_ours_comes_before_nccls_own(environ: dict[str, str]) -> None:
    # kProcessGroupNCCLDefaultTimeout; the watchdog's abort takes the evidence with it.
    for name in ("debug", "production"):
        assert 0 < resolve(["--profile", name, "train.py"], environ)["hang_abort_after"] <= 600 - 60


@pytest.mark.parametrize(
    "code", [code for code in CATALOGUE.values() if code.text.startswith("settings.")], ids=lambda c: c.code
)
def test_each_code_of_this_package_is_explained(code: object) -> None:
    for place in code.text.split():  # type: ignore[attr-defined]
        module, _, function = place.partition(":")
        text = getattr(importlib.import_module(f"safelaunch.{module}"), function).__doc__
        assert "How it is concluded:" in text
        assert "What to do:" in text
