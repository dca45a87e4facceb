"""How the link grows with the nodes, as SVG: four panels with logarithmic axes, written as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 360, 240, 56, 36, 30
PANELS = (
    ("verdict s", "suspicion to verdict on every node, s"),
    ("cores", "CPU of the hub in health, cores"),
    ("kB/s", "traffic at the hub in health, kB/s"),
    ("MiB", "peak of the hub's memory, MiB"),
)


def plot(found: Mapping[int, Mapping[str, float]], targets: Mapping[str, float]) -> str:
    """The picture of figures by number of nodes, with a dashed line for each target."""
    size = f'width="{2 * WIDTH}" height="{2 * HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (key, title) in enumerate(PANELS):
        values = {count: row[key] for count, row in found.items() if row[key] > 0}
        parts.append(f'<g transform="translate({number % 2 * WIDTH} {number // 2 * HEIGHT})">')
        parts += _panel(values, title, targets[key])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(values: Mapping[int, float], title: str, target: float) -> list[str]:
    least = 10 ** math.floor(math.log10(min([*values.values(), target])))
    most = 10 ** math.ceil(math.log10(max([*values.values(), target]) * 1.01))
    few, many = min(values) / 1.5, max(values) * 1.5

    def across(count: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * math.log(count / few) / math.log(many / few)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * math.log(value / least) / math.log(most / least)

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    mark = least
    while mark <= most * 1.01:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{up(mark):.1f}" y2="{up(mark):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
        mark *= 10
    y = up(target)
    ends = f'x1="{LEFT}" x2="{WIDTH - 16}" y1="{y:.1f}" y2="{y:.1f}"'
    parts.append(f'<line {ends} stroke="#c33" stroke-dasharray="5 4"/>')
    parts.append(f'<text x="{LEFT + 4}" y="{y - 4:.1f}" fill="#c33">target {target:g}</text>')
    line = " ".join(f"{across(count):.1f},{up(value):.1f}" for count, value in sorted(values.items()))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#247" stroke-width="2"/>')
    for count, value in sorted(values.items()):
        x = across(count)
        parts.append(f'<circle cx="{x:.1f}" cy="{up(value):.1f}" r="3" fill="#247"/>')
        parts.append(f'<text x="{x:.1f}" y="{up(value) - 7:.1f}" text-anchor="middle">{value:.3g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{count}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">nodes</text>')
    return parts
