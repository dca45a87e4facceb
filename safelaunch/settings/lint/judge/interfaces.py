"""Lists of network interfaces and of HCAs, which NCCL matches by prefix and Gloo by name."""

from __future__ import annotations

import re

from safelaunch.settings.lint.catalogue import Variable
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.lint.judge.wording import Fault, quoted, source

NCCL = source("NVIDIA/nccl src/os/linux.cc, parseStringList and matchIf")
GLOO = source("measured with torch 2.13: RuntimeError: Unable to find address for: ^docker0")

NO_ADDRESS = source("measured with torch 2.13: RuntimeError: Unable to find address for: NAME")
MOST_SHOWN = 12  # interfaces; a host of containers has hundreds

# How the drivers of RDMA name their devices, and how the kernel and systemd name interfaces. Both can be renamed, so a
# name of the other kind is a doubt and no certainty.
DEVICE = re.compile(r"(?:mlx\d_(?:bond_)?|bnxt_re|hfi1_|irdma|qedr)\d+")
INTERFACE = re.compile(r"(?:eth|ib|bond|eno|ens)\d+(?:np\d+)?|en[opsx]\w*\d|docker\d+|lo")

# What NCCL's own choice leaves to the end.
LEFT_OUT = ("docker", "lo", "virbr")


def prefixes(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """NCCL's lists: `eth0,ib` are prefixes, `=` before the list makes them exact, `^` excludes them."""
    rest = text.removeprefix("^").removeprefix("=")
    names = rest.split(",")
    odd = [name for name in names if name.lstrip()[:1] in ("^", "=", "!")]
    if odd:
        sign = odd[0].lstrip()[0]
        where = "has ! before a name" if sign == "!" else f"has {sign} inside the list"
        return Fault(
            "error",
            f"{where}, where it is a part of the name",
            ("only at the beginning of the whole value do ^ and = mean something: ^ first, then =", NCCL),
            f"write {variable.name}={_turned(text, names)}",
        )
    fault = _no_names(names, NCCL) or (None if text.startswith("^") else _mixed_up(variable, names))
    if fault:
        return fault
    if variable.name == "NCCL_SOCKET_IFNAME" and len(text) == 1:
        return Fault("warning", "is ignored: a value of one character counts as none", (NCCL,), "write the whole name")
    if variable.name == "NCCL_SOCKET_IFNAME" and text.startswith("^") and _redundant(names):
        return Fault(
            "note",
            f"excludes what NCCL avoids by itself: every interface whose name begins with {' or '.join(names)}",
            (
                "^ holds for the whole list; unset, NCCL takes ib* first, and docker*, lo* and virbr* last",
                "with it, that order is gone",
                NCCL,
            ),
            "unset it, or name the interface between the nodes, as `ip -brief address` shows it",
        )
    return None


def exact(variable: Variable, text: str, installed: Installed) -> Fault | None:  # noqa: ARG001
    """Gloo's list: exact names. Every other one makes the process group fail."""
    if text[:1] in ("^", "="):
        return Fault(
            "error",
            f"makes every Gloo process group raise: {text[0]} is taken as a part of the name",
            ("Gloo wants names; excluding is something only NCCL can", GLOO),
            "write the name of an interface, as `ip -brief address` shows it",
        )
    names = text.split(",") if text else []
    return _no_names(names, GLOO) or _mixed_up(variable, names)


def absent(name: str, text: str, here: frozenset[str] | None) -> Fault | None:
    """A choice of interfaces of which this machine has none.

    Args:
        name: of the variable.
        text: its value.
        here: the interfaces of this machine; None where they are not known, or another machine is meant.
    """
    if here is None or not text:
        return None
    there = ", ".join(sorted(here)[:MOST_SHOWN]) + (", ..." if len(here) > MOST_SHOWN else "")
    if name == "GLOO_SOCKET_IFNAME":
        missing = [each for each in text.split(",") if each not in here]
        if not missing:
            return None
        says = f"names an interface that this machine does not have, {quoted(missing[0])}: every Gloo group raises"
        return Fault(
            "warning", says, (f"it has {there}", NO_ADDRESS), "name one of them, unless the job runs elsewhere"
        )
    if name != "NCCL_SOCKET_IFNAME" or len(text) == 1 or any(_chosen(text, each) for each in here):
        return None
    says = "leaves NCCL no interface: none of this machine matches, and no communicator can be made"
    return Fault("warning", says, (f"it has {there}", NCCL), "name one of them, unless the job runs elsewhere")


def _chosen(text: str, interface: str) -> bool:
    """Whether NCCL's list takes an interface."""
    excluded, whole = text.startswith("^"), text.removeprefix("^").startswith("=")
    names = [name.partition(":")[0] for name in text.removeprefix("^").removeprefix("=").split(",") if name]
    return any(interface == name if whole else interface.startswith(name) for name in names) != excluded


def _mixed_up(variable: Variable, names: list[str]) -> Fault | None:
    """A device of RDMA where an interface is wanted, or the other way round."""
    wants_device = variable.name == "NCCL_IB_HCA"
    pattern, other = (INTERFACE, "NCCL_SOCKET_IFNAME") if wants_device else (DEVICE, "NCCL_IB_HCA")
    odd = next((name for name in names if pattern.fullmatch(name.partition(":")[0])), None)
    if odd is None or not variable.name.endswith(("IFNAME", "_HCA")):
        return None
    seems, wanted = (
        ("a network interface", "an RDMA device, such as mlx5_0,")
        if wants_device
        else ("an RDMA device", "a network interface, such as eth0,")
    )
    shows = "`ibv_devices` shows" if wants_device else "`ip -brief address` shows"
    return Fault(
        "warning",
        f"seems to name {seems}, {odd}, where {wanted} is wanted",
        ("the names are those that drivers give; they can have been changed", source(variable.source)),
        f"write a name that {shows}; {odd} belongs into {other}",
    )


def _no_names(names: list[str], why: str) -> Fault | None:
    for name in names:
        if re.fullmatch(r"\d+\.\d+\.\d+\.\d+(:\d+|/\d+)?", name.strip()):
            return Fault(
                "error",
                f"has an address, {name.strip()}, where a name of an interface is wanted",
                (why,),
                "write the name, such as eth0; `ip -brief address` shows it",
            )
        if re.search(r"[*?\[\]]", name):
            return Fault(
                "error",
                f"has a pattern, {quoted(name)}, which matches no interface",
                (why,),
                "name each interface, with commas",
            )
        odd = re.search(r"\s|;", name)
        if odd:
            what = ";" if odd[0] == ";" else "a blank"
            says = f"has {what} in {quoted(name)}, which is taken as a part of the name"
            return Fault("error", says, (why,), "put commas between the names, and nothing else")
    return None


def _redundant(names: list[str]) -> bool:
    return all(name.startswith(LEFT_OUT) for name in names if name) and any(names)


def _turned(text: str, names: list[str]) -> str:
    """What was probably meant: only what is wanted, or everything but what is not."""
    bare = [name.strip().lstrip("^=!") for name in names]
    if text.startswith("^"):
        return ("^=" if text.startswith("^=") else "^") + ",".join(bare)
    signs = [name.lstrip()[:1] for name in names]
    wanted = [name for name, sign in zip(bare, signs, strict=True) if sign not in ("^", "!")]
    return ("=" if "=" in (text[0], signs[0]) else "") + ",".join(wanted) if wanted else "^" + ",".join(bare)
