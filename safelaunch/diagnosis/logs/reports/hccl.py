"""What HCCL and the runtime of Ascend NPUs report: the collective, rank and device, and what the heartbeat saw."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.diagnosis.logs.waits import hang_verdict
from safelaunch.model import Verdict

_TASK = re.compile(
    r"Task run failed|\btask time ?out|event wait timeout|notify (?:wait )?time ?out|Notify register times out"
    r"|HcclExecutor",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(r"[Tt]ime ?out", re.IGNORECASE)
_OP = re.compile(r"\btag:? ?\[(?P<op>(?:All|Reduce|Broad|Send|Receive|Recv|Scatter|Gather|Batch)\w*?)_")
_GROUP = re.compile(r"\bgroup:\[(?P<group>[^\]]{1,80})\](?:.*?user define information\[(?P<name>[^\]]{1,80})\])?")
_RANK = re.compile(r"\brankId:?\[(?P<rank>\d{1,7})\b|\bRankID:(?P<rank2>\d{1,7})\b")
_SIZE = re.compile(r"\brankSize\[(?P<size>\d{1,7})\]")
_DEVICE = re.compile(
    r"\bdeviceId:? ?\[?(?P<device>\d{1,3})\b|\bDevice:(?P<device2>\d{1,3})\b|\bdevice_id=(?P<device3>\d{1,3})\b"
    r"|\bchipId:(?P<chip>\d{1,3})\b"
)
_LONG = re.compile(r"\b[Tt]ime_?out(?:_?[a-z]{0,8})?[:=\[ ]{1,2}(?P<long>\d{1,9} ?(?:ms|us|s|min))\b")
_KIND = re.compile(r"\btask_type=\d{1,4} ?\((?P<kind>[\w ]{3,40})\)")
_PEER = re.compile(r"remote rank:? ?\[(?P<peer>\d{1,7})\]")
_WHERE = re.compile(r"Cluster Exception Location\[IP/ID\]:\[(?P<ip>[\w.:]+)/(?P<id>\d{1,6})\]")
_SAW = re.compile(r"ExceptionType:\[(?P<type>[^\]]{1,80})\]")


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict on a report of HCCL; None where the log holds none."""
    lines = [one for one in timeline.facts.noted if one.kind == "hccl"]
    text = "\n".join(one.at.text for one in lines)
    where, task, rank = _WHERE.search(text), _TASK.search(text), _RANK.search(text)
    if where is None and task is None:
        return None
    ranks = [_number(rank)] if rank else _only_victim(timeline)
    what = f"{_call(text)} {_how(text)} on {_who(text, ranks)}{_within(timeline)}" if task else "HCCL lost a peer"
    peer = _PEER.search(text)
    on = f", waiting for rank {peer['peer']}" if peer else ""
    seen, remedy = _seen(text, where)
    telling = sorted(lines, key=lambda one: not (_WHERE.search(one.at.text) or _GROUP.search(one.at.text)))
    first = [at for _, at in timeline.victims][:1] + [one.at for one in telling if _TASK.search(one.at.text)]
    because = tuple(dict.fromkeys(quote(at) for at in first))[:3]
    if where is None and not peer and _TIMEOUT.search(text):
        unknown = f"{what}, and the logs do not say for whom it waited"
        return hang_verdict("SL399", unknown, because=because, remedy=remedy, confidence="low", waiting=ranks)
    because = tuple(quote(one.at) for one in telling[:3])
    return verdict("SL499", f"{what}{on}{seen}", because=because, remedy=remedy, secondary=ranks)


def _only_victim(timeline: Timeline) -> list[int]:
    """The rank that tells that it waited, where it is one alone."""
    ranks = {rank for rank, _ in timeline.victims if rank is not None}
    return sorted(ranks) if len(ranks) == 1 else []


def _within(timeline: Timeline) -> str:
    """The call of torch.distributed in which those waited that tell of it."""
    at = {line for _, line in timeline.victims}
    frames = (frame for one in timeline.facts.raised if one.at in at for frame in reversed(one.frames))
    inner = next((f.function for f in frames if "/torch/distributed/" in f.file and f.function != "wrapper"), "")
    return f", in {inner}" if inner else ""


def _number(rank: re.Match[str]) -> int:
    return int(rank["rank"] or rank["rank2"])


def _who(text: str, ranks: list[int]) -> str:
    device = _DEVICE.search(text)
    number = next(filter(None, device.groups()), "") if device else ""
    if not ranks:
        return f"device {number}" if number else "a rank"
    return f"rank {ranks[0]} (device {number})" if number else f"rank {ranks[0]}"


def _call(text: str) -> str:
    op, group, size, kind = (pattern.search(text) for pattern in (_OP, _GROUP, _SIZE, _KIND))
    what = op["op"] if op else "a collective" if group else f"a task{f' ({kind[1]})' if kind else ''}"
    of = f" of group {group['name'] or group['group']}" if group else ""
    return f"{what}{of}{f' ({size[1]} ranks)' if size else ''}"


def _how(text: str) -> str:
    long = _LONG.search(text)
    if not _TIMEOUT.search(text):
        return "failed"
    return f"timed out after {long['long']}" if long else "timed out"


def _seen(text: str, where: re.Match[str] | None) -> tuple[str, str]:
    """What the heartbeat saw, and where to look."""
    if where is None:
        return (
            "",
            "read the plog of all ranks (ascend/log): the first error of the rank that stood still is the cause",
        )
    saw = _SAW.search(text)
    return (
        f"; HCCL's heartbeat saw `{saw['type'] if saw else 'an error'}` at {where['ip']}, device {where['id']}",
        f"look at {where['ip']}, device {where['id']}, first: its process may stand still (py-spy dump), and its plog "
        "(ascend/log) says what it did",
    )
