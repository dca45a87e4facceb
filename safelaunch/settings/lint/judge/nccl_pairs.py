"""Settings of NCCL that do not go together."""

from __future__ import annotations

import re

from safelaunch.settings.lint.context import Setting
from safelaunch.settings.lint.judge.in_force import InForce
from safelaunch.settings.lint.judge.pair import Pair
from safelaunch.settings.lint.judge.wording import source

GUIDE = "NCCL user guide, environment variables"
SRC = "NVIDIA/nccl src"
LOUD = ("INFO", "TRACE", "ABORT")
IB_ONLY = r"NCCL_IB_(?!DISABLE$)"
NET_OF_IB = r"NCCL_IB_(?!DISABLE$)|NCCL_NET_GDR_"
MOST_SOCKETS = 64  # src/transport/net_socket.cc, MAX_SOCKETS


def net(env: InForce) -> str:
    """The network that is asked for, in lower case."""
    return (env.text("NCCL_NET") or "").lower()


def quiet(env: InForce) -> bool:
    """Subsystems are chosen, and NCCL prints nothing of them."""
    if not env.has("NCCL_DEBUG_SUBSYS") or env.debug_level is None:
        return False
    return env.debug_level in ("", "VERSION", "WARN")


def file_not_opened(env: InForce) -> bool:
    """A file for a log that is not written; with subsystems the other pair has said so."""
    return env.has("NCCL_DEBUG_FILE") and not quiet(env) and env.debug_level in ("", "VERSION")


def ib_settings_unused(env: InForce) -> bool:
    """InfiniBand is off, and something is set for it. A plugin may read these as well."""
    return (
        env.on("NCCL_IB_DISABLE")
        and bool(env.starting(IB_ONLY))
        and not env.has("NCCL_NET_PLUGIN")
        and net(env) != "ib"
    )


def is_dead(setting: Setting, env: InForce) -> bool:
    """Whether nobody looks at the value of a setting: what it is for is switched off wherever it is made."""
    for switch, of_it, holds in (
        ("NCCL_IB_DISABLE", IB_ONLY, ib_settings_unused),
        ("NCCL_NET", NET_OF_IB, sockets_only),
    ):
        if re.match(of_it, setting.name) and holds(env):
            return set(env.settings[switch].branches) <= set(setting.branches)
    return False


def sockets_only(env: InForce) -> bool:
    """TCP is asked for, and something is set for InfiniBand."""
    return net(env) == "socket" and bool(env.starting(NET_OF_IB)) and not ib_settings_unused(env)


def too_many_sockets(env: InForce) -> bool:
    """Threads times sockets for each."""
    threads, sockets = env.number("NCCL_SOCKET_NTHREADS"), env.number("NCCL_NSOCKS_PERTHREAD")
    return threads is not None and sockets is not None and threads > 0 < sockets and threads * sockets > MOST_SOCKETS


def upside_down(env: InForce, least: str, most: str) -> bool:
    """A lower bound above its upper bound."""
    low, high = env.number(least), env.number(most)
    return low is not None and high is not None and 0 < high < low


def two_bounds(env: InForce) -> bool:
    """Channels and CTAs bounded, which are the same."""
    return any(
        env.has(f"NCCL_{end}_NCHANNELS")
        and env.has(f"NCCL_{end}_CTAS")
        and env.differ(f"NCCL_{end}_NCHANNELS", f"NCCL_{end}_CTAS")
        for end in ("MIN", "MAX")
    )


def ordering_and_mixing(env: InForce) -> bool:
    """Graphs mixed with other launches, and their order not kept; mixing is on by default."""
    return env.off("NCCL_GRAPH_STREAM_ORDERING") and env.on("NCCL_GRAPH_MIXING_SUPPORT")


def algorithms(env: InForce) -> frozenset[str]:
    """The algorithms that NCCL_ALGO names, for whatever function, in lower case; none where it excludes."""
    parts = [part.rpartition(":")[2].strip() for part in (env.text("NCCL_ALGO") or "").split(";")]
    words = [word for part in parts if not part.startswith("^") for word in part.split(",")]
    return frozenset(word.strip().lower() for word in words)


