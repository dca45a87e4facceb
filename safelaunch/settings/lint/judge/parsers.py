"""How each variable's value is read: a table from the `parse` of the catalogue to the function that knows that parser.

A function gets the variable, the value and the installed libraries, and says what is wrong or None.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import alloc_conf, flags, integers, interfaces, named, units, words
from safelaunch.settings.lint.judge.wording import Fault

_ANOTHER = re.compile(r"(?<=[^\s,;:A-Z_])((?:TORCH_)?(?:NCCL|GLOO)_[A-Z0-9_]+)=")

Parser = Callable[[Variable, str, Installed], "Fault | None"]

PARSERS: dict[str, Parser] = {
    "strtoll": integers.of_c,
    "strtol": integers.of_c,
    "stoi": integers.of_cpp,
    "int()": integers.of_python,
    "torch-bool": flags.of_torch,
    "check_env": flags.zero_or_one,
    '== "1"': flags.equals_one,
    "presence": flags.presence,
    "truthy-string": flags.truthy_text,
    "nccl-bool": flags.of_nccl,
    "ofi": flags.of_ofi,
    "enum-ci": words.any_case,
    "enum-cs": words.exact_case,
    "enum-ci-strict": words.or_raise,
    "list-ci": words.several,
    "list-ci-strict": words.strict_choice,
    "iflist": interfaces.prefixes,
    "exact-list": interfaces.exact,
    "alloc-conf": alloc_conf.judge,
}

# Variables that no parser of the table fits.
NAMED: dict[str, Parser] = {
    "NCCL_P2P_DISABLE": flags.p2p_disable,
    "NCCL_IB_TIMEOUT": named.ib_timeout,
    "NCCL_COMM_ID": named.comm_id,
    "NCCL_DEBUG_FILE": named.one_file_per_process,
    "CUDA_COREDUMP_FILE": named.one_file_per_process,
    "CUDA_VISIBLE_DEVICES": named.visible_devices,
    "CUDA_DEVICE_MAX_CONNECTIONS": named.connections,
    "CUBLAS_WORKSPACE_CONFIG": named.workspace,
    "GLOO_DEVICE_TRANSPORT": named.gloo_transport,
    "OMP_NUM_THREADS": named.threads,
    "OMP_PROC_BIND": named.binding,
}


def judge(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """What is wrong with the value of a variable, as the program that reads it will see it; None where nothing is."""
    fault = _in_quotes(variable, text) or _glued(text) or _wide(variable, text)
    if fault:
        return fault
    parser = NAMED.get(variable.name) or PARSERS.get(variable.parse)
    if parser is not None:
        return parser(variable, text, installed) or units.judge(variable, text)
    return None if variable.confidence else _by_kind(variable, text, installed)


def _in_quotes(variable: Variable, text: str) -> Fault | None:
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
        return None
    return Fault(
        "error",
        "has quotes that are a part of the value",
        ("env files of Docker, YAML lists and TOML in quotes twice do not take them away, as a shell does",),
        f"write {variable.name}={text[1:-1]}",
    )


def _glued(text: str) -> Fault | None:
    match = _ANOTHER.search(text)
    if match is None:
        return None
    return Fault(
        "error",
        f"holds what was to be a variable of its own, {match[1]}",
        ("there is no blank before it, or quotes join the two",),
        f"write {match[1]} apart, with a blank before it",
    )


def _wide(variable: Variable, text: str) -> Fault | None:
    """Digits and letters as they are typed among Chinese and Japanese text."""
    plain = unicodedata.normalize("NFKC", text)
    if text.isascii() or plain == text or not plain.isascii():
        return None
    says = "has full-width characters, which no program takes for digits or letters"
    return Fault("error", says, (), f"write {variable.name}={plain}")


def _by_kind(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """Where the parser is not known: what no parser could make sense of."""
    if variable.status == "set-by-launcher" or not text:
        return None
    if variable.kind in ("int", "seconds", "ms", "bytes"):
        if re.fullmatch(r"\s*-?\d+\s*", text):
            return integers.out_of_range(variable, int(text)) or units.judge(variable, text)
        if not re.match(r"\s*[-+.]?\d", text):
            return Fault("warning", "is no number", (f"source: {variable.source}",), f"write a number; {variable.doc}")
    if variable.kind in ("enum", "list"):
        return words.listed_words(variable, text, installed)
    return None
