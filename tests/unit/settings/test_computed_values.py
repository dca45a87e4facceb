"""Values in [env] that are computed from the launch: what is replaced, what is left alone, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch import codes
from safelaunch.model import SafelaunchError
from safelaunch.run import launch_facts
from safelaunch.settings import computed, profile
from safelaunch.settings.resolve import resolve

KNOWN = {"run_dir": "/runs/7", "local_world_size": "8"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{run_dir}/nccl.%h.%p.log", "/runs/7/nccl.%h.%p.log"),
        ("{local_world_size}x{local_world_size}", "8x8"),
        ("{{run_dir}} is {run_dir}", "{run_dir} is /runs/7"),
        ("{{time}} {{message}}", "{time} {message}"),
        ('{"path": "{run_dir}", "a": {}}', '{"path": "/runs/7", "a": {}}'),
        ("${HOME} {} { run_dir } {0} {Rank} {run-dir}", "${HOME} {} { run_dir } {0} {Rank} {run-dir}"),
        ("plain", "plain"),
    ],
)
def test_known_names_in_braces_are_replaced_and_all_else_stays(text: str, value: str) -> None:
    assert computed.fault(text) is None
    assert computed.value(text, KNOWN) == value


def test_a_value_of_which_something_is_not_known_has_none() -> None:
    assert computed.value("{run_dir}/{host}", KNOWN) is None
    assert computed.needs("{run_dir}/{host} {{run_id}}") == {"run_dir", "host"}


@given(st.text())
def test_text_without_braces_is_its_own_value(text: str) -> None:
    text = text.replace("{", "").replace("}", "")
    assert computed.fault(text) is None
    assert computed.value(text, {}) == text


@given(st.dictionaries(st.text(), st.integers() | st.text(alphabet=st.characters(codec="ascii"))))
def test_json_is_never_taken_for_a_computed_value(document: dict[str, Any]) -> None:
    import json

    text = json.dumps({f'"{key}': value for key, value in document.items() if "{" not in f"{key}{value}"})
    assert computed.value(text, {}) == text


@pytest.mark.parametrize(
    ("text", "summary", "remedy"),
    [
        ("{run_dri}/x", "{run_dri} is nothing that is computed", "did you mean `{run_dir}`?"),
        ("{time}", "{time} is nothing that is computed", "known are {local_world_size}, "),
        ("{time}", "", "; write {{time}} for the text itself"),
        ("{local_rank}", "{local_rank} is not known before the ranks are started", "from LOCAL_RANK"),
        ("{node_rank}", "{node_rank} is not known", "from GROUP_RANK"),
        ("${run_dir}/x", "${run_dir} is for a shell", "write {run_dir}"),
    ],
)
def test_what_looks_like_a_computed_value_and_is_none_is_refused(
    text: str, summary: str, remedy: str, write: Any, environ: dict[str, str]
) -> None:
    path = write(f'[env]\nA = "{text}"\n')
    with pytest.raises(SafelaunchError) as caught:
        profile.load(path, environ)
    assert str(caught.value).startswith(f"{path}:2: [env] A: ")
    assert summary in str(caught.value)
    assert remedy in caught.value.diagnostic.remedy
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("SL204", codes.EXIT_PROFILE)


# ------------------------------------------------------------------------------------------ from the launch


def facts(write: Any, environ: dict[str, str], text: str, *argv: str) -> dict[str, str]:
    settings = resolve(["--profile", write(f'[env]\nA = "{text}"\n'), *argv, "train.py"], environ)
    return launch_facts.known(settings, environ, "node-a")


def test_cpus_are_shared_out_and_there_is_always_one(
    write: Any, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr("safelaunch.preflight.machine.cgroup.cpus", lambda _: None)
    for ranks, cpus in (("1", "12"), ("5", "2"), ("12", "1"), ("64", "1")):
        found = facts(write, environ, "{cpus_per_rank}", "--nproc-per-node", ranks)
        assert (found["local_world_size"], found["cpus_per_rank"]) == (ranks, cpus)


def test_a_container_has_the_cpus_that_its_quota_gives(
    write: Any, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("safelaunch.preflight.machine.cgroup.cpus", lambda _: (6.5, "cpu.max"))
    assert facts(write, environ, "{cpus_per_rank}", "--nproc-per-node", "2")["cpus_per_rank"] == "3"


def test_ranks_are_counted_where_the_launch_leaves_their_number_open(
    write: Any, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)))
    found = facts(write, environ, "{local_world_size}", "--nproc-per-node", "cpu")
    assert found["local_world_size"] == "3"


def test_nothing_is_counted_that_no_profile_needs(write: Any, environ: dict[str, str]) -> None:
    assert facts(write, environ, "{run_dir}", "--nproc-per-node", "xpu") == {"host": "node-a"}


def test_ranks_that_cannot_be_counted_stop_the_launch_and_say_for_whom(write: Any, environ: dict[str, str]) -> None:
    with pytest.raises(SafelaunchError) as caught:
        facts(write, environ, "{local_world_size}", "--nproc-per-node", "xpu")
    assert "--nproc-per-node N" in caught.value.diagnostic.remedy
    assert "mine.toml:2: [env] A needs the number of ranks" in caught.value.diagnostic.because[-1]


def test_the_number_of_nodes_must_be_fixed(write: Any, environ: dict[str, str]) -> None:
    assert facts(write, environ, "{nnodes}", "--nnodes", "4")["nnodes"] == "4"
    assert facts(write, environ, "{nnodes}", "--nnodes", "2:2")["nnodes"] == "2"
    with pytest.raises(SafelaunchError, match=r"mine\.toml:2: \[env\] A: \{nnodes\} is not known"):
        facts(write, environ, "{nnodes}", "--nnodes", "1:4")


def test_filled_settings_keep_the_origin_and_the_profiles_own_text(write: Any, environ: dict[str, str]) -> None:
    path = write('[env]\nA = "{run_dir}/a"\nB = "{nnodes}"\nC = "{{x}}"\n')
    settings = computed.fill(resolve(["--profile", path, "train.py"], environ), KNOWN)
    assert (settings.env["A"].value, settings.env["A"].origin.where) == ("/runs/7/a", f"{path}:2")
    assert settings.env["B"].value == "{nnodes}"
    assert settings.env["C"].value == "{x}"
    assert {name: settings.computed.get(name) for name in "ABC"} == {"A": "{run_dir}/a", "B": None, "C": "{{x}}"}
    assert computed.fill(settings, {"x": "no"}).env["C"].value == "{x}", "what was computed is not computed again"
