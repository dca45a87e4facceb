"""Every verdict that the golden cases and their variants come to, whole: what a change of `diagnosis` must not alter.

    PYTHONPATH=. python tests/unit/diagnosis/frozen.py          says what differs from the file
    PYTHONPATH=. python tests/unit/diagnosis/frozen.py --write  takes what is said now

The golden cases hold what a person would say; this holds each word, for changes that mean none. The file is a few
hundred KB, since most variants of a case come to a few verdicts.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import itertools
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden import golden
from variants import fewer, in_order

from safelaunch.codec import to_json
from safelaunch.diagnosis import diagnose
from safelaunch.model import Case

FILE = Path(__file__).resolve().parents[2] / "cases" / "verdicts.json.xz"
ORDERS = 4  # of the numbers of ranks, evenly among all
SHOWN = 20  # differences
Frozen = dict[str, dict[str, Any]]


def variants(case: Case) -> Iterator[tuple[str, Case]]:
    """A case, with other numbers of its ranks, without a piece of its evidence, and as it came from elsewhere."""
    yield "as it is", case
    size = len(case.ranks)
    if [facts.rank for facts in case.ranks] == list(range(size)):
        several = list(itertools.islice(itertools.permutations(range(size)), 1, 24))
        for order in several[:: max(1, len(several) // ORDERS)][:ORDERS]:
            yield f"as {order}", in_order(case, list(order))
    for lost, poorer in fewer(case):
        yield f"without {lost}", poorer
    yield "of attach", dataclasses.replace(case, origin="attach")
    yield "of dumps", dataclasses.replace(case, origin="dumps")


def now() -> Frozen:
    """For each case, the different verdicts, and which of them each variant comes to."""
    found: Frozen = {}
    for name, (case, _) in golden().items():
        verdicts: list[Any] = []
        which: dict[str, int] = {}
        for variant, changed in variants(case):
            verdict = json.loads(json.dumps(to_json(diagnose(changed))))
            if verdict not in verdicts:
                verdicts.append(verdict)
            which[variant] = verdicts.index(verdict)
        found[name] = {"verdicts": verdicts, "variants": which}
    return found


def read() -> Frozen:
    """What the file holds."""
    found: Frozen = json.loads(lzma.decompress(FILE.read_bytes()))
    return found


def write(found: Frozen) -> None:
    """Replace the file."""
    FILE.write_bytes(lzma.compress(json.dumps(found, separators=(",", ":")).encode(), preset=9))


def differences(before: Frozen, after: Frozen) -> Iterator[str]:
    """For each variant that comes to another verdict, the lines that differ."""
    for name in {**before, **after}:
        if name not in before or name not in after:
            yield f"{name}: {'new' if name in after else 'gone'}"
            continue
        for variant in {**before[name]["variants"], **after[name]["variants"]}:
            texts = [_text(found[name], variant) for found in (before, after)]
            if texts[0] != texts[1]:
                changed = difflib.unified_diff(*texts, "before", "after", lineterm="", n=0)
                yield "\n".join((f"{name}, {variant}:", *itertools.islice(changed, 2, None)))


def _text(found: dict[str, Any], variant: str) -> list[str]:
    which = found["variants"].get(variant)
    return [] if which is None else json.dumps(found["verdicts"][which], indent=1).split("\n")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true")
    options.add_argument("--all", action="store_true", help=f"all differences, not {SHOWN}")
    chosen = options.parse_args()
    after = now()
    if chosen.write:
        write(after)
        return 0
    found = list(differences(read(), after))
    for one in found if chosen.all else found[:SHOWN]:
        print(one)
    print(f"{len(found)} of {sum(len(case['variants']) for case in after.values())} variants differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
