"""What the last lines of a log say of how its job ended, in words that are nobody's own: of shells, C libraries,
launchers and loggers."""

from __future__ import annotations

import re
from typing import Literal

LONGEST = 400  # characters of a line that are searched for words that take it back
LINES = 10  # at the end of a log; the usage of a program stands ahead of what is wrong with its arguments

# The last words of jobs that end well, by those who know: torch elastic, and trainers that have come to their end.
_PROOF = re.compile(
    r"worker group successfully finished|worker group finished \(SUCCEEDED\)|torchelastic\.worker\.status\.SUCCEEDED"
    r"|Normal termination \(return value 0\)|`?Trainer\.fit`? stopped: `?max_|['\"]train_runtime['\"]: ?\d"
)
# What programs say, and scripts that start them.
_WORD = re.compile(
    r"^\W*(?:(?:INFO|NOTICE|SUCCESS)\W{1,4}(?:[\w.]{1,60}: )?)?(?:the )?"
    r"(?:training|train|fine-?tuning|job|run|fit)\b(?![^:=]{0,30}\b(?:epoch|step|iter\w*|batch)\b)"
    r"(?P<between>[^:=]{0,30}?)\b(?:finished|completed?|done|succeeded)\b(?P<behind>.*)"
    r"|^(?P<before>.{0,60}?)\b(?:finished|completed|done) (?:the )?training\b(?P<after>.*)",
    re.IGNORECASE,
)
# What a trainer gives back when it has come to its end, as a program prints it: `Training result: Result(...)`.
_RESULT = re.compile(
    r"^\W*(?:the )?(?:(?:final|training|train|tuning|fit|best|trainer) )?(?:trial )?results?\W{1,3}(?:\w+\.)?Result\("
    r"(?!.*\berror=(?!None\b))|^\W*(?:the )?final (?:\w+ )?results?\s?[:=] ?[{\[(\w]",
    re.IGNORECASE,
)
ERROR_OF_RESULT = re.compile(r"^\s+error=(?!None\b)")  # one of its fields, in a line of its own
# What may stand behind such a word: nothing, how long and when, what was saved. Anything else may take it back.
_PLAIN = re.compile(
    r"\W*(?:successfully\W*)?(?:(?:in|at|on|after|by|took|total|time|elapsed|duration|sav(?:ed|ing)|best|final|model"
    r"|checkpoints?|weights|see|for (?:\d+|all|rank)|with (?:\d+|loss|accuracy|best|final)|exit(?:ing| code 0)"
    r"|status 0|rc ?= ?0)\b.*|\W*\d[\d\W]*(?:s|sec\w*|min\w*|h|hours?|steps?|epochs?)?\W*)?",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:not|never|no|cannot|could|un\w{4,}|without|before|nan|inf|oom|error\w*|fail\w*|abnormal\w*|aborted|killed|early"
    r"|interrupt\w*|stopped|cancel\w*|false|incomplete|partial\w*|0 of)\b|n't\b"
    r"|\b(?:exit|code|status|rc|ret)\W{0,3}(?:code|status)?\W{0,3}-?[1-9]",
    re.IGNORECASE,
)
_NONE_OF_THEM = re.compile(
    r"\b(?:no|0|zero|without(?: any)?) (?:errors?|failures?|warnings?|problems?)\b"
    r"|\b(?:failed|failures?|errors?|aborted|killed|nan|inf)\W{0,3}[=:] ?0\b(?![.\d])",
    re.IGNORECASE,
)


def well_ended(text: str) -> Literal["proof", "word", ""]:
    """Whether a line says that the job ended well, and whether by one who knows."""
    if _PROOF.search(text):
        return "proof"
    if _RESULT.search(text) and not _TAKEN_BACK.search(text[:LONGEST]):
        return "word"
    around = _around(text)
    return "word" if around and _PLAIN.fullmatch(around[1]) and not any(map(_TAKEN_BACK.search, around)) else ""


def _around(text: str) -> tuple[str, str] | None:
    """What stands around "finished" where a line says it of the job."""
    found = _WORD.match(text)
    if found is None:
        return None
    around = found["between"] or found["before"] or "", found["behind"] or found["after"] or ""
    return around[0], _NONE_OF_THEM.sub("", around[1])


# What a process writes that is about to end, or has ended: no sign that it went on.
LAST_WORDS = re.compile(
    r"^\s|^\[?[EWIF]\d{3,4} |wandb:|[Ww]arning|ERROR|Error|rror:|Exception|resource_tracker|leaked|srun|slurmstepd|"
    r"Aborted|core dumped|Killed|Terminat|SIGTERM|Sending process|exit|Exit|=====|-----|destroy|shut|Shut|kill|fail"
    r"|Fail|NCCL|terminate called|what\(\)|frame #|^\s*$|^#\d"
)


def takes_back(text: str) -> bool:
    """Whether a line says of the job that it is over, and that not all went well: `training finished with errors`."""
    around = _around(text)
    return around is not None and any(map(_TAKEN_BACK.search, around))
