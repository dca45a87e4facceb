"""What a here document of a script is read as."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.settings.lint.extract import tools
from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.words import UNKNOWN

_PRINTERS = frozenset({"cat", "echo", "less", "more", "grep", "sed", "awk", "wc", "head", "tail", "sort", "diff"})


def kind(words: Sequence[str], last: Sequence[str], target: str, body: str) -> str:
    """The kind of a here document, by the file that it goes to, or by the program that reads it; "" for one that sets
    nothing.

    Args:
        words: of the command that gets it.
        last: of the last command of its pipeline.
        target: the file to which that is redirected, or "".
        body: its text.
    """
    names = [text.rsplit("/", 1)[-1] for text in (*words, *last)]
    for tee in ("tee", "sponge"):
        if tee in last:
            target = next((text for text in last[last.index(tee) + 1 :] if not text.startswith("-")), target)
    if target and target != "/dev/null":
        return kind_of(target.replace(UNKNOWN, ""), body)
    if set(names) & {"kubectl", "oc"}:
        return "yaml"
    if set(names) & {"docker", "podman", "buildah"}:
        return "dockerfile"
    if any(tools.OWN_WORDS.fullmatch(name) for name in names) or not names:
        return "python" if any(name.startswith("python") for name in names) else ""
    printed = names[0] in _PRINTERS and set(names) <= _PRINTERS | {""}
    if printed or tools.BUILTINS.fullmatch(names[0]) or (names[0] == "cat" and list(words) == list(last)):
        return ""
    return kind_of("", body)
