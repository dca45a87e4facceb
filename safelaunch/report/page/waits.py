"""The wait-for graph, drawn: boxes of ranks that wait alike, and arrows to those they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Case, RankFacts, Verdict
from safelaunch.report.page.element import Html, cell, shape, tag
from safelaunch.report.page.subject import Waiting, names, place, state

MOST = 24  # boxes that a person can still follow
WIDTH, HEIGHT = 260, 62  # of a box, in pixels
GAP_X, GAP_Y, EDGE = 110, 22, 44
LETTERS = 38  # that fit into a box


@dataclass(frozen=True)
class Box:
    """Ranks that wait for the same, and that the same ranks wait for."""

    ranks: tuple[int, ...]
    waits: tuple[Waiting, ...]


def section(case: Case, verdict: Verdict | None, waits: Sequence[Waiting]) -> Html | None:
    """The drawing, and the same in words; nothing where nobody waits."""
    if not waits:
        return None
    culprits = verdict.culprit_ranks if verdict is not None else ()
    boxes = _boxes(waits, culprits)
    edges = _edges(boxes)
    shown = boxes[:MOST]
    drawn = [(start, end) for start, end in edges if start < len(shown) and end < len(shown)]
    left_out = [rank for box in boxes[MOST:] for rank in box.ranks]
    return tag(
        "section",
        tag("h2", "Who waits for whom"),
        _svg(shown, drawn, culprits, case),
        tag("ul", *(tag("li", line) for line in _lines(shown))),
        tag("p", f"Not drawn: {names(left_out)}.") if left_out else None,
    )


def arrow_head() -> Html:
    """What all drawings of a page refer to."""
    head = shape("path", "head", d="M0,0 L8,4 L0,8 z")
    size = {"refX": 8, "refY": 4, "markerWidth": 8, "markerHeight": 8}
    marker = tag("marker", head, id="arrow", viewBox="0 0 8 8", orient="auto", **size)
    return tag("svg", tag("defs", marker), width=0, height=0, class_="hidden", aria_hidden="true")


def _boxes(waits: Sequence[Waiting], culprits: Sequence[int]) -> list[Box]:
    own: dict[int, list[Waiting]] = {}
    blockers: dict[tuple[int, ...], int] = {}
    for wait in waits:
        own.setdefault(wait.rank, []).append(wait)
        blockers.setdefault(wait.on, len(blockers))
    waited_for: dict[int, list[int]] = {}
    for ranks, number in blockers.items():
        for rank in ranks:
            waited_for.setdefault(rank, []).append(number)
    alike: dict[object, list[int]] = {}
    for rank in sorted({*own, *waited_for}):
        calls = tuple((wait.what, wait.on) for wait in own.get(rank, []))
        alike.setdefault((calls, tuple(waited_for.get(rank, [])), rank in culprits), []).append(rank)
    found = [Box(tuple(ranks), tuple(own.get(ranks[0], []))) for ranks in alike.values()]
    # The culprits must be among those that are drawn.
    return sorted(found, key=lambda box: (box.ranks[0] not in culprits, -len(box.ranks), box.ranks[0]))


def _edges(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    where = {rank: number for number, box in enumerate(boxes) for rank in box.ranks}
    found: dict[tuple[int, int], None] = {}
    for number, box in enumerate(boxes):
        for wait in box.waits:
            found.update(((number, where[rank]), None) for rank in wait.on if rank in where)
    return list(found)


def _columns(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """A box stands right of those that wait for it, where there is no circle."""
    targets = {end for start, end in edges if start != end}
    column = [0] * count
    roots = [number for number in range(count) if number not in targets] or [0]
    for _ in range(count):
        moved = False
        for start, end in edges:
            if start != end and end not in roots and column[end] < column[start] + 1 <= min(count - 1, 6):
                if _leads(end, start, edges):
                    column[end] = max(column[end], 1)  # a circle: side by side
                    continue
                column[end], moved = column[start] + 1, True
        if not moved:
            break
    return column


def _leads(start: int, goal: int, edges: Sequence[tuple[int, int]]) -> bool:
    seen, left = {start}, [start]
    while left:
        node = left.pop()
        if node == goal:
            return True
        for one, other in edges:
            if one == node and other not in seen:
                seen.add(other)
                left.append(other)
    return False


def _svg(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], culprits: Sequence[int], case: Case) -> Html:
    columns = _columns(len(boxes), edges)
    rows: dict[int, int] = {}
    corners: list[tuple[int, int]] = []
    for column in columns:
        row = rows.get(column, 0)
        rows[column] = row + 1
        corners.append((EDGE + column * (WIDTH + GAP_X), 10 + row * (HEIGHT + GAP_Y)))
    width = 2 * EDGE + WIDTH + max(columns) * (WIDTH + GAP_X)
    height = 20 + max(rows.values()) * (HEIGHT + GAP_Y)
    by_rank = {facts.rank: facts for facts in case.ranks}
    why = {rank: reason for box in boxes for wait in box.waits for rank, reason in wait.why}
    return tag(
        "div",
        tag(
            "svg",
            tag("title", "wait-for graph"),
            *(_arrow(corners[start], corners[end]) for start, end in edges),
            *(
                _box(box, corner, any(rank in culprits for rank in box.ranks), _doing(box, by_rank, why))
                for box, corner in zip(boxes, corners, strict=True)
            ),
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            role="img",
            font_size=13,
            font_family="system-ui, sans-serif",
        ),
        class_="drawing",
    )


def _doing(box: Box, by_rank: Mapping[int, RankFacts], why: Mapping[int, str]) -> tuple[str, str]:
    facts = by_rank.get(box.ranks[0])
    where = place(facts) if facts is not None else ""
    if box.waits:
        return box.waits[0].what, where
    how = why.get(box.ranks[0]) or (state(facts) if facts is not None else "not known")
    return how, where


def _box(box: Box, corner: tuple[int, int], culprit: bool, doing: tuple[str, str]) -> Html:
    x, y = corner
    title = names(box.ranks, 5) + (" (culprit)" if culprit else "")
    return tag(
        "g",
        tag("title", f"{names(box.ranks, 40)}: {doing[0]}"),
        shape("rect", "guilty" if culprit else "plain", x=x, y=y, width=WIDTH, height=HEIGHT, rx=6),
        shape("text", "strong", cell(title, LETTERS), x=x + 10, y=y + 20),
        tag("text", cell(doing[0], LETTERS), x=x + 10, y=y + 37),
        shape("text", "dim", cell(doing[1], LETTERS), x=x + 10, y=y + 53),
        class_="box culprit" if culprit else "box",
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> Html:
    (x, y), (to_x, to_y) = start, end
    y, to_y = y + HEIGHT // 2, to_y + HEIGHT // 2
    if to_x > x:
        middle = (x + WIDTH + to_x) // 2
        d = f"M{x + WIDTH},{y} C{middle},{y} {middle},{to_y} {to_x},{to_y}"
    elif to_x == x:  # in the same column: down around the right side, up around the left one
        side, by = (x + WIDTH, 34) if to_y > y else (x, -34)
        d = f"M{side},{y} C{side + by},{y} {side + by},{to_y} {side},{to_y}"
    else:  # back: a circle, told from the way there by its curve
        d = f"M{x},{y + 12} C{x - 50},{y + 40} {to_x + WIDTH + 50},{to_y + 40} {to_x + WIDTH},{to_y + 12}"
    return shape("path", "arrow", d=d, marker_end="url(#arrow)")


def _lines(boxes: Sequence[Box]) -> list[str]:
    found = []
    for box in boxes:
        for wait in box.waits:
            verb = "waits" if len(box.ranks) == 1 else "wait"
            if wait.call is None:
                whose = f", which {names(wait.on)} {'has' if len(wait.on) == 1 else 'have'}" if wait.on else ""
                found.append(f"{names(box.ranks)} {verb} {wait.what}{whose}")
                continue
            who = f"{names(wait.on)}" if wait.on else "nobody that is known here"
            reasons = dict.fromkeys(f"{rank}: {reason}" for rank, reason in wait.why[:4])
            more = f" ({'; '.join(f'rank {reason}' for reason in reasons)})" if reasons else ""
            away = f"; {wait.away} members are on other nodes or not known" if wait.away else ""
            found.append(f"{names(box.ranks)} {verb} {wait.what} for {who}{more}{away}")
    return found
