"""What ordinary lines of a job look like: its steps, its last words, and records in JSON."""

from __future__ import annotations

import re

from safelaunch.model.logs import Known

# What services of logs export: documents with a line each, or fields of such below each other. Numbers of a training in
# JSON have no field for a text.
RECORD = re.compile(
    r"\s*\{.{0,400}?\"(?:message|msg|log|text|textPayload|line|body|event)\"\s*:|\s*\"[\w@.-]{1,60}\"\s*:\s|\s*[\[\]{}]{1,2},?\s*$",
    re.IGNORECASE,
)
# A step of a training or of a server: its number, its loss or its rate. A name with a number alone (`lr: 0.1`,
# `epochs: 3`) may be a setting.
STEP = re.compile(
    r"\b(?:global[ _])?(?:step|iter|iteration|epoch|batch|loss|\w*_loss|perplexity|ppl|mfu|accuracy|samples)\b"
    r"['\"]?\s*[:=#|\[(]{0,2}\s*['\"]?-?\d"
    r"|\b\d+%\s?\||\d\s?(?:it/s|s/it|ms/step|s/step|samples/s|tok(?:en)?s?/s)|throughput\W{1,4}\d"
    r"|\"(?:GET|POST) \S+ HTTP/[\d.]+\" 200|\b(?:Prefill|Decode) batch",
    re.IGNORECASE,
)
TROUBLED = Known("trouble", "alarm", means="the log ends with words of a failure that are not known")
QUIET = re.compile(r"(?<![\w.])(?:WARNING|WARN|INFO|DEBUG)(?![\w=])")
LOUD = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b")
LAST_LINES = 30
STEPS = 2  # lines: a single one may be anything
# What programs that write logs put before a message: a time, a level, a process.
MARK = re.compile(
    r"\W{0,2}\d{4}-\d\d-\d\d[T _]\d\d:\d\d|\W?\d\d:\d\d:\d\d|\W?(?:DEBUG|INFO|WARN|WARNING|ERROR)\b"
    r"|\[?[EWIF]\d{3,4} \d\d:|\[(?:rank|default)\d+\]"
    r"|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d |\(\w+ (?:rank=\d+ )?pid=\d+"
)


def with_level(whole: str, text: str) -> str:
    """A message with the level that a logger gave it, where that says that it ended nothing.

    Args:
        whole: the line.
        text: the message without what stands before it.
    """
    level = QUIET.search(whole[: len(whole) - len(text)]) if whole.endswith(text) else None
    return f"{level[0]} {text}" if level else text
