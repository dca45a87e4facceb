"""Lines that tell something beside failures: whose rank it is, a reason, a way out, native frames, monitors' reports.

They are looked for in the first and in the last 64 KiB of a file: what somebody shows is there. What they amount to is
concluded elsewhere.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from safelaunch.evidence.logs import prefixes
from safelaunch.evidence.logs.prefixes import Habits, Stripped
from safelaunch.evidence.logs.sieve import SEGMENT, Sieve
from safelaunch.model.logs import LogLine, Noted, NotedKind
from safelaunch.shortened import shortened

Writer = TypeVar("Writer")

MOST, WIDTH = 200, 1000  # of one kind in one file; characters of a line
CONTEXT = 20  # lines before one, in which a secret may be announced

# The rank that a line names as its own, or as that of whoever works there. Numbers of other things stand beside the
# same words: LoRA's rank, the rank of a tensor, ranks in plural.
_RANKS = re.compile(
    r"\b[Mm]y rank(?: is)?[:= ]{1,3}(?P<mine>\d{1,6})\b"
    r"|\[[Rr](?:ank|ANK)[: =]{0,2}(?P<bracket>\d{1,6})\]"
    r"|\bRankID:(?P<id>\d{1,6})\b|\brank_id[:= \"]{1,4}(?P<id2>\d{1,6})\b|\brankId\[(?P<id3>\d{1,6})\b"
    r"|\b(?:did not receive grad|unused parameters?) for rank (?P<grad>\d{1,6})\b"
    r"|\((?:RANK|rank|global rank) (?P<paren>\d{1,6})\)"
    r"|\b(?:global_rank|GLOBAL_RANK|RANK|node_global_rank)[:=] ?['\"]?(?P<key>\d{1,6})\b"
    r"|(?:^|[^\w])(?:[Oo]n|[Ii]n|[Ff]or|[Ff]rom|at) (?:global )?rank[: ]{1,2}(?P<on>\d{1,6})\b(?! of)"
    r"|\bxla:(?P<xla>\d{1,6})\b|\bdevice=TPU:(?P<tpu>\d{1,6})\b"
    r"|^\W{0,3}[Rr]ank[ :=#]{1,2}(?P<begins>\d{1,6})\b(?! (?:--|has|have|GPU|of))"
    r"|(?:zero|dp|pp|tp|ep|mp|model|mp_)_?(?:pp_)?rank_(?P<path>\d{1,6})(?!\d)|[/_.]rank[_-]?(?P<path2>\d{1,6})(?=[/_.])"
)
_NOT_RANKS = re.compile(r"\b(?:lora|LoRA|alpha|tensor of rank|matrix rank|low.rank|ranks? 0-\d)\b|\branks\b")

_REASON = re.compile(
    r"(?P<reason>\b[Rr]eason(?:\(s\))?: ?(?!None\b)\S.*)|(?P<symbol>\S*undefined symbol:? \S+.*)"
    r"|(?P<shared>\S*: cannot open shared object file.*)|(?P<version>version [`']\w+_[\d.]+['`]? not found.*)"
    r"|(?P<code>^E[A-Z0-9]\d{4}: ?\[?[\d:. -]*\]? ?\S.*)|(?P<root>\b[Rr]oot cause: ?\S.*|\bCaused by: ?\S.*)"
)
# What a call gave back, as a library says it in a line that has the level of an error.
_RETURNED = re.compile(
    r"^[^\n]{0,80}?\b(?:\w+_)?(?:ERROR|FATAL)\b[|\]:)\s-]{0,4}(?:\S{1,80}\.\w{1,4}:\d{1,6}:? )?(?:\w{1,60}: )?"
    r"(?P<call>(?=[^\n]{0,300}?\b(?:returns?|returned|errno|error code|status|rc|ret)[ :=]{1,3}-?\d{1,5}\b)"
    r"[^\n]{1,400})"
)
_ERRNO = re.compile(
    r"\b(?:pthread_\w+|posix_\w+|sem_\w+|shm_open|mmap|bind|connect|socket|ioctl|open|fork)\b(?:\(\))? ?"
    r"(?:returns?|returned|failed with(?: error)?|error)[ :=]{1,3}-?(?P<number>\d{1,3})\b"
    r"|\berrno[ :=]{1,3}(?P<said>\d{1,3})\b"
)
_SOLUTION = re.compile(r"\b(?:Solution|Possible [Ss]olution|[Ss]uggestion|[Ff]ix|[Hh]int|HINT): ?(?P<way>\S.*)")
_NATIVE = re.compile(
    r"^\s*frame \\?#(?P<torch>\d{1,3}): (?P<what>.+)"
    r"|^\s*#(?P<gdb>\d{1,3}):? +(?:0x[0-9a-f]+ )?(?:in )?(?P<fn>[^\s(][^\n]{2,})"
    r"|^\s*@ +0x[0-9a-f]+ +(?:\(?[\w?]+\)? +)?(?P<glog>[\w:~<][^\n]*)"
    r"|^\s*File \"(?P<file><unknown>|[^\"]+\.(?:cc|cpp|cu|cxx|h|hpp|c))\", line \d+, in (?P<native>\S.*)"
    r"|^(?:Exception raised from (?P<raised>\w+) at (?P<where>\S+?:\d+))"
)
_NO_NATIVE = re.compile(r"^\s*#\d{1,3}:? +(?:\[|\d|DONE|CACHED|sha256|exporting|transferring)")
_XID = re.compile(r"NVRM: Xid |NVRM: .*fallen off the bus|\bnvidia-nvswitch\d*: SXid|\bSXid \(")
_RAS = re.compile(
    r"^\s*Communicator ranks have different|^\s*\d+ ranks? ha(?:s|ve) (?:launched|not launched)"
    r"|^\s*Rank \d+ (?:-- |has (?:launched|not launched|status))|^#\d+-\d+ \([0-9a-f]+\) [A-Z]+"
    r"|^\s*(?:The )?[Mm]issing ranks?: |^\s*Process \d+ on node \S+ managing|considered dead|^\s*\d+ ranks? reported "
    r"|^\s*Rank\(?s?\)? .*status|^\s*Missing communicator data|^\s*\d+ job process(?:es)? (?:is|are|has|have) "
)
_RECORDER = re.compile(
    r"^\s*Collective (?:sequence number: )?\d+ at entry \d+|^\s*Not all ranks joining collective"
    r"|^\s*(?:group info|collective|missing ranks|input sizes|output sizes|world size|expected ranks|found ranks"
    r"|collective state|error msg|error type|logged_?msg): ?\S|Error type: [A-Z_]+MISMATCH|\bCulprit rank \d+"
    r"|^\s*(?:No errors found|Too many errors|all ranks joined)"
)
_HCCL = re.compile(
    r"HeartbeatAbnormal|Task run failed, |event wait timeout|\btask_type=\d+ ?\("
    r"|notify (?:wait )?time ?out|groupRank information|opData information"
    r"|\[InitChannelStage\]|\[RankInconsistent\]|\[RanktableDetect\]|\[ClusterException|Cluster Exception Location"
    r"|\bEI\d{4}\b|\bEJ\d{4}\b|\[LinkInfo\]|get socket timeout|HcclExecutor|HCCL_(?:CONNECT|EXEC)_TIMEOUT"
)
_STACK = re.compile(
    r"^[^\n]{0,60}?(?:Process \d{1,9}: \S|Pyspy dump for PID \d|PID \d{1,9}\b)|Thread (?:0x)?\w{1,20} \((?:active|idle)"
)
_STATE = re.compile(
    r"\bis ready\b|Application startup complete|^\W{0,4}PASSED\b|\bis stopped\b|\b[Ss]hutdown\]|Shutting down"
    r"|waiting for worker exit|Finished server process|Application shutdown complete|\bshutdown (?:complete|initiated)"
    r"|Uvicorn running|[Ss]erver (?:is )?(?:started|ready)|fired up and ready"
)
_KINDS: tuple[tuple[NotedKind, re.Pattern[str]], ...] = (
    ("native", _NATIVE),
    ("xid", _XID),
    ("ras", _RAS),
    ("recorder", _RECORDER),
    ("hccl", _HCCL),
    ("solution", _SOLUTION),
    ("reason", _REASON),
    ("returned", _RETURNED),
    ("stack", _STACK),
    ("state", _STATE),
    ("rank", _RANKS),
)


def lines_of(sieve: Sieve) -> Iterator[tuple[int, str]]:
    """The lines at the beginning and at the end of a file, each once."""
    last = 0
    for first, data, cut in ((1, sieve.sample, False), (sieve.tail_line, sieve.tail, sieve.tail_cut)):
        for number, part in enumerate(data.split(b"\n"), first):
            if number <= last or (number == first and cut):
                continue
            last = number
            yield number, part.rpartition(b"\r")[2][:SEGMENT].decode("utf-8", "replace")


def kinds_of(text: str) -> Iterator[tuple[NotedKind, str]]:
    """What a line tells beside a failure: each kind, and the part of the line that tells it.

    Args:
        text: the line without what stands before its message.
    """
    for kind, pattern in _KINDS:
        match = pattern.search(text)
        if match is None or (kind == "native" and _NO_NATIVE.match(text)):
            continue
        if kind == "rank":
            if not _NOT_RANKS.search(text):
                yield kind, next(value for value in match.groups() if value is not None)
        else:
            said = next((value for value in match.groups() if value is not None), match[0]).strip()
            yield kind, _decoded(said) if kind == "returned" else said


def _decoded(text: str) -> str:
    """A text, with the name and the words of the errno in it."""
    match = _ERRNO.search(text)
    number = int(match["number"] or match["said"]) if match else 0
    if match is None or number not in errno.errorcode:
        return text
    return f"{text[: match.end()]} ({errno.errorcode[number]}: {os.strerror(number)}){text[match.end() :]}"


_ASKED_TO_END = re.compile(
    r"\^C|\bSIG(?:INT|TERM|QUIT)\b|KeyboardInterrupt|CANCELLED|\b[Ii]nterrupted\b|[Cc]aught signal (?:2|15)\b"
)
LONG_S = 120.0  # without a line; ordinary pauses between steps are shorter


class Clock:
    """The times of lines: how long nothing was written before somebody ended the job; whether they run backwards."""

    def __init__(self) -> None:
        self._last: tuple[str, float] | None = None
        self._told = False
        self._back = self._on = 0

    def silence(self, text: str, t: float | None, clock: str) -> Iterator[tuple[NotedKind, str]]:
        """The seconds without a line before one that tells of an end from outside, once."""
        if t is None:
            return
        former, self._last = self._last, (clock, t)
        if former is None or former[0] != clock:
            return
        self._back += t < former[1] - 0.5
        self._on += t > former[1] + 0.5
        if not self._told and t - former[1] >= LONG_S and _ASKED_TO_END.search(text):
            self._told = True
            yield "silence", f"{t - former[1]:.0f}"

    @property
    def backwards(self) -> bool:
        """Whether the newest line comes first."""
        return self._back > 0 and self._on == 0


def of(path: str, sieve: Sieve, habits: Habits, writer: Callable[[Stripped], Writer]) -> Iterator[tuple[Writer, Noted]]:
    """What the lines of a file tell beside failures, each with whoever wrote it.

    Args:
        path: of the file.
        sieve: that has read it.
        habits: how its lines begin.
        writer: tells whose a line is; a ValueError says that it is torn.
    """
    from safelaunch import redaction

    used, clock, lines, last = Counter[NotedKind](), Clock(), list[str](), LogLine(path, 1, "")
    for number, whole in lines_of(sieve):
        lines.append(whole)
        if not whole.strip():
            continue
        try:
            line = prefixes.strip(whole[2:] if whole.startswith("^C[") else whole, habits)
            own = writer(line)
        except (ValueError, RecursionError):
            continue
        last = LogLine(path, number, shortened(line.text.strip(), WIDTH), line.t, line.clock)
        for kind, said in (*kinds_of(line.text), *clock.silence(line.text, line.t, line.clock)):
            used[kind] += 1
            if used[kind] <= MOST:
                text, said = redaction.lines([*lines[-CONTEXT:-1], line.text, said])[-2:]
                at = LogLine(path, number, shortened(text.strip(), WIDTH), line.t, line.clock)
                yield own, Noted(at, kind, shortened(said, WIDTH))
    if clock.backwards:
        yield own, Noted(last, "backwards", "")
