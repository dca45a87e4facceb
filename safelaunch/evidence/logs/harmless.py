"""What takes a word of failure back within its own line: counts of nothing, measures, settings, quotations, what might
be, what was tried again, and what was done instead."""

from __future__ import annotations

import re

LONGEST = 600  # characters of a line that is taken apart

# What takes back any word.
_TAKEN_BACK = re.compile(
    r"\(corrected\b|\bcorrected \d|\bno action (?:is )?(?:needed|required)"
    r"|\b(?:before|on|in case of|if|when|until|unless) (?:any |a |an |the )?(?:crash|failure|error|abort|fail|preempt)"
    r"|\bdeprecat|\bignor(?:e|ed|ing)\b|exception ignored|\b0 (?:errors?|failures?|failed)\b"
    r"|\b(?:no|zero|without)(?: any)? (?:\w+ ){0,2}(?:errors?|failures?|faults?|warnings?)\b"
    r"|OMP_NUM_THREADS|FutureWarning|UserWarning: (?!.*\bError \d)|site-packages/\S+:\d+: \w*Warning"
    # what may come, and what was set up for it
    r"|\b(?:will|would|may|might|can|could) "
    r"(?:be (?:killed|terminated|cancell?ed|aborted|stopped) (?:after|if|when|unless)"
    r"|(?:raise|throw|cause|lead to|result in) )"
    r"|\b(?:handler|hook|callback|watcher|listener)s? (?:for|on|of) SIG[A-Z]+|\b(?:is|are|was) (?:enabled|disabled)\b"
    r"|(?<!to )(?<!not )\b(?:set(?:s|ting)?|install\w*|regist\w+|add(?:s|ed|ing)?|enabl\w+|us(?:e|es|ing)|bypass\w*)\b"
    r"[^:]{0,60}\b(?:signals?|SIG[A-Z]{2,6}\d?)\b[^:]{0,30}\bhandlers?\b|\bhandl(?:es?|ing) (?:\w+ )?signals\W*$"
    r"|\b(?:enabled|disabled|armed|set) with (?:a )?timeout\b|\breports? (?:go|goes|are (?:written|sent|saved)) to\b"
    r"|\b[Tt]his is expected\b|\bif .{1,200} (?:will|would|may|might) fail\b"
    r"|\. Continuing to (?:monitor|wait|run|poll)\b"
    # what was done instead
    r"|[,;:(] ?(?:so )?(?:using|taking|falling back|defaulting|lowering|adjusting|training from"
    r"|starting (?:fresh|from|anew)|will use|going on|continuing|resuming|proceeding)\b"
    r"|\b(?:[Ff]alling|[Ff]alls|[Ff]ell) back\b"
    r"|^\W{0,3}skipp(?:ed|ing) \d+ (?:\w+ ){0,2}"
    r"(?:samples?|files?|records?|rows?|images?|documents?|batch(?:es)?)\b"
    # what came well after all
    r"|(?<!not )(?<!never )\b(?:re-?connected|recovered|restored|succeeded|re-?established)\b(?!.{0,20}\bfailed\b)"
    r"|(?:\.\.\.|;|,) ?(?:attempt \d+ )?(?:ok|OK|completed|done)\W*$"
    r"|\b[Nn]ormal termination\b",
    re.IGNORECASE,
)
_RETRIES = re.compile(r"\bretry|\bretries\b(?!.{0,20}\bexhaust)|\b(?:try|tries|trying|tried) |\bagain\b", re.IGNORECASE)
_RETRIES_END = re.compile(
    r"\b(?:giving up|gave up|exhausted|no more|exceeded|aborting|exiting|stopping)\b", re.IGNORECASE
)
# What somebody wrote, and a model read or made; what a list of changes says.
_QUOTATION = re.compile(
    r"^\W{0,3}(?:generated|generation|sample|completion|prompt|caption|title|topic|question|example|headline"
    r"|instruction|summary|abstract|commit|branch|experiment(?: name)?|class(?:es| names?)?|labels?)\b[^:=]{0,40}[:= ]"
    r"|\b(?:prompts?|documents?|articles?|samples?|examples?|images?|questions?) about\b",
    re.IGNORECASE,
)
# A name with a value that is nothing; of a rank or a node, 0 is a number like any other.
_NOTHING = re.compile(
    r"[\"']?(?=\w)(?:[\w()/@.%-]{1,40} ){0,8}"
    r"\w{0,40}(?<![a-z])(?:err|fail|abort|kill|crash|timeout|timed.out|retr|drop|lost|nan|inf|xid|corrupt|oom|overrun"
    r"|invalid|dead|hang|hung|fault|skip|miss|mismatch|evict|preempt)\w{0,40}"
    r"(?: [\w()/@.%-]{1,40}){0,2}[\"']?\s?[:=]\s?"
    r"(?:none|null|false|off|no|n/a|\[\]|\{\}|(?P<zero>0(?:\.0*)?%?))\W?",
    re.IGNORECASE,
)
_HAS_NUMBER = re.compile(
    r"\b(?:local[ _]?rank|ranks?|nodes?|gpus?|devices?|workers?|process|pid|hosts?|tasks?|shard)\W*[:=]", re.IGNORECASE
)
# A rate or a distance: a whole number may be a count of failures.
_MEASURE = re.compile(
    r"(?=[^:=]{0,80}\b(?:\w*rates?|errors?|fraction|ratio|recall|precision|scores?|bars|mean|max|min|avg|[mr]\w?se|share)\b)"
    r"[\w /@.%()'\"-]{1,80}?(?<!after)(?<!for)(?<!in)(?<!at)(?<!of)(?:\s?[:=]|\s)\s?"
    r"[-+]{0,2}\d{1,12}(?:\.\d{1,12}(?:e[-+]?\d{1,4})?|e[-+]?\d{1,4})\s?%?",
    re.IGNORECASE,
)
_ITEMS = re.compile(r"\s*[,;|{}]\s*|\s{2,}")


def takes_back(text: str) -> bool:
    """Whether a line says of itself that nothing failed, or that it was overcome."""
    return bool(_TAKEN_BACK.search(text) or _QUOTATION.search(text))


def retries(text: str) -> bool:
    """Whether a line says that something is tried again: it is overcome where more is said after it."""
    return _RETRIES.search(text) is not None and not _RETRIES_END.search(text)


def without_counts(text: str) -> str:
    """A line without names whose values are nothing (`errors: 0, oom: false`), and without rates (`word error rate:
    11.2%`)."""
    if len(text) > LONGEST:
        return text
    items = [item for item in _ITEMS.split(text.strip()) if item]
    left = [item for item in items if not (_is_nothing(item) or _MEASURE.fullmatch(item))]
    return text if len(left) == len(items) else ", ".join(left)


def is_count(text: str, at: int) -> bool:
    """Whether what stands at a place in a line is the name of a value that is nothing."""
    start = max((match.end() for match in _ITEMS.finditer(text[:LONGEST]) if match.end() <= at), default=0)
    end = _ITEMS.search(text, max(at, start))
    return at < LONGEST and _is_nothing(text[start : end.start() if end else LONGEST].strip())


def _is_nothing(item: str) -> bool:
    found = _NOTHING.fullmatch(item)
    return found is not None and not (found["zero"] and _HAS_NUMBER.search(item))
