#!/usr/bin/env python3
"""Makes the pictures of README from a real hang: docs/pictures/hang.svg, and report.png where there is a Chromium.

    .venv/bin/python scripts/pictures.py

A DataLoader of examples/faulty.py hangs on rank 2 of 4. What safelaunch prints on a terminal becomes an SVG, colours
included; the page of the incident is photographed.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURES = REPOSITORY / "docs" / "pictures"
COMMAND = "safelaunch --nproc-per-node 4 --hang-abort-after 12s examples/faulty.py --fault loader@20:2"
MOST = 200 << 10  # bytes of a picture

COLUMNS = 118
WIDTH, HEIGHT = 7.83, 18  # of a character, in pixels, at 13 px
BACK, TEXT = "#1e2127", "#d7dae0"
# What a code of SGR is: a class of the SVG.
CLASSES = {
    "1": "bold",
    "2": "dim",
    "31": "red",
    "32": "green",
    "33": "yellow",
    "34": "blue",
    "35": "purple",
    "36": "cyan",
}
STYLE = (
    ".bold{font-weight:bold}.dim{fill:#8b93a1}.red{fill:#ff7b72}.green{fill:#7ee787}.yellow{fill:#f2cc60}"
    ".blue{fill:#79c0ff}.purple{fill:#d2a8ff}.cyan{fill:#76e3ea}"
)
SGR = re.compile(r"\x1b\[([\d;]*)m")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(REPOSITORY / "examples", folder / "examples")
        printed = hang(folder)
        (PICTURES / "hang.svg").write_text(svg([f"$ {COMMAND}", *printed]))
        (page,) = folder.glob("safelaunch_runs/*/incident-0/report.html")
        page.write_text(page.read_text().replace(f"{os.path.realpath(folder)}/", ""))
        photograph(page, PICTURES / "report.png")
    for picture in PICTURES.iterdir():
        size = picture.stat().st_size
        print(f"{picture.relative_to(REPOSITORY)}: {size >> 10} KiB")
        if size > MOST:
            sys.exit(f"{picture.name} is larger than {MOST >> 10} KiB")


def hang(folder: Path) -> list[str]:
    """What safelaunch prints of it, for a terminal."""
    command = [
        sys.executable,
        "-m",
        "safelaunch",
        "--color",
        "always",
        "--run-dir",
        "safelaunch_runs",
        *COMMAND.split()[1:],
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "SAFELAUNCH_HISTORY": "0"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 124:
        sys.exit(f"exit code {run.returncode}, and no hang:\n{run.stdout}{run.stderr}")
    lines = [*run.stdout.splitlines(), *run.stderr.splitlines()]
    # Machines differ in the first, and nobody else's paths are of interest.
    kept = [line for line in lines if "preflight" not in line]
    return [line.replace(f"{os.path.realpath(folder)}/", "") for line in kept]


# ------------------------------------------------------------------------------------------ lines to an SVG


def svg(lines: list[str]) -> str:
    """Lines with colours of a terminal, as a picture of that terminal."""
    rows = [row for line in lines for row in wrapped(line)]
    width, height = round(COLUMNS * WIDTH) + 32, len(rows) * HEIGHT + 28
    texts = [
        f'<text x="16" y="{(at + 1) * HEIGHT + 8}" xml:space="preserve">{row}</text>' for at, row in enumerate(rows)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f"font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" "
            f'font-size="13" fill="{TEXT}">',
            f"<style>{STYLE}</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>',
            *texts,
            "</svg>\n",
        ]
    )


def wrapped(line: str) -> Iterator[str]:
    """Rows of at most COLUMNS characters, as SVG; a row ends at a blank, and the next one is set in."""
    plain, styles = styled(line)
    indent = ""
    while len(indent + plain) > COLUMNS:
        end = plain.rfind(" ", 0, COLUMNS - len(indent))
        yield indent + "".join(pieces(plain[:end], styles[:end]))
        plain, styles, indent = plain[end + 1 :], styles[end + 1 :], "     "
    yield indent + "".join(pieces(plain, styles))


def styled(line: str) -> tuple[str, list[str]]:
    """The text of a line, and the classes of each of its characters."""
    plain, styles, now, at = "", [], "", 0
    for mark in SGR.finditer(line):
        piece = line[at : mark.start()]
        plain, styles, at = plain + piece, styles + [now] * len(piece), mark.end()
        codes = mark[1].split(";")
        now = "" if codes in ([""], ["0"]) else " ".join([now, *(CLASSES.get(code, "") for code in codes)]).strip()
    return plain + line[at:], styles + [now] * len(line[at:])


def pieces(text: str, styles: list[str]) -> Iterator[str]:
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or styles[at] != styles[start]:
            words = html.escape(text[start:at], quote=False)
            yield f'<tspan class="{styles[start]}">{words}</tspan>' if styles[start] else words
            start = at


# ------------------------------------------------------------------------------------------ a page to a PNG


def photograph(page: Path, picture: Path) -> None:
    """The top of the page, as a browser shows it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("no Chromium here: report.png stays as it is")
        return
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1180,800"]
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(
            [browser, *options, f"--user-data-dir={home}", f"--screenshot={picture}", page.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    main()
