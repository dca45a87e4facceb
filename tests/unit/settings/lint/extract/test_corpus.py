"""Files in the manner of real ones: each gives exactly what `expected.txt` says, with its line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from safelaunch.settings.lint.extract import extract, read

HERE = Path(__file__).parent
CORPUS = sorted((HERE / "corpus").iterdir())

Row = tuple[int, str, str | None]


def expected() -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    name = ""
    for line in (HERE / "expected.txt").read_text().splitlines():
        if heading := re.fullmatch(r"\[(.+)\]", line):
            name = heading[1]
            rows[name] = []
        elif row := re.fullmatch(r"(\d+) (\w+) (.+)", line):
            rows[name].append((int(row[1]), row[2], None if row[3] == "?" else ast.literal_eval(row[3])))
    return rows


def found(name: str, text: str) -> list[Row]:
    return [
        (int(setting.origin.where.rpartition(":")[2]), setting.name, setting.value) for setting in extract(name, text)
    ]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_a_file_gives_what_it_sets(path: Path) -> None:
    assert found(path.name, read(path)) == expected()[path.name]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_windows_line_ends_and_a_byte_order_mark_change_nothing(path: Path) -> None:
    text = "\ufeff" + read(path).replace("\n", "\r\n")

    assert found(path.name, text) == expected()[path.name]


def test_nothing_is_found_that_the_files_say_is_no_setting() -> None:
    names = {name for rows in expected().values() for _, name, _ in rows}

    assert not names & {"NCCL_NO", "NCCL_HOME_NO", "NCCL_X", "NCCL_Y", "NCCL_Z", "NCCL_NOT_SET", "NCCL_SECRET_KNOB"}
    assert len(CORPUS) >= 30


def test_the_origin_is_the_file_and_the_line() -> None:
    (setting,) = extract("jobs/train.sh", "#!/bin/bash\nexport NCCL_DEBUG=INFO\n")

    assert (setting.origin.source, setting.origin.where) == ("file", "jobs/train.sh:2")


def test_a_file_in_another_encoding_is_read(tmp_path: Path) -> None:
    latin = tmp_path / "job.sh"
    latin.write_bytes(b"# pr\xe9cision\nexport NCCL_DEBUG=INFO\n")
    wide = tmp_path / "job.env"
    wide.write_bytes("NCCL_DEBUG=INFO\n".encode("utf-16"))

    assert found("job.sh", read(latin)) == [(2, "NCCL_DEBUG", "INFO")]
    assert found("job.env", read(wide)) == [(1, "NCCL_DEBUG", "INFO")]
