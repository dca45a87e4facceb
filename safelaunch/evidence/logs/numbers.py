"""What the numbers of a log's steps say by themselves: losses that are no numbers, steps that took far longer than
the others, steps that were skipped; and warnings that were written while the job ran.

Only the first and the last part of a file are looked at, as for its steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from safelaunch.evidence.logs import habitual, prefixes
from safelaunch.evidence.logs.prefixes import Habits
from safelaunch.evidence.logs.sieve import TAIL, Sieve
from safelaunch.evidence.logs.signatures import Signature
from safelaunch.model.logs import LogLine, Odd
from safelaunch.shortened import shortened

WIDTH = 400  # of a quoted line
LONGEST = 2000  # characters of a line that are looked at

MANY_TIMES = 10  # the median: evaluations and checkpoints that no line tells of stay below that in most jobs
PAUSE_S = 120  # shorter ones are no news
SOME_TIMES, LONG_S = 4, 3600
GROWN, GROWN_BY = 100, 10  # times, and by: a loss near zero varies by any factor
FEW = 4  # values, of which a median says something
LAST = 3  # values, or lines, that show how it is at the end

_NO_DIGITS = str.maketrans("", "", "0123456789")
_VALUE = r"['\"]?\s{0,4}(?:is|at|of)?\s{0,4}[:=|]?\s{0,8}['\"]?(?:tensor\()?"
_NAME = (
    r"(?<![A-Za-z])(?<!best )(?P<name>[\w/.-]{0,40}(?:loss|perplexity|ppl)(?:[\w/.-]{0,20})?"
    r"|[\w/.-]{0,20}grad[\w/.-]{0,2}[ _-]?norm|gnorm)(?![A-Za-z])"
)
_NOT_A_NUMBER = re.compile(rf"{_NAME}{_VALUE}-?(?P<value>nan|inf(?:inity)?)(?![\w])", re.IGNORECASE)
_NUMBER = re.compile(rf"{_NAME}{_VALUE}(?P<value>-?\d[\d.]{{0,30}}(?:e[+-]?\d{{1,4}})?)(?![\w%])", re.IGNORECASE)
# What a JSON writer makes of nan; where only some lines evaluate, the others have none.
_NULL = re.compile(r"\"(?P<name>(?!eval|val|test|best|dev)[\w/.-]{0,40}loss)\": ?null\b", re.IGNORECASE)
_SKIPPED = re.compile(r"number of (?P<name>skipped|nan) iterations:\s*(?P<value>\d{1,12})", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"\bOVERFLOW!|[Gg]radient overflow|\boverflow detected, setting loss scale"
    r"|[Ss]kipping (?:the )?(?:step|update|batch|iteration)"
)
_SCALE = re.compile(r"(?:loss scale to:?|reducing to) ?(?P<value>[\d.e+-]{1,30}\d)")
_STEP = re.compile(
    r"\b(?:global[ _]?)?(?:step|iter|iteration|batch|update)s?\b['\"]?\s?(?:at|=|:|#|\[|\()?\s*(?P<step>\d{1,12})"
    r"(?![\d.]{0,30}\s?(?:s|ms)\b)",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?P<name>elapsed time per iteration \(m?s\)|(?:step|iter(?:ation)?|batch)[ _-]?time(?:[ _]?\(m?s\))?"
    r"|(?<![\w/-])time(?!\s?[:=]\s?\d{1,9}:)|time[ _/]per[ _](?:step|iter(?:ation)?)|time/step|sec/step"
    r"|s/step|ms/step)['\"]?\s*[:=]\s*(?P<value>\d[\d.]{0,30})",
    re.IGNORECASE,
)
_BAR = re.compile(r"^.{0,60}?\d%\s?\|")
_PACE = re.compile(r"(?<![\d.])(?P<value>\d{1,9}(?:\.\d{1,9})?)\s?s(?:ec)?/(?:step|it|iter)\b")
_COUNTED = re.compile(r"\bstep=(?P<step>\d{1,12}), skipped=(?P<skipped>\d{1,12})")  # DeepSpeed, since the start
# A server of a language model: requests that run or wait, and tokens that it generates.
_SERVES = re.compile(
    r"generation throughput: (?P<rate>[\d.]{1,30}) tok.*?Running: (?P<running>\d{1,12}) req"
    r"|#running-req: (?P<batch>\d{1,12}).*?gen throughput \(token/s\): (?P<pace>[\d.]{1,30})"
)
_RATE = re.compile(
    r"\b(?P<name>samples per second|tokens per second(?: per gpu)?|tps|tokens/s(?:ec)?|samples/s(?:ec)?|tflops|mfu"
    r"|throughput(?! \(?tok)(?!.*\breq))\b['\"]?[^\d\n:=|]{0,12}[:=]\s*(?P<value>\d[\d,.]{0,30})",
    re.IGNORECASE,
)
# What a job does between two steps that takes its time, and ends.
_MEANWHILE = re.compile(
    r"eval|valid|\btest|sav(?:e|ing)|checkpoint|ckpt|compil|load|download|resum|generat", re.IGNORECASE
)
WARNING = re.compile(r"(?<![\w.])(?:WARNING|WARN)(?![\w=])|^\[?W\d{3,4} \d\d:|\blevel=warn")
_BEST = re.compile(r"best|min_|lowest")  # it begins with infinity
_GRAVE = re.compile(
    r"(?i)memory|\bretr(?:y|ies)|tried again|\bslow|stall|straggl|tim(?:e|ed) ?out|fail|error|overflow|\bnan\b|\binf\b"
    r"|skip|\blost\b|\bdropp|throttl|\boom\b|disconnect|corrupt|exceed|\bhang|\bhung|stuck|unhealthy|restart|diverg|unstable"
    r"|\bspike|\bfull\b|terminat|kill|abort|unreachable|died|dead"
)
_HABITUAL = re.compile(
    r"(?:Future|Deprecation|User|Resource|Runtime|Syntax|Import)Warning|OMP_NUM_THREADS|deprecat", re.IGNORECASE
)


@dataclass
class Numbers:
    """Collects lines of one file in their order, and tells what is odd about their numbers."""

    _broken: list[tuple[str, LogLine]] = field(default_factory=list)
    _values: dict[str, list[tuple[float | None, LogLine]]] = field(default_factory=dict)
    _nulls: dict[str, LogLine] = field(default_factory=dict)  # in the last lines that tell them
    _skipped: dict[str, list[tuple[int, LogLine]]] = field(default_factory=dict)
    _overflows: list[tuple[int, LogLine]] = field(default_factory=list)
    _times: dict[str, list[tuple[float, LogLine]]] = field(default_factory=dict)
    _rates: dict[str, list[tuple[float, LogLine]]] = field(default_factory=dict)
    _counted: list[tuple[int, int, LogLine]] = field(default_factory=list)
    _idle: list[tuple[bool, LogLine]] = field(default_factory=list)
    _clock: dict[str, list[tuple[int, float, bool, LogLine]]] = field(default_factory=dict)
    _warnings: list[LogLine] = field(default_factory=list)
    _meanwhile: bool = False
    _steps: int = 0

    def look(self, at: LogLine, text: str, whole: str, *, harmless: bool) -> None:
        """One line.

        Args:
            at: the line as it is quoted.
            text: the line without what stands before its message.
            whole: the line as it is, for its level may stand before the message.
            harmless: whether it is known to mean nothing.
        """
        self._losses(at, text)
        for match in _SKIPPED.finditer(text):
            self._skipped.setdefault(match["name"].lower(), []).append((int(match["value"][:9]), at))
        if _OVERFLOW.search(text):
            self._overflows.append((self._steps, at))
        serves = _SERVES.search(text) is not None  # the rates of a server follow its load
        for pattern, kept in ((_TIME, self._times), *(() if serves else ((_RATE, self._rates),))):
            for match in pattern.finditer(text):
                kept.setdefault(match["name"].lower(), []).append((_float(match["value"]), at))
        self._others(at, text)
        is_step = habitual.STEP.search(text) is not None
        self._steps += is_step
        step = _STEP.search(text) if is_step else None
        if step is not None and at.t is not None:
            self._clock.setdefault(at.clock, []).append((int(step["step"]), at.t, self._meanwhile, at))
            self._meanwhile = False
        self._meanwhile |= _MEANWHILE.search(text) is not None
        if self._steps and not harmless and WARNING.search(whole) and not _HABITUAL.search(whole):
            self._warnings.append(at)

    def _losses(self, at: LogLine, text: str) -> None:
        for match in _NOT_A_NUMBER.finditer(text):
            self._values.setdefault(match["name"].lower(), []).append((None, at))
        for match in _NUMBER.finditer(text):
            self._values.setdefault(match["name"].lower(), []).append((_float(match["value"]), at))
            self._nulls.pop(match["name"].lower(), None)
        self._nulls |= {match["name"].lower(): at for match in _NULL.finditer(text)}

    def _others(self, at: LogLine, text: str) -> None:
        """Numbers of which the names stand behind them, or that tell something together with others."""
        if match := _PACE.search(text):
            bar = _BAR.match(text)
            kind = bar[0].translate(_NO_DIGITS) if bar else ""
            self._times.setdefault(f"pace {kind}", []).append((_float(match["value"]), at))
        if match := _COUNTED.search(text):
            self._counted.append((int(match["step"]), int(match["skipped"]), at))
        if match := _SERVES.search(text):
            busy = int(match["running"] or match["batch"]) > 0
            self._idle.append((busy and _float(match["rate"] or match["pace"]) == 0, at))

    def odd(self) -> tuple[Odd, ...]:
        """What is odd, the weightiest first."""
        return tuple(
            [
                *self._no_numbers(),
                *self._grown(),
                *self._zeros(),
                *self._unchanged_steps(),
                *self._slow(),
                *self._pauses(),
            ]
            + [Odd(at, "a warning was written while the job ran", "warning") for at in self._grave()[:1]]
            + [Odd(at, "a warning", "remark") for at in self._warnings[:1] if not self._grave()]
        )

    def _grave(self) -> list[LogLine]:
        """The warnings that speak of what may end a job, or slows it."""
        return [at for at in self._warnings if _GRAVE.search(at.text)]

    def _no_numbers(self) -> Iterable[Odd]:
        """Losses that are no numbers. A norm of gradients may be one where a step is skipped for it: only what stays
        so, or stands at the end, counts."""
        for name, at in self._nulls.items():
            yield Odd(at, f"{name} is null, and no number, in the last line that tells it", "value")
        for name, values in self._values.items():
            broken = [at for value, at in values if value is None]
            if not broken or _BEST.search(name):
                continue
            stays = values[-1][0] is None or 2 * len(broken) >= len(values)
            if "norm" not in name or stays:
                count = (
                    "each line that tells it" if len(broken) == len(values) else f"{len(broken)} of {len(values)} lines"
                )
                began = broken[-1] if "norm" in name else broken[0]  # a loss does not come back from it
                yield Odd(began, f"{name.strip()} is nan or inf in {count}", "value")

    def _grown(self) -> Iterable[Odd]:
        """Losses that are many times what they were."""
        for name, values in self._values.items():
            known = [value for value, _ in values if value is not None]
            if "loss" not in name or len(known) < FEW or known[-1] != values[-1][0]:
                continue
            least, last = min(known), known[-1]
            if least > 0 and last >= GROWN * least and last - least >= GROWN_BY:
                yield Odd(values[-1][1], f"{name} has grown from {least:g} to {last:g}", "value")

    def _zeros(self) -> Iterable[Odd]:
        for name, values in self._values.items():
            last = [value for value, _ in values[-LAST:]]
            if name == "loss" and len(last) == LAST and not any(last) and None not in last:
                yield Odd(values[-1][1], f"{name} is exactly 0 in the last {LAST} lines that tell it", "value")

    def _unchanged_steps(self) -> Iterable[Odd]:
        """Iterations that changed nothing, in each of the lines that tell of it."""
        for name, values in self._skipped.items():
            told = values[-max(LAST, len(values) // 2) :]
            if len(told) > 1 and all(value for value, _ in told):
                yield Odd(
                    told[-1][1],
                    f"iterations were {'skipped' if name == 'skipped' else name}, up to the last line that counts them",
                    "value",
                )
        if self._counted and 0 < self._counted[-1][0] == self._counted[-1][1]:
            yield Odd(self._counted[-1][2], f"all of the first {self._counted[-1][0]} steps were skipped", "value")
        last = self._idle[-LAST:]
        if len(last) == LAST and all(stuck for stuck, _ in last):
            yield Odd(last[-1][1], f"requests run, and no token was generated in the last {LAST} lines", "pace")
        if len(self._overflows) >= LAST and len(self._overflows) >= self._steps - self._overflows[0][0]:
            to = _SCALE.search(self._overflows[-1][1].text)
            scale = f", and the loss scale has come to {to['value']}" if to else ""
            what = f"steps were skipped for an overflow in {len(self._overflows)} lines{scale}"
            yield Odd(self._overflows[-1][1], what, "value")

    def _slow(self) -> Iterable[Odd]:
        """Steps that say themselves that they took far longer than the others. The first ones warm up."""
        for values in self._times.values():
            usual = median(value for value, _ in values)
            worst = max(values[_warm_up(values) :], default=None, key=lambda one: one[0])
            if worst and len(values) >= FEW and usual > 0 and worst[0] >= MANY_TIMES * usual:
                yield Odd(worst[1], f"a step took {worst[0] / usual:.0f} times as long as the median step", "pace")
        for name, rates in self._rates.items():
            usual = median(value for value, _ in rates)
            worst = min(rates[_warm_up(rates) :], default=None, key=lambda one: one[0])
            if worst and len(rates) >= FEW and usual > 0 and worst[0] * MANY_TIMES <= usual:
                yield Odd(worst[1], f"{name} fell to a tenth of its median, or below", "pace")

    def _pauses(self) -> Iterable[Odd]:
        """Steps between which far more time went by than between the others, by the times of their lines."""
        for steps in self._clock.values():
            spans = list(_spans(steps))
            if len(spans) < FEW - 1:
                continue
            usual = median(span / count for count, span, _, _ in spans)
            for count, span, busy, at in spans:
                long = span - usual * count >= LONG_S and span >= SOME_TIMES * usual * count
                if not busy and (long or (span - usual * count >= PAUSE_S and span >= MANY_TIMES * usual * count)):
                    times = span / (usual * count) if usual else 0.0
                    than = f", {times:.0f} times as long as the median" if times else ""
                    yield Odd(at, f"{_duration(span)} went by before this step{than}", "pace")
                    break


def _spans(steps: Sequence[tuple[int, float, bool, LogLine]]) -> Iterable[tuple[int, float, bool, LogLine]]:
    """Between steps that follow one another: how many they are, the seconds between them, and whether the job was busy
    with something else. Several ranks tell of one step."""
    latest, moment, between = None, 0.0, False
    for step, t, busy, at in steps:
        between |= busy
        if latest is not None and step > latest and t >= moment:
            yield step - latest, t - moment, between, at
        if latest is None or step != latest:
            latest, moment, between = step, t, False


def _warm_up(values: Sequence[object]) -> int:
    """How many of the first values are of a start: compilers, caches and averages take their time."""
    return 1 + len(values) // 4


def _float(text: str) -> float:
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return 0.0


def _duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def of(path: str, sieve: Sieve, known: Habits, signatures: Sequence[Signature]) -> tuple[Odd, ...]:
    """What is odd about the numbers and warnings at the beginning and at the end of a file that was read."""
    numbers = Numbers()
    last = 0
    for first, part, cut in ((1, sieve.sample, False), (sieve.tail_line, sieve.tail, sieve.tail_cut)):
        lines = part.decode("utf-8", "replace").split("\n")
        for number, line in enumerate(lines, first):
            if number <= last or (cut and number == first):
                continue
            for text in line.split("\r"):
                _look(numbers, path, number, text[-LONGEST:], known, signatures)
        last = max(last, first + len(lines) - (2 if len(part) >= TAIL else 1))
    return numbers.odd()


def _look(numbers: Numbers, path: str, number: int, whole: str, known: Habits, signatures: Sequence[Signature]) -> None:
    if not whole.strip():
        return
    try:
        line = prefixes.strip(whole, known)
    except (ValueError, RecursionError):
        return  # torn, and counted as such elsewhere
    at = LogLine(path, number, shortened(line.text.strip(), WIDTH), line.t, line.clock)
    warns = WARNING.search(whole) is not None
    harmless = warns and any(one.known.role == "note" and one.search(line.text) for one in signatures)
    numbers.look(at, line.text, whole, harmless=harmless)
