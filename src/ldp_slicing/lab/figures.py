"""The common style of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

FONT_SIZE = 6.0  # of the labels beside points, in points
DIRECTIONS = ((1, -1), (-1, 1), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))  # tried in this order
OFFSETS = [(distance * x, distance * y) for distance in (1.0, 1.4, 2.0) for x, y in DIRECTIONS]
COLOURS = ("#0b6e99", "#c8553d", "#588157", "#7b4b94")


def panels(
    count: int, *, logarithmic: bool = True, width: float = 4.4, height: float = 4.2, rows: int = 1
) -> tuple[Figure, list[Any]]:
    """A figure with ``count`` panels in that many rows, with a logarithmic x axis for eps unless told otherwise.

    width, height: of a panel, in inches.
    """
    figure = Figure(figsize=(width * count / rows, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, count // rows, squeeze=False).ravel())
    _grid(axes)
    for axis in axes:
        if logarithmic:
            axis.set_xscale("log")
    return figure, axes


def mosaic(names: Sequence[Sequence[str]], *, height: float) -> tuple[Figure, dict[str, Any]]:
    """A figure with panels by name, in rows. A name that is repeated is one panel. height: of all, in inches."""
    figure = Figure(figsize=(10.0, height), layout="constrained")
    axes: dict[str, Any] = figure.subplot_mosaic([[*row] for row in names])
    _grid(axes.values())
    return figure, axes


def _grid(axes: Iterable[Any]) -> None:
    for axis in axes:
        axis.grid(color="0.9")
        axis.set_axisbelow(True)


def line(
    axis: Any,  # noqa: ANN401 - matplotlib's
    found: Mapping[float, Sequence[float]],
    label: str,
    colour: str,
    style: str = "-",
    intervals: Mapping[float, tuple[float, float]] | None = None,
) -> None:
    """A line through the means of shares (in %) over eps.

    The error bars are the intervals, or reach from the smallest to the largest share. Without either there are none.
    """
    points = {eps: values for eps, values in found.items() if values}
    if not points:
        return
    means = [100 * sum(values) / len(values) for values in points.values()]
    ends = [(min(values), max(values)) for values in points.values()]
    if intervals is not None:
        ends = [intervals[eps] for eps in points]
    below = [max(0.0, mean - 100 * low) for mean, (low, _) in zip(means, ends, strict=True)]
    above = [max(0.0, 100 * high - mean) for mean, (_, high) in zip(means, ends, strict=True)]
    axis.errorbar(
        list(points),
        means,
        yerr=(below, above) if any((*below, *above)) else None,
        color=colour,
        linestyle=style,
        marker="o",
        markersize=3.5,
        capsize=2,
        label=label,
    )
    budget_ticks(axis, list(points))


def bars(
    axis: Any,  # noqa: ANN401 - matplotlib's
    found: Mapping[str, Sequence[float]],
    label: str = "",
    colours: Sequence[str] = COLOURS[:1],
) -> None:
    """Horizontal bars from 0 to the means, with the means, the first at the top. Error bars: smallest to largest."""
    means = [sum(values) / len(values) for values in found.values()]
    several = [len(values) > 1 for values in found.values()]  # one value has no range
    below, above = (
        [
            abs(mean - end(values)) if many else np.nan
            for mean, values, many in zip(means, found.values(), several, strict=True)
        ]
        for end in (min, max)
    )
    errors = {"xerr": (below, above), "capsize": 2, "error_kw": {"elinewidth": 1}} if any(several) else {}
    axis.barh(list(found), means, color=list(colours), label=label, **errors)
    for place, mean in enumerate(means):
        inside = mean > axis.get_xlim()[1] / 3
        look = {"ha": "center", "color": "white"} if inside else {"ha": "left", "color": "0.2"}
        axis.text(
            mean / 2 if inside else mean, place, f"{'' if inside else ' '}{mean:.3g}", va="center", fontsize=8, **look
        )
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")


def dots(axis: Any, found: Mapping[str, float], colours: Sequence[str]) -> None:  # noqa: ANN401 - matplotlib's
    """One point for each name, with its value, the first at the top: for logarithmic axes, on which bars have no 0."""
    axis.scatter(list(found.values()), list(found), c=list(colours), s=45, zorder=3)
    for place, value in enumerate(found.values()):
        where = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        axis.annotate(f"{value:.3g}", (value, place), **where)
    axis.set_ylim(len(found) - 0.5, -0.5)


def budget_ticks(axis: Any, budgets: Sequence[float]) -> None:  # noqa: ANN401 - matplotlib's
    """Ticks at these budgets and nowhere else."""
    axis.set_xticks(budgets, [f"{eps:g}" for eps in budgets])
    axis.xaxis.set_minor_locator(NullLocator())


def legend(axis: Any) -> None:  # noqa: ANN401 - matplotlib's
    """A legend below the panel, unless nothing is drawn."""
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize=7, frameon=False)


def common_legend(figure: Figure, axis: Any, columns: int) -> None:  # noqa: ANN401 - matplotlib's
    """The legend of one panel for all of them, below the figure."""
    if axis.get_legend_handles_labels()[1]:
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


Label = tuple[float, float, str, str]


def label_points(axis: Any, labels: Sequence[Label]) -> list[Label]:  # noqa: ANN401 - matplotlib's
    """Label points (x, y, text, colour), each label close to its point without covering a marker, a line or a label.

    A label is nearer to its own point than to the others, so that nobody takes it for theirs.
    Call it last, when everything else is drawn. Labels without room are omitted, and returned.
    """
    axis.figure.draw_without_rendering()
    points = 72 / axis.figure.dpi  # all lengths are in points, as font sizes are
    frame = points * axis.bbox.get_points()
    taken = np.concatenate([np.empty((0, 2, 2)), *(_covered(line, points) for line in axis.get_lines())])
    omitted, places = list[Label](), np.array([points * axis.transData.transform(one[:2]) for one in labels])
    for own, (x, y, text, colour) in enumerate(labels):
        half = np.array([0.33 * FONT_SIZE * len(text), FONT_SIZE / 2])
        middle = points * axis.transData.transform((x, y))
        for offset in np.array(OFFSETS) * (half + 3):
            low, high = middle + offset - half, middle + offset + half
            apart = np.linalg.norm(np.maximum(0, np.maximum(low - places, places - high)), axis=1)
            if apart.min() < apart[own] - 0.5:
                continue
            if np.all((low > frame[0]) & (high < frame[1])) and not np.any(
                np.all((taken[:, 0] < high) & (taken[:, 1] > low), axis=1)
            ):
                taken = np.concatenate([taken, [[low - 2, high + 2]]])  # labels that touch read as one
                place = {
                    "textcoords": "offset points",
                    "ha": "center",
                    "va": "center",
                    "fontsize": FONT_SIZE,
                    "color": colour,
                }
                axis.annotate(text, (x, y), xytext=tuple(offset), **place)
                break
        else:
            omitted.append((x, y, text, colour))
    return omitted


def label_with_lines(axis: Any, labels: Sequence[Label]) -> None:  # noqa: ANN401 - matplotlib's
    """Label points, each with a line: those at the right in a column beside the panel, the others in one inside."""
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.6", "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)}
    style = {"fontsize": FONT_SIZE, "va": "center", "arrowprops": line}
    ordered, scale = sorted(labels, key=lambda one: -one[1]), axis.xaxis.get_transform()  # it may be logarithmic
    middle = scale.inverted().transform(scale.transform(axis.get_xlim()).mean())
    for place, (x, y, text, colour) in enumerate(one for one in ordered if one[0] > middle):
        beside = {"xytext": (1.03, 0.97 - 0.055 * place), "textcoords": "axes fraction"}
        axis.annotate(text, (x, y), color=colour, **beside, **style)
    others = [one for one in ordered if one[0] <= middle]
    dots = axis.transData.transform([one[:2] for one in others] or [(0, 0)])
    right, top = axis.transAxes.inverted().transform(dots.max(0))  # the column begins at the highest of them
    for place, (x, y, text, colour) in enumerate(others):
        inside = {"xytext": (right + 0.12, top - 0.045 * place), "textcoords": "axes fraction"}
        axis.annotate(text, (x, y), color=colour, **inside, **style)


def _covered(line: Any, points: float) -> NDArray[np.float64]:  # noqa: ANN401 - matplotlib's
    """float64 [N, 2, 2]: boxes (lower left and upper right corner) that cover a line and its markers."""
    corners = points * line.get_transform().transform(line.get_xydata())
    along = (
        np.linspace(corners[:-1], corners[1:], 100).reshape(-1, 2) if line.get_linestyle() != "None" else corners[:0]
    )
    boxes: NDArray[np.float64] = np.concatenate(
        [
            np.stack([dots - reach, dots + reach], axis=1)
            for dots, reach in ((corners, line.get_markersize() / 2 + 0.5), (along, 0.5))
        ]
    )
    return boxes


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file, with the same bytes for the same numbers."""
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=130, metadata={"Software": None})
