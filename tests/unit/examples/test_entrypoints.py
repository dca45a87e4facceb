"""The entrypoints in examples/ are what their schedulers take, and act on exit codes as `safelaunch policy` says."""

from __future__ import annotations

import json
import lzma
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import REPOSITORY

from safelaunch.schedulers.policies import FINAL, POLICIES, RETRIED, text
from safelaunch.settings import options
from safelaunch.settings.resolve import resolve

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

EXAMPLES = REPOSITORY / "examples"
SCHEMAS = REPOSITORY / "tests" / "schemas"
KINDS = {
    "JobSet": "jobset", "TrainJob": "trainjob", "TrainingRuntime": "trainingruntime", "PyTorchJob": "pytorchjob",
    "Job": "kubernetes-job",
}  # fmt: skip
OTHERS = {"beaker": "beaker-experiment", "skypilot": "skypilot-task", "compose": "compose"}
FILES = sorted(EXAMPLES.glob("*/*.yaml"))
# x-kubernetes-validations of JobSet's CRD: a dash is refused by its webhook.
RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def faults(document: Any, schema: str) -> list[str]:
    loaded = json.loads(lzma.decompress((SCHEMAS / f"{schema}.json.xz").read_bytes()))
    return [str(fault) for fault in jsonschema.Draft202012Validator(loaded).iter_errors(document)]