def tuner_off(env: InForce) -> bool:
    """A choice of one's own where the tuner of AWS would choose."""
    return env.has("NCCL_ALGO", "NCCL_PROTO") and env.on_aws


PAIRS = (
    Pair(
        ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"),
        lambda env: env.number("NCCL_P2P_DISABLE") == 1 and env.on("NCCL_SHM_DISABLE"),
        "warning",
        "ranks of one host talk over the network: very slow, and without an interface not at all",
        (source(f"{GUIDE}, NCCL_SHM_DISABLE"),),
        "leave one of the two on",
    ),
    Pair(
        ("NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE"),
        lambda env: (
            env.text("NCCL_P2P_LEVEL") in ("LOC", "0")
            and env.on("NCCL_SHM_DISABLE")
            and env.number("NCCL_P2P_DISABLE") != 1
        ),
        "warning",
        "ranks of one host talk over the network: very slow, and without an interface not at all",
        ("the level LOC means no P2P at all", source(f"{GUIDE}, NCCL_P2P_LEVEL and NCCL_SHM_DISABLE")),
        "leave one of the two on",
    ),
    Pair(
        ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
        lambda env: env.number("NCCL_P2P_DISABLE") == 1 and env.has("NCCL_P2P_LEVEL"),
        "warning",
        "the level is ignored",
        (source(f"{SRC}/graph/paths.cc, ncclGetLevel"),),
        "unset one of them; NCCL_P2P_LEVEL=LOC says the same as NCCL_P2P_DISABLE=1",
    ),
    Pair(
        ("NCCL_IB_DISABLE", "NCCL_NET"),
        lambda env: env.on("NCCL_IB_DISABLE") and net(env) == "ib",
        "error",
        "NCCL cannot start: the network that it must use is switched off",
        (source(f"{SRC}/transport/net_ib/init.cc (read, not run)"),),
        "unset one of them",
    ),
    Pair(
        ("NCCL_IB_DISABLE", r"NCCL_IB_(?!DISABLE$)*"),
        ib_settings_unused,
        "warning",
        "nothing of InfiniBand is looked at where it is off",
        (source(f"{SRC}/transport/net_ib/init.cc"),),
        "unset NCCL_IB_DISABLE, or the others",
    ),
    Pair(
        ("NCCL_NET", r"NCCL_IB_(?!DISABLE$)*", "NCCL_NET_GDR_*"),
        sockets_only,
        "warning",
        "over TCP sockets, settings of InfiniBand and GPUDirect do nothing",
        (source(f"{GUIDE}, NCCL_NET"),),
        "unset NCCL_NET, or the others",
    ),
    Pair(
        ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"),
        quiet,
        "warning",
        "nothing of it is printed unless NCCL_DEBUG is INFO",
        (source(f"{SRC}/debug.cc, ncclDebugInit"),),
        "set NCCL_DEBUG=INFO, or unset NCCL_DEBUG_SUBSYS",
    ),
    Pair(
        ("NCCL_DEBUG", "NCCL_DEBUG_FILE"),
        file_not_opened,
        "warning",
        "the file is not even opened below NCCL_DEBUG=WARN",
        (source(f"{SRC}/debug.cc, ncclDebugInit"),),
        "set NCCL_DEBUG=WARN or INFO",
    ),
    Pair(
        ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"),
        too_many_sockets,
        "warning",
        f"more than {MOST_SOCKETS} sockets: NCCL takes fewer of them for each thread",
        (source(f"{SRC}/transport/net_socket.cc"),),
        f"keep the product at {MOST_SOCKETS} or below",
    ),
    Pair(
        ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        lambda env: upside_down(env, "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        "warning",
        "the lower bound is above the upper one, and is lowered to it",
        (source(f"{SRC}/init.cc, envConfigOverride"),),
        "swap the numbers",
    ),
    Pair(
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
        lambda env: upside_down(env, "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
        "warning",
        "the lower bound is above the upper one",
        (source(f"{GUIDE}, NCCL_MIN_NCHANNELS"),),
        "swap the numbers",
    ),
    Pair(
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        two_bounds,
        "warning",
        "channels and CTAs are the same, and the stricter bound wins",
        (source(f"{GUIDE}, NCCL_MAX_CTAS"),),
        "keep NCCL_MIN_CTAS and NCCL_MAX_CTAS",
    ),
    Pair(
        ("NCCL_GRAPH_STREAM_ORDERING", "NCCL_GRAPH_MIXING_SUPPORT"),
        ordering_and_mixing,
        "error",
        "NCCL does not support this",
        (source(f"{GUIDE}, NCCL_GRAPH_STREAM_ORDERING"),),
        "unset NCCL_GRAPH_STREAM_ORDERING, or set NCCL_GRAPH_MIXING_SUPPORT=0",
    ),
    Pair(
        ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_NVLS_ENABLE"),
        lambda env: env.on("NCCL_MULTI_RANK_GPU_ENABLE") and env.number("NCCL_NVLS_ENABLE") == 1,
        "error",
        "communicators cannot be made",
        (source(f"{GUIDE}, NCCL_MULTI_RANK_GPU_ENABLE"),),
        "unset NCCL_NVLS_ENABLE",
    ),
    Pair(
        ("NCCL_CUMEM_ENABLE", "NCCL_MNNVL_ENABLE"),
        lambda env: env.off("NCCL_CUMEM_ENABLE") and env.number("NCCL_MNNVL_ENABLE") == 1,
        "error",
        "NVLink between nodes needs cuMem",
        (source(f"{GUIDE}, NCCL_MNNVL_ENABLE"),),
        "unset NCCL_CUMEM_ENABLE",
    ),
    Pair(
        ("NCCL_COMM_BLOCKING", "TORCH_NCCL_USE_COMM_NONBLOCKING"),
        lambda env: env.off("NCCL_COMM_BLOCKING") and env.text("TORCH_NCCL_USE_COMM_NONBLOCKING") != "1",
        "warning",
        "NCCL does not block and torch believes that it does",
        ("the variable overrides what torch asked for", source(f"{SRC}/init.cc (read, not run)")),
        "unset NCCL_COMM_BLOCKING; torch's own switch is TORCH_NCCL_USE_COMM_NONBLOCKING=1",
    ),
    Pair(
        ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_TUNER_PLUGIN", "FI_PROVIDER"),
        tuner_off,
        "warning",
        "the tuner of the AWS plugin switches itself off where an algorithm or a protocol is chosen",
        (source("aws/aws-ofi-nccl src/tuner/nccl_ofi_tuner.cpp"),),
        "unset NCCL_ALGO and NCCL_PROTO on AWS",
    ),
    Pair(
        ("NCCL_ALGO", "NCCL_NVLS_ENABLE"),
        lambda env: any(word.startswith("nvls") for word in algorithms(env)) and env.off("NCCL_NVLS_ENABLE"),
        "warning",
        "the algorithm that is asked for is switched off",
        (source(f"{GUIDE}, NCCL_NVLS_ENABLE: 0 disables the use of NVLink SHARP"),),
        "unset NCCL_NVLS_ENABLE, or name another algorithm",
    ),
    Pair(
        ("NCCL_ALGO", "NCCL_COLLNET_ENABLE"),
        lambda env: any(word.startswith("collnet") for word in algorithms(env)) and env.off("NCCL_COLLNET_ENABLE"),
        "warning",
        "the algorithm that is asked for is switched off",
        (source(f"{GUIDE}, NCCL_COLLNET_ENABLE"),),
        "write NCCL_COLLNET_ENABLE=1, or name another algorithm",
    ),
    Pair(
        ("NCCL_OOB_NET_IFNAME", "NCCL_OOB_NET_ENABLE"),
        lambda env: (
            env.has("NCCL_OOB_NET_IFNAME") and (not env.has("NCCL_OOB_NET_ENABLE") or env.off("NCCL_OOB_NET_ENABLE"))
        ),
        "warning",
        "that interface is not looked at without NCCL_OOB_NET_ENABLE=1",
        (source(f"{SRC}/bootstrap.cc"),),
        "add NCCL_OOB_NET_ENABLE=1, or use NCCL_SOCKET_IFNAME",
    ),
)
