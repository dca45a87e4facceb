"""What NCCL itself says of its errors, whole: its `Last error`, the name of a CUDA error, the peer that it lost."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.diagnosis.crash.known.gpu import NCCL, NCCL_VERSION
from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.model.logs import Known, LogFacts, Raised, Sighting

# They tell of what several processes do to each other: the rank that says so is not the one at fault.
BLAMELESS = {"nccl-rank-twice", "nccl-interface", "nccl-version-mismatch"}

LAST_ERROR = re.compile(r"Last error:[ \t]*\n?[ \t]*(?P<said>\S[^\n]*)")
_WARNING = re.compile(r"NCCL WARN (?P<said>.+)")
_BOILERPLATE = re.compile(r"\bnccl\w+Error: (?:System call|Call to CUDA|Internal check|Invalid usage|Unhandled)")
_CUDA = re.compile(r"Cuda failure (?P<number>\d+)\b(?! ?')")
_COMPLETION = re.compile(r"(?P<said>with (?:status|error)[ =](?P<status>\d+))")

# cudaError_t (cuda_runtime_api.h): what cudaGetErrorString says of each, for an NCCL that prints the number alone.
CUDA_ERRORS = {
    1: "invalid argument", 2: "out of memory", 3: "initialization error", 4: "driver shutting down",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    46: "all CUDA-capable devices are busy or unavailable", 98: "invalid device function",
    100: "no CUDA-capable device is detected", 101: "invalid device ordinal", 201: "invalid device context",
    209: "no kernel image is available for execution on the device", 214: "uncorrectable ECC error encountered",
    217: "peer access is not supported between these two devices",
    304: "OS call failed or operation not supported on this OS", 400: "invalid resource handle",
    600: "device not ready", 700: "an illegal memory access was encountered",
    701: "too many resources requested for launch", 702: "the launch timed out and was terminated",
    704: "peer access is already enabled", 705: "peer access has not been enabled",
    710: "device-side assert triggered", 711: "peer mapping resources exhausted", 714: "hardware stack error",
    715: "an illegal instruction was encountered", 716: "misaligned address",
    717: "operation not supported on global/shared address space", 718: "invalid program counter",
    719: "unspecified launch failure", 800: "operation not permitted", 801: "operation not supported",
    802: "system not yet initialized", 803: "system has unsupported display driver / cuda driver combination",
    900: "operation not permitted when stream is capturing", 999: "unknown error",
}  # fmt: skip

# ibv_wc_status (infiniband/verbs.h).
COMPLETIONS = {
    1: "local length error", 2: "local QP operation error", 4: "local protection error",
    5: "the work was flushed after an earlier error", 9: "remote invalid request", 10: "remote access error",
    11: "remote operation error", 12: "transport retries used up: the peer or the way to it does not answer",
    13: "receiver-not-ready retries used up",
}  # fmt: skip


def of_exception(one: Raised) -> str:
    """What NCCL says of an exception that it caused, whole; empty where it caused none, or says nothing."""
    for text in (one.message, *one.chain):
        if match := LAST_ERROR.search(text):
            return explained(match["said"])
    how = NCCL.search(one.message) if "NCCL" in one.message else None
    version = NCCL_VERSION.search(one.message)
    return how[1] + (f" (NCCL {version[1]})" if version else "") if how else ""


def is_vague(one: Raised) -> bool:
    """Whether an exception says that NCCL failed, in words that it has for any failure, and no more."""
    return not has_last_error(one) and bool(of_exception(one) or _BOILERPLATE.search(f"{one.type}: {one.message}"))


def has_last_error(one: Raised) -> bool:
    """Whether an exception says why NCCL failed."""
    return any(LAST_ERROR.search(text) for text in (one.message, *one.chain))


def of_line(said: Sighting) -> str:
    """What a line of NCCL says, without what stands before it; empty where it is of another program."""
    if not said.known.name.startswith("nccl-"):
        return ""
    match = _WARNING.search(said.at.text) or LAST_ERROR.search(said.at.text)
    return explained(match["said"]) if match else ""


def headline(known: Known | None, reason: str) -> str:
    """What a rank did, in the words of NCCL; of what several processes do to each other, what that is."""
    if known is not None and known.name in BLAMELESS:
        return f"{known.means}: {reason}" if reason else known.means
    return f"got an error of NCCL: {reason}" if reason else ""


def with_reasons(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Errors of NCCL whose reason stands apart from them, because tracebacks were mixed or NCCL has warned: where all
    lines of a file that tell of one tell the same, it is theirs."""
    found = list(candidates)
    for at, one in enumerate(found):
        if one.code != "SL426" or not one.vague:
            continue
        near = [s for s in facts.sightings if s.at.file == one.at.file and _is_reason(s)]
        near = near or [s for s in facts.sightings if s.at.file == one.at.file and s.known.name == "nccl-warn"]
        if len({s.known.name for s in near}) == 1:
            known = near[0].known
            what = headline(known, of_line(near[0]) or explained(near[0].at.text))
            found[at] = replace(
                one,
                code=known.code or one.code,
                what=what,
                remedy=known.remedy or one.remedy,
                blameless=known.name in BLAMELESS,
                vague=False,
                more=(quote(near[0].at), *one.more),
            )
    return found


def _is_reason(said: Sighting) -> bool:
    known = said.known
    return known.name.startswith("nccl-") and known.role == "cause" and known.name != "nccl-error"


def explained(said: str) -> str:
    """The words of NCCL, with the meaning of a number that stands alone in them."""
    said = " ".join(said.split())
    cuda, completion = _CUDA.search(said), _COMPLETION.search(said)
    if cuda and (name := CUDA_ERRORS.get(int(cuda["number"]))):
        said = f"{said[: cuda.end()]} '{name}'{said[cuda.end() :]}"
    if completion and (meaning := COMPLETIONS.get(int(completion["status"]))):
        said = f"{said[: completion.end()]} ({meaning}){said[completion.end() :]}"
    return said


def of_lost_peer(facts: LogFacts) -> str:
    """What NCCL says of a peer that was lost, by the first that says it; empty where none does."""
    raised = [one for one in facts.raised if one.known is not None and one.known.role == "consequence"]
    said = [text for one in raised if LAST_ERROR.search(one.message) and (text := of_exception(one))]
    lines = [s for s in facts.sightings if s.known.role == "consequence"]
    return next(iter([*said, *(text for s in lines if (text := of_line(s)))]), "")
