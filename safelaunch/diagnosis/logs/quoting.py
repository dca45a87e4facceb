"""Long lines in a short place: what stands for no word is cut first, and what decides is never cut off."""

from __future__ import annotations

import re

from safelaunch.shortened import shortened

LINE = 300  # characters of a quoted line
HEADLINE = 150  # of a line within a headline
_HEAD, _LEAD = 90, 40  # characters from the beginning, and before the words that decide, where a middle is left out
_GAP = " ... "

_PATH = re.compile(r"(?<![\w:/.])/(?:[\w.+@=~-]+/){3,40}(?=[\w.+@=~-])")
_BOILERPLATE = re.compile(
    r" There are some potential root causes\. \(1\).*| To see more information about the Workers killed on this node.*"
    r"| (?:Some|Potential) (?:common )?causes include:? .*| If reserved but unallocated memory is .*"
)
# What stands between words that decide, and says nothing: Ray's identifiers and hints.
_FILLING = re.compile(
    r" To troubleshoot the problem, check the logs[^.]*\.| RayTask ID: \w+"
    r"| (?:Worker|Node|Job|Actor) ID: [0-9a-f]{16,64}"
    r"|, ?0 Workers crashed due to other reasons|(?<=\()ID: [0-9a-f]{16,64}, "
)
# Identifiers of objects, addresses and offsets in brackets: they tell nobody anything.
_OBJECTS = re.compile(
    r"<[\w.]+ object at 0x[0-9a-f]+>|\[0x[0-9a-f]{6,}\]"
    r"|(?<=, )(?:stream|sq|task|event|flip)_(?:id|num)[:=]\d+, ?"
)
_PADDED = re.compile(r"\s{2,}|(?<=\w)-{6,}|={6,}|\*{6,}|#{6,}")
_ID = re.compile(r"(?<![\w/.-])(?=\w*\d)[0-9a-f]{20,128}(?!\w)")
_TEMPLATE = re.compile(r"<[\w:<>, *&]{20,400}>")
# What is cut of a long line, in this order, and what stands for it; of an id its beginning stays.
_NOISE: tuple[tuple[re.Pattern[str], str | None], ...] = (
    (_BOILERPLATE, " ..."), (_FILLING, ""), (_OBJECTS, ""), (_TEMPLATE, "<...>"), (_ID, None), (_PATH, "/.../"),
)  # fmt: skip
# The words after which a sentence has said what it is about.
_DECIDES = re.compile(
    r"[\w.]*(?:Error|Exception)\b\S*|[\w ]{0,20}(?:reset by peer|closed by|refused|timed out|out of memory|not found"
    r"|no such|already in use|CANCELLED|[Kk]illed|signal:? \S+|CQE|[Pp]eer information|exceeds"
    r"|larger than|does not|must be|[Ee]rror \d+|errno:? ?\d+|exit code \S+|uncorrectable"
    r"|memory pressure|is stopped|is ready|occurred"
    r"|timeout=\S+|[Pp][Ii][Dd][:=]? ?\d+|illegal|mismatch|unable|cannot|[Ff]ailed|[Ii]nvalid)\b"
)


def fit(text: str, limit: int = LINE) -> str:
    """The first line of a text, of at most `limit` characters. Of paths the last two parts stay, of ids the beginning;
    what is still too long loses what stands around the last words that decide."""
    lines = text.strip().splitlines()
    text = _PADDED.sub(" ", lines[0]).strip() if lines else ""
    if len(text) <= limit:
        return text
    for pattern, short in _NOISE:
        text = pattern.sub(short if short is not None else (lambda match: f"{match[0][:6]}..."), text)
        if len(text) <= limit:
            return text
    last = None
    for match in _DECIDES.finditer(text, 0, 8 * limit):
        last = match
    if last is None or last.end() + _LEAD <= limit:
        return shortened(text, limit)
    begin = min(_HEAD, limit // 3)
    # As much as there is room for, up to the end, but from no later on than a little before those words.
    start = max(begin, min(last.start() - _LEAD, len(text) - (limit - begin - len(_GAP))))
    start = text.find(" ", start, last.start()) + 1 or start
    head = shortened(text[:begin] + " ", begin).rstrip(". ") + _GAP
    return head + shortened(text[start:], limit - len(head))
