"""Figures of a report as SVG: each setting is a point with its 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ldp_slicing.lab.advise.findings import SettingFinding
from ldp_slicing.lab.advise.intervals import Estimate

WIDTH, HEIGHT = 560, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 16, 46
COLOURS = ("#3558a8", "#c2571a", "#2b8157", "#8a4fa3", "#8c7a1d", "#5b6770")  # by view
Scale = Callable[[float], float]  # from a number to a place in the figure
SHAPES = {"paper": "circle", "thick": "square", "grey": "triangle"}


@dataclass(frozen=True)
class Axis:
    """A quantity on an axis: its name, the metric, its range, and the limit that was given."""

    label: str
    metric: str
    least: float
    most: float
    limit: float | None = None
    control: float | None = None

    def ticks(self) -> list[float]:
        """Round numbers on the axis. Its ends are tenths, so it is counted in tenths."""
        least, most = round(10 * self.least), round(10 * self.most)
        return [i / 10 for i in range(least, most + 1) if most - least <= 6 or i % 2 == 0]


def value_of(finding: SettingFinding, metric: str) -> Estimate | None:
    return finding.utility.get(metric) or finding.risks.get(metric)


def axis(
    findings: Sequence[SettingFinding], metric: str, label: str, limit: float | None, control: float | None
) -> Axis:
    """An axis that holds every interval, the limit and the unprotected images."""
    found = [one for finding in findings if (one := value_of(finding, metric)) is not None]
    ends = [one.low for one in found] + [one.high for one in found] + [v for v in (limit, control) if v is not None]
    least, most = min(ends, default=0.0), max(ends, default=1.0)
    return Axis(label, metric, max(-0.2, (least * 10 // 1) / 10), min(1.0, -((-most * 10) // 1) / 10), limit, control)


def scatter(
    findings: Sequence[SettingFinding], across: Axis, up: Axis, chosen: SettingFinding | None, views: Sequence[str]
) -> str:
    """An SVG with one point for each finding. views: the names of the views, which decide the colours."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + width * (value - across.least) / max(across.most - across.least, 1e-9)

    def y(value: float) -> float:
        return TOP + height * (1 - (value - up.least) / max(up.most - up.least, 1e-9))

    described = escape(f"{up.label} against {across.label}")
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{described}">']
    for tick in up.ticks():
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.1f}</text>')
    for tick in across.ticks():
        parts.append(f'<path class="grid" d="M{x(tick):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{tick:.1f}</text>')
    places = (f'x="{LEFT + width / 2}" y="{HEIGHT - 8}"', f'transform="translate(14 {TOP + height / 2}) rotate(-90)"')
    for place, one in zip(places, (across, up), strict=True):
        parts.append(f'<text class="label" {place} text-anchor="middle">{escape(one.label)}</text>')
    parts += _lines(across, up, x, y)
    for finding in sorted(findings, key=lambda one: (one is chosen, one.confirmations, one.rounds)):
        parts.append(_point(finding, across, up, x, y, views, chosen=finding is chosen))
    return "".join([*parts, "</svg>"])


def _lines(across: Axis, up: Axis, x: Scale, y: Scale) -> list[str]:
    """The limits, and what unprotected images reach."""
    parts = []
    for value, kind in ((across.limit, "limit"), (across.control, "control")):
        if value is not None:
            parts.append(f'<path class="{kind}" d="M{x(value):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
    for value, kind in ((up.limit, "limit"), (up.control, "control")):
        if value is not None:
            parts.append(f'<path class="{kind}" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>')
    return parts


def _point(
    finding: SettingFinding, across: Axis, up: Axis, x: Scale, y: Scale, views: Sequence[str], *, chosen: bool
) -> str:
    a, b = value_of(finding, across.metric), value_of(finding, up.metric)
    if a is None or b is None:
        return ""
    colour = COLOURS[views.index(finding.setting.prune or "none") % len(COLOURS)]
    cx, cy, radius = x(a.value), y(b.value), min(7.0, 2.5 + max(finding.setting.size).bit_length() / 2)
    fade = 1.0 if finding.confirmations else 0.75 if finding.rounds > 1 else 0.45
    numbers = [f"{one.label} {v.value:.3f} ({v.low:.3f} to {v.high:.3f})" for one, v in ((up, b), (across, a))]
    title = f"{finding.setting.words}: {numbers[0]}, {numbers[1]}"
    bars = f"M{x(a.low):.1f} {cy:.1f}H{x(a.high):.1f}M{cx:.1f} {y(b.low):.1f}V{y(b.high):.1f}"
    drawn = _mark(SHAPES[finding.setting.family], cx, cy, radius)
    ring = f'<circle class="ring" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius + 5:.1f}"/>' if chosen else ""
    return (
        f'<g opacity="{fade}" fill="{colour}"><title>{escape(title)}</title>'
        f'<path class="bar" stroke="{colour}" d="{bars}"/>{drawn}</g>{ring}'
    )


def _mark(shape: str, x: float, y: float, r: float) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
    if shape == "square":
        return f'<path d="M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}z"/>'
    return f'<path d="M{x:.1f} {y - 1.2 * r:.1f}l{1.15 * r:.1f} {2.1 * r:.1f}h{-2.3 * r:.1f}z"/>'


def legend(views: Sequence[str], names: dict[str, str], families: Sequence[str], words: dict[str, str]) -> str:
    """HTML: what colours and shapes mean."""

    def entry(drawn: str, text: str) -> str:
        return f'<span><svg viewBox="0 0 14 14">{drawn}</svg>{escape(text)}</span>'

    colours = [f'<circle cx="7" cy="7" r="6" fill="{colour}"/>' for colour in COLOURS]
    parts = [entry(colours[i % len(colours)], names[view]) for i, view in enumerate(views)]
    parts += [entry(_mark(SHAPES[one], 7, 7, 5), words[one]) for one in families]
    parts += [entry('<path class="limit" d="M0 7H14"/>', "limit")]
    parts += [entry('<path class="control" d="M0 7H14"/>', "unprotected images")]
    return f'<p class="legend">{"".join(parts)}</p>'
