"""`safelaunch lint --format sarif` against the whole schema of SARIF 2.1.0."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import lint

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = Path(__file__).parents[2] / "schemas" / "sarif.json.xz"
JOB = "#!/bin/bash\nexport NCCL_DEBUG=WARN NCCL_IB_TIMEOUT=1000\npython train.py\n"
# RFC 3986: the characters of a relative reference.
URI = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]+")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    lint.run(["--torch", "2.15", "--nccl", "2.30", "--format", "sarif", *argv])
    written: dict[str, Any] = json.loads(capsys.readouterr().out)
    return written


def faults(document: Any) -> list[str]:
    schema = json.loads(lzma.decompress(SCHEMA.read_bytes()))
    jsonschema.Draft4Validator.check_schema(schema)
    return [fault.message for fault in jsonschema.Draft4Validator(schema).iter_errors(document)]


def test_the_schema_refuses_what_is_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sh").write_text(JOB)
    good = log(capsys, "a.sh")
    assert faults(good) == []
    assert faults({**good, "version": "2.0.0"})
    assert faults({**good, "extra": 1})
    good["runs"][0]["results"][0]["level"] = "grave"
    assert faults(good)


def test_sarif_is_what_the_standard_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a b.sh").write_text(JOB + "NCCL_TIMEOUT=1 a\nNCCL_TIMEOUT=1 b\n")
    written = log(capsys, "a b.sh", "missing")
    assert faults(written) == []
    [told] = written["runs"]
    assert {result["ruleId"] for result in told["results"]} == {"SL201", "SL211", "SL213"}
    for result in told["results"]:
        assert told["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    [result] = [result for result in told["results"] if result["ruleId"] == "SL213"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.sh"
    assert place["region"] == {"startLine": 2, "startColumn": 24, "endColumn": 44}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("é [1]?.sh", JOB),
        ("deep/er/a#b.sh", "torchrun --nnodes=2 t.py \\ \n --x\n"),
        ("Dockerfile", "FROM x\nENV NCCL_IB_TIMEOUT=1000\n"),
        ("a.yaml", "env:\n- name: NCCL_TIMEOUT\n  value: '1'\n"),
        ("a.sh", "\U0001f600=1; NCCL_TIMEOUT=1 a\n"),
        ("a.sh", "x <<<'\nNCCL_TIMEOUT\n"),
        ("empty.sh", ""),
    ],
)
def test_every_kind_of_finding_and_name_is_one_of_the_standard(
    capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    written = log(capsys, name)
    assert faults(written) == []
    for result in written["runs"][0]["results"]:
        for location in result["locations"]:
            assert URI.fullmatch(location["physicalLocation"]["artifactLocation"]["uri"])
