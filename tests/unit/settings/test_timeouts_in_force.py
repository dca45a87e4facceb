"""The timeouts of a launch: torch's own numbers, what a profile's words become, and which are in force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch import durations
from safelaunch.model import SafelaunchError, Settings
from safelaunch.settings import timeouts
from safelaunch.settings.resolve import resolve
from safelaunch.watch import hang

HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"


def settle(write: Any, environ: dict[str, str], text: str, *argv: str) -> Settings:
    return resolve(["--profile", write(text), *argv, "train.py"], environ)


def test_the_numbers_are_torchs_and_our_own() -> None:
    import torch.distributed.run  # noqa: F401  registers the kinds of rendezvous
    from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout
    from torch.distributed.launcher.api import LaunchConfig

    assert default_pg_timeout.total_seconds() == timeouts.GROUP_S
    assert default_pg_nccl_timeout is None or default_pg_nccl_timeout.total_seconds() == timeouts.NCCL_S
    assert RendezvousTimeout().join.total_seconds() == timeouts.JOIN_S
    assert LaunchConfig(1, 1, 1).rdzv_configs["timeout"] == timeouts.STATIC_S
    assert set(timeouts.RENDEZVOUS_KEYS) <= set(rendezvous_handler_registry._registry)
    assert hang.DEFAULT_ABORT_S == timeouts.ABORT_S


@given(st.integers(0, 10**7).map(lambda ms: ms / 1000))
def test_a_duration_is_written_as_it_is_read(seconds: float) -> None:
    assert durations.seconds(durations.text(seconds)) == pytest.approx(seconds, abs=0.001, rel=1e-4)


@pytest.mark.parametrize(
    ("seconds", "text"), [(600, "10m"), (5400, "1h30m"), (2.5, "2.5s"), (0, "0s"), (3600, "1h"), (90, "1m30s")]
)
def test_durations_as_people_write_them(seconds: float, text: str) -> None:
    assert durations.text(seconds) == text


# ------------------------------------------------------------------------------------------------ the watchdog


def heartbeat(settings: Settings) -> str | None:
    return settings.env[HEARTBEAT].value if HEARTBEAT in settings.env else None


def test_the_watchdogs_timeout_becomes_the_variable_in_whole_seconds(write: Any, environ: dict[str, str]) -> None:
    settings = settle(write, environ, "[timeouts]\nwatchdog = '90.2s'\n")
    assert heartbeat(settings) == "91"
    assert settings.env[HEARTBEAT].origin.where.endswith("mine.toml:2")


def test_the_shells_own_heartbeat_wins_and_that_is_told(write: Any, environ: dict[str, str]) -> None:
    environ[HEARTBEAT] = "77"
    settings = settle(write, environ, "[timeouts]\nwatchdog = '9m'\n")
    assert heartbeat(settings) is None
    assert [(note.code, HEARTBEAT in note.summary) for note in settings.notes] == [("SL206", True)]
    assert timeouts.in_force(settings, "nccl", environ)["watchdog"] == (77.0, f"shell {HEARTBEAT}")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("[timeouts]\nwatchdog = 60\n", f"[env]\n{HEARTBEAT} = 70\n", "70"),
        (f"[env]\n{HEARTBEAT} = 70\n", "[timeouts]\nwatchdog = 60\n", "60"),
        (f"[timeouts]\nwatchdog = 60\n[env]\n{HEARTBEAT} = 70\n", "", "70"),
    ],
    ids=["variable later", "key later", "both in one"],
)
def test_key_and_variable_are_one_setting(
    first: str, second: str, expected: str, write: Any, environ: dict[str, str]
) -> None:
    argv = ["--profile", write(first, "first"), "--profile", write(second, "second"), "train.py"]
    settings = resolve(argv, environ)
    assert heartbeat(settings) == expected
    assert timeouts.in_force(settings, "nccl", environ)["watchdog"].seconds == float(expected)


# ---------------------------------------------------------------------------------------------- the rendezvous


@pytest.mark.parametrize(
    ("argv", "conf"),
    [
        ([], "timeout=241"),
        (["--rdzv-backend", "c10d"], "join_timeout=241,read_timeout=241"),
        (["--rdzv-backend", "etcd-v2"], "join_timeout=241"),
        (["--rdzv-backend", "etcd"], "timeout=241"),
        (["--rdzv-backend", "of-a-plugin"], "timeout=241"),
        (["--rdzv-backend", "c10d", "--rdzv-conf", "read_timeout=420"], "read_timeout=420,join_timeout=241"),
        (["--rdzv-conf", "timeout = 5"], "timeout = 5"),
    ],
    ids=str,
)
def test_the_rendezvous_timeout_goes_where_the_users_own_words_leave_room(
    argv: list[str], conf: str, write: Any, environ: dict[str, str]
) -> None:
    settings = settle(write, environ, "[timeouts]\nrendezvous = '4m0.5s'\n", "--nnodes", "2", *argv)
    assert settings["rdzv_conf"] == conf


def test_a_variable_wins_over_the_profiles_rendezvous(write: Any, environ: dict[str, str]) -> None:
    environ["PET_RDZV_CONF"] = "timeout=5"
    settings = settle(write, environ, "[timeouts]\nrendezvous = '4m'\n", "--nnodes", "2")
    assert settings["rdzv_conf"] == "timeout=5"
    assert timeouts.in_force(settings, "gloo")["rendezvous"].seconds == 5.0


# -------------------------------------------------------------------------------------------------- in force


def test_what_is_in_force_where_nobody_says_anything(environ: dict[str, str]) -> None:
    settings = resolve(["train.py"], environ)
    found = timeouts.in_force(settings, "nccl", environ)
    assert {name: entry.seconds for name, entry in found.items()} == {
        "process group": 600.0, "watchdog": 480.0, "loader": None, "hang limit": None, "shutdown": 30.0,
    }  # fmt: skip
    assert "30m where the script names no backend" in found["process group"].why
    assert timeouts.in_force(settings, "gloo")["process group"] == (1800.0, "torch's default")
    assert "watchdog" not in timeouts.in_force(settings, "gloo")


def test_what_is_in_force_where_a_profile_says_it(write: Any, environ: dict[str, str]) -> None:
    text = """
