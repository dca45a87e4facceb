"""The failures that came first and are alike: whose they are, how sure that is, and how they are told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from safelaunch.codes import CATALOGUE, EXIT_INFRASTRUCTURE, EXIT_SCRIPT_FAILED, Trait, has
from safelaunch.diagnosis.crash.known.gpu import tenants
from safelaunch.diagnosis.logs import advice, reporters, speaker
from safelaunch.diagnosis.logs.exits import failed_by_itself
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline, missing, quote
from safelaunch.diagnosis.wording import names
from safelaunch.model import Confidence, Verdict
from safelaunch.model.logs import LogFacts

# With which what a rank did begins; else it is what happened to it.
BY_PID = "process "  # what a line of NCCL names, which has no mark
VERBS = ("raised", "got", "was", "crashed", "aborted", "failed in")

_LOCAL = re.compile(r"--local[-_]rank[= ](\d{1,4})\b")  # what torch's launcher gives to each process
NOBODYS = ("address-in-use",)  # of whoever listens, which is a launcher as often as a rank

_REMOTE = re.compile(r"\bremote rank \[?(\d{1,7})\b")
_READS = re.compile(r"/torch/serialization\.py\", line \d+, in (?:load|_load|_legacy_load|__init__)\b")

REMEDIES = {
    "SL401": "the traceback is where it started",
    "SL402": "no rank stands out: look at the arguments, the files and the code that all ranks share",
    "SL409": "see that this environment has what is missing, and is the same on all nodes and in all containers",
}


@dataclass(frozen=True)
class Root:
    """What failed first.

    Args:
        timeline: all that was found.
        first: the candidates that failed first and alike.
        others: those that failed later, or of which that is not known.
        certain: whether the order of the two is.
    """

    timeline: Timeline
    first: list[Candidate]
    others: list[Candidate]
    certain: bool

    @property
    def lead(self) -> Candidate:
        """The one that is quoted."""
        return self.first[0]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Those that failed first, where lines tell."""
        return tuple(sorted({one.rank for one in self.first if one.rank is not None}))

    @cached_property
    def unmarked(self) -> list[Candidate]:
        """Those of which no line tells the rank."""
        return [one for one in self.first if one.rank is None]

    @cached_property
    def followers(self) -> list[int]:
        """The ranks that failed because of them."""
        return sorted({rank for rank, _ in self.timeline.victims if rank is not None} - set(self.ranks))

    @cached_property
    def everybody(self) -> bool:
        """Whether all ranks failed alike."""
        facts = self.timeline.facts
        if not self.unmarked:
            world = set(range(facts.world_size)) if facts.world_size else set(facts.ranks)
            return len(self.ranks) > 1 and set(self.ranks) >= world
        times = sum(one.times for one in self.unmarked)
        failed = _failed_ranks(facts)
        others = any(end.rank is not None and end.rank not in failed for end in facts.ended)
        return not self.ranks and times > 1 and (len(failed) < 2 or times >= len(failed)) and not others

    @cached_property
    def shared_gpus(self) -> set[tuple[int, int, str]]:
        """The pairs of ranks on one GPU, with the GPU, where that is what NCCL complains of."""
        return _shared_gpus(self.timeline.facts) if self.lead.code == "SL426" else set()

    @cached_property
    def culprits(self) -> tuple[int, ...]:
        """The ranks to blame; none where all failed alike, a line has no rank, or ranks do not fit together."""
        nobody = self.everybody or self.unmarked or self.shared_gpus or self.lead.blameless
        nobody = nobody or has(self.lead.code, Trait.MISFIT) or self.lead.code == "SL602"  # where ranks meet
        # What several met in NCCL may lie with one that has not spoken.
        nobody = nobody or (has(self.lead.code, Trait.MAYBE_PEER) and len(self.ranks) > 1)
        return () if nobody else self.ranks

    @property
    def code(self) -> str:
        """That of the verdict."""
        return "SL402" if self.everybody and self.lead.code == "SL401" else self.lead.code

    @property
    def confidence(self) -> Confidence:
        """By the order, by what the words are, and by the number of independent witnesses."""
        if self.lead.message_only or (self.others and not self.certain):
            return "low"
        if self.lead.guessed or has(self.lead.code, Trait.MISFIT):
            return "medium"
        witnesses = frozenset().union(*(one.sources for one in self.first))
        peers = bool(self.culprits and self.followers)
        return "high" if len(witnesses) + peers >= 3 else "medium"


