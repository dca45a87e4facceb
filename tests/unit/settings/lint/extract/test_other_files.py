"""Dockerfiles, job specs and environment files, case by case; and which kind a file is."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.extract import extract
from safelaunch.settings.lint.extract.kinds import kind_of


def found(name: str, text: str) -> str:
    return " ".join(
        f"{setting.name}={'?' if setting.value is None else setting.value}" for setting in extract(name, text)
    )


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("train.sh", "", "shell"),
        ("Dockerfile", "", "dockerfile"),
        ("docker/train.Dockerfile", "", "dockerfile"),
        ("Dockerfile.gpu", "", "dockerfile"),
        ("Containerfile", "", "dockerfile"),
        ("pod.yaml", "", "yaml"),
        ("job.yml.j2", "", "yaml"),
        ("fsdp.yaml-template", "", "yaml"),
        (".env.example", "", "env"),
        ("Makefile", "", "makefile"),
        ("x.def", "", "definition"),
        ("run", "#!/bin/sh\n", "shell"),
        ("run.sh", "#!/usr/bin/env python3\n", "python"),
        ("run", "#!/usr/bin/perl\n", ""),
        ("2.18", "#%Module1.0\nsetenv A 1\n", "modulefile"),
        ("x", "# c\nARG V=1\nFROM y\n", "dockerfile"),
        ("x", "apiVersion: v1\n", "yaml"),
        ("x", '{"a": 1}', "json"),
        ("x", "[Service]\nEnvironment=A=1\n", "systemd"),
        ("x", "A=1\nB=2\n", "env"),
        ("x", "A=1\nexport A\nmake\n", "shell"),
        ("x", "#SBATCH -N 1\nA=1\n", "shell"),
        ("x", "", "shell"),
    ],
)
def test_the_kind_of_a_file(name: str, text: str, kind: str) -> None:
    assert kind_of(name, text) == kind


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("FROM x\nENV A=1 B='c d' C=e\\ f", "A=1 B=c d C=e f"),
        ("FROM x\nENV A b c", "A=b c"),
        ("FROM x\nENV A=1 \\\n# no\n\\\n B=2", "A=1 B=2"),
        ("FROM x\nARG A=1\nENV B=$A C=${D:-e} F=$G", "B=1 C=e F=?"),
        ("FROM x\nENV A=1\nENV A=$A:2", "A=1 A=1:2"),
        ("FROM x\nENV A=1 B=$A", "A=1 B=?"),
        ("FROM x\nARG A=1\nLABEL B=1\nEXPOSE 80", ""),
        ("FROM x\nRUN export A=1 && B=2 make C=3", ""),
        ("FROM x\nRUN --mount=type=bind,target=/x A=1 make\nENV B=2", "B=2"),
        ("# escape=`\nFROM x\nENV A=1 `\n B=2", "A=1 B=2"),
        ("FROM x\nENV A=1;B=2", "A=1;B=2"),
    ],
)
def test_dockerfiles(text: str, settings: str) -> None:
    assert found("Dockerfile", text) == settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("env:\n- name: A\n  value: 1\n- name: B\n  value: 'it''s'", "A=1 B=it's"),
        ("env:\n  - value: 1 # c\n    name: A", "A=1"),
        ("env:\n- name: A\n  valueFrom: {fieldRef: {fieldPath: x}}", "A=?"),
        ('env: [{name: A, value: "1"}, {name: B, value: b#c}]', "A=1 B=b#c"),
        ("env:\n  A: true\n  B: 0\n  C:\n  D: ''\n  E: ~\n  F: a: b", "A=true B=0 D= F=a: b"),
        ('env:\n  A: "x\n    y"\n  B: z', "A=x y B=z"),
        ("environment:\n- A=b c\n- B\n- 'C=d=e'", "A=b c C=d=e"),
        ("environment:\n  A: ${B:-c}\n  D: $E", "A=c D=?"),
        ("env:\n  A: {{ .x }}\n  B: ${{ x }}\n  C: *d\n  D: !Ref E\n  F: &g h", "A=? B=? C=? D=? F=h"),
        ("env: {name: CartPole, numEnvs: 8}", ""),
        ("environment:\n  name: prod\n  url: x", ""),
        ("variables:\n  A_B: 1\n  vmName: x", "A_B=1"),
        ("- a:\n    env_vars: {A: 1}\n- env: [{A: 2}]", "A=1 A=2"),
        ("run: |\n  export A=1\n\n  B=2 x\nname: y", "A=1 B=2"),
        ("run: |\n  export A=1\n{% if x %}\n  export B=2\n{%- endif %}\n  C=3 x\nenv:\n  D: 4", "A=1 B=2 C=3 D=4"),
        ("run: |\n  export A=1\n{{- if .x }}\n  export B=2\n{{- end }}\n{{ .more }}\nenv:\n  D: 4", "A=1 B=2 D=4"),
        ('x: |\n  bash -c "true && export A_B=1 && x"', "A_B=1"),
        (
            "kind: Pod\nspec: 1\n---\nkind: ConfigMap\ndata:\n  A: 1\n--- # c\nkind: Secret\ndata:\n  B: 1",
            "A=1",
        ),
        ("run: >-\n  A=1\n  python x.py", "A=1"),
        ("run: A=1\n  python x.py", "A=1"),
        ("text: |\n  A=1 python is how you start it", ""),
        ('command: [bash, -c, "export A=1 && x"]', "A=1"),
        ("command: [bash]\nargs: ['-c', 'export A=1']", "A=1"),
        ("args: ['-c', 'export A=1']", "A=1"),
        ("args: [train.py, --env, A=1]", ""),
        ("command:\n- mpirun\n- -x\n- A=1\n- -x\n- B", "A=1"),
        ("env:\n\t- name: A\n\t  value: 1", "A=1"),
        ("a: [1, 2\nenv: {A: 1}", "A=1"),
        ('a: "never closed\nenv: {A: 1}', "A=1"),
    ],
)
def test_yaml(text: str, settings: str) -> None:
    assert found("x.yaml", text) == settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ('{"env": {"A": "1", "B": 2, "C": null, "D": "a\\nb"}}', "A=1 B=2 D=a\nb"),
        ('{"environment": [{"name": "A", "value": "1"}]}', "A=1"),
        ('{"Environment": {"Variables": {"A": "1"}}}', "A=1"),
        ('{"envVars": [{"name": "A", "secret": "x"}]}', "A=?"),
        ('{ // c\n "env": {"A": "x//y",}, /* d */ "b": [1,],}', "A=x//y"),
        ('{"env": {"A": "1"}', ""),
        ("not json", ""),
    ],
)
def test_json(text: str, settings: str) -> None:
    assert found("x.json", text) == settings
