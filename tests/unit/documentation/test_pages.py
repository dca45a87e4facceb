"""README and docs/ say what the code says: links, commands, codes, exit codes, profiles; and pages that are made."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from harness import REPOSITORY

from safelaunch import codes
from safelaunch.cli.explain import text
from safelaunch.cli.main import SUBCOMMANDS
from safelaunch.codes import CATALOGUE
from safelaunch.report import code_pages
from safelaunch.run import exit_codes
from safelaunch.schedulers.policies import FINAL, RETRIED
from safelaunch.settings import computed, options, profile
from safelaunch.settings.schema import PROFILE, Table

README = REPOSITORY / "README.md"
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
# What is told of older versions, and of commands that were renamed since, stays as it was.
OTHERS = [
    REPOSITORY / name for name in ("CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "benchmarks/README.md")
]
PAGES = [README, *DOCS, *OTHERS]
MADE = ("codes.md", "compat.md")


def ids(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub writes them into links."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# ------------------------------------------------------------------------------------------------- links


def test_readme_is_a_front_page() -> None:
    assert len(README.read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text()))
    assert linked >= {f"docs/{page.name}" for page in DOCS}


def test_pictures_are_small() -> None:
    for picture in (REPOSITORY / "docs" / "pictures").iterdir():
        assert picture.stat().st_size <= 200 << 10, picture


# ----------------------------------------------------------------------------------------------- commands


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind each `safelaunch` in the blocks of a page that are for a shell."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while "safelaunch" in words:
                words = words[words.index("safelaunch") + 1 :]
                ends = [at for at, word in enumerate(words) if word in ("|", ">", ";", "&&", "||")]
                yield words[: min(ends, default=len(words))]


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(page))], ids=ids)
def test_commands_are_understood(page: Path) -> None:
    for words in commands(page):
        if words[0] == "exec":
            words = words[: words.index("--")]  # the rest is another program's
        if words[0] in SUBCOMMANDS:
            parser: argparse.ArgumentParser = import_module(f"safelaunch.cli.{words[0]}").parser()
            _, unknown = parser.parse_known_args(words[1:])
            assert not unknown, f"safelaunch {shlex.join(words)}: {unknown}"
        else:
            assert options.parse(words, {}).request in ("run", "help", "version"), words


def spellings(parser: argparse.ArgumentParser) -> set[str]:
    return {spelling for action in parser._actions for spelling in action.option_strings}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_within_sentences_are_known(page: Path) -> None:
    for command in re.findall(r"`safelaunch ([^`]+)`", prose(page)):
        first, *rest = command.replace("\n", " ").split()
        if first in ("...", "--") or first.isupper():
            continue
        own = first in SUBCOMMANDS
        assert own or first.startswith("-") or "." in first, f"safelaunch {command}: there is no such subcommand"
        known = spellings(import_module(f"safelaunch.cli.{first}").parser() if own else options.parser())
        for word in rest if own else [first, *rest]:
            if word == "--" or not word.startswith("-"):
                break
            assert word.partition("=")[0] in known, f"safelaunch {command}: there is no {word}"


# ------------------------------------------------------------------------------------- tables and numbers


def table(page: str, head: str) -> dict[str, list[str]]:
    """The rows of the table with that head: each name in the first column, with what its rows say of it."""
    written = (REPOSITORY / "docs" / page).read_text()
    rows = written.partition(f"| {head} |")[2].split("\n\n")[0].splitlines()[2:]
    found: dict[str, list[str]] = {}
    for row in rows:
        first, *rest = (cell.strip() for cell in row.strip().strip("|").split(" | "))
        for name in re.findall(r"`([^`]+)`", first) or re.split(r", ", first):
            found.setdefault(name, []).append(" ".join(rest))
    assert found, f"{page} has no table with {head!r}"
    return found


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_codes_that_are_named_exist(page: Path) -> None:
    assert set(re.findall(r"\bSL\d{3}\b", page.read_text())) <= set(CATALOGUE)


def test_exit_codes() -> None:
    ours = {value for name, value in vars(codes).items() if name.startswith("EXIT_")}
    of_diagnose = {codes.EXIT_CANNOT_TELL, codes.EXIT_NOTHING_WRONG}
    rows = table("exit-codes.md", "code | meaning | a scheduler should")
    assert set(map(int, rows)) == ours - of_diagnose | {128 + 15, exit_codes.AGAIN}
    for code in RETRIED:
        assert all("retry" in advice and not advice.endswith("not retry") for advice in rows[str(code)])
    for code in FINAL:
        assert all(advice.endswith("not retry") for advice in rows[str(code)])


def test_profiles_that_ship() -> None:
    shipped = {name.removesuffix(".toml") for name in os.listdir(profile.shipped_folder())}
    assert set(table("profiles.md", "profile | for")) == shipped


def test_tables_of_profiles() -> None:
    tables = {f"[{name}]" for name, kind in PROFILE.keys.items() if isinstance(kind, Table)}
    assert {name for name in table("profiles.md", "table | page") if name.startswith("[")} == tables


def test_computed_values() -> None:
    assert set(table("profiles.md", "value | what it is")) == {f"{{{name}}}" for name in computed.KNOWN}


def test_timeouts() -> None:
    kinds = PROFILE.keys["timeouts"]
    assert isinstance(kinds, Table)
    assert set(table("timeouts.md", "key of `[timeouts]` | what it becomes | nobody says it")) == set(kinds.keys)


@pytest.mark.parametrize("page", [page for page in DOCS if blocks(page, "toml")], ids=ids)
def test_profiles_on_pages_are_profiles(page: Path, tmp_path: Path) -> None:
    for at, block in enumerate(blocks(page, "toml")):
        written = tmp_path / f"{at}.toml"
        written.write_text(block)
        profile.parse_file(str(written))


# --------------------------------------------------------------------------------- pages that are made


def test_all_codes_are_on_their_page() -> None:
    made = code_pages.markdown((entry, text(entry)) for entry in CATALOGUE.values())
    assert (REPOSITORY / "docs" / "codes.md").read_text() == made, "safelaunch explain --all > docs/codes.md"


def test_the_python_api_is_on_its_page() -> None:
    spec = importlib.util.spec_from_file_location("api_page", REPOSITORY / "scripts" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (REPOSITORY / "docs" / "api.md").read_text() == f"{module.page()}\n", "python scripts/api.py > docs/api.md"


# ------------------------------------------------------------------------------------------------- words


def sentences(page: Path) -> Iterator[str]:
    """What is said outside of tables and code."""
    lines = [line for line in prose(page).splitlines() if not line.startswith("|")]
    for paragraph in re.split(r"\n(?:\s*\n|[-\d#]+[.]? )", "\n".join(lines)):
        words = re.sub(r"`[^`]*`", "NAME", re.sub(r"\]\([^)]*\)", "]", " ".join(paragraph.split())))
        yield from re.split(r"(?<=[.?])\s", words)


OLDER = {"design.md", "diagnosis.md", "security.md", "redaction.md", "lint.md", "formats.md", "vocabulary.md", *MADE}


@pytest.mark.parametrize("page", [README, *(page for page in DOCS if page.name not in OLDER)], ids=ids)
def test_sentences_are_short(page: Path) -> None:
    for sentence in sentences(page):
        shown = textwrap.shorten(sentence, 300)
        assert len([word for word in sentence.split() if re.search(r"\w", word)]) <= 30, shown