[timeouts]
process_group = "20m"
rendezvous = "3m"
loader = "90s"
shutdown = "1m"
kill_wait = "2m"
[hang]
abort_after = "15m"
"""
    settings = settle(write, environ, text, "--nnodes", "2", "--rdzv-backend", "c10d", "--shutdown-timeout", "40")
    found = timeouts.in_force(settings, "gloo")
    assert {name: entry.seconds for name, entry in found.items()} == {
        "rendezvous": 180.0, "process group": 1200.0, "loader": 90.0, "hang limit": 900.0, "shutdown": 40.0,
        "kill wait": 120.0,
    }  # fmt: skip
    said = [found[name].why.rpartition("/")[2] for name in ("rendezvous", "process group", "loader", "kill wait")]
    assert said == ["mine.toml:4", "mine.toml:3", "mine.toml:5", "mine.toml:7"]
    assert found["shutdown"].why == "flag --shutdown-timeout"


@pytest.mark.parametrize(
    ("argv", "limit"),
    [
        (["--on-hang", "report", "--hang-abort-after", "5m"], None),
        (["--on-hang", "restart"], 600.0),
        (["--on-hang", "abort", "--hang-abort-after", "5m"], 300.0),
        (["--hang-abort-after", "never"], None),
    ],
    ids=str,
)
def test_the_limit_for_hangs_is_what_the_watch_will_do(
    argv: list[str], limit: float | None, environ: dict[str, str]
) -> None:
    settings = resolve([*argv, "train.py"], environ)
    assert timeouts.in_force(settings, "gloo")["hang limit"].seconds == limit
    watch = hang.HangWatch(settings["on_hang"], settings["hang_abort_after"])
    assert (None if watch.on_hang == "report" else watch.abort_after) == limit


def test_a_loader_timeout_of_zero_takes_back_what_another_profile_set(write: Any, environ: dict[str, str]) -> None:
    base = write("[timeouts]\nloader = '5m'\n", "base")
    settings = resolve(["--profile", base, "--profile", write("[timeouts]\nloader = 0\n"), "train.py"], environ)
    assert timeouts.in_force(settings, "gloo")["loader"].seconds is None


@pytest.mark.parametrize(
    "line", ["watchdog = 0", "rendezvous = '-4s'", "process_group = 0", "loader = 'soon'", "kill_wait = true"]
)
def test_a_timeout_that_is_none_is_refused(line: str, write: Any, environ: dict[str, str]) -> None:
    with pytest.raises(SafelaunchError) as raised:
        settle(write, environ, f"[timeouts]\n{line}\n")
    assert raised.value.diagnostic.code == "SL204"
