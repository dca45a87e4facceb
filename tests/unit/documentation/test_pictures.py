"""The picture of README: a terminal's colours as SVG, and a command that is still what it was."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as xml
from types import ModuleType

import pytest
from harness import REPOSITORY

from safelaunch.settings import options


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", REPOSITORY / "scripts" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in xml.fromstring(svg) if text.tag.endswith("text")]


def test_text_and_colours_are_kept(pictures: ModuleType) -> None:
    svg = pictures.svg(["\x1b[1;31merror[SL301]\x1b[0m: a < b", ""])
    assert rows(svg) == ["error[SL301]: a < b", ""]
    assert '<tspan class="bold red">error[SL301]</tspan>: a &lt; b' in svg


def test_long_lines_are_wrapped_and_lose_nothing(pictures: ModuleType) -> None:
    words = [f"word{at}" for at in range(100)]
    shown = rows(pictures.svg(["\x1b[2m" + " ".join(words) + "\x1b[0m"]))
    assert all(len(row) <= pictures.COLUMNS for row in shown)
    assert " ".join(shown).split() == words


def test_the_picture_of_readme_shows_a_command_that_is_understood(pictures: ModuleType) -> None:
    drawn = rows((REPOSITORY / "docs" / "pictures" / "hang.svg").read_text())
    assert drawn[0] == f"$ {pictures.COMMAND}"
    assert options.parse(pictures.COMMAND.split()[1:], {})["training_script"] == "examples/faulty.py"
    verdict = next(row for row in drawn if row.startswith("error["))
    assert re.fullmatch(r"error\[SL307\]: rank 2 waits for its DataLoader for \d+ s .*", verdict)
