"""Messages of torch.distributed, launchers, schedulers and the kernel whose parts matter, read line by line."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from safelaunch.evidence.logs import parents, prefixes
from safelaunch.model import Location
from safelaunch.model.logs import DIGITS, Brought, Desync, Ended, Event, LogLine, Progress, TimedOut
from safelaunch.model.ranks import MOST_RANKS

NEEDLES = (
    "before timing out", "timed out in blocking wait", "Stack trace of the failed", "Watchdog caught", "NCCL work:",
    " work:", "lagging", "but didn't join collective", "finish collective", "Detected mismatch between collectives",
    "exitcode", "first observed failure", "Failures:", "ChildFailedError", "closing signal",
    "Unable to shutdown process", "srun: error:", "Killed process", "Kill process", "segfault at", "traps: ",
    "with PID ", "failed collective", "attempts left", "world_size", "WORLD_SIZE", "nranks", "MEMBER:",
    "distributed processes registered", "return code", "died with <Signals", "exits with", "non-zero exit status",
    "Exit Code:", "crashed with exit code", "terminated with code", "(local_rank: ", "received by PID ",
    "worker group finished", "status.SUCCEEDED", "terminated with signal", "terminated with exit code",
)  # fmt: skip

_WATCHDOG = re.compile(
    r"\[(?:PG (?:ID|GUID) [^\]]{0,200} )?Rank (?P<member>\d+)\] Watchdog caught collective operation timeout: "
    r"Work\w+\((?P<work>.{0,1000}?)\) ran for (?P<ms>\d+)"
)
# The same, where the log, or a line of it, ends within. A name or a number counts where something stands behind it:
# `OpType=ALL` may be the beginning of ALLREDUCE.
_WATCHDOG_CUT = re.compile(
    r"\[(?:PG (?:ID|GUID) [^\]]{0,200} )?Rank (?P<member>\d+)\] Watchdog caught collective operation timeout: "
    r"Work\w+\((?P<work>SeqNum=\d{1,18}, OpType=\w{1,40}(?=,)(?:, Numel(?:In|Out)=\d{1,20}(?=[,)])){0,2})"
    r"(?:, ?[\w()]{0,12}=?\d{0,20})?\)?[ a-z]{0,8}\s{0,4}$"
)
_LIMIT = re.compile(r"Timeout\(ms\)=(\d{1,15})")
_RAN = re.compile(r"\) ran for (\d{1,15})")
# What is left where two processes wrote at once: the part of a sentence that names the work.
_INTACT = re.compile(r"Work\w+\((?P<work>SeqNum=\d+, OpType=\w+(?=[,)])[^()]{0,300}?(?:NumelIn=\d+(?=[,)]))?)")
_GAVE_UP = re.compile(r"Watchdog caught|before timing out|timed out in blocking wait")
_BLOCKING = re.compile(r"Rank (?P<member>\d+)\] Work Work\w+\((?P<work>.{0,1000}?)\) timed out in blocking wait")
_MARK_WITHIN = re.compile(r"\[rank\d+\]:")
_WORK = re.compile(r"(SeqNum|OpType|NumelIn|NumelOut)=(\w+)")
_GROUP = re.compile(
    r"\[PG (?:GUID (?P<only>[^\s(\]]{1,100})|(?:ID )?(?P<id>[^\s\]]{1,100}?)(?: PG GUID (?P<guid>[^\s(\]]{1,100}))?)"
    r" ?(?:\((?P<name>[^)]{0,100})\))? Rank (?P<member>\d+)\]"
)
_STATUS = re.compile(
    r"(?:at (?:NCCL )?work(?: sequence id)?: (?P<work>-?\d+).{0,300}?)?"
    r"[Ll]ast enqueued (?:\w+ )?work: (?P<enqueued>-?\d+)"
    r"(?:, last started (?:\w+ )?work: -?\d+(?: \([^)]*\))?)?, last completed (?:\w+ )?work: (?P<completed>-?\d+)"
)
_STATUS_CUT = re.compile(
    r"at (?:NCCL )?work(?: sequence id)?: -?\d{1,18}(?:, |. ?PG status: )?"
    r"(?:[Ll]ast(?: [a-z]+){0,2}(?: NCCL)?(?: work)?"
    r"(?:: -?\d{1,18})?,? ?){0,3}$"
)
_STACK_LINE = re.compile(r"^#\d+ (\S+) from (.+):(\d+)$")
_LATE = re.compile(r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<seq>\d+), but didn't join")
_INSIDE = re.compile(r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)")
_NEVER = re.compile(r"ranks \[(?P<ranks>[\d, ]+)\] are the lagging ranks")
_MISMATCH = re.compile(r"Detected mismatch between collectives on ranks\.")
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running (?:inconsistent )?collective: ?CollectiveFingerPrint\((.*?)"
    r"(?=, ?but Rank|\.?Collectives differ|$)"
)
_CHILD = re.compile(r"^\s*(?:\[\d+\]:|(?P<key>time|host|rank|exitcode|error_file|traceback)\s*:\s(?P<value>.*))\s*$")
_NOTICED_HALF = re.compile(r"failed \(exitcode: -?\d+\)(?: local_rank:?)?(?: \d+)?\s*$")
_FIRST_NOTICED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
_TOLD = re.compile(r"Sending process (?P<pid>\d+) closing signal (?P<signal>SIG\w+)")
_FORCED = re.compile(r"Unable to shutdown process (?P<pid>\d+) via .*?SIGTERM")
_SRUN = re.compile(r"srun: error: (?P<host>\S+?): tasks? (?P<tasks>[\d,\-]+): (?P<said>.+?)\s*$")
_EXIT_CODE = re.compile(r"[Ee]xited with (?:exit )?code:? (\d+)")
_KILLED = re.compile(r"(?P<memory>[Oo]ut of memory)[^:]*: Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]+)\)")
_SEGFAULT = re.compile(r"(?<![^\s\[])(?P<name>[^\s\[]{1,64})\[(?P<pid>\d+)\]: segfault at ")
_TRAP = re.compile(r"\btraps: (?P<name>[^\s\[]{1,64})\[(?P<pid>\d+)\] (?P<what>general protection|trap invalid opcode)")
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<host>\S+) exited on signal (?P<signal>\d+)"
)
_SPAWN = re.compile(
    r"\bprocess (?P<local>\d{1,5}) terminated with (?:signal (?P<signal>SIG\w{2,8})|exit code (?P<code>\d{1,3}))"
)
# DeepSpeed's launcher, and torch's until 1.8, quote the command of the process that they started last, whichever of
# them failed (launch.py: `cmd` is the variable of the loop that starts them). So the local rank in it says nothing.
_QUOTED = re.compile(
    r"'\] exits with return code = (?P<code>-?\d+)"
    r"|CalledProcessError: Command '?\[.*?(?:died with <Signals\.\w+: (?P<signal>\d+)>"
    r"|returned non-zero exit status (?P<status>\d+))"
)
_RESTART = re.compile(r"\b(?P<left>\d{1,6})/(?P<most>\d{1,6}) attempts left;? will restart worker group")
_WORLD = re.compile(
    r"(?:\bnranks |\bworld_size\W{1,3}|\bWORLD_SIZE\W{1,3}|MEMBER: \d+/|Starting with )(?P<world>\d+)(?!\d)", re.ASCII
)

# NCCL's own mark: host, pid and thread, and in brackets the number of the GPU.
NCCL_PROCESS = re.compile(r"(?<![^\s\]])(?P<host>[A-Za-z0-9][\w.-]{0,99}):(?P<pid>\d{1,9}):\d{1,9} \[\d{1,4}\] ")
_NCCL_RANK = re.compile(r"NCCL INFO .*?\brank (?P<rank>\d{1,7}) nranks (?P<world>\d{1,7})\b")

# Words of srun for the signal that ended a task.
_WORDS = {
    "Killed": signal.SIGKILL, "Segmentation fault": signal.SIGSEGV, "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS, "Terminated": signal.SIGTERM, "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE, "Out Of Memory": signal.SIGKILL,
}  # fmt: skip


_IN_A_LIBRARY = re.compile(r"-packages/|/torch/|^<|/lib/python")


@dataclass
class Messages:
    """What the messages of one file say. One line may tell several things; some go over several lines."""

    attempt: int = 0
    world: int = 0
    of_nccl: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _child: dict[str, str] | None = None
    _first: bool = False
    _stacks: set[Any] = field(default_factory=set)  # who wrote the stack of a collective that failed
    _latest: Any = None  # ... last
    _half: str = ""  # a status that the next line may continue

    def read(self, text: str, at: LogLine, host: str, key: Any) -> Iterator[Event | tuple[str, Any]]:
        """The events of a line.

        Besides them `("waiting", (key, frames))` for where a rank waited, `("told", None)` for a line that was
        understood and tells nothing by itself, and `("attend", n)` where the next lines belong to it.
        """
        common = {"at": at, "host": host, "attempt": self.attempt}
        half, self._half = self._half, ""
        if half and not text.startswith("["):
            text = f"{half.rstrip()} {text.lstrip()}"  # the line was broken where it was too wide
            common["at"] = replace(at, text=text)
        if _NOTICED_HALF.search(text):
            self._half = text
            yield "attend", 1
        yield from self._watchdog(text, common)
        yield from self._waiting(text, key)
        yield from self._desync(text, common)
        if _MISMATCH.search(text):
            yield from self._mismatch(text, common)
        yield from self._elastic(text, common)
        yield from self._others(text, common)

    def _watchdog(self, text: str, common: dict[str, Any]) -> Iterator[Event | tuple[str, Any]]:
        group = _GROUP.search(text)
        name = (group["guid"] or group["only"] or group["id"]) if group else ""
        whole = _WATCHDOG.search(text) or _WATCHDOG_CUT.search(text) or _BLOCKING.search(text)
        torn = text.count("Watchdog caught") > 1 or _MARK_WITHIN.search(text) is not None
        if whole is not None and not torn:
            yield from _timed_out(whole["work"], common, member=int(whole["member"]), group=name, text=whole.string)
        elif _GAVE_UP.search(text):
            for work in _INTACT.findall(text):
                yield from _timed_out(work, common, member=-1, group="", torn=True)
        if group and _STATUS_CUT.search(text):
            self._half = text
            yield ("attend", 1)
        if group and (match := _STATUS.search(text)):
            work = match["work"]
            yield Progress(
                **common,
                member=int(group["member"]),
                group=name,
                work=int(work) if work else None,
                own="from this local rank" in text,
                enqueued=int(match["enqueued"]),
                completed=int(match["completed"]),
            )

    def _waiting(self, text: str, key: Any) -> Iterator[tuple[str, Any]]:
        # Lines of the stack that have no prefix belong to the rank whose header stands before them.
        if self._stacks and (match := _STACK_LINE.match(text)):
            whose = key if key in self._stacks else self._latest
            if not _IN_A_LIBRARY.search(match[2]):
                yield ("waiting", (whose, (Location(match[2], int(match[3]), match[1]),)))
            yield ("told", None)
        elif "Stack trace of the failed collective:" in text:
            self._stacks.add(key)
            self._latest = key
            yield ("attend", 60)

    def _desync(self, text: str, common: dict[str, Any]) -> Iterator[Event | tuple[str, Any]]:
        if match := _LATE.search(text):
            yield Desync(**common, seq=int(match["seq"]), late=_ranks(match["ranks"]))
        if match := _INSIDE.search(text):
            yield Desync(**common, seq=int(match["seq"]), inside=_ranks(match["ranks"]))
        if match := _NEVER.search(text):
            yield Desync(**common, seq=-1, late=_ranks(match["ranks"]))

    def _mismatch(self, text: str, common: dict[str, Any]) -> Iterator[Event]:
        for rank, print_ in _FINGERPRINT.findall(text):
            op = re.search(r"OpType=(\w+)(?=\W)", print_)
            if op is None:
                continue
            shape = re.search(r"TensorShape=\[([\d, ]*)\]", print_)
            dtype = re.search(r"TensorDtypes=(\w+)", print_)
            seq = re.search(r"SequenceNumber=(\d+)", print_)
            yield Brought(
                **{**common, "rank": int(rank)},
                op=op[1],
                shape=shape[1] if shape else "",
                dtype=dtype[1] if dtype else "",
                seq=int(seq[1]) if seq else -1,
            )

    # ------------------------------------------------------------------------------------------ torch elastic

    def _elastic(self, text: str, common: dict[str, Any]) -> Iterator[Event | tuple[str, Any]]:
        if "first observed failure" in text:
            yield from self._end_child(common)
            self._first = True
            yield ("attend", 12)
        elif text.rstrip() == "Failures:":
            self._first = False
            yield ("attend", 12)
        elif match := _CHILD.match(text):
            if match["key"] is None:
                yield from self._end_child(common)
                self._child = {}
                yield ("attend", 12)
            elif self._child is not None or match["key"] in ("rank", "exitcode"):
                self._child = self._child or {}  # a log may begin within the record
                self._child[match["key"]] = match["value"].strip()
                if match["key"] == "traceback":
                    yield from self._end_child(common)
                yield ("attend", 12)
        elif match := _FIRST_NOTICED.search(text):
            yield Ended(
                **common,
                by="elastic",
                code=int(match["code"]),
                pid=int(match["pid"]),
                local_rank=int(match["local"]),
                first=True,
            )
        elif match := _TOLD.search(text):
            yield Ended(**common, by="elastic", pid=int(match["pid"]), ordered=True, said=match["signal"])
        elif match := _FORCED.search(text):
            yield Ended(**common, by="elastic", pid=int(match["pid"]), ordered=True, said="SIGKILL")
        elif match := _RESTART.search(text):
            self.attempt += 1
            yield ("told", None)

    def _end_child(self, common: dict[str, Any]) -> Iterator[Event]:
        child, self._child = self._child, None
        if not child:
            return
        rank = re.match(r"(\d+) \(local_rank: (\d+)\)", child.get("rank", ""))
        code = re.match(r"(-?\d+) +\(pid: (\d+)\)", child.get("exitcode", ""))
        if code is None:
            return
        at: LogLine = common["at"]
        said = child.get("traceback", "")
        text = f"rank {rank[1] if rank else '?'}: exitcode {code[1]} (pid {code[2]}); {said}"
        stamp = re.match(r"(\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)", child.get("time", ""))
        t = _seconds(stamp) if stamp else None
        yield Ended(
            at=replace(at, text=text, t=t if t is not None else at.t, clock="local" if t is not None else at.clock),
            rank=int(rank[1]) if rank else None,
            host=child.get("host", "") or common["host"],
            attempt=common["attempt"],
            by="elastic",
            code=int(code[1]),
            pid=int(code[2]),
            local_rank=int(rank[2]) if rank else None,
            first=self._first,
            said=said,
        )

    def finish(self, at: LogLine) -> Iterator[Event]:
        """What the last lines of a file say whose message they cut off."""
        yield from self._end_child({"at": at, "host": "", "attempt": self.attempt})

    # ------------------------------------------------------------------------------------------ others

    def _others(self, text: str, common: dict[str, Any]) -> Iterator[Event | tuple[str, Any]]:
        if match := _SRUN.search(text):
            yield from _srun(match, common)
        if match := _KILLED.search(text):
            yield Ended(
                **common, by="kernel", code=-signal.SIGKILL, pid=int(match["pid"]), memory=True, said=match["name"]
            )
        if match := _SEGFAULT.search(text):
            yield Ended(**common, by="kernel", code=-signal.SIGSEGV, pid=int(match["pid"]), said=match["name"])
        if match := _TRAP.search(text):
            number = signal.SIGSEGV if match["what"].startswith("general") else signal.SIGILL
            yield Ended(**common, by="kernel", code=-number, pid=int(match["pid"]), said=match["name"])
        if match := _MPIRUN.search(text):
            yield Ended(
                **{**common, "host": match["host"], "rank": int(match["rank"])},
                by="launcher",
                code=-int(match["signal"]),
                pid=int(match["pid"]),
                first=True,
            )
        yield from parents.ended(text, common)
        if match := _SPAWN.search(text):
            name = match["signal"]
            code = -signal.Signals[name] if name in signal.Signals.__members__ else int(match["code"] or 1)
            yield Ended(**common, by="launcher", code=code, local_rank=int(match["local"]), first=True)
        if match := _QUOTED.search(text):
            code = -int(match["signal"]) if match["signal"] else int(match["code"] or match["status"])
            yield Ended(**common, by="launcher", code=code, first=True)
        if (match := _NCCL_RANK.search(text)) and (process := NCCL_PROCESS.search(text)):
            known = self.of_nccl.get((process["host"], process["pid"]), (0, 0))
            self.of_nccl[process["host"], process["pid"]] = max(
                known, (int(match["rank"]), int(match["world"])), key=lambda one: one[1]
            )
        for match in _WORLD.finditer(text):
            if 0 < int(match["world"]) <= MOST_RANKS:
                self.world = max(self.world, int(match["world"]))


def _srun(match: re.Match[str], common: dict[str, Any]) -> Iterator[Event]:
    said = match["said"]
    code = _EXIT_CODE.search(said)
    status: int | None = int(code[1]) if code else None
    for words, number in _WORDS.items():
        if said.startswith(words):
            status = -number
    if status is not None and status > 128 and status - 128 in _NUMBERS:
        status = 128 - status
    for first, last in _spans(match["tasks"]):
        for task in range(first, last + 1):
            yield Ended(
                **{**common, "host": match["host"]},
                by="slurm",
                code=status,
                task=task,
                memory=said.startswith("Out Of Memory"),
                said=said,
            )


_NUMBERS = {int(number) for number in signal.Signals}


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            low, high = int(first), int(last or first)
            if high - low < MOST_RANKS:
                yield low, high


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else -1


def _timed_out(
    work: str, common: dict[str, Any], *, member: int, group: str, text: str = "", torn: bool = False
) -> Iterator[TimedOut]:
    parts = dict(_WORK.findall(work))
    if parts.get("SeqNum", "").isdecimal() and "OpType" in parts:
        yield TimedOut(
            **common,
            member=member,
            group=group,
            seq=int(parts["SeqNum"]),
            op=parts["OpType"],
            numel_in=_count(parts.get("NumelIn", "")),
            torn=torn,
            limit_ms=_number(_LIMIT, text),
            ran_ms=_number(_RAN, text),
        )


def _count(text: str) -> int:
    """A number of elements; -1 where it runs into what another process wrote (`1048Watchdog`), or is not there, or is
    none: of coalesced calls, torch writes -1 as a number without a sign."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS else -1


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(number) for number in re.findall(r"\d+", text)}))


def _seconds(stamp: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(stamp[i]) for i in range(1, 7))
    return prefixes.seconds(year, month, day, hour, minute, second)
