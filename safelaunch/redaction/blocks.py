"""Values that stand within blocks: texts of several lines in YAML, vaults of Ansible, variables of Terraform."""

from __future__ import annotations

import re

from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.told import MARKED, MARKS, is_secret, split

# How the line ends behind which a text of several lines begins (YAML 1.2, 8.1).
_HEAD = r":[ \t]{1,8}(?:!\w{1,20}[ \t]{1,8})?[|>][0-9+-]{0,2}[ \t]*"
OPENS = re.compile(rf"{_HEAD}\Z")
OPENED = re.compile(rf"{_HEAD}\n")
MOST = 40  # lines of one
# A line: what a log puts in front, its indent, the mark of an item, the rest.
_LINE = re.compile(rf"([{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?[ \t]?)?)([ ]*)((?:- )?)([^\n]*)")

VAULT = "$ANSIBLE_VAULT;"
_VAULT = re.compile(
    rf"(\$ANSIBLE_VAULT;[\w.;-]{{1,80}}[ \t]*)((?:\n{MARKED}[0-9a-f]{{2,200}}[ \t]*(?=\n|\Z)){{1,4000}})"
)
_OF_VAULT = re.compile(rf"(\n{MARKED})[0-9a-f]{{2,200}}(?=[ \t]*(?:\n|\Z))")
_QUOTE = r"\\{0,8}\""
_VARIABLE = re.compile(
    rf"(\bvariable[ \t]{{1,8}}{_QUOTE}([\w-]{{1,80}}){_QUOTE}\s{{0,8}}\{{[^{{}}]{{0,800}}?"
    rf"(?<![\w-])default\s{{0,40}}=\s{{0,8}}{_QUOTE})([^\"\\\n]{{1,512}})(?={_QUOTE})"
)


def without(value: str) -> str:
    """A text without what vaults hold, and without what variables of Terraform are by default."""
    if VAULT in value:
        value = _VAULT.sub(lambda found: found[1] + _OF_VAULT.sub(rf"\g<1>{REDACTED}", found[2]), value)
    if "variable" in value and "default" in value:
        value = _VARIABLE.sub(_of_variable, value)
    return value


def _of_variable(found: re.Match[str]) -> str:
    return found[1] + REDACTED if is_secret(found[2], split(found[3])[1], alone=True) else found[0]


def end_of_text(value: str, head: int) -> int:
    """Where a text of several lines ends in YAML.

    Args:
        value: the document.
        head: where the line ends behind which it begins.
    """
    line = _LINE.match(value, value.rfind("\n", 0, head) + 1, head)
    least = line.end(3) - line.end(1) + 1 if line else 1
    end = at = head
    for _ in range(MOST if at < len(value) else 0):
        following = value.find("\n", at + 1)
        following = len(value) if following < 0 else following
        line = _LINE.match(value, at + 1, following)
        if line is None or ((line[3] or line[4].strip()) and line.end(2) - line.end(1) < least):
            break
        if line[3] or line[4].strip():
            end = following
        at = following
        if at == len(value):
            break
    return end


def without_text(value: str, begin: int, end: int) -> str:
    """What to show of such a text from within its first line on: as many lines."""
    shown = [""]
    for one in value[begin:end].split("\n")[1:]:
        line = _LINE.match(one)
        shown.append(f"{line[1]}{line[2]}{REDACTED}" if line and (line[3] or line[4].strip()) else one)
    return "\n".join(shown)
