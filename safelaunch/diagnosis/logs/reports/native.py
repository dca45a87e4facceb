"""Stacks of native code, whose message is not in the log: the innermost frames that tell what the process did.

Frames of C++ are written innermost first, other than those of Python.
"""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, missing, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts, Noted

MOST, LONG = 3, 70  # functions that are told, and characters of one

# `frame #7: c10d::PrefixStore::get(...) + 0x30 (0x7f.. in /x/libtorch_cpu.so)`, gdb's, glog's, and those in the form
# of Python's.
_FRAME = re.compile(
    r"^\s*(?:frame \\?#\d{1,3}:|#\d{1,3}:?(?: +0x[0-9a-f]+)?(?: in)?|@ +0x[0-9a-f]+(?: +\(?\w+\)?(?= \S))?)\s*"
    r"(?P<what>.+)"
    r"|^\s*File \"[^\"]+\", line \d+, in (?P<python>\S.*)"
)
_LIBRARY = re.compile(r"(?:\bin |from |\()(?P<path>/?[^\s()]*?)(?P<name>[\w.+-]+\.so)[\w.]*")
_NAME = re.compile(r"(?P<name>(?:[\w~]+(?:<[^()]{0,80}>)?::)*[\w~]+)\s*(?:\(|\[|\+|$| \+)")
# Functions that every stack has: of the exception itself, of Python's evaluation, of threads and of the C library.
_OF_ALL = re.compile(
    r"<unknown|^\?\?|c10::(?:Error|detail::torchCheckFail|ThrowEnforce)|\b_?Py(?:Eval|Object|Vectorcall|CFunction|Run|Func)"
    r"|_PyObject|_PyEval|_PyFunction|PyVectorcall|__libc_start|\bclone\b|start_thread|execute_native_thread|\braise\b"
    r"|\babort\b|__pthread|std::terminate|__cxa_|_start\b|\bmain\b|torchInternalAssert|gsignal|libstdc\+\+|libpthread"
    r"|torch::CPUAllocator|void pybind11|pybind11::cpp_function|\bnone\b|^0x[0-9a-f]+$|_start_thread|killpg"
)
# What a process does in such a function.
_MEANS = (
    (r"broadcastUniqueNCCLID", "it waited at the store for NCCL's id, which another rank of the group was to write"),
    (r"ncclCommInitRank|initNCCLComm|ncclCommInit|ncclCudaLibraryInit", "it set up NCCL's communicator"),
    (r"(?:ncclCommWatchdog|Watchdog|workCleanupLoop|heartbeatMonitor|checkAndThrow)", "it was NCCL's watchdog"),
    (r"(?:TCPStore|PrefixStore|FileStore|HashStore|TCPClient)", "it waited at, or talked to, the store"),
    (r"gloo::|ProcessGroupGloo", "it was in a collective of Gloo"),
    (r"(?:ProcessGroupNCCL|nccl[A-Z]\w+)", "it was in a call of NCCL"),
    (r"(?:ProcessGroupHCCL|Hccl[A-Z]\w+)", "it was in a call of HCCL"),
    (r"Reducer|reducer", "DDP exchanged gradients"),
    (r"CUDACachingAllocator|CachingAllocator|cudaMalloc", "it asked for memory of its GPU"),
    (r"at::native::|cublas|cudnn|at::cuda|cuda[A-Z]\w+|hip[A-Z]\w+|cu[A-Z]\w+", "it ran an operator on its device"),
    (r"torch::autograd|autograd::", "it ran a backward pass"),
)


def frames(facts: LogFacts) -> list[Noted]:
    """The frames of native code in a log."""
    return [one for one in facts.noted if one.kind == "native"]


def functions(facts: LogFacts) -> list[str]:
    """The functions of a native stack that tell something, innermost first."""
    found: list[str] = []
    for one in frames(facts):
        match = _FRAME.match(one.at.text)
        what = (match["what"] or match["python"]) if match else ""
        if not what or _OF_ALL.search(what):
            continue
        name = _NAME.search(re.sub(r"^0x[0-9a-f]+ (?:in )?", "", what))
        if name and len(name["name"]) > 2:
            found.append(name["name"][:LONG])
    return list(dict.fromkeys(found))


def meaning(facts: LogFacts) -> str:
    """What the process did, by the most telling function of its native stack; empty where none tells."""
    calls = " ".join([*functions(facts), *(one.said for one in frames(facts) if "raised from" in one.at.text)])
    return next((means for pattern, means in _MEANS if re.search(pattern, calls)), "")


def told(facts: LogFacts) -> str:
    """`c10d::PrefixStore::get, called from c10d::ProcessGroupNCCL::broadcastUniqueNCCLID: it waited ...`; empty where
    the log has no native stack that tells anything."""
    calls = functions(facts)
    raised = next((one.said for one in frames(facts) if "Exception raised from" in one.at.text), "")
    calls = [raised, *(call for call in calls if call != raised)] if raised else calls
    if not calls:
        return ""
    lead = _leading(calls)
    means = meaning(facts)
    path = ", called from ".join(lead[:2]) + (f", {lead[2]}" if lead[2:] else "")
    return path + (f" ({means})" if means else "")


def _leading(calls: list[str]) -> list[str]:
    """The innermost function, and the most telling ones that called it."""
    telling = [call for call in calls[1:] if any(re.search(pattern, call) for pattern, _ in _MEANS[:7])]
    rest = [call for call in (*telling, *calls[1:]) if call != calls[0]]
    return [calls[0], *dict.fromkeys(rest)][:MOST]


def lines(facts: LogFacts) -> tuple[str, ...]:
    """The frames that are quoted: the innermost that tells, and the most telling one."""
    calls = functions(facts)
    shown = [one for call in _leading(calls)[:2] for one in frames(facts) if call in one.at.text] if calls else []
    shown = shown or frames(facts)[:1]
    return tuple(dict.fromkeys(quote(one.at) for one in shown))[:2]


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict where a native stack is all that speaks of a failure."""
    facts = timeline.facts
    found = frames(facts)
    if len(found) < 2 or facts.finished:
        return None
    said = told(facts)
    who = f"rank {found[0].rank}" if found[0].rank is not None else found[0].process or "a process"
    what = f"was in {said}" if said else "failed in native code, of which the log names no function"
    return verdict(
        "SL499",
        f"cannot tell why {who} failed: a native stack is there without its message; it {what}",
        because=(*lines(facts), *missing(facts)[:1]),
        remedy="give the lines before this stack: its message stands above the first frame",
        secondary=[found[0].rank] if found[0].rank is not None else (),
    )