def verdict_of(root: Root) -> Verdict:
    """The verdict on what failed first."""
    lead, code = root.lead, root.code
    infrastructure = has(code, Trait.INFRASTRUCTURE)
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="infra" if infrastructure else "crash",
        summary=_summary(root),
        culprit_ranks=root.culprits,
        host=lead.host,
        pid=lead.pid if root.culprits else None,
        location=lead.location if len({one.location for one in root.first}) == 1 else None,
        because=_because(root),
        secondary=tuple(root.followers),
        confidence=root.confidence,
        remedy=advice.fitting(root.timeline.facts, lead, lead.remedy or _advice(root)),
        traceback=lead.traceback,
        exit_code=EXIT_INFRASTRUCTURE if infrastructure else EXIT_SCRIPT_FAILED,
    )


def _advice(root: Root) -> str:
    special = advice.of_platform(f"{root.lead.at.text} {root.lead.traceback}", root.code)
    if special:
        return special
    if root.code == "SL401" and not root.lead.traceback.count("File "):
        return (
            "look at the lines around this one, and in the output of that process: its traceback is not in these logs"
        )
    others = sorted({int(number) for number in _REMOTE.findall(root.lead.what)} - set(root.ranks))
    if root.code == "SL402" and others:
        return f"look at {names(others)} first: the others speak of it, and it has no such line"
    if root.code == "SL401" and _READS.search(root.lead.traceback):
        return (
            "torch.load could not read the file: see its path, its size and whether it loads alone; a job that ended "
            "while it saved leaves a file cut short, so take the checkpoint before it"
        )
    if root.code == "SL401" and speaker.serves(root.lead.process):
        return "the traceback is of the process that noticed: look for what its workers wrote before it"
    return REMEDIES.get(root.code, f"safelaunch explain {root.code}")


def who(candidate: Candidate) -> str:
    """`rank 3`, or that a line does not tell."""
    return f"rank {candidate.rank}" if candidate.rank is not None else "a process"


def _failed_ranks(facts: LogFacts) -> set[int]:
    """The ranks that ended with an error of their own, by the records of launchers."""
    return {e.rank for e in facts.ended if e.rank is not None and failed_by_itself(e) and e.code not in (-15, -9)}


def _shared_gpus(facts: LogFacts) -> set[tuple[int, int, str]]:
    """The pairs of ranks on one GPU, as NCCL names them, with the GPU."""
    return {
        (one, other, s.field("device"))
        for s in facts.sightings
        if s.field("device") and (one := s.number("one")) is not None and (other := s.number("other")) is not None
    }


def _summary(root: Root) -> str:
    lead, ranks = root.lead, root.ranks
    several = reporters.told(root.first)
    if lead.blameless:
        return f"{lead.what} (so {several} say)" if several else lead.what
    if root.shared_gpus:
        return _of_shared_gpus(root)
    if has(lead.code, Trait.MISFIT) and lead.what.startswith("raised"):
        return f"{names(ranks) if ranks else several or 'a rank'} {lead.what}"
    if several and root.unmarked and not ranks:
        return f"{several} {_sentence(_of_several(_did(lead.what)))}"
    return _of_everybody(root) if root.everybody else _of_unmarked(root) if root.unmarked else _of_ranks(root)


def _of_ranks(root: Root) -> str:
    lead, ranks = root.lead, root.ranks
    what = _of_several(lead.what) if len(ranks) > 1 else lead.what
    return f"{names(ranks)} {what}" if lead.what.startswith(VERBS) else f"{names(ranks)}: {what}"


def _of_shared_gpus(root: Root) -> str:
    shared = sorted({rank for one, other, _ in root.shared_gpus for rank in (one, other)})
    devices = sorted({device for *_, device in root.shared_gpus})
    return f"{names(shared)} use the same GPU ({', '.join(devices[:4])}), which NCCL does not allow"


def _of_unmarked(root: Root) -> str:
    if _in_the_launcher(root):
        return f"the launcher failed, before any rank ran: {root.lead.what}"
    return _of_nobody(root.timeline.facts, root.lead, sum(one.times for one in root.unmarked))


def _of_everybody(root: Root) -> str:
    lead, ranks = root.lead, root.ranks
    did = _did(lead.what)
    if not ranks:
        told = [s.at.text for s in root.timeline.facts.sightings if s.known.name == lead.error]
        numbers = {int(number) for text in told for number in _LOCAL.findall(text)}
        if len(numbers) > 1:
            return f"local {names(numbers)} {_sentence(did)}"
        return _claimed(f"several processes {_sentence(_of_several(did))}", speaker.claim(root.timeline.facts, lead))
    everybody = "every rank" if root.timeline.facts.world_size else f"{names(ranks)}, all that the log shows,"
    return f"{everybody} {did if root.timeline.facts.world_size else _of_several(did)}"


