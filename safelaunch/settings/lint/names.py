"""Names that nothing reads: unknown, read by nothing at all, read by other versions only; and old spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from safelaunch.model import Finding
from safelaunch.settings.lint import catalogue
from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge import contradictions, dangers, nccl_backends, parsers, versions
from safelaunch.settings.lint.judge.in_force import InForce, in_force
from safelaunch.settings.lint.judge.reading import meant, standing
from safelaunch.settings.lint.judge.shipped import is_shipped
from safelaunch.settings.lint.judge.wording import Fault, listed, literal, shown, source

_A_LINE = re.compile(r":\d+\Z")


def unknown_variable(context: LintContext) -> Iterator[Finding]:
    """A variable is not known in its namespace: most often it is misspelt.

    Nothing complains about a variable that nobody reads, so a slip in its name goes unnoticed: NCCL_SOCKET_IFNAMES
    chooses no interface, NCLL_DEBUG prints nothing.

    How it is concluded: the name begins with NCCL_, TORCH_NCCL_ or another prefix that belongs to torch, NCCL or one of
    their plugins. Neither the catalogue of variables nor the installed libraries have it. Prefixes that others use as
    well, such as CUDA_ and TORCH_, count only where the name is a slip of a known one. Plugins of others, names that
    stand in the training script, and places and versions (NCCL_TESTS_HOME) are left alone.

    In a file for AMD's GPUs, an unknown NCCL_ name is a note: RCCL has names of its own, which are not all known here.

    What to do: the message names the nearest known variable. If a program of yours reads it, say so under `known` in
    [lint].
    """
    unknown = [setting for setting in context if standing(setting.name, context) == "unknown"]
    beside: dict[str, dict[str, Setting]] = {}  # without a guess, on one line of a file: one idea is behind them
    for setting in unknown:
        if near := meant(setting.name):
            yield _unknown((setting,), f"did you mean {near}?", context)
        else:
            place = setting.origin.where
            at = place if _A_LINE.search(place) else f"{place} {setting.name}"
            beside.setdefault(at, {})[setting.name] = setting
    told: set[str] = set()  # beside others
    for of_line in beside.values():
        if of_line.keys() <= told:
            continue
        listed_here = tuple(of_line.values())
        if len(listed_here) > 1:
            told |= of_line.keys()
        names = listed([quote(each.name) for each in listed_here])
        they = "it" if len(listed_here) == 1 else "them"
        yield _unknown(listed_here, f"unset {names}, or name {they} under `known` in [lint]", context)


def _unknown(settings: tuple[Setting, ...], remedy: str, context: LintContext) -> Finding:
    amd = all(_may_be_of_rccl(each, context) for each in settings)
    names = shown(settings[0]) if len(settings) == 1 else listed([each.name for each in settings])
    what = "is a variable" if len(settings) == 1 else "are variables"
    return Finding(
        code="SL210",
        severity="note" if amd else "warning",
        summary=f"{names} {what} that neither torch nor NCCL knows",
        because=(_looked_at(context), *(("this is for AMD's GPUs: RCCL has names of its own",) if amd else ())),
        remedy=remedy,
        where=settings[0].origin.where,
    )


def unread_variable(context: LintContext) -> Iterator[Finding]:
    """A variable is set that neither torch nor NCCL reads, in any version.

    It circulates in notes and scripts, and does nothing: NCCL_TIMEOUT sets no timeout, CUDA_MEMORY_FRACTION limits no
    memory. Some training scripts read such a name themselves.

    How it is concluded: the name is on a list of such names, checked against torch 2.0 to 2.13 and NCCL 2.3 to 2.32.
    Neither the installed libraries nor the training script have it. An assignment of the script to
    `distributed_c10d._DEFAULT_PG_TIMEOUT`, which circulates as well, is told in the same way.

    What to do: use what the message names in its place. If a program of yours reads the variable, say so under `known`
    in [lint].
    """
    for setting in context:
        if standing(setting.name, context) != "unread":
            continue
        entry = catalogue.unread(setting.name)
        instead = entry.instead if entry else ""
        yield Finding(
            code="SL211",
            severity="warning",
            summary=f"{shown(setting)} does nothing: nothing in torch or NCCL reads it, unless your script does",
            because=("checked against the libraries, headers and Python files of torch 2.0 to 2.13, NCCL 2.3 to 2.32",),
            remedy=_in_its_place(setting, instead),
            where=setting.origin.where,
        )
    for place in context.dead_timeouts:
        yield Finding(
            code="SL211",
            severity="warning",
            summary="the script assigns _DEFAULT_PG_TIMEOUT, which sets no timeout: nothing in torch reads it there",
            because=(
                "the module had no such attribute, and the assignment makes a new one",
                source("torch/distributed/distributed_c10d.py (measured, torch 2.13)"),
            ),
            remedy="set `process_group` in [timeouts], pass init_process_group(timeout=...), or assign "
            "default_pg_timeout, which works with gloo",
            where=place,
        )


def unread_here(context: LintContext) -> Iterator[Finding]:
    """A variable is set that the installed torch or NCCL does not read; other versions do.

    It was removed or renamed since, or it comes with a later version. Either way it does nothing here.

    How it is concluded: the catalogue says from which version to which version the library reads it, or the name is not
    among the strings of the installed library. What the library has in it counts more than what the catalogue says of
    its version. A torch without CUDA says nothing about variables of NCCL and CUDA, but a variable that was gone before
    NCCL 2.18 is told as a note. Since torch 2.15 the backend `nccl` is another one, nccl2, which does not read all that
    the old one does; TORCH_DIST_USE_NCCL2=0 chooses that one. In a file for AMD's GPUs, what was gone before NCCL 2.6
    is a note: RCCL took over that code in ROCm 3.5. Shipped profiles say themselves
    from which version on their variables act.

    What to do: use the new name where there is one, update the library where it is too old for the variable, or unset
    the variable.
    """
    for setting in context:
        variable = catalogue.variable(setting.name)
        if variable is not None and versions.long_gone(variable, context.installed) and _unclaimed(setting, context):
            yield _long_gone(setting, variable, context)
        if variable is None or standing(setting.name, context) != "unread-here":
            continue
        if nccl_backends.is_of_the_other(setting.name, context) and not is_shipped(setting):  # those are for both
            yield Finding(
                code="SL212",
                severity="warning",
                summary=f"{shown(setting)} does nothing: only the old NCCL backend reads it, and `nccl` is nccl2 here",
                because=(f"nccl2 is the default since torch 2.15, and {nccl_backends.CHOICE} is not 0",),
                remedy=f"unset {quote(setting.name)}, or choose the other backend by {nccl_backends.CHOICE}=0",
                where=setting.origin.where,
            )
        why = versions.not_here(variable, context.installed)
        if why is None or (why.since and is_shipped(setting)):
            continue
        name, here = versions.label(variable.owner), versions.here(variable.owner, context.installed)
        if why.since:
            remedy = f"unset it, or use {name} {why.since} or later"
            if variable.aliases and setting.value is not None:
                remedy = f"write {variable.aliases[0]}, its older name"
        else:
            remedy = _in_place_of(setting, variable, context.installed)
        yield Finding(
            code="SL212",
            severity="warning",
            summary=f"{shown(setting)} does nothing: {here} does not read it",
            because=(why.why, source(variable.source)),
            remedy=remedy,
            where=setting.origin.where,
        )


def _long_gone(setting: Setting, variable: Variable, context: LintContext) -> Finding:
    amd = versions.for_amd(context.installed)
    return Finding(
        code="SL212",
        severity="note" if amd else "warning",
        summary=f"{shown(setting)} does nothing: it is gone since NCCL {variable.removed_in}",
        because=(
            "this is for AMD's GPUs: RCCL took over the code of NCCL 2.6 in ROCm 3.5"
            if amd
            else "no NCCL was found here to ask",
            source(variable.source),
        ),
        remedy=_in_place_of(setting, variable, context.installed),
        where=setting.origin.where,
    )


def _in_place_of(setting: Setting, variable: Variable, installed: Installed) -> str:
    """What to write for a variable that is gone."""
    new = versions.newest(variable, installed)
    replaced = REPLACED.get((setting.name, setting.value or ""), "")
    return replaced or (f"use {new}" if new else f"unset {quote(setting.name)}")


def deprecated_variable(context: LintContext) -> Iterator[Finding]:
    """A variable has an old spelling, or is on its way out. It still works, and warns in every rank.

    One of them no longer acts here: torchrun and safelaunch export TORCH_NCCL_ASYNC_ERROR_HANDLING=1 to every rank, and
    the new name wins over NCCL_ASYNC_ERROR_HANDLING.

    How it is concluded: the catalogue has the version from which on the variable is deprecated, and the installed
    library, where its version is known, is not older. Of several names that followed, the newest one that is read here
    is told.

    What to do: use the new name. With a torch or NCCL from before the change, keep the old one.
    """
    env = in_force(context)
    told = contradictions.involved(env)
    for setting in context:
        variable = catalogue.variable(setting.name)
        if variable is None or setting.name in told or not env.acts(setting):
            continue
        fault = _out_of_date(setting, variable, env)
        text = literal(setting)
        if fault is None or text == "" or dangers.judge(setting, env):
            continue
        if text is not None and parsers.judge(variable, text, context.installed) and setting.name != _USELESS:
            continue  # what is wrong with the value is said, with the new name
        yield fault.finding("SL214", setting)


def _may_be_of_rccl(setting: Setting, context: LintContext) -> bool:
    torch = context.installed.torch
    return torch is not None and torch.other_gpu and setting.name.startswith("NCCL_")


def _unclaimed(setting: Setting, context: LintContext) -> bool:
    return setting.name not in context.known | context.read_by_script


def _looked_at(context: LintContext) -> str:
    if context.installed.names is None:
        return "the catalogue of variables does not have it"
    libraries = (("torch", context.installed.torch), ("NCCL", context.installed.nccl))
    words = [f"{name} {found.version}".strip() for name, found in libraries if found]
    return f"neither the catalogue of variables nor the installed {listed(words)} have it"


def _in_its_place(setting: Setting, instead: str) -> str:
    if not instead:
        return f"unset {quote(setting.name)}"
    return instead if instead[:2] == "a " else f"use {instead}"


# Of a variable that is gone, what its value asked for.
REPLACED = {
    ("NCCL_TREE_THRESHOLD", "0"): "write NCCL_ALGO=Ring, which is what a threshold of 0 asked for: no trees",
    ("NCCL_CHECKS_DISABLE", "1"): "unset NCCL_CHECKS_DISABLE: these checks are off unless they are asked for",
}
_USELESS = "NCCL_ASYNC_ERROR_HANDLING"
_OLD_RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE"
_ON_AWS_ONLY = frozenset(
    {"RDMAV_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "FI_EFA_ENABLE_SHM_TRANSFER"}
)

# Variables of which one value only is deprecated.
_OLD_VALUES = {
    "NCCL_LAUNCH_MODE": ("GROUP",),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": ("1", "TRUE", "T", "YES", "Y", "0", "FALSE", "F", "NO", "N"),
}


# The version at the beginning of `deprecated`. CUDA's and OpenMP's are not those of a library that is looked at.
_VERSION = re.compile(r"(?:CUDA |OpenMP )?\d+(?:\.\d+)*")


def _out_of_date(setting: Setting, variable: Variable, env: InForce) -> Fault | None:
    installed = env.context.installed
    if setting.name == _USELESS and env.context.elastic:
        return Fault(
            "warning",
            "does nothing: every rank has TORCH_NCCL_ASYNC_ERROR_HANDLING, and the new name wins",
            (
                "torchrun and safelaunch export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                source("torch/distributed/elastic/agent/server/local_elastic_agent.py, _start_workers"),
            ),
            f"unset {setting.name}" if setting.value == "0" else f"write TORCH_{setting.name}=1, or unset it",
        )
    since = _VERSION.match(variable.deprecated)
    if variable.owner == "nccl" and installed.torch is not None and installed.torch.other_gpu:
        return None  # AMD's NCCL goes its own way
    if not variable.deprecated or (since and versions.older(variable.owner, installed, since[0])):
        return None
    if setting.name == _OLD_RECORDER and (
        env.has("TORCH_FR_BUFFER_SIZE") or versions.older("torch", installed, "2.11")
    ):
        return None  # what dumps the recorder asks for this name, and has no other default before torch 2.11
    text = literal(setting)
    if setting.name in _OLD_VALUES and (text is None or text.upper() not in _OLD_VALUES[setting.name]):
        return None
    if setting.name in _ON_AWS_ONLY and not env.on_aws:
        return None
    new = versions.newest(variable, installed)
    use = f"use {new}" if new else _advice(variable)
    return Fault("note", f"is deprecated{_since(variable)}", (source(variable.source),), use)


def _since(variable: Variable) -> str:
    version = _VERSION.match(variable.deprecated)
    if not version:
        return f": {variable.deprecated}"
    name = "" if version[0][0].isalpha() else f"{versions.label(variable.owner)} "
    return f" since {name}{version[0]}"


def _advice(variable: Variable) -> str:
    _, _, advice = variable.deprecated.partition(": ") if _VERSION.match(variable.deprecated) else ("", "", "")
    return advice or f"unset {variable.name}"
