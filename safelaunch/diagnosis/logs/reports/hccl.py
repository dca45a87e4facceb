"""What HCCL and the runtime of Ascend NPUs report: the collective, rank and device, and what the heartbeat saw."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Timeline, quote
from safelaunch.diagnosis.logs.verdict_on_logs import verdict
from safelaunch.model import Verdict

_TASK = re.compile(
    r"Task run failed|event wait timeout|notify (?:wait )?time ?out|Notify register times out|HcclExecutor",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(r"[Tt]ime ?out", re.IGNORECASE)
_OP = re.compile(r"\btag:? ?\[(?P<op>(?:All|Reduce|Broad|Send|Receive|Recv|Scatter|Gather|Batch)\w*?)_")
_GROUP = re.compile(r"\bgroup:\[(?P<group>[^\]]{1,80})\](?:.*?user define information\[(?P<name>[^\]]{1,80})\])?")
_RANK = re.compile(r"\brankId:?\[(?P<rank>\d{1,7})\b|\bRankID:(?P<rank2>\d{1,7})\b")
_SIZE = re.compile(r"\brankSize\[(?P<size>\d{1,7})\]")
_DEVICE = re.compile(
    r"\bdeviceId:? ?\[?(?P<device>\d{1,3})\b|\bDevice:(?P<device2>\d{1,3})\b|\bdevice_id=(?P<device3>\d{1,3})\b"
)
_LONG = re.compile(r"\b[Tt]ime_?out(?:_?[a-z]{0,8})?[:=\[ ]{1,2}(?P<long>\d{1,9} ?(?:ms|us|s))\b")
_KIND = re.compile(r"\btask_type=\d{1,4} ?\((?P<kind>[\w ]{3,40})\)")
_PEER = re.compile(r"remote rank:? ?\[(?P<peer>\d{1,7})\]")
_WHERE = re.compile(r"Cluster Exception Location\[IP/ID\]:\[(?P<ip>[\w.:]+)/(?P<id>\d{1,6})\]")
_SAW = re.compile(r"ExceptionType:\[(?P<type>[^\]]{1,80})\]")


def concluded(timeline: Timeline) -> Verdict | None:
    """The verdict on a report of HCCL; None where the log holds none."""
    lines = [one for one in timeline.facts.noted if one.kind == "hccl"]
    text = "\n".join(one.at.text for one in lines)
    where, task = _WHERE.search(text), _TASK.search(text)
    if where is None and task is None:
        return None
    group, op, saw = _GROUP.search(text), _OP.search(text), _SAW.search(text)
    rank, size, device, peer = (pattern.search(text) for pattern in (_RANK, _SIZE, _DEVICE, _PEER))
    number = next(filter(None, device.groups()), "") if device else ""
    who = f"rank {rank['rank'] or rank['rank2']}" if rank else "a rank"
    who = f"{who} (device {number})" if rank and number else f"device {number}" if number else who
    name = (group["name"] or group["group"]) if group else ""
    of = f" of group {name}" if name else ""
    of += f" ({size['size']} ranks)" if size else ""
    how, long, kind = "timed out" if _TIMEOUT.search(text) else "failed", _LONG.search(text), _KIND.search(text)
    how += f" after {long['long']}" if long and how == "timed out" else ""
    call = op["op"] if op else "a collective" if group else f"a task{f' ({kind[1]})' if kind else ''}"
    what = f"{call}{of} {how} on {who}" if task else "HCCL lost a peer"
    on = f", waiting for rank {peer['peer']}" if peer else ""
    seen, remedy = (
        "",
        "read the plog of all ranks (ascend/log): the first error of the rank that stood still is the cause",
    )
    if where:
        seen = f"; HCCL's heartbeat saw `{saw['type'] if saw else 'an error'}` at {where['ip']}, device {where['id']}"
        remedy = f"look at {where['ip']}, device {where['id']}, first: its process may stand still (py-spy dump), and "
        remedy += "its plog (ascend/log) says what it did"
    telling = sorted(lines, key=lambda one: not (_WHERE.search(one.at.text) or _GROUP.search(one.at.text)))
    return verdict(
        "SL499",
        f"{what}{on}{seen}",
        because=tuple(quote(one.at) for one in telling[:3]),
        remedy=remedy,
        secondary=[int(rank["rank"] or rank["rank2"])] if rank else (),
    )
