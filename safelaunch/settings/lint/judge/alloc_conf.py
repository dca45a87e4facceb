"""The allocator's configuration, `key:value,key:value`: PYTORCH_ALLOC_CONF and its older spellings.

Sources: c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h. What raises was measured with torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.lint.judge.wording import Fault, quoted, source
from safelaunch.settings.spelling import nearest

NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
RAISES = "torch raises at the first use of the device"
PAIRS = "key:value,key:value"
SOURCE = source("c10/core/AllocatorConfig.h (measured, torch 2.13)")

# cudaMallocAsync takes none of these. Source: c10/cuda/CUDAAllocatorConfig.cpp, parseArgs.
NATIVE_ONLY = ("max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold", "expandable_segments")

TERABYTE_MB = 1 << 20


@dataclass(frozen=True)
class Numbers:
    """What a numeric key accepts. `whole` numbers are read by stoull, which looks at the beginning only."""

    accepts: Callable[[float], bool]
    expects: str
    whole: bool = True


def _power_of_two(value: float) -> bool:
    return value >= 1 and int(value) & (int(value) - 1) == 0


LIMITS = {
    "max_split_size_mb": Numbers(lambda mb: mb >= 20, "20 or more, in MB"),
    "max_non_split_rounding_mb": Numbers(lambda mb: mb >= 20, "20 or more, in MB"),
    "large_segment_size_mb": Numbers(lambda mb: mb > 10, "more than 10, in MB"),
    "garbage_collection_threshold": Numbers(lambda share: 0 < share < 1, "a share between 0 and 1", whole=False),
    "per_process_memory_fraction": Numbers(lambda share: 0 <= share <= 1, "a share from 0 to 1", whole=False),
    "roundup_power2_divisions": Numbers(_power_of_two, "a power of two"),
    "pinned_num_register_threads": Numbers(lambda n: _power_of_two(n) and n <= 128, "a power of two up to 128"),
}


def options(text: str) -> tuple[tuple[str, str], ...]:
    """Keys and values, as far as they can be told; blanks do not count, and neither does a comma at the end."""
    parts = re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text.replace(" ", ""))
    return tuple((key, value) for key, _, value in (part.partition(":") for part in parts))


def option(text: str, key: str) -> str | None:
    """The value of one key, the last one where it stands twice."""
    return dict(options(text)).get(key)


def judge(variable: Variable, text: str, installed: Installed) -> Fault | None:
    """The first fault of a configuration."""
    return next(_faults(variable, text, installed), None)


def _faults(variable: Variable, text: str, installed: Installed) -> Iterator[Fault]:
    known = {option.name: option for option in catalogue.alloc_options()}
    if re.search(r";\s*\w", text):
        commas = ",".join(part.strip() for part in text.split(";") if part.strip())
        yield Fault("error", f"has ; between options: {RAISES}", (SOURCE,), f"write {variable.name}={commas}")
    for key, value in options(text):
        spelled = key.replace("_hip", "_cuda")  # ROCm's builds name them so, and the others accept it
        if not value:
            yield _without_value(variable, key)
        elif spelled not in known:
            says = f"has an unknown key, {quoted(key)}: {RAISES}, with CUDA"
            yield Fault("error", says, (SOURCE,), _did_you_mean(key, known))
        elif known[spelled].since and versions.older("torch", installed, known[spelled].since):
            says = f"has the key {key}, which torch knows from {known[spelled].since} on: {RAISES}"
            yield Fault("error", says, (SOURCE,), f"leave out {key}")
        elif known[spelled].kind == "bool" and value not in ("True", "False"):
            meant = "True" if value.lower() in ("true", "1", "yes", "on", "'true'", '"true"') else "False"
            says = f"has {key}:{value}: {RAISES}, for it takes exactly True or False"
            yield Fault("error", says, (SOURCE,), f"write {key}:{meant}")
        elif key == "backend" and value not in ("native", "cudaMallocAsync"):
            says = f"has an unknown backend, {quoted(value)}: {RAISES}"
            yield Fault("error", says, (SOURCE,), "write backend:native or backend:cudaMallocAsync")
        elif key in LIMITS and not value.startswith("["):
            yield from _number(key, value, LIMITS[key])


def _number(key: str, value: str, limits: Numbers) -> Iterator[Fault]:
    match = re.match(r"[+]?\d+(?![\w.])" if limits.whole else r"[+]?\d*\.?\d+(?![\w.])", value)
    number = float(match[0]) if match else None
    if number is None:
        says = f"has {key}:{value}, where {limits.expects} is wanted"
        remedy = "leave out the unit" if re.match(r"\d+\s*[kKmMgG]", value) else f"{key} takes {limits.expects}"
        yield Fault("error", says, (SOURCE,), remedy)
    elif not limits.accepts(number):
        yield Fault(
            "error", f"has {key}:{value}: {RAISES}, for it wants {limits.expects}", (SOURCE,), f"use {limits.expects}"
        )
    elif key.endswith("_mb") and number > TERABYTE_MB:
        says = f"has {key}:{value}, which are {number / TERABYTE_MB:.3g} TB: the unit is MB"
        yield Fault("warning", says, (SOURCE,), f"write {key}:{max(20, round(number / (1 << 20)))} if bytes were meant")


def _without_value(variable: Variable, key: str) -> Fault:
    if "=" in key:
        name, _, value = key.partition("=")
        says = f"has = after {name}: {RAISES}, for it takes key:value"
        is_plain = re.fullmatch(r"[\w.]*", name + value) is not None
        return Fault("error", says, (SOURCE,), f"write {variable.name}={f'{name}:{value}' if is_plain else PAIRS}")
    return Fault("error", f"has no value for {quoted(key)}: {RAISES}", (SOURCE,), f"write {PAIRS}")


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    near = nearest(key, known)
    return f"did you mean {near}?" if near else f"leave out {key}"
