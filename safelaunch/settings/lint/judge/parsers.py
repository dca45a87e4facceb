"""How each variable's value is read: a table from the `parse` of the catalogue to the function that knows that parser.

A function gets the variable, the value and the installed libraries, and says what is wrong or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import alloc_conf, flags, integers, interfaces, named, units, words
from safelaunch.settings.lint.judge.wording import Fault

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
    quotes = _in_quotes(variable, text)
    if quotes:
        return quotes
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