def _of_several(what: str) -> str:
    """What one rank did, as it is said of several."""
    return re.sub(r"\bits GPU\b", "their GPUs", re.sub("^was ", "were ", what))


def _did(what: str) -> str:
    return what if what.startswith(VERBS) else f"failed: {what}"


def _in_the_launcher(root: Root) -> bool:
    """Whether a message is of the launcher: its own traceback stands beside it, and no rank wrote anything."""
    said = not root.lead.what.startswith(VERBS) and root.lead.message_only
    return said and bool(root.timeline.launcher) and not root.timeline.facts.ranks


def _of_nobody(facts: LogFacts, lead: Candidate, times: int) -> str:
    where = f" on {lead.host}" if lead.host and lead.host not in lead.process else ""
    whose = lead.process or (f"local rank {lead.local}" if lead.local is not None else "")
    if has(lead.code, Trait.INFRASTRUCTURE):
        return _of_infrastructure(lead, where)
    if lead.what.startswith(VERBS):
        who = "a process" if times == 1 else f"{times} processes"
        if whose and times == 1:
            return _claimed(f"{whose}{where} {_sentence(lead.what)}", speaker.claim(facts, lead, that=True))
        what = _of_several(lead.what) if times > 1 else lead.what
        return f"{who}{where} {_sentence(what)}; {speaker.claim(facts, lead)}"
    return _told_by_words(facts, lead, whose if times == 1 else "", where)


def _of_infrastructure(lead: Candidate, where: str) -> str:
    """What no rank is to blame for. Behind the address of an endpoint, `on node-a` would be read as its place."""
    what = re.sub("^raised", "the job failed with", lead.what)
    return f"{_sentence(what)}; so says {lead.host}" if where and lead.code == "SL602" else f"{what}{where}"


def _claimed(text: str, claim: str) -> str:
    return f"{text}; {claim}" if claim else text


def _told_by_words(facts: LogFacts, lead: Candidate, whose: str, where: str) -> str:
    """What a message says, and no verb of ours."""
    if whose:
        return _claimed(f"{whose}{where}: {_sentence(lead.what)}", speaker.claim(facts, lead, that=True))
    if lead.error in NOBODYS:
        return f"{lead.what}{where}"
    return f"a process failed{where}: {_sentence(lead.what)}; {speaker.claim(facts, lead)}"


def _sentence(text: str) -> str:
    """What goes on behind a semicolon has no stop before it."""
    return text if text.endswith("...") else text.rstrip(".;!")


def _because(root: Root) -> tuple[str, ...]:
    lines = [quote(root.lead.at), *_of_nccl(root), *root.lead.more[:1], *_of_memory(root.lead)]
    lines += [f"{who(other)} {other.what}, later: {quote(other.at)}" for other in root.others[:1]]
    if root.followers and root.culprits:
        lines.append(f"{names(root.followers)} failed only because a peer was lost, or waited for it")
    if _lacks_marks(root):
        lines.append("the lines have no marks of ranks: torchrun --tee 3, or srun --label, would show who wrote them")
    return (*lines, *missing(root.timeline.facts)[: max(1, 5 - len(lines))])


def _of_nccl(root: Root) -> tuple[str, ...]:
    """NCCL's own warning, where a call of NCCL failed and something else is quoted."""
    said = (s.at for s in root.timeline.facts.sightings if s.known.name in ("nccl-warn", "nccl-ib"))
    warning = next(said, None) if root.lead.code == "SL426" else None
    return (quote(warning),) if warning is not None and warning != root.lead.at else ()


def _of_memory(lead: Candidate) -> tuple[str, ...]:
    """Who else held memory of a GPU that was full."""
    count = tenants(lead.at.text + lead.traceback) if lead.code == "SL420" else 0
    return (f"{count} other process{'es' if count > 1 else ''} held memory of the same GPU",) if count else ()


def _lacks_marks(root: Root) -> bool:
    """Whether marks of ranks would have told whose a failure is, and no line has any."""
    if root.culprits or root.lead.blameless or root.lead.error in NOBODYS or has(root.lead.code, Trait.INFRASTRUCTURE):
        return False
    if all(one.local is not None or (one.process and not one.process.startswith(BY_PID)) for one in root.unmarked):
        return False
    facts = root.timeline.facts
    return not any(file.marked for file in facts.files) and not speaker.names_any(facts)
