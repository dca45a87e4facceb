"""What terminals take for themselves: sequences and controls that stand within a text and are not read.

Standard library only.
"""

from __future__ import annotations

import re

MOST = 2048  # characters of a control string; one that nobody has ended is none

# Control sequences (CSI), control strings (OSC, DCS, SOS, PM, APC) and escapes, in 7 and 8 bits (ECMA-48, 5.3 to 5.6).
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{{0,{MOST}}}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,8}[0-~]"
)
# Then what is left of controls. Those that stand between words stay: ends of lines, tabulators, what separates records.
# Marks of direction, and signs of no width, are Unicode's.
_CONTROLS = re.compile(
    "[\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]+"
)
_SEPARATORS = re.compile("[\x00\x0b-\x0d\x1c-\x1f\x85]+")  # within a line they move the cursor
# The same, as JSON and programs write them.
_WRITTEN = re.compile(
    r"\\{1,16}(?:u001[bB]|x1[bB]|033)(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|[ -/]{1,8}[0-~])"
    r"|\\{1,16}u009[bB][0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\\{1,16}u(?:0008|00[aA][dD]|061[cC]|200[b-fB-F]|202[a-eA-E]|206[0-46-9]|[fF][eE][fF][fF])"
    r"|\\{1,16}b(?=\\{1,16}[bu]|\s?[=:])"
)
_ESCAPES = re.compile("[\x1b\x80-\x84\x86-\x9f]")


def without(value: str) -> str:
    """A text without them; its lines stay."""
    if not value.isascii() or _CONTROLS.search(value):
        value = _CONTROLS.sub("", _SEQUENCES.sub("", value))
    return _WRITTEN.sub("", value) if "\\" in value else value


def within(line: str) -> str:
    """A line without them, and without any control but tabulators. What a program has written as text stays."""
    return line if line.isprintable() else _SEPARATORS.sub("", _CONTROLS.sub("", _SEQUENCES.sub("", line)))


def moves(value: str) -> bool:
    """Whether a text holds sequences for a terminal, and not controls alone."""
    return _ESCAPES.search(value) is not None
