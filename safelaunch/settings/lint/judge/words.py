"""Values that are one word, or a list of words, out of a known set."""

from __future__ import annotations

import re

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.lint.judge.wording import Fault, listed, quoted, source
from safelaunch.settings.spelling import nearest

# Words that came with a version which the catalogue's list does not say.
NEW_WORDS = {
    ("NCCL_DEBUG", "ATTN"): "2.32",
    ("NCCL_DEBUG_SUBSYS", "ALLOC_HOST"): "2.30",
    ("NCCL_DEBUG_SUBSYS", "DESTROY"): "2.30",
}

# Words that AMD's NCCL takes as well. Source: ROCm/rccl docs/api-reference/env-variables.rst.
OF_RCCL = {"NCCL_DEBUG": ("NONE", "ERROR")}

# What people write for the words that are meant.
MEANT = {
    ("TORCH_CPP_LOG_LEVEL", "WARN"): "WARNING",
    ("TORCH_CPP_LOG_LEVEL", "DEBUG"): "INFO",
    ("TORCH_CPP_LOG_LEVEL", "TRACE"): "INFO",
    ("NCCL_SOCKET_FAMILY", "4"): "AF_INET",
    ("NCCL_SOCKET_FAMILY", "6"): "AF_INET6",
    ("NCCL_SOCKET_FAMILY", "IPV4"): "AF_INET",
    ("NCCL_SOCKET_FAMILY", "IPV6"): "AF_INET6",
    ("NCCL_DEBUG", "DEBUG"): "INFO",
    ("NCCL_DEBUG", "WARNING"): "WARN",
    ("NCCL_DEBUG", "ERROR"): "WARN",
    ("NCCL_DEBUG", "1"): "INFO",
    ("NCCL_DEBUG", "TRUE"): "INFO",
    ("NCCL_DEBUG", "ON"): "INFO",
    ("NCCL_DEBUG", "VERBOSE"): "INFO",
    ("NCCL_DEBUG", "DETAIL"): "INFO",
    ("TORCH_DISTRIBUTED_DEBUG", "1"): "INFO",
    ("TORCH_DISTRIBUTED_DEBUG", "ON"): "INFO",
    ("TORCH_DISTRIBUTED_DEBUG", "TRUE"): "INFO",
    ("TORCH_DISTRIBUTED_DEBUG", ""): "OFF",
    ("TORCH_DISTRIBUTED_DEBUG", "0"): "OFF",
    ("TORCH_DISTRIBUTED_DEBUG", "NONE"): "OFF",
    ("TORCH_DISTRIBUTED_DEBUG", "FALSE"): "OFF",
}


def any_case(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """One word in any case; an unknown one is ignored. An empty value counts as not set."""
    unknown = [
        word for word in text.split("|") if not _known(variable, word, installed)
    ]  # NCCL_CTA_POLICY joins with |
    if not text or not unknown:
        return None
    if variable.name == "NCCL_DEBUG":
        effect = "is no level that NCCL knows: it is ignored without a word, and NCCL prints nothing"
        return Fault("warning", effect, (source(variable.source),), _choose(variable, unknown[0]))
    return Fault("warning", "is ignored", _because(variable), _choose(variable, unknown[0]))


def exact_case(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """One word in exactly this case, or a number; an unknown one is ignored without a word."""
    numbers = any(value.isdecimal() for value in variable.values) or variable.name.endswith("_LEVEL")
    if not text or text in variable.values or (numbers and text[0].isdecimal()) or not variable.values:
        return None
    if text.upper() in variable.values:
        says = "is ignored without a word: it takes upper case only"
        return Fault("warning", says, _because(variable), f"write {variable.name}={text.upper()}")
    return Fault("warning", "is ignored without a word", _because(variable), _choose(variable, text))


def or_raise(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """One word in any case; every other one makes `import torch` fail, an empty one too."""
    if _known(variable, text, installed):
        return None
    says = "makes `import torch` raise a ValueError"
    return Fault("error", says, ("measured with torch 2.13", source(variable.source)), _choose(variable, text))


def several(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """Words with commas between them, in any case, after a `^` all but these; an unknown one is not heeded."""
    words = [word for word in text.removeprefix("^").split(",") if word]
    unknown = [word for word in words if not _known(variable, word, installed)]
    if not unknown:
        return None
    blank = "; blanks are not taken away" if any(word != word.strip() for word in unknown) else ""
    bad = listed([quoted(word) for word in unknown])
    if variable.name == "NCCL_DEBUG_SUBSYS":
        says = f"has a name that NCCL does not know: {bad}{blank}"
        void = "from NCCL 2.30 on, one unknown name voids the whole value; before, that name is skipped"
        because: tuple[str, ...] = (void, source(variable.source))
    else:
        says, because = f"has a word that is not known, and is skipped: {bad}{blank}", _because(variable)
    return Fault("warning", says, because, _choose(variable, unknown[0].strip()))


def strict_choice(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """NCCL_ALGO and NCCL_PROTO: `ring,tree`, `^tree`, `allreduce:tree;broadcast:ring`."""
    lists = [part.rpartition(":")[2].strip().removeprefix("^") for part in text.split(";")]
    unknown = [word for part in lists for word in part.split(",") if word and not _known(variable, word, installed)]
    if unknown:
        bad = listed([quoted(word) for word in unknown])
        if versions.older("nccl", installed, "2.24"):
            return Fault(
                "warning",
                f"has an unknown word, which is ignored: {bad}",
                _because(variable),
                _choose(variable, unknown[0]),
            )
        return Fault(
            "error",
            f"has an unknown word, which is fatal since NCCL 2.24: {bad}",
            _because(variable),
            _choose(variable, unknown[0]),
        )
    if variable.name == "NCCL_ALGO" and not _has_ring(text) and versions.at_least("nccl", installed, "2.24"):
        return Fault(
            "warning",
            "leaves out ring: functions that the other algorithms cannot do fail",
            ("since NCCL 2.24 there is no fallback to ring", source("NCCL user guide, NCCL_ALGO")),
            "add ring, or name the function: NCCL_ALGO=allreduce:tree",
        )
    return None


def _has_ring(text: str) -> bool:
    if not text or ":" in text:
        return True  # for the functions that are named; the others keep all
    words = {word.strip().lower() for word in text.removeprefix("^").split(",")}
    return ("ring" in words) != text.startswith("^")


def listed_words(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """A list without a parser of its own in the catalogue."""
    return several(variable, text, installed) if variable.values else None


def _known(variable: Variable, word: str, installed: Installed) -> bool:
    word = word.upper()
    if word in OF_RCCL.get(variable.name, ()) and installed.torch is not None and installed.torch.other_gpu:
        return True
    came = NEW_WORDS.get((variable.name, word))
    if came:
        return not versions.older("nccl", installed, came)
    return any(re.fullmatch(_pattern(value), word) for value in variable.values)


def _pattern(value: str) -> str:
    return re.escape(value.upper()).replace("<N>", r"\d+")


def _because(variable: Variable) -> tuple[str, ...]:
    return (*((variable.note,) if variable.note else ()), source(variable.source))


def _choose(variable: Variable, word: str) -> str:
    meant = MEANT.get((variable.name, word.upper())) or nearest(word.upper(), variable.values)
    rest = f"it takes {', '.join(variable.values)}"
    return f"write {meant}; {rest}" if meant else rest