def found(document: Any, key: str) -> Iterator[Any]:
    """The values of a key, wherever it stands."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from found(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from found(value, key)


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for template in found(document, "template"):
        if "containers" in template.get("spec", {}):
            yield template


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_a_file_is_what_its_project_takes(path: Path) -> None:
    for document in documents(path):
        schema = KINDS.get(document.get("kind", ""), OTHERS.get(path.parent.name, ""))
        if schema:
            assert faults(document, schema) == []
        else:
            assert document["kind"] == "ConfigMap"


def test_a_schema_refuses_what_it_does_not_know() -> None:
    (document,) = documents(EXAMPLES / "kubernetes" / "jobset.yaml")
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicys"] = {}
    assert faults(document, "jobset")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_pods_and_their_jobs_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        for template in pods(document):
            for container in template["spec"]["containers"]:
                container.setdefault("image", "the runtime's own")
            template["spec"]["restartPolicy"] = "Never"
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": template}}
            assert faults(job, "kubernetes-job") == []
        for rule in found(document, "rules"):
            assert all(RULE_NAME.fullmatch(one["name"]) for one in rule if "name" in one)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_exit_codes_are_those_that_the_policies_have(path: Path) -> None:
    for document in documents(path):
        for rule in found(document, "onExitCodes"):
            assert tuple(rule["values"]) in (FINAL, RETRIED)
        for codes in found(document, "recover_on_exit_codes"):
            assert tuple(codes) == RETRIED


def commands() -> Iterator[list[str]]:
    for path in FILES:
        for document in documents(path):
            for command in (*found(document, "command"), *found(document, "run")):
                words = shlex.split(command) if isinstance(command, str) else command
                yield words[1:] if words[0] == "exec" else words
    for path in sorted(EXAMPLES.glob("slurm/*.sbatch")):
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if line.startswith("srun"):
                words = shlex.split(line.partition("&&")[0])
                yield words[words.index("safelaunch") :]


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_a_command_is_one_that_safelaunch_takes(command: list[str]) -> None:
    assert command[0] == "safelaunch"  # the first process, with no shell in front of it
    assert options.parse(command[1:], {})["training_script"] == "train.py"


def test_the_profile_of_the_pytorchjob_is_one(tmp_path: Path) -> None:
    config, _ = documents(EXAMPLES / "kubernetes" / "pytorchjob.yaml")
    (tmp_path / "kubeflow.toml").write_text(config["data"]["kubeflow.toml"])

    settings = resolve(["--profile", str(tmp_path / "kubeflow.toml"), "train.py"], {})

    assert settings.launch["exit_codes"].value == "signal"


CONTAINER = [{"name": "trainer", "image": "train"}]
POD = {"spec": {"containers": CONTAINER, "restartPolicy": "Never"}}


def merged(base: Any, more: Any) -> Any:
    if isinstance(base, dict) and isinstance(more, dict):
        return {key: merged(base.get(key), more.get(key)) for key in {**base, **more}}
    if isinstance(base, list) and isinstance(more, list) and len(base) == len(more) == 1:
        return [merged(base[0], more[0])]
    return base if more is None else more


@pytest.mark.parametrize(
    ("name", "schema", "around"),
    [
        ("k8s", "kubernetes-job", {"kind": "Job", "apiVersion": "batch/v1", "metadata": {}, "spec": {"template": POD}}),
        ("jobset", "jobset", {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": POD}}}]}}),
        ("pytorchjob", "pytorchjob", {"spec": {"pytorchReplicaSpecs": {"Master": {"template": POD}}}}),
        ("skypilot", "skypilot-task", {"run": "safelaunch train.py"}),
        ("beaker", "beaker-experiment", {"tasks": [{"image": {"docker": "x"}, "context": {"priority": "normal"}}]}),
    ],
)
def test_what_a_policy_prints_fits_into_its_spec(name: str, schema: str, around: dict[str, Any]) -> None:
    snippet = yaml.safe_load(text(name))
    document = merged(around, {"spec": snippet} if "spec" in around else snippet)

    assert faults(document, schema) == []
    assert set(POLICIES) == {"k8s", "jobset", "pytorchjob", "skypilot", "beaker", "slurm"}


SCRIPTS = [*EXAMPLES.glob("slurm/*"), *EXAMPLES.glob("*/*.sh")]


@pytest.mark.parametrize("path", sorted(set(SCRIPTS)), ids=lambda path: path.name)
def test_a_script_is_one_for_its_shell(path: Path) -> None:
    shell = path.read_text().partition("\n")[0].removeprefix("#!")
    subprocess.run([shell, "-n", str(path)], check=True)


@pytest.mark.parametrize(
    ("says", "code", "ends", "prints"),
    [("", 0, 0, ""), ("GPU 3 is lost", 69, 1, "print safelaunch: GPU 3 is lost\n")],
)
def test_the_prolog_fails_for_a_bad_node_only(says: str, code: int, ends: int, prints: str, tmp_path: Path) -> None:
    fake = tmp_path / "safelaunch"
    fake.write_text(f"#!/bin/sh\n[ \"$*\" = 'check --prolog' ] || exit 99\nprintf '{says}'\nexit {code}\n")
    fake.chmod(0o755)

    ended = subprocess.run(
        [str(EXAMPLES / "slurm" / "prolog.sh")], env={"SAFELAUNCH": str(fake), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (ends, prints)


def test_the_health_check_drains_a_bad_node_with_the_reason(tmp_path: Path) -> None:
    for name, body in (("safelaunch", "echo GPU 3 is lost; exit 69"), ("scontrol", f'echo "$@" >{tmp_path}/asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"SAFELAUNCH": f"{tmp_path}/safelaunch", "SLURMD_NODENAME": "gpu8", "PATH": f"{tmp_path}:/usr/bin:/bin"}

    subprocess.run([str(EXAMPLES / "slurm" / "healthcheck.sh")], env=environ, check=True)

    assert (tmp_path / "asked").read_text() == "update NodeName=gpu8 State=DRAIN Reason=safelaunch: GPU 3 is lost\n"


@pytest.mark.parametrize("name", ["prolog.sh", "healthcheck.sh"])
def test_a_node_is_not_drained_because_safelaunch_is_not_there(name: str) -> None:
    subprocess.run([str(EXAMPLES / "slurm" / name)], env={"SAFELAUNCH": "/none", "PATH": "/usr/bin:/bin"}, check=True)
