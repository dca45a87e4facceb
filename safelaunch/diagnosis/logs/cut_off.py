"""Tracebacks whose end is not in the logs: whose they are, and how far they lead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis.logs.exceptions import REPEATED
from safelaunch.diagnosis.logs.timeline import Timeline, quote
from safelaunch.diagnosis.wording import one_line, short
from safelaunch.model.logs import Raised, Sighting

NEAR = 60  # lines between what was said and a traceback
ANNOUNCEMENTS = ("launcher-failed", "trouble", "messenger", "worker-died")
_RAISES = re.compile(r"^raise (?P<name>(?:[a-z_]\w*\.){0,4}[A-Z]\w*)\b")
# Calls in which an error of something else shows: of another rank, or of a kernel that was started before.
_WAITS = re.compile(
    r"synchronize|\bwait\(|\bbarrier\b|all_?reduce|all_?gather|broadcast|reduce_scatter|all_to_all|\brecv\b|\bsend\b"
    r"|\.item\(|\.cpu\(|\.tolist\(|\.get\("
)
_FRAME = re.compile(r"^\s*File \"")
_WHOLE_FRAME = re.compile(r"^\s*File \"[^\"]+\", line \d+, in \S")
_NATIVE_FILE = re.compile(r"<unknown>|\.(?:cc|cpp|cu|cxx|hpp|h|c)$")
_NO_CODE = re.compile(r"^\s*(?:[\^~|+ ]*|\[.*|File \".*|Traceback .*|\.\.\.|.*Traceback \(most recent call last\):.*)$")


def innermost(cut: Sequence[Raised]) -> Raised | None:
    """The traceback that leads furthest; of those that lead nowhere, the first."""
    return max(cut, default=None, key=lambda one: (bool(one.type), len(one.frames)))


def announced(timeline: Timeline, lead: Raised) -> Sighting | None:
    """What was said shortly before a traceback that is cut off, by its own rank or by one that is not known: a warning
    of NCCL or of a process group, or an error of a library."""
    if lead.type:
        return None
    echoes = {(one.at.file, one.at.line) for one in timeline.facts.complaints if one.echo}
    near = (s for s in timeline.alarms if (s.at.file, s.at.line) not in echoes and _announces(s, lead))
    return max(near, default=None, key=lambda s: s.at.line)


def _announces(said: Sighting, lead: Raised) -> bool:
    if said.at.file != lead.at.file or not 0 < lead.at.line - said.at.line <= NEAR or said.inside:
        return False
    if said.known.name in ANNOUNCEMENTS or (None not in (said.rank, lead.rank) and said.rank != lead.rank):
        return False
    return not _FRAME.match(said.at.text) and "Traceback" not in said.at.text and "NCCL INFO" not in said.at.text


def told(one: Raised) -> tuple[str, tuple[str, ...]]:
    """What a traceback without its end tells, as a headline, and the lines that show it."""
    who = _who(one)
    if one.type:
        return f"{who} raised {one_line(f'{one.type}: {one.message}', 150)}, and the rest is cut off", (quote(one.at),)
    if not one.frames:
        return f"a traceback{'' if who == 'a process' else f' of {who}'} is cut off, and the logs do not say more", (
            f"a traceback is cut off: {quote(one.at)}",
        )
    if is_native(one):
        return _of_native(one, who), (quote(one.at),)
    last = one.frames[-1]
    place = f"{last.function} ({short(last)})"
    code = _code(one)
    begins = f"a traceback is cut off: {quote(one.at)}"
    innermost_call = (
        f"its innermost line that is there: {short(last)} in {last.function}: {one_line(code, 120)}".rstrip(": ")
    )
    raises = _RAISES.search(code)
    if raises:
        return f"{who} raised {raises['name']} in {place}, and its message is cut off", (innermost_call, begins)
    at = f"at `{one_line(code, 80)}` in {place}" if code else f"in {place}"
    more = ("an error that shows there may be of another rank, or of a kernel started before",)
    return f"a traceback of {who} is cut off {at}, and the logs do not say more", (
        innermost_call,
        *(more if _WAITS.search(code + last.function) else ()),
        begins,
    )


def _of_native(one: Raised, who: str) -> str:
    known = [frame for frame in one.frames if "unknown" not in frame.file] or list(one.frames)
    called = next((frame.function for frame in known[1:] if frame.function != known[0].function), "")
    more = f", called from {called}" if called else ""
    what = f"innermost is {known[0].function} ({short(known[0])}){more}"
    return f"a native stack of {who} is there without its message: {what}"


def of_several(cut: Sequence[Raised], lead: Raised) -> tuple[str, tuple[str, ...]]:
    """The same of all tracebacks: where those of several processes are cut off, none of them leads, but for one that
    shows what it raised."""
    summary, lines = told(lead)
    several = list(dict.fromkeys(_who(one) for one in cut))
    if len(several) < 2 or lead.type or _RAISES.search(_code(lead)):
        more = ", ".join(who for who in several if who != _who(lead))
        return summary, (*lines, *((f"cut off are tracebacks of {more} as well",) if more else ()))
    whose = ", ".join(several[:6]) + (", ..." if several[6:] else "")
    far = f"the one that leads furthest is of {_who(lead)}"
    return f"tracebacks of {len(several)} processes are cut off, and the logs do not say more: {whose}", (*lines, far)


_PASSES_ON = re.compile(
    r"_format_exception\(|EngineDeadError|get_output_async|ray\.get\(|wait_for_ready|launch_agent|elastic_launch|run\(args\)"
    r"|run_rpc|collective_rpc|_wait_for_\w+|join\(|\.result\(|wait_for_engine_startup|_call_store"
)


def where_to_look(lead: Raised) -> str:
    """What would tell more: the end of the traceback, or where it is of one that only passes on a failure, what stands
    before it."""
    if lead.launcher:
        return (
            "give the output of the ranks before this traceback: it is the launcher's, which only passes on a failure"
        )
    if _PASSES_ON.search(lead.traceback):
        return "give what stands before this traceback: its process passes on, or waited for, what another one met"
    if is_native(lead):
        return "give the lines above the first of these frames: a native stack has its message there"
    return "give the whole log: the last line of the traceback says what failed"


def is_native(one: Raised) -> bool:
    """Whether the frames are of native code, which are written innermost first."""
    native = [frame for frame in one.frames if _NATIVE_FILE.search(frame.file)]
    return 2 * len(native) > len(one.frames)


def _who(one: Raised) -> str:
    if one.launcher:
        return "the launcher"
    if one.rank is not None:
        return f"rank {one.rank}"
    return one.process or (f"local rank {one.local}" if one.local is not None else "a process")


def _code(one: Raised) -> str:
    """The last line of source that a traceback shows."""
    code = ""
    within = False
    for line in one.traceback.splitlines():
        if _WHOLE_FRAME.match(line):
            code, within = "", True  # what stood below an earlier frame is not of this one
        elif within and not _NO_CODE.match(line):
            code, within = REPEATED.sub("", line).strip(), False
    return code
