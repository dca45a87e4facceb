"""Which known variable a name is a slip of. In doubt none: a wrong guess costs more trust than no guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

SLIP = 2  # edits: a letter more, less, changed, or swapped with its neighbour
LONG = 12  # characters from which two edits are still a slip; in shorter names they reach another word
ByLength = dict[int, dict[str, frozenset[str]]]
ALIKE = 0.85  # of difflib's ratio, for names in a namespace that is known whole
ALIKE_APART = 0.6  # the same, for the words that they do not share: NCCL_IB_MTU is no NCCL_IB_TC


def nearest(name: str, known: frozenset[str], namespaces: Mapping[str, str]) -> str:
    """The known name that a name is a slip of, or "".

    These are slips: other case, one or two letters, the same words in another order, a slip in the first word
    (NCLL_DEBUG). In a namespace that is known whole, also TORCH_ too much or too little, a name that is much alike, and
    the start of just one.

    Args:
        name: a name that is not known.
        known: all names that may have been meant.
        namespaces: prefix -> `strict` or `loose`; only names below one of these are ever meant.
    """
    prefixes = tuple(namespaces)
    wanted = name.upper()
    strict = wanted.startswith(tuple(prefix for prefix, kind in namespaces.items() if kind == "strict"))
    if not (strict or wanted.startswith(prefixes) or _slip_of_a_head(wanted, prefixes)):
        return ""
    by_length, by_words = _sorted(known, prefixes)
    if wanted in by_length.get(len(wanted), ()) and wanted != name:
        return wanted if name != name.lower() else ""  # all in small letters it is a variable of a script
    for other in (f"TORCH_{wanted}", wanted.removeprefix("TORCH_")):  # whether it is torch's or NCCL's own
        if other != name and other in known and strict:
            return other
    limit = SLIP if len(wanted) >= LONG else 1
    best, found, own = limit + 1, "", frozenset(wanted)
    for length in range(len(wanted) - limit, len(wanted) + limit + 1):
        for other, letters in by_length.get(length, {}).items():
            # An edit takes away a letter, brings one, or does both.
            if other == name or len(letters ^ own) > 2 * (best - 1):
                continue
            edits = distance(wanted, other, best - 1)
            if edits < best:
                best, found = edits, other
    if found:
        return found
    reordered = by_words.get(_words(wanted), "")
    if reordered or not strict:
        return reordered
    return _alike(wanted, [other for names in by_length.values() for other in names])


@cache
def _sorted(known: frozenset[str], prefixes: tuple[str, ...]) -> tuple[ByLength, dict[str, str]]:
    """The names below the prefixes with their letters, by their length, and by their words in any order."""
    by_length: ByLength = {}
    by_words: dict[str, str] = {}
    for name in sorted(known):
        if name.startswith(prefixes):
            by_length.setdefault(len(name), {})[name] = frozenset(name)
            by_words.setdefault(_words(name), name)
    return by_length, by_words


def _words(name: str) -> str:
    return " ".join(sorted(name.split("_")))


def distance(one: str, other: str, limit: int) -> int:
    """Edits from one word to another, or `limit + 1` where it takes more.

    Source: optimal string alignment, the restricted Damerau-Levenshtein distance.
    """
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            edits = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                edits = min(edits, last[j - 2] + 1)
            row.append(edits)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def _slip_of_a_head(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the first word is a slip of a namespace's. RCCL, HCCL and CCL are libraries of others, as is any word
    that starts with another letter."""
    head, _, rest = name.partition("_")
    return bool(rest) and len(head) >= 3 and _is_slip(head, prefixes)


@cache
def _is_slip(head: str, prefixes: tuple[str, ...]) -> bool:
    firsts = {prefix.split("_")[0] for prefix in prefixes}
    return any(head[0] == first[0] and len(first) >= 4 and distance(head, first, 1) == 1 for first in firsts)


def _alike(name: str, candidates: list[str]) -> str:
    import difflib

    words = name.split("_")
    start = f"{name}_"
    longer = [other for other in candidates if len(words) > 2 and other.startswith(start)]
    if longer:
        return longer[0] if len(longer) == 1 else ""
    head = f"{words[0]}_"
    # So much alike as is asked for are only names of about the same length: of 2 m / (a + b), m is the shorter one.
    least, most = len(name) * ALIKE / (2 - ALIKE), len(name) * (2 - ALIKE) / ALIKE
    letters = Counter(name)
    same = [
        other
        for other in candidates
        if least <= len(other) <= most
        and other.startswith(head)
        and _shared(letters, other) * 2 >= ALIKE * (len(name) + len(other))
    ]
    for other in difflib.get_close_matches(name, same, n=3, cutoff=ALIKE):
        mine, its = _apart(words, other.split("_"))
        if not mine or not its or difflib.SequenceMatcher(None, mine, its).ratio() >= ALIKE_APART:
            return other
    return ""


def _shared(letters: Counter[str], other: str) -> int:
    """How many letters two words have in common, wherever they stand: the most that can be alike."""
    return sum(min(count, letters.get(letter, 0)) for letter, count in _letters(other).items())


@cache
def _letters(name: str) -> Counter[str]:
    return Counter(name)


def _apart(words: list[str], others: list[str]) -> tuple[str, str]:
    """What two names do not share: their words without those that stand first, or last, in both."""
    while words and others and words[0] == others[0]:
        words, others = words[1:], others[1:]
    while words and others and words[-1] == others[-1]:
        words, others = words[:-1], others[:-1]
    return "_".join(words), "_".join(others)
