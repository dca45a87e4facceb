"""What a verdict has left out: every line that speaks of a failure is shown, or something like it is.

Nobody knows all words in which programs fail. So a verdict may say that the logs tell no more only where no line is
left that might: this is decided here, of all verdicts alike, by what was read and what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from safelaunch.codes import CATALOGUE, Trait
from safelaunch.diagnosis.logs.quoting import LINE, fit
from safelaunch.diagnosis.logs.timeline import bare
from safelaunch.diagnosis.logs.timeline import words as said_by
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import ALSO, WENT_ON, Complaint, LogFacts
from safelaunch.sizes import plural

UNDECIDED, DECIDED, HEALTHY = 5, 3, 2  # lines that are added
GRAVE, SAID = 3, 2
ALIKE = 60  # characters that lines have in common which say the same
OWN = 4  # lines of the verdict itself, before those that are added
SHOWN = "the lines shown here"
FEW = 2  # lines that say something of their own
LONG_SUMMARY = 180  # characters, after which no further line has room in a headline
SHORT = 10  # characters of a line that is compared as a whole

# What a verdict claims of all that the logs hold. The first is refuted by any line that says more; where there is no
# room for all lines, the second is said of those that are shown.
_NO_MORE = re.compile(r",? and the logs? do(?:es)? not say (?:why|more)\b")
_OF_ALL = re.compile(r"\bthe logs? do(?:es)? not (?=say|show)|(?<= are not in )the logs\b")
_WORD = re.compile(r"[^\W\d_]{3}")
_TAIL = re.compile(r"kernel errors might be asynchronously")  # stands below the name of an error of CUDA
_PLACE = re.compile(r"(?P<file>\S[^\n]*?):(?P<line>\d+): ")
_DETAIL = re.compile(r"\d{2,}|0x|\berrno\b|[\w-]+\.[\w-]+:\d|\[\w")


def with_all_told(facts: LogFacts, verdict: Verdict) -> Verdict:
    """The verdict, with the lines that speak of a failure and that it does not show."""
    told = _Told(facts, verdict)
    unknown = Trait.UNKNOWN in CATALOGUE[verdict.code].traits
    left = _left(facts, told, decided=not unknown)
    plain = [one for one in left if one.weight >= SAID and not one.echo]
    own, further = verdict.because[:OWN], verdict.because[OWN:]
    if verdict.kind == "none":
        lines, _ = _shown(plain, HEALTHY, WENT_ON)
        return replace(verdict, because=(*own, *lines, *further))
    kept, room = (_kept(left, plain), UNDECIDED) if unknown else (plain, DECIDED)
    lines, more = _shown(kept, room, ALSO)
    summary = verdict.summary
    if more and plain:
        summary = _OF_ALL.sub(lambda match: SHOWN if match[0].endswith("logs") else f"{SHOWN} do not ", summary)
    if plain and unknown:
        summary = _summary(summary, plain, told)
    return replace(verdict, summary=summary, because=(*own, *lines, *further))


def _shown(kept: Sequence[Complaint], room: int, also: str) -> tuple[list[str], int]:
    """Lines of a verdict for those that tell most, in the order of the log, and how many are left over."""
    chosen = sorted(sorted(kept, key=_less_telling)[:room], key=lambda one: (one.at.file, one.at.line))
    more = len(kept) - len(chosen)
    rest = f"and {plural(more, 'more line')} that speak{'s' if more == 1 else ''} of a failure"
    return [*(f"{also}{_quoted(one)}" for one in chosen), *([rest] if more else [])], more


def _left(facts: LogFacts, told: _Told, *, decided: bool) -> list[Complaint]:
    """What speaks of a failure and is not shown."""
    left = [one for one in facts.complaints if _WORD.search(bare(one.at)) and not told.shows(one)]
    return [one for one in left if not (_TAIL.search(one.at.text) and (decided or told.tells_of_cuda))]


def _kept(left: Sequence[Complaint], plain: Sequence[Complaint]) -> list[Complaint]:
    """What is worth a line where nothing is decided: what only follows, where there is little else."""
    said = [one for one in left if one.weight >= SAID]
    if not said:
        return list(left[:1])
    return said if len(plain) < FEW else list(plain)


def _summary(summary: str, plain: Sequence[Complaint], told: _Told) -> str:
    """The headline without claims that the lines refute, and with the line that says most."""
    said = _NO_MORE.sub("", summary)
    refuted = said != summary
    earlier = [one for one in plain if told.first is not None and (one.at.file, one.at.line) < told.first]
    earlier = [one for one in earlier if one.weight == GRAVE or refuted or told.led_by_an_echo]
    earlier = [one for one in earlier if (one.at.file, one.at.line) not in told.handled]
    if earlier:
        lead = min(earlier, key=_less_telling)
        then = said.removeprefix("cannot tell what became of the job: ")
        return f"{whose(lead)}`{said_by(lead.at)}`; then {then}"
    if len(said) > LONG_SUMMARY or not (refuted or told.first is None):
        return said
    lead = min(plain, key=_less_telling)
    return f"{said}; the log also says {whose(lead)}`{said_by(lead.at)}`"


def whose(one: Complaint) -> str:
    """`rank 3: `, or the name of a process, or nothing; of many, how many they are."""
    if one.ranks:
        return f"{names(one.ranks)}: "
    if len(one.processes) > 3:
        return f"{len(one.processes)} processes ({one.processes[0]}, {one.processes[1]}, ...): "
    return f"{', '.join(one.processes)}: " if one.processes else ""


def _quoted(one: Complaint) -> str:
    mark = one.mark if len(one.mark) < 80 else ""
    several = ""
    if len(one.ranks) > 1:
        several = f" ({names(one.ranks)})"
    elif len(one.processes) > 1:
        several = f" (so do {len(one.processes) - 1} more processes)"
    elif one.times > 1:
        several = f" ({one.times} such lines)"
    return f"{one.at.file}:{one.at.line}: {fit(mark + bare(one.at), LINE)}{several}"


def _less_telling(one: Complaint) -> tuple[float, str, int]:
    """Ends before failures, what only follows last; among equals the first one."""
    weight = one.weight - (1.5 if one.echo else 0.0)
    if weight < GRAVE and _DETAIL.search(one.at.text):
        weight += 0.5
    return -weight, one.at.file, one.at.line


class _Told:
    """What a verdict shows."""

    def __init__(self, facts: LogFacts, verdict: Verdict):
        paths = {file.path for file in facts.files}
        self._places: set[tuple[str, int]] = set()
        texts = [verdict.summary, verdict.traceback]
        self._quotes: list[str] = []
        for line in verdict.because:
            place = _PLACE.search(line)
            if place:
                file = place["file"] if place["file"] in paths else place["file"].rpartition(": ")[2]
                if file in paths:
                    self._places.add((file, int(place["line"])))
                self._quotes.append(_core(line[place.end() :].removesuffix("...")))
            texts.append(line)
        self._text = _core("\n".join(texts))
        self.tells_of_cuda = "cuda error" in self._text
        # The line that the verdict begins with.
        self.first = min(self._places, key=lambda place: place[1], default=None)
        echoes = {(one.at.file, one.at.line) for one in facts.complaints if one.echo}
        self.handled = {(one.at.file, one.at.line) for one in facts.raised if one.stepped}
        self.led_by_an_echo = self.first in echoes

    def shows(self, one: Complaint) -> bool:
        """Whether a line, or one that says the same, is shown."""
        if (one.at.file, one.at.line) in self._places:
            return True
        core = _core(bare(one.at))
        if len(core) < SHORT:
            return f" {core} " in f" {self._text} "
        own = core[:ALIKE]
        return own in self._text or any(len(text) > 2 * SHORT and text[:ALIKE] in core for text in self._quotes)


def _core(text: str) -> str:
    """A text without what differs from process to process."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", text.lower())
    return " ".join(re.findall(r"[^\W_]+|#", text))
